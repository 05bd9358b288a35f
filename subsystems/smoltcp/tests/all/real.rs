//! A program of smoltcp's with a loop of its own, on a graph in real time.

use crate::program::{Talk, echo, interface, sockets, tcp_socket};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::IpAddress;
use std::rc::Rc;
use std::time::Duration;
use xk_compose::HostSetup;
use xk_smoltcp::{Link, Port};

/// As smoltcp's own `loopback` example: client and server on one interface, here on a wire of ours
/// with filters.
#[test]
fn a_loop_of_its_own_turns_ours_where_it_waited() {
    let graph = "host here { loopback; tracer loopback; fault tracer loss=\"5%\" }";
    let setup = HostSetup::from_text(graph, xk_catalog::PROTOCOLS);
    let host = setup
        .open(
            |cx, _, _| {
                let lower = cx.find_protocol("fault").unwrap();
                Ok(Port::on_link(cx, "smoltcp", &lower, Link::default()))
            },
            |_, _| Ok(()),
        )
        .unwrap();
    let mut device = host.top.device(&host.kernel);
    let mut interface = interface(&mut device, 1);
    let (mut set, client) = sockets(tcp_socket());
    let server = set.add(tcp_socket());
    set.get_mut::<tcp::Socket<'_>>(server).listen(7).unwrap();
    let to = (IpAddress::v4(10, 0, 0, 1), 7);
    let socket = set.get_mut::<tcp::Socket<'_>>(client);
    socket.connect(interface.context(), to, 50_000).unwrap();
    // So many segments that the filter loses some, whatever chance says.
    let talk = Talk::new(100_000);
    let limit = std::time::Instant::now() + Duration::from_secs(60);
    while !talk.borrow().is_done() && std::time::Instant::now() < limit {
        let now = Instant::now();
        interface.poll(now, &mut device, &mut set);
        echo(set.get_mut(server));
        talk.borrow_mut().turn(set.get_mut(client));
        let delay = interface.poll_delay(now, &set).map(Duration::from);
        let port = Rc::clone(&host.top);
        host.runner.run(delay, Rc::new(move |_| port.waiting() > 0)).unwrap();
    }
    assert!(talk.borrow().back == talk.borrow().sent);
    let faults = host.kernel.find_protocol("fault").unwrap();
    assert!(faults.head().drops().total() > 0);
    host.kernel.stop();
}
