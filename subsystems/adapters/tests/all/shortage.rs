//! A provider of connections above TCP when there are few message blocks, or none.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use xk_bsd::sockaddr::AF_INET;
use xk_bsd::{Bsd, Mt, Sock, Sockaddr, Socket, Uio};
use xk_compose::{SimulationConfig, check_text, simulate, start_world};
use xk_core::Kernel;
use xk_core::shepherd::Semaphore;
use xk_streams::tli::{Endpoint, Event};
use xk_streams::tpi::TliError;
use xk_streams::{Mblk, Priority, Streams};

fn sleep(cx: &Kernel, ms: u64) {
    let _ = cx.wait(&Semaphore::new(0), Some(Duration::from_millis(ms)));
}

/// Runs a program on a host of BSD, 10.0.0.2, and one on a host of STREAMS, 10.0.0.1; answers what
/// the second does.
fn run<T: 'static>(
    (blocks_max, seed): (u32, u64),
    bsd: impl FnOnce(&Kernel) + 'static,
    streams: impl FnOnce(&Kernel) -> T + 'static,
) -> T {
    let host = |name: &str, n: u32, block: &str| {
        format!(
            "host {name} {{\nsim link=lan\neth sim\narp eth\n\
             ip arp {{ address \"10.0.0.{n}/24\"; }}\ntcp ip\n{block}\n}}\n"
        )
    };
    let source = host("bsd", 2, "subsystem bsd { sockets tcp; }")
        + &host("streams", 1, &format!("subsystem streams blocks_max={blocks_max} {{ tli tcp; }}"))
        + "link lan delay=\"1ms\"\n";
    let graph = check_text(&source, "shortage.kdl", &xk_catalog::standard()).unwrap();
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = simulate(&graph, config).unwrap();
    start_world(&graph, &mut world).unwrap();
    let done = Rc::new(RefCell::new(None));
    let into = Rc::clone(&done);
    let hosts = ["bsd", "streams"].map(|name| world.find(name).unwrap());
    world.spawn(hosts[0], bsd);
    world.spawn(hosts[1], move |cx| {
        let answer = streams(cx);
        into.replace(Some(answer));
    });
    world.run_until(world.now().after(Duration::from_secs(120)));
    done.take().expect("the program ends")
}

fn listening(cx: &Kernel) -> Rc<Socket> {
    let bsd = Bsd::of(cx).unwrap();
    let here = Sockaddr::inet(bsd.mbufs().release(), [0; 4].into(), 7);
    let so = xk_bsd::socreate(cx, &bsd, AF_INET, Sock::Stream, 0).unwrap();
    xk_bsd::sobind(cx, &so, &mut here.to_mbuf(bsd.mbufs()).unwrap()).unwrap();
    xk_bsd::solisten(cx, &so, 5).unwrap();
    so
}

fn accepted(cx: &Kernel, so: &Rc<Socket>) -> Rc<Socket> {
    let mut from = Bsd::of(cx).unwrap().mbufs().m_get(Mt::Soname).unwrap();
    xk_bsd::soaccept(cx, so, &mut from).unwrap()
}

fn send(cx: &Kernel, so: &Rc<Socket>, octets: &[u8]) {
    xk_bsd::sosend(cx, so, None, Uio::Octets(octets), None, 0).unwrap();
}

const SERVER: [u8; 16] = [2, 0, 0, 7, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];

fn open(cx: &Kernel) -> Endpoint {
    Endpoint::open(cx, &Streams::of(cx).unwrap(), "tli/tcp").unwrap().0
}

fn hold(cx: &Kernel, priority: Priority) -> Vec<Mblk> {
    let streams = Streams::of(cx).unwrap();
    std::iter::from_fn(|| streams.blocks().allocb(1, priority)).collect()
}

