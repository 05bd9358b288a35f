//! Every law once more, with the edge below the protocol, the edge above it, or both cut
//! ([`xk_domains`]): protocols must not notice. Then once more with both edges cut and frames
//! delayed, so that answers, refusals and ends come late.

use super::calls::{self, CallFixture};
use super::{Fixture, LAWS, Node, Receiver, Side, World};
use crate::kernel::{Lower, ReachedBottom, Sent};
use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;
use xk_core::control::QuestionType;
use xk_core::graph::Params;
use xk_core::object::ProtocolId;
use xk_core::{
    Answer, Entry, HostAddr, Kernel, Part, Participants, Protocol, ProtocolRef, Reason, Time,
};
use xk_domains::{Carrier, Known, Port, Queue, add_port, lower_proxy, ports_at_once, upper_proxy};

/// Largest number of frames under way.
const SLOTS: usize = 1024;
/// Least delay of a late frame, and the largest random addition.
const WAY: (Duration, Duration) = (Duration::from_micros(50), Duration::from_micros(50));

/// One side of a cut whose frames are delayed.
struct Late {
    port: Rc<Port>,
    queue: Queue,
    /// The protocol's own handle, for timers.
    this: RefCell<Option<ProtocolRef>>,
}

impl Late {
    /// Takes the frames that are there, and sets a timer for the next.
    fn look(&self, cx: &Kernel) {
        match self.queue.next_poll() {
            Some(due) if due > cx.now() => {
                if let Some(this) = &*self.this.borrow() {
                    let _ = cx.schedule_protocol(this, due.since(cx.now()), 0);
                }
            }
            Some(_) => {
                self.port.poll(cx, usize::MAX);
            }
            None => {}
        }
    }
}

struct LateWire(Rc<Late>);

impl Protocol for LateWire {
    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, _: u64) {
        self.0.look(cx);
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.this.take());
    }
}

/// Time at which frames are on the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrives {
    /// Before the sender goes on, like a call between layers.
    AtOnce,
    /// At once, too, by rings in shared memory, as between two threads or processes.
    ByRing,
    /// Later.
    Late,
}

static OF_TESTS: [QuestionType; 1] = [QuestionType::of::<ReachedBottom>()];

/// The cuts of one world.
struct Edges {
    below: bool,
    above: bool,
    arrives: Arrives,
    /// Entry of the protocol.
    entry: &'static Entry,
    /// Proxies of each side.
    proxies: RefCell<[Vec<ProtocolRef>; 2]>,
    ports: RefCell<Vec<Rc<Port>>>,
    queues: RefCell<Vec<Queue>>,
}

impl Edges {
    fn new(entry: &'static Entry, (below, above, arrives): (bool, bool, Arrives)) -> Self {
        let (proxies, ports, queues) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { below, above, arrives, entry, proxies, ports, queues }
    }

    fn known(&self) -> Known {
        Known::of(&[self.entry]).with(&OF_TESTS)
    }

    /// The proxy of `bottom`, if the edge above it is cut.
    fn below(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> ProtocolRef {
        if self.below { self.cut(cx, side, bottom) } else { bottom.clone() }
    }

    /// The proxy of `tested`, if the edge above it is cut.
    fn above(&self, cx: &Kernel, side: Side, tested: &ProtocolRef) -> ProtocolRef {
        if self.above { self.cut(cx, side, tested) } else { tested.clone() }
    }

    fn lateness(&self) -> Duration {
        match self.arrives {
            Arrives::AtOnce | Arrives::ByRing => Duration::ZERO,
            // What goes up may be answered by questions, which go down again.
            Arrives::Late => 20 * (WAY.0 + WAY.1),
        }
    }

    fn proxies(&self, side: Side) -> Vec<ProtocolRef> {
        self.proxies.borrow()[side as usize].clone()
    }

    /// Connects `sender` to `port`, which receives from `queue`.
    fn connect(&self, cx: &Kernel, sender: &Queue, port: &Rc<Port>, queue: &Queue) {
        let (port, queue) = (Rc::clone(port), queue.clone());
        let late = Rc::new(Late { port, queue, this: RefCell::default() });
        sender.on_put(&late, Late::look);
        let wire = cx.add_protocol("late", "late", LateWire(Rc::clone(&late)));
        *late.this.borrow_mut() = Some(wire);
        self.queues.borrow_mut().push(sender.clone());
    }

    /// Lets time pass until the next frame is there; returns how many were on their way.
    fn carry(&self, world: &World<'_>) -> usize {
        self.ports.borrow().iter().for_each(|port| port.flush(&world.cx));
        let queues = self.queues.borrow();
        // Those of a world before are closed.
        let due = queues.iter().filter_map(Queue::next_poll).filter(|due| *due > Time::ZERO).min();
        due.map_or(0, |due| {
            world.cx.advance(due.since(world.cx.now()));
            1
        })
    }

    /// Cuts the edges to `lower`; returns its proxy above the cut.
    fn cut(&self, cx: &Kernel, side: Side, lower: &ProtocolRef) -> ProtocolRef {
        let [above, below] = match self.arrives {
            Arrives::AtOnce => {
                let (down, up) = Queue::pair(SLOTS);
                ports_at_once([Box::new(down), Box::new(up)], || self.known())
            }
            Arrives::ByRing => {
                let (down, up) = xk_domains::ring::pair().expect("shared memory");
                ports_at_once([Box::new(down), Box::new(up)], || self.known())
            }
            Arrives::Late => {
                let (down, up) = Queue::delayed(SLOTS, WAY, cx.random());
                let above = Port::new(Box::new(down.clone()), self.known());
                let below = Port::new(Box::new(up.clone()), self.known());
                self.connect(cx, &down, &below, &up);
                self.connect(cx, &up, &above, &down);
                [above, below]
            }
        };
        below.grant(lower);
        below.admit(|cx: &Kernel, port: &Rc<Port>, of: ProtocolId| {
            let upper = cx.protocol(of)?;
            let name = format!("{} above", upper.name());
            Some(upper_proxy(cx, port, of, upper.head().kind(), &name))
        });
        let name = |what: &str| format!("{what} {}", lower.name());
        let proxy = lower_proxy(cx, &above, lower.id(), lower.head().kind(), &name("proxy of"));
        let ports = [
            add_port(cx, &above, &name("port above the cut above")),
            add_port(cx, &below, &name("port below the cut above")),
        ];
        self.ports.borrow_mut().extend([above, below]);
        let proxies = &mut self.proxies.borrow_mut()[side as usize];
        proxies.extend(ports.into_iter().chain([proxy.clone()]));
        proxy
    }
}

/// A fixture with cuts.
pub(super) struct Cut<'f> {
    fixture: &'f dyn Fixture,
    edges: Edges,
}

