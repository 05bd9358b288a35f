//! smoltcp above xk: on wires with filters, on `rm` above `tcp`, on `ip`.

use crate::program::{Talk, echo, interface, sockets, tcp_socket, udp_socket, world};
use smoltcp::iface::SocketSet;
use smoltcp::socket::udp;
use smoltcp::wire::{IpAddress, IpEndpoint};
use std::cell::RefCell;
use std::rc::Rc;
use xk_compose::start_world;
use xk_core::{Kernel, Part, Participant, Time, reason};
use xk_sim::{HostId, World};
use xk_smoltcp::{Link, NO_SESSION, Port, Station};

/// A host that echoes at TCP port 7.
fn server(cx: &Kernel, port: Rc<Port>, number: u8) -> Rc<Station> {
    let (set, handle) = sockets(tcp_socket());
    let program = move |_: &mut _, sockets: &mut SocketSet<'static>| {
        let socket = sockets.get_mut::<smoltcp::socket::tcp::Socket<'_>>(handle);
        if !socket.is_open() {
            socket.listen(7).unwrap();
        }
        echo(socket);
    };
    Station::add(cx, port, |device| (interface(device, number), set), program)
}

/// A host that talks to 10.0.0.`peer`, port 7.
fn client(cx: &Kernel, port: Rc<Port>, (own, peer): (u8, u8), talk: &Rc<RefCell<Talk>>) {
    let (set, handle) = sockets(tcp_socket());
    let talk = Rc::clone(talk);
    let mut is_connected = false;
    let program = move |interface: &mut smoltcp::iface::Interface, sockets: &mut SocketSet<'_>| {
        let socket = sockets.get_mut::<smoltcp::socket::tcp::Socket<'_>>(handle);
        if !is_connected {
            let to = (IpAddress::v4(10, 0, 0, peer), 7);
            socket.connect(interface.context(), to, 50_000).unwrap();
            is_connected = true;
        }
        talk.borrow_mut().turn(socket);
    };
    Station::add(cx, port, |device| (interface(device, own), set), program);
}

fn on(world: &World, host: u32, node: &str) -> (Rc<Kernel>, xk_core::ProtocolRef) {
    let cx = Rc::clone(world.kernel(HostId(host)).unwrap());
    let lower = cx.find_protocol(node).unwrap();
    (cx, lower)
}

/// Runs until both have what they sent; how long it took.
fn run(mut world: World, talks: &[Rc<RefCell<Talk>>]) -> Time {
    for _ in 0..600 {
        let until = world.now().after(std::time::Duration::from_millis(100));
        world.run_until(until);
        if talks.iter().all(|talk| talk.borrow().is_done()) {
            break;
        }
    }
    for talk in talks {
        let talk = talk.borrow();
        assert_eq!(talk.back.len(), talk.sent.len());
        assert!(talk.back == talk.sent);
    }
    let now = world.now();
    world.stop();
    now
}

const PAIR: &str = r#"
link lan delay="1ms" loss="3%" duplicate="2%" reorder="2%"
host one { sim link=lan; tracer sim; fault tracer loss="2%" }
host two { sim link=lan }
"#;

#[test]
fn two_hosts_of_smoltcp_talk_over_a_link_that_loses_whatever_the_seed() {
    for seed in 0..20 {
        let mut ends = [Time::ZERO; 2];
        for end in &mut ends {
            let (graph, mut world) = world(PAIR, seed);
            let (one, fault) = on(&world, 0, "fault");
            let (two, sim) = on(&world, 1, "sim");
            let talk = Talk::new(20_000);
            let port = Port::on_link(&one, "smoltcp", &fault, Link::default());
            client(&one, port, (1, 2), &talk);
            server(&two, Port::on_link(&two, "smoltcp", &sim, Link::default()), 2);
            start_world(&graph, &mut world).unwrap();
            *end = run(world, &[talk]);
        }
        assert_eq!(ends[0], ends[1], "one seed, one run");
    }
}

