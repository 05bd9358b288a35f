//! Two instances of the protocol under test, and what carries frames between them.

use super::{Fixture, Receiver, Side};
use crate::kernel::{Addressing, Bottom, CallBottom, Lower, Received, Sent, Task, TestKernel, Top};
use core::cell::RefCell;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;
use xk_core::control::{ListSessions, Listed};
use xk_core::numbers::Number;
use xk_core::object::{OpenError, ProtocolId};
use xk_core::{Entry, Kernel, Part, ProtocolRef, SessionRef, reason};

/// All chance of the suite comes from this.
pub(super) const SEED: u64 = 0x6b65_726e_656c;

/// Times that frames go to and fro before the suite gives up waiting for silence.
const ROUNDS_MAX: usize = 256;
/// Parts of [`Fixture::patience`] that pass one by one, with what is sent in each.
const PARTS: u32 = 32;

/// One instance, with the protocols below and above it.
#[derive(Clone)]
pub struct Node {
    /// The side that it is on.
    pub side: Side,
    /// The layer below.
    pub bottom: Bottom,
    /// The layer below in place of `bottom`, if the instance is a layer of calls.
    pub calls: Option<CallBottom>,
    /// The protocol under test, or its proxy above a cut.
    pub protocol: ProtocolRef,
    /// The protocol under test itself.
    pub tested: ProtocolRef,
    /// Proxies at cuts.
    pub(super) proxies: Vec<ProtocolRef>,
    /// The protocol above.
    pub top: Top,
}

impl Node {
    /// Adds what stands below, what `build` puts on it, and a top that it selects by `number`.
    pub(super) fn new(
        cx: &TestKernel,
        side: Side,
        (lower, is_on_calls): (Lower, bool),
        number: Option<u32>,
        build: impl FnOnce(&ProtocolRef) -> (ProtocolRef, ProtocolRef, Vec<ProtocolRef>),
    ) -> Self {
        let bottom = Bottom::add(cx, &format!("bottom-{side:?}"), lower);
        let calls = is_on_calls.then(|| CallBottom::add(cx, &format!("calls-{side:?}"), lower));
        let below = calls.as_ref().map_or(bottom.protocol(), CallBottom::protocol);
        let (protocol, tested, proxies) = build(below);
        let top = Top::add(cx, &format!("top-{side:?}"));
        let node = Self { side, bottom, calls, protocol, tested, proxies, top };
        node.number(cx, number, &node.top);
        node
    }

    /// Binds the number by which the protocol selects a top.
    pub(super) fn number(&self, cx: &TestKernel, number: Option<u32>, top: &Top) {
        if let Some(number) = number {
            cx.numbers_mut().override_pair(top.id(), self.tested.id(), number);
        }
    }

    /// Lets what stands below block for up to `most`.
    pub(super) fn block(&self, most: Duration) {
        self.bottom.block(most);
        self.calls.iter().for_each(|calls| calls.block(most));
    }

    /// The sessions below that what arrived has made and a layer above holds.
    pub(super) fn held(&self) -> Vec<SessionRef> {
        self.calls.as_ref().map_or_else(|| self.bottom.held(), CallBottom::held)
    }

    /// Number of holds of the instance on sessions below that it opened.
    pub(super) fn holds(&self) -> u32 {
        let frames: u32 = self.bottom.held().iter().map(|s| s.head().opens()).sum();
        frames + self.calls.as_ref().map_or(0, |calls| calls.open_sessions().len() as u32)
    }

    /// Number of messages that the instance, or the layer below it, dropped or refused.
    #[must_use]
    pub fn drops(&self) -> u64 {
        let calls = self.calls.iter().map(CallBottom::protocol);
        let all = [&self.tested, self.bottom.protocol(), self.top.protocol()];
        all.into_iter()
            .chain(calls)
            .chain(&self.proxies)
            .map(|protocol| protocol.head().drops().total())
            .sum()
    }
}

/// Two instances in one kernel. Frames move between them when [`World::exchange`] is called.
pub struct World<'f> {
    /// The kernel.
    pub cx: TestKernel,
    /// The instance that opens.
    pub a: Node,
    /// The instance that receives.
    pub b: Node,
    /// The tested protocol.
    pub fixture: &'f dyn Fixture,
}

impl<'f> World<'f> {
    /// Builds and starts both instances.
    ///
    /// # Panics
    /// If the protocol does not start.
    #[must_use]
    pub fn new(fixture: &'f dyn Fixture) -> Self {
        Self::on(fixture, TestKernel::new(SEED))
    }

    /// Builds and starts both instances on this kernel.
    ///
    /// # Panics
    /// If the protocol does not start.
    #[must_use]
    pub fn on(fixture: &'f dyn Fixture, cx: TestKernel) -> Self {
        let world = Self::build(fixture, cx);
        if let Err((protocol, error)) = world.cx.start() {
            panic!("{protocol:?} does not start: {error}");
        }
        fixture.started(&world);
        world.exchange();
        world
    }

