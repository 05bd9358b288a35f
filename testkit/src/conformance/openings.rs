//! Layers over a link and a network. Of sessions to several hosts that are opened at one time each
//! leads to its own, and what others send meanwhile or afterwards comes through neither.

use super::blocking::sleep;
use super::{Fixture, Side};
use crate::kernel::{Bottom, Family, Lower, Stations, Task, TestKernel, Top};
use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use xk_core::numbers::Number;
use xk_core::{Entry, HostAddr, Kernel, Part, Participants, ProtocolRef, SessionRef};
use xk_kit::control::PeerHost;

const OWN: [u8; 4] = [10, 0, 0, 1];
/// Numbers of the protocol above: a virtual layer has none of its own.
const NUMBERS: [(&str, u32); 2] = [("ip", 90), ("eth", 0x395a)];

fn host(n: u8) -> HostAddr {
    HostAddr::from([10, 0, 0, n])
}

/// A virtual layer over a link and a network, where the network leads to all hosts.
pub struct ByNet(pub &'static Entry);

impl Fixture for ByNet {
    fn entry(&self) -> &'static Entry {
        self.0
    }

    fn lower(&self, side: Side) -> Lower {
        Lower::host(side.host(Family::V4), 90)
    }

    fn number(&self) -> Option<u32> {
        Some(90)
    }

    fn numbers_below(&self) -> &[(&'static str, u32)] {
        &NUMBERS
    }

    fn lowers(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> Vec<ProtocolRef> {
        let link = Lower { kind: "eth", ..self.lower(side) };
        let link = Bottom::add(cx, "link", link);
        vec![link.protocol().clone(), bottom.clone()]
    }
}

fn peer(cx: &Kernel, session: &SessionRef) -> Option<HostAddr> {
    session.ask(cx, PeerHost::default()).map(|asked| asked.host)
}

/// Adds the layer to a kernel, over a link and a network.
type Add<'a> = &'a dyn Fn(&Kernel, (ProtocolRef, ProtocolRef)) -> ProtocolRef;

/// The layer between a link, a network and a top, started.
struct Between {
    cx: TestKernel,
    link: Stations,
    layer: ProtocolRef,
    top: Top,
}

impl Between {
    fn new(seed: u64, add: Add<'_>) -> Self {
        let cx = TestKernel::with_stacks(seed);
        let link = Stations::add(&cx, "link");
        let net = Bottom::add(&cx, "ip", Lower::host(HostAddr::from(OWN), 90));
        let route = link.clone();
        net.on_ask(Rc::new(move |_, ask| route.route(ask)));
        for (lower, number) in NUMBERS {
            let number = Number { upper: "top", lower, number };
            cx.numbers_mut().add(number).expect("one number");
        }
        let lowers = (link.protocol().clone(), net.protocol().clone());
        let layer = add(&cx, lowers);
        let top = Top::add(&cx, "top");
        cx.start().expect("it starts");
        let _ = top.enable(&cx, &layer, Participants::local(Part::Any)).expect("an enable");
        link.block(Duration::from_millis(1));
        Self { cx, link, layer, top }
    }

    /// Lets a message of a host arrive.
    fn hear(&self, n: u8) -> Task {
        let link = self.link.clone();
        Box::new(move |cx: &Kernel| {
            let message = cx.pool().copy_from(64, &[n; 64]).expect("a buffer");
            assert!(link.inject(cx, host(n), message).is_ok(), "host {n} is heard");
        })
    }

    fn run(&self, tasks: Vec<Task>) {
        assert!(self.cx.run_tasks(Duration::from_secs(600), tasks, |_| 0), "all ends");
    }
}

fn opens_at_once(seed: u64, add: Add<'_>) {
    let between = Between::new(seed, add);
    let Between { cx, layer, top, .. } = &between;
    let opened: Rc<RefCell<Vec<(HostAddr, SessionRef)>>> = Rc::default();
    let open = |n| {
        let (top, layer, opened) = (top.clone(), layer.clone(), Rc::clone(&opened));
        Box::new(move |cx: &Kernel| {
            let both = Participants::pair(Part::Any, Part::Host(host(n)));
            let session = top.open(cx, &layer, both).expect("a session");
            opened.borrow_mut().push((host(n), session));
        }) as Task
    };
    // Host 5 speaks while two are being opened, host 6 afterwards.
    between.run(vec![open(2), open(3), between.hear(5)]);
    between.run(vec![between.hear(2), between.hear(3), between.hear(6)]);
    for (host, session) in opened.take() {
        assert_eq!(peer(cx, &session), Some(host), "seed {seed}: a session leads to its host");
    }
    let received = top.take_received();
    assert_eq!(received.len(), 4, "seed {seed}");
    for received in received {
        let from = received.message.octets().next().map(host);
        let shown = peer(cx, &received.session);
        assert_eq!(shown, from, "seed {seed}: what a host sends comes through its session");
    }
    cx.finish();
}

/// Checks the layer that `add` makes, by 16 seeds.
///
/// # Panics
/// If a session leads to another host, or a message comes through the session of another.
pub fn each_host_has_its_own_session(add: Add<'_>) {
    (0..16).for_each(|seed| opens_at_once(seed, add));
}

/// Checks messages of a station that has become another host, of which the layer was told while it
/// asked for the host.
fn moves(seed: u64, add: Add<'_>) {
    let between = Between::new(seed, add);
    let Between { cx, link, top, .. } = &between;
    let link = link.clone();
    let after = Duration::from_micros(200 * seed);
    let moved = Box::new(move |cx: &Kernel| {
        sleep(cx, after);
        link.move_to(cx, host(5), host(7));
    });
    between.run(vec![between.hear(5), moved]);
    between.run(vec![Box::new(|cx| sleep(cx, Duration::from_secs(300))), between.hear(5)]);
    drop(top.take_received());
    between.run(vec![between.hear(5)]);
    let received = top.take_received();
    let hosts: Vec<_> = received.iter().map(|received| peer(cx, &received.session)).collect();
    assert_eq!(hosts, [Some(host(7))], "seed {seed}: what is told meanwhile holds");
    drop(received);
    cx.finish();
}

/// Checks the layer that `add` makes, by 32 times at which a host changes.
///
/// # Panics
/// If what a station sends comes through the session of the host that it was.
pub fn hosts_move(add: Add<'_>) {
    (0..32).for_each(|seed| moves(seed, add));
}