/// The reader is slow, and other streams have blocks that their users never take.
#[test]
fn octets_arrive_in_order_or_an_error_does_and_waiting_costs_little() {
    let sent: Rc<Vec<u8>> = Rc::new((0..60).flat_map(|n| [n; 50]).collect());
    for (blocks_max, seed) in (16..28).flat_map(|max| [1, 2].map(|seed| (max, seed))) {
        let what = format!("blocks_max={blocks_max}, seed {seed}");
        let to_send = Rc::clone(&sent);
        let serve = move |cx: &Kernel| {
            let listens = listening(cx);
            let mut others: Vec<_> = (0..4).map(|_| accepted(cx, &listens)).collect();
            let so = accepted(cx, &listens);
            for (n, part) in to_send.chunks(50).enumerate() {
                if n == 20 {
                    others.drain(..).for_each(|other| xk_bsd::soclose(cx, &other).unwrap());
                }
                send(cx, &so, part);
                sleep(cx, 50);
            }
            xk_bsd::soclose(cx, &so).unwrap();
        };
        let read = |cx: &Kernel| {
            let ends: Vec<_> = (0..5).map(|_| open(cx)).collect();
            for end in &ends {
                end.bind(cx, None, 0).unwrap();
                end.connect(cx, &SERVER, &[], &[]).unwrap();
            }
            sleep(cx, 5000);
            let counts = Streams::of(cx).unwrap().counts();
            let mut got = Vec::new();
            while let Ok((octets, _)) = ends[4].rcv(cx, 1000) {
                got.extend(octets);
            }
            (counts, got, ends[4].look())
        };
        let (counts, got, end) = run((blocks_max, seed), serve, read);
        assert!(counts.services + counts.bufcalls < 1000, "{what}: {counts:?}");
        match end {
            Some(Event::Ordrel) => assert!(got == *sent, "{what}: {} octets", got.len()),
            end => assert_eq!(end, Some(Event::Disconnect), "{what}"),
        }
        assert!(sent.starts_with(&got), "{what}");
    }
}

#[test]
fn what_is_to_be_told_without_blocks_is_told_when_there_are_some() {
    let serve = |cx: &Kernel| {
        let listens = listening(cx);
        let (so, other) = (accepted(cx, &listens), accepted(cx, &listens));
        sleep(cx, 1000);
        send(cx, &so, b"abc");
        // The other one has sent what is not read: that is an abort.
        for so in [so, other] {
            xk_bsd::soclose(cx, &so).unwrap();
        }
    };
    run((64, 1), serve, |cx| {
        let ends = [open(cx), open(cx)];
        for end in &ends {
            end.stream().set_nonblocking(true);
            end.bind(cx, None, 0).unwrap();
            assert_eq!(end.connect(cx, &SERVER, &[], &[]), Err(TliError::TNODATA.into()));
            let held = hold(cx, Priority::High);
            sleep(cx, 200);
            drop(held);
            sleep(cx, 50);
            assert!(end.rcvconnect(cx).is_ok());
        }
        ends[1].snd(cx, b"unread", 0).unwrap();
        sleep(cx, 50);
        let held = hold(cx, Priority::High);
        sleep(cx, 2000);
        assert_eq!(ends.each_ref().map(Endpoint::look), [None; 2]);
        drop(held);
        sleep(cx, 50);
        assert_eq!(ends[0].rcv(cx, 9), Ok((b"abc".to_vec(), 0)));
        assert_eq!(ends[0].rcvrel(cx), Ok(()));
        assert!(ends[1].rcvdis(cx).is_ok());
    });
}

#[test]
fn a_request_is_answered_from_its_own_block() {
    run(
        (64, 1),
        |_| (),
        |cx| {
            let end = open(cx);
            end.stream().set_nonblocking(true);
            let mut held = hold(cx, Priority::Medium);
            held.pop();
            assert!(end.getinfo(cx).is_ok());
            assert!(end.bind(cx, None, 0).is_ok());
            assert!(end.getprotaddr(cx).is_ok());
            assert_eq!(end.unbind(cx), Ok(()));
        },
    );
}

#[test]
fn a_peer_that_asks_without_blocks_takes_no_place() {
    let connect = |cx: &Kernel| {
        let bsd = Bsd::of(cx).unwrap();
        let there = Sockaddr::inet(bsd.mbufs().release(), [10, 0, 0, 1].into(), 7);
        for at in [500, 1500] {
            sleep(cx, at);
            let so = xk_bsd::socreate(cx, &bsd, AF_INET, Sock::Stream, 0).unwrap();
            let mut name = there.to_mbuf(bsd.mbufs()).unwrap();
            xk_bsd::soconnect(cx, &so, &mut name).unwrap();
            sleep(cx, 3000);
        }
    };
    run((64, 1), connect, |cx| {
        let end = open(cx);
        let mut here = SERVER;
        here[4..8].fill(0);
        end.bind(cx, Some(&here), 1).unwrap();
        let held = hold(cx, Priority::High);
        sleep(cx, 2000);
        drop(held);
        end.stream().set_nonblocking(true);
        assert_eq!(end.listen(cx), Err(TliError::TNODATA.into()));
        sleep(cx, 8000);
        let call = end.listen(cx).unwrap();
        assert_eq!(end.accept(cx, &end, &call), Ok(()));
    });
}