impl Fixture for Cut<'_> {
    fn entry(&self) -> &'static Entry {
        self.fixture.entry()
    }

    fn lower(&self, side: Side) -> Lower {
        self.fixture.lower(side)
    }

    fn open(&self, side: Side) -> Participants {
        self.fixture.open(side)
    }

    fn enable(&self, side: Side) -> Option<Participants> {
        self.fixture.enable(side)
    }

    fn enable_at(&self, side: Side, host: HostAddr) -> Option<Participants> {
        self.fixture.enable_at(side, host)
    }

    fn takes_many(&self) -> bool {
        self.fixture.takes_many()
    }

    fn number(&self) -> Option<u32> {
        self.fixture.number()
    }

    fn params(&self, side: Side) -> Params {
        self.fixture.params(side)
    }

    fn numbers_below(&self) -> &[(&'static str, u32)] {
        self.fixture.numbers_below()
    }

    fn port(&self, side: Side) -> Option<Part> {
        self.fixture.port(side)
    }

    fn lowers(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef) -> Vec<ProtocolRef> {
        self.fixture.lowers(cx, side, &self.edges.below(cx, side, bottom))
    }

    fn above(&self, cx: &Kernel, side: Side, tested: &ProtocolRef) -> ProtocolRef {
        self.edges.above(cx, side, tested)
    }

    fn is_cut(&self) -> bool {
        true
    }

    fn lateness(&self) -> Duration {
        self.edges.lateness()
    }

    fn proxies(&self, side: Side) -> Vec<ProtocolRef> {
        [self.edges.proxies(side), self.fixture.proxies(side)].concat()
    }

    fn started(&self, world: &World<'_>) {
        self.fixture.started(world);
    }

    fn receiver(&self) -> Receiver {
        self.fixture.receiver()
    }

    fn patience(&self) -> Duration {
        self.fixture.patience()
    }

    fn message_octets_min(&self) -> usize {
        self.fixture.message_octets_min()
    }

    fn is_stream(&self) -> bool {
        self.fixture.is_stream()
    }

    fn sessions_max(&self) -> usize {
        self.fixture.sessions_max()
    }

    fn taken(&self, cx: &Kernel, node: &Node) -> u64 {
        self.fixture.taken(cx, &Node { protocol: node.tested.clone(), ..node.clone() })
    }

    fn checksum_at(&self) -> Option<usize> {
        self.fixture.checksum_at()
    }

    fn stranger(&self, sent: &Sent, n: u32) -> Result<(Option<Part>, Vec<u8>), &'static str> {
        self.fixture.stranger(sent, n)
    }

    fn opens_nothing(&self) -> Option<&'static str> {
        self.fixture.opens_nothing()
    }

    fn is_anchor(&self) -> bool {
        self.fixture.is_anchor()
    }

    fn carry(&self, world: &World<'_>) -> usize {
        self.edges.carry(world) + self.fixture.carry(world)
    }

    fn ask(&self, world: &World<'_>, name: &str) -> Option<Answer> {
        self.fixture.ask(world, name)
    }
}