#[test]
fn smoltcp_talks_to_a_stack_of_ours() {
    let text = r#"
    link lan delay="1ms" loss="2%"
    host ours { sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.1/24"; }; icmp ip
                udp ip; echo udp port=7 }
    host theirs { sim link=lan }"#;
    let (graph, mut world) = world(text, 3);
    let (theirs, sim) = on(&world, 1, "sim");
    let port = Port::on_link(&theirs, "smoltcp", &sim, Link::default());
    let mut set = SocketSet::new(vec![]);
    let handle = set.add(udp_socket());
    let heard = Rc::new(RefCell::new(Vec::new()));
    let hears = Rc::clone(&heard);
    let program = move |_: &mut _, sockets: &mut SocketSet<'static>| {
        let socket = sockets.get_mut::<udp::Socket<'_>>(handle);
        if !socket.is_open() {
            socket.bind(9000).unwrap();
        }
        while let Ok((octets, from)) = socket.recv() {
            hears.borrow_mut().push((octets.to_vec(), from.endpoint));
        }
    };
    let station = Station::add(&theirs, port, |device| (interface(device, 2), set), program);
    start_world(&graph, &mut world).unwrap();
    let to = IpEndpoint::new(IpAddress::v4(10, 0, 0, 1), 7);
    for turn in 0..100_u8 {
        let send = |_: &mut _, sockets: &mut SocketSet<'static>| {
            sockets.get_mut::<udp::Socket<'_>>(handle).send_slice(&[turn; 64], to)
        };
        world.enter(HostId(1), |cx| station.with(cx, send).unwrap().unwrap());
        let until = world.now().after(std::time::Duration::from_millis(10));
        world.run_until(until);
    }
    let heard = heard.borrow();
    assert!((80..=100).contains(&heard.len()), "{} of 100", heard.len());
    assert!(heard.iter().all(|(octets, from)| octets.len() == 64 && *from == to));
    drop(heard);
}

/// The frames of two hosts of smoltcp, as records on one TCP connection of ours.
#[test]
fn smoltcp_s_frames_go_over_a_tcp_of_ours() {
    let text = r#"
    link lan delay="1ms" loss="5%"
    host one { sim link=lan; eth sim; arp eth; ip arp { address "192.0.2.1/24"; }; icmp ip
               tcp ip; rm tcp }
    host two { sim link=lan; eth sim; arp eth; ip arp { address "192.0.2.2/24"; }; icmp ip
               tcp ip; rm tcp }"#;
    let (graph, mut world) = world(text, 5);
    let (one, there) = on(&world, 0, "rm");
    let (two, here) = on(&world, 1, "rm");
    let host = |octet| Part::host(std::net::Ipv4Addr::new(192, 0, 2, octet));
    let port = |number, host| Participant::of(host).with(Part::port(number));
    let talk = Talk::new(20_000);
    let link = Link::to(port(4000, host(2)));
    let way = Port::on_link(&one, "smoltcp", &there, link);
    client(&one, Rc::clone(&way), (1, 2), &talk);
    let link = Link::at(port(4000, Part::Any));
    let back = Port::on_link(&two, "smoltcp", &here, link);
    assert!(!back.is_open());
    server(&two, Rc::clone(&back), 2);
    start_world(&graph, &mut world).unwrap();
    run(world, &[talk]);
    assert_eq!(way.protocol().head().drops().of(&NO_SESSION), 0);
}