    /// Builds both instances on this kernel.
    pub(super) fn build(fixture: &'f dyn Fixture, cx: TestKernel) -> Self {
        add_numbers(&cx, fixture.entry());
        for &(lower, number) in fixture.numbers_below() {
            let number = Number { upper: "top", lower, number };
            cx.numbers_mut().add(number).expect("one number");
        }
        let node = |side| {
            let lower = (fixture.lower(side), false);
            let build = |below: &ProtocolRef| {
                let tested = super::build(fixture, &cx, side, below);
                (fixture.above(&cx, side, &tested), tested, fixture.proxies(side))
            };
            Node::new(&cx, side, lower, fixture.number(), build)
        };
        let (a, b) = (node(Side::A), node(Side::B));
        for node in [&a, &b] {
            // A protocol without calls, to which a filter passes requests up.
            node.top.on_serve(Some(Rc::new(|_, _, _| Err(&reason::NOT_SUPPORTED))));
        }
        Self { cx, a, b, fixture }
    }

    /// The instance of this side.
    #[must_use]
    pub fn node(&self, side: Side) -> &Node {
        match side {
            Side::A => &self.a,
            Side::B => &self.b,
        }
    }

    /// Adds one more protocol above an instance, selected by the same number as the first.
    #[must_use]
    pub fn another_top(&self, side: Side, name: &str) -> Top {
        let top = Top::add(&self.cx, name);
        self.node(side).number(&self.cx, self.fixture.number(), &top);
        top
    }

    /// Opens a session to the other side.
    ///
    /// # Errors
    /// What the protocol answers.
    pub fn try_open(&self, side: Side) -> Result<SessionRef, OpenError> {
        let node = self.node(side);
        node.top.open(&self.cx, &node.protocol, self.fixture.open(side))
    }

    /// Opens a session to the other side.
    ///
    /// # Panics
    /// If the protocol does not accept the fixture's participants.
    #[must_use]
    pub fn open(&self, side: Side) -> SessionRef {
        match self.try_open(side) {
            Ok(session) => session,
            Err(error) => panic!("law 2: `open` accepts valid participants, not: {error}"),
        }
    }

    /// Lets the protocol above `side` enable, if the protocol takes enables.
    ///
    /// # Panics
    /// If the protocol does not accept the fixture's participants.
    pub fn enable(&self, side: Side) -> Option<xk_core::object::Enable> {
        let node = self.node(side);
        let participants = self.fixture.enable(side)?;
        match node.top.enable(&self.cx, &node.protocol, participants) {
            Ok(enable) => Some(enable),
            Err(error) => panic!("law 2: `open_enable` accepts valid participants, not: {error}"),
        }
    }

    /// B enables and A opens: starts a conversation.
    #[must_use]
    pub fn converse(&self) -> SessionRef {
        self.enable(Side::B);
        let session = self.open(Side::A);
        self.exchange();
        session
    }

    /// The instance above which messages from A arrive.
    #[must_use]
    pub fn end(&self) -> &Node {
        match self.fixture.receiver() {
            Receiver::Upper => &self.b,
            Receiver::Itself => &self.a,
        }
    }

    /// Sends octets through `session` of A and returns what arrived at the end.
    ///
    /// # Panics
    /// If the session does not take them.
    #[must_use]
    pub fn send(&self, session: &SessionRef, octets: &[u8]) -> Vec<Received> {
        session
            .push(&self.cx, self.cx.message(octets))
            .unwrap_or_else(|error| panic!("law 5: {} octets go: {error}", octets.len()));
        self.exchange();
        self.end().top.take_received()
    }

    /// Carries frames in both directions until there are none.
    ///
    /// # Panics
    /// If the instances do not fall silent.
    pub fn exchange(&self) {
        let patience = self.fixture.patience();
        let mut parts = if patience.is_zero() { 0 } else { PARTS };
        for _ in 0..ROUNDS_MAX {
            let carried = self.carry(&self.a, &self.b) + self.carry(&self.b, &self.a);
            if carried + self.fixture.carry(self) > 0 {
                continue;
            }
            if parts == 0 {
                return;
            }
            self.cx.advance(patience / PARTS);
            parts -= 1;
        }
        panic!("the two instances do not fall silent after {ROUNDS_MAX} rounds");
    }

    /// Lets what is on its way across cuts arrive.
    pub(super) fn cross(&self) {
        self.cx.advance(self.fixture.lateness());
    }

    fn carry(&self, from: &Node, to: &Node) -> usize {
        let all = from.bottom.take_sent();
        let count = all.len();
        for sent in all {
            Self::deliver(&self.cx, from, to, sent);
        }
        count
    }