/// A fixture of the rpc realm with cuts.
struct CutCalls<'f> {
    fixture: &'f dyn CallFixture,
    edges: Edges,
}

impl CallFixture for CutCalls<'_> {
    fn entry(&self) -> &'static Entry {
        self.fixture.entry()
    }

    fn lower(&self, side: Side) -> Lower {
        self.fixture.lower(side)
    }

    fn open(&self, side: Side, procedure: u32) -> Participants {
        self.fixture.open(side, procedure)
    }

    fn enable(&self, side: Side) -> Participants {
        self.fixture.enable(side)
    }

    fn number(&self) -> Option<u32> {
        self.fixture.number()
    }

    fn params(&self, side: Side) -> Params {
        self.fixture.params(side)
    }

    fn build(&self, cx: &Kernel, side: Side, bottom: &ProtocolRef, params: &Params) -> ProtocolRef {
        self.fixture.build(cx, side, &self.edges.below(cx, side, bottom), params)
    }

    fn above(&self, cx: &Kernel, side: Side, tested: &ProtocolRef) -> ProtocolRef {
        self.edges.above(cx, side, tested)
    }

    fn lateness(&self) -> Duration {
        self.edges.lateness() + self.fixture.lateness()
    }

    fn proxies(&self, side: Side) -> Vec<ProtocolRef> {
        [self.edges.proxies(side), self.fixture.proxies(side)].concat()
    }

    fn is_on_calls(&self) -> bool {
        self.fixture.is_on_calls()
    }

    fn has_procedures(&self) -> bool {
        self.fixture.has_procedures()
    }

    fn is_concurrent(&self) -> bool {
        self.fixture.is_concurrent()
    }

    fn is_reliable(&self) -> bool {
        self.fixture.is_reliable()
    }

    fn octets_max(&self) -> usize {
        self.fixture.octets_max()
    }

    fn refusals(&self) -> &'static [&'static Reason] {
        self.fixture.refusals()
    }
}

/// The edges that are cut: below, above; and when frames arrive.
fn cuts() -> Vec<(bool, bool, Arrives)> {
    let mut cuts = vec![
        (true, false, Arrives::AtOnce),
        (false, true, Arrives::AtOnce),
        (true, true, Arrives::ByRing),
        (true, true, Arrives::Late),
    ];
    if std::env::var_os("XK_LONG").is_some() {
        cuts.extend([
            (true, true, Arrives::AtOnce),
            (true, false, Arrives::ByRing),
            (false, true, Arrives::ByRing),
        ]);
    }
    cuts
}

/// Laws that cannot hold with late frames, for all protocols or for one kind, and why.
const NOT_LATE: [(&str, &str, &str); 7] = [
    ("no allocation per message", "", "what is under way waits in a queue that grows"),
    ("no allocation per call", "", "what is under way waits in a queue that grows"),
    ("a burst does not wait for one", "", "what crosses is no burst of the wire's any more"),
    (
        "what comes while a session is told of waits",
        "",
        "the first message waits for what its layer asks below, and those behind it pass",
    ),
    (
        "strangers pin nothing below",
        "order",
        "it answers while the cut holds the session, and opens ways to all members for that",
    ),
    ("a refusal comes back", "vipaddr", "it keeps its session with a host that was refused late"),
    (
        "what is for many is not for one",
        "fragment",
        "the address of the last message is asked for when the session below may be over",
    ),
];

/// Checks the laws for which `judges` is true, with each edge cut.
///
/// # Panics
/// If one is broken.
pub(super) fn check(fixture: &dyn Fixture, judges: impl Fn(&str) -> bool) {
    if fixture.is_anchor() {
        return;
    }
    for cut @ (below, above, arrives) in cuts() {
        for (name, law) in LAWS.iter().filter(|(name, _)| judges(name)) {
            let is_not_late = NOT_LATE.iter().any(|(law, kind, _)| {
                law == name && (kind.is_empty() || *kind == fixture.entry().kind)
            });
            if arrives == Arrives::Late && is_not_late {
                continue;
            }
            println!("{name}, cut below: {below}, above: {above}, {arrives:?}");
            let edges = Edges::new(fixture.entry(), cut);
            let _ = law(&Cut { fixture, edges });
        }
    }
}

/// Checks the laws of the rpc realm for which `judges` is true, with each edge cut.
///
/// # Panics
/// If one is broken.
pub(super) fn check_calls(fixture: &dyn CallFixture, judges: impl Fn(&str) -> bool) {
    for cut @ (below, above, arrives) in cuts() {
        for (name, law) in calls::LAWS.iter().filter(|(name, _)| judges(name)) {
            let is_not_late = NOT_LATE.iter().any(|(law, ..)| law == name);
            if arrives == Arrives::Late && is_not_late {
                continue;
            }
            println!("{name}, cut below: {below}, above: {above}, {arrives:?}");
            let edges = Edges::new(fixture.entry(), cut);
            let _ = law(&CutCalls { fixture, edges });
        }
    }
}
