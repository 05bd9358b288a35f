//! Peers that make a host keep all that its pool has: others are served all the same.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::sim::{built, checked, figure, pass, report, start};
use xk_compose::SimulationConfig;
use xk_core::object::Popped;
use xk_core::{
    Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef, Time,
    Upper,
};
use xk_kit::net::stream::{StreamSet, StreamSetting};
use xk_testkit::seeds;

/// A server, one whose streams it serves, and one that asks it by datagrams and streams.
const GRAPH: &str = r#"
host greedy { sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.1/24"; }; tcp ip; }
host server {
    sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.2/24"; }; udp ip; tcp ip
    echo udp name=datagrams port=7; echo tcp name=stream port=7
}
host modest {
    sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.3/24"; }; udp ip; tcp ip
    probe udp name=datagrams to="port7@10.0.0.2" count=0 interval="10ms"
    probe tcp name=stream to="port7@10.0.0.2" start="10s" count=100 interval="20ms" size=500
}
link lan delay="50us" rate="1Gbit"
"#;
/// Number of streams of the greedy program.
const STREAMS: usize = 100;
/// Octets of the pool of all: less than their send buffers at the server.
const POOL: usize = 48 << 20;

/// Takes nothing that arrives as read.
struct Deaf;

impl Protocol for Deaf {
    fn demux(&self, _: &Kernel, _: &ProtocolRef, _: &SessionRef, _: Message) -> Popped {
        Ok(())
    }
}

fn open(cx: &Kernel, deaf: &ProtocolRef) -> SessionRef {
    let tcp = cx.find_protocol("tcp").expect("a node");
    let peer: Participant = "port7@10.0.0.2".parse().expect("a participant");
    let opened = tcp.open(cx, Upper::new(deaf), Participants::pair(Part::Any, peer));
    let session = opened.expect("a stream");
    let set = StreamSet { setting: StreamSetting::ManualWindow(true), taken: false };
    assert!(session.ask(cx, set).is_some_and(|set| set.taken));
    session
}

#[test]
fn streams_that_read_nothing_leave_others_served() {
    seeds::of(37).run(leave_others_served);
}

fn leave_others_served(seed: u64) {
    let graph = checked(GRAPH);
    let config = SimulationConfig { seed, pool_octets_max: POOL, ..SimulationConfig::default() };
    let mut world = built(&graph, config);
    let greedy = world.find("greedy").expect("a host");
    let deaf = world.kernel(greedy).expect("a kernel").add_protocol("deaf", "deaf", Deaf);
    start(&graph, &mut world, "exhaustion");
    let streams = Rc::new(RefCell::new(Vec::new()));
    for _ in 0..STREAMS {
        let (deaf, streams) = (deaf.clone(), Rc::clone(&streams));
        world.spawn(greedy, move |cx| streams.borrow_mut().push(open(cx, &deaf)));
        pass(&mut world, Duration::from_millis(2));
    }
    let refused = |world: &xk_sim::World| world.kernel(greedy).expect("a kernel").pool().failures();
    for _ in 0..700 {
        let streams = Rc::clone(&streams);
        world.spawn(greedy, move |cx| {
            for stream in &*streams.borrow() {
                if let Ok(message) = cx.pool().copy_from(128, &[7; 16_000]) {
                    let _ = stream.push(cx, message);
                }
            }
        });
        pass(&mut world, Duration::from_millis(10));
    }
    assert!(refused(&world) > 0, "the pool was exhausted");
    let lost = |world: &xk_sim::World| figure(&report(world, "modest", "datagrams"), "lost");
    let before = lost(&world);
    world.run_until(Time::ZERO.after(Duration::from_secs(14)));
    let (stream, after) = (report(&world, "modest", "stream"), lost(&world));
    // What finds the pool full waits for a moment at most.
    assert!(figure(&stream, "received") >= 70, "seed {seed}: {:?}", stream.lines);
    assert!(
        after - before < 70,
        "seed {seed}: {} of 700 datagrams were not answered",
        after - before
    );
    streams.borrow_mut().clear();
}