    /// Lets a frame captured below `from` arrive below `to`, if it is for that.
    pub(super) fn deliver(cx: &Kernel, from: &Node, to: &Node, sent: Sent) {
        if addressed_to(to.bottom.lower(), sent.peer) {
            Self::inject_at(cx, from, to, sent);
        }
    }

    /// Lets a frame captured below `from` arrive below `to`. False if it was refused.
    pub fn inject(&self, from: &Node, to: &Node, sent: Sent) -> bool {
        Self::inject_at(&self.cx, from, to, sent)
    }

    fn inject_at(cx: &Kernel, from: &Node, to: &Node, sent: Sent) -> bool {
        let peer = from.bottom.lower().own();
        match Self::selector(from, to, sent.selector) {
            Some(selector) => to.bottom.inject_for(cx, peer, selector, sent.message).is_ok(),
            None => to.bottom.inject(cx, peer, sent.message),
        }
    }

    /// The protocol at `to` with the type number under which `from` sent.
    #[must_use]
    pub fn selector(from: &Node, to: &Node, sender: ProtocolId) -> Option<ProtocolId> {
        if sender == from.tested.id() {
            Some(to.tested.id())
        } else if sender == from.top.id() {
            Some(to.top.id())
        } else {
            None
        }
    }

    /// Sends a small message and returns the frame that left A for it; B has not received it.
    ///
    /// # Panics
    /// If none leaves.
    #[must_use]
    pub fn capture(&self, session: &SessionRef) -> Sent {
        // Once with an answer, so that whatever comes first (resolving an address) is over.
        let octets = super::messages::pattern(64, 1);
        drop(self.send(session, &octets));
        session
            .push(&self.cx, self.cx.message(&octets))
            .expect("law 5: a session that sent once sends again");
        self.cross();
        let sent = self.a.bottom.take_sent().pop();
        sent.expect("law 5: a message pushed reaches the layer below")
    }

    /// Number of sessions of an instance, if it answers that question.
    #[must_use]
    pub fn sessions(&self, node: &Node) -> Option<usize> {
        let question = ListSessions::first(1);
        let answer = node.tested.ask(&self.cx, question)?;
        // One that forwards the question tells of the layer below.
        let foreign = |listed: &Listed| listed.protocol() != node.tested.id();
        (!answer.sessions.first().is_some_and(foreign)).then_some(answer.total)
    }
}

/// Frames under way, each with the side that sent it.
pub(super) type Way = Rc<RefCell<VecDeque<(usize, Sent)>>>;

/// Function that changes a frame on the way; `None` if it is carried as it is.
pub(super) type Harm = Option<fn(&Kernel, Sent) -> Vec<Sent>>;

/// Moves what lies below both instances to the other one, and answers how many frames. What takes a
/// message may block; what is still under way then is the next call's to carry.
pub(super) fn carrier(
    nodes: [Node; 2],
    way: Way,
    harm: Harm,
) -> impl Fn(&Kernel) -> usize + 'static {
    move |cx| {
        for (side, node) in nodes.iter().enumerate() {
            let mut way = way.borrow_mut();
            node.bottom.drain_sent(|sent| match harm {
                None => way.push_back((side, sent)),
                Some(harm) => way.extend(harm(cx, sent).into_iter().map(|sent| (side, sent))),
            });
        }
        let mut carried = 0;
        loop {
            let next = way.borrow_mut().pop_front();
            let Some((side, sent)) = next else { break };
            carried += 1;
            World::deliver(cx, &nodes[side], &nodes[1 - side], sent);
            if cx.must_leave() {
                break;
            }
        }
        carried
    }
}

/// Results of several shepherds that `run` lets do this at one time.
pub(super) fn at_once<T: 'static>(
    count: usize,
    what: impl Fn(&Kernel, usize) -> T + 'static,
    run: impl FnOnce(Vec<Task>),
) -> Vec<T> {
    let (all, what): (Rc<RefCell<Vec<T>>>, _) = (Rc::default(), Rc::new(what));
    let task = |n| {
        let (all, what) = (Rc::clone(&all), Rc::clone(&what));
        Box::new(move |cx: &Kernel| {
            let answer = what(cx, n);
            all.borrow_mut().push(answer);
        }) as Task
    };
    run((0..count).map(task).collect());
    all.take()
}

/// Adds the type numbers of a protocol under test.
///
/// # Panics
/// If they contradict each other.
pub(super) fn add_numbers(cx: &TestKernel, entry: &Entry) {
    for number in entry.type_numbers() {
        cx.numbers_mut().add(number).expect("a protocol's numbers do not contradict each other");
    }
}

/// Whether a message for `peer` reaches the host of `lower`.
fn addressed_to(lower: &Lower, peer: Option<Part>) -> bool {
    match (lower.addressing, peer) {
        (Addressing::Ether(own), Some(Part::Ether(to))) => own == to || to[0] & 1 != 0,
        (Addressing::Host(own), Some(Part::Host(to))) => own == to || to.is_group(),
        _ => true,
    }
}