/// smoltcp has the transport; routes, fragments and links are ours, with a router between.
#[test]
fn smoltcp_s_transports_stand_on_our_ip() {
    let text = r#"
    link left delay="1ms" loss="2%"
    link right delay="1ms" mtu=600
    host one { sim link=left; eth sim; arp eth
               ip arp { address "10.0.0.1/24"; route "default" via="10.0.0.254"; }; icmp ip }
    host router {
        sim link=left name=l; eth l name=el; arp el name=al
        sim link=right name=r; eth r name=er; arp er name=ar
        ip al ar forward=#true { address "10.0.0.254/24" on=al; address "10.0.1.254/24" on=ar; }
        icmp ip }
    host two { sim link=right; eth sim; arp eth
               ip arp { address "10.0.1.2/24"; route "default" via="10.0.1.254"; }; icmp ip
               udp ip; echo udp port=7; tcp ip; }"#;
    let (graph, mut world) = world(text, 1);
    let (one, ip) = on(&world, 0, "ip");
    let port = Port::on_hosts(&one, "smoltcp", &ip, &[6, 17]);
    let mut set = SocketSet::new(vec![]);
    let handle = set.add(udp_socket());
    let heard = Rc::new(RefCell::new(0));
    let hears = Rc::clone(&heard);
    let program = move |_: &mut _, sockets: &mut SocketSet<'static>| {
        let socket = sockets.get_mut::<udp::Socket<'_>>(handle);
        if !socket.is_open() {
            socket.bind(9000).unwrap();
        }
        while let Ok((octets, _)) = socket.recv() {
            assert_eq!(octets, [7; 1200]);
            *hears.borrow_mut() += 1;
        }
    };
    let port_of = Rc::clone(&port);
    let station = Station::add(&one, port, |device| (interface(device, 1), set), program);
    start_world(&graph, &mut world).unwrap();
    let to = IpEndpoint::new(IpAddress::v4(10, 0, 1, 2), 7);
    for _ in 0..50 {
        let send = |_: &mut _, sockets: &mut SocketSet<'static>| {
            sockets.get_mut::<udp::Socket<'_>>(handle).send_slice(&[7; 1200], to)
        };
        world.enter(HostId(0), |cx| station.with(cx, send).unwrap().unwrap());
        let until = world.now().after(std::time::Duration::from_millis(20));
        world.run_until(until);
    }
    let heard = *heard.borrow();
    assert!((40..=50).contains(&heard), "{heard} of 50");
    assert_eq!(port_of.protocol().head().drops().total(), 0);
}

/// Two hosts of smoltcp on two of our `ip`: a stream.
#[test]
fn a_stream_of_smoltcp_s_on_our_ip() {
    let text = r#"
    link lan delay="1ms" loss="3%"
    host one { sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.1/24"; }; icmp ip }
    host two { sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.2/24"; }; icmp ip }"#;
    let (graph, mut world) = world(text, 2);
    let (one, ip) = on(&world, 0, "ip");
    let talk = Talk::new(20_000);
    client(&one, Port::on_hosts(&one, "smoltcp", &ip, &[6]), (1, 2), &talk);
    let (two, ip) = on(&world, 1, "ip");
    server(&two, Port::on_hosts(&two, "smoltcp", &ip, &[6]), 2);
    start_world(&graph, &mut world).unwrap();
    run(world, &[talk]);
}

#[test]
fn what_waits_is_bounded_and_what_is_dropped_is_counted() {
    let (graph, mut world) =
        world("link lan\nhost one { sim link=lan }\nhost two { sim link=lan }", 1);
    let (one, sim) = on(&world, 0, "sim");
    let (two, other) = on(&world, 1, "sim");
    // No station looks.
    let idle = Port::on_link(&one, "idle", &sim, Link::default());
    let far = Port::on_link(&two, "far", &other, Link::default());
    start_world(&graph, &mut world).unwrap();
    let mut device = far.device(&two);
    for _ in 0..300 {
        use smoltcp::phy::{Device as _, TxToken as _};
        let token = device.transmit(smoltcp::time::Instant::ZERO).unwrap();
        token.consume(60, |room| room.copy_from_slice(&[0xff; 60]));
    }
    drop(device);
    world.run_until(Time::from_ms(10));
    assert_eq!(idle.waiting(), 256);
    assert_eq!(idle.protocol().head().drops().of(&reason::QUEUE_FULL), 44);
    world.stop();
    assert_eq!((idle.waiting(), one.pool().stats().buffers_live), (0, 0));
}
