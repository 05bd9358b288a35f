//! Two instances of the protocol under test, and what carries frames between them.

use super::{Fixture, Receiver, Side};
use crate::kernel::{Addressing, Bottom, Lower, Received, Sent, TestKernel, Top};
use xk_core::control::ListSessions;
use xk_core::object::{OpenError, ProtocolId};
use xk_core::{Kernel, Part, ProtocolRef, SessionRef};

/// All chance of the suite comes from this.
pub(super) const SEED: u64 = 0x6b65_726e_656c;

/// How often frames go to and fro before the suite gives up waiting for silence.
const ROUNDS_MAX: usize = 256;

/// One instance, with what stands below and above it.
#[derive(Clone)]
pub struct Node {
    /// Which one.
    pub side: Side,
    /// What stands below.
    pub bottom: Bottom,
    /// The protocol under test.
    pub protocol: ProtocolRef,
    /// What stands above.
    pub top: Top,
}

impl Node {
    /// How many messages the instance, or what stands below it, dropped or refused.
    #[must_use]
    pub fn drops(&self) -> u64 {
        [&self.protocol, self.bottom.protocol(), self.top.protocol()]
            .iter()
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
    /// The instance that is spoken to.
    pub b: Node,
    /// What is tested.
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
        for number in fixture.entry().type_numbers() {
            cx.numbers_mut()
                .add(number)
                .expect("a protocol's numbers do not contradict each other");
        }
        let node = |side| {
            let lower = fixture.lower(side);
            let bottom = Bottom::add(&cx, &format!("bottom-{side:?}"), lower);
            let protocol = fixture.build(&cx, side, bottom.protocol());
            let top = Top::add(&cx, &format!("top-{side:?}"));
            number(&cx, fixture, &top, &protocol);
            Node { side, bottom, protocol, top }
        };
        let (a, b) = (node(Side::A), node(Side::B));
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
        number(&self.cx, self.fixture, &top, &self.node(side).protocol);
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

    /// Lets the protocol above `side` enable, where that is possible.
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

    /// B enables, A opens: a conversation is ready.
    #[must_use]
    pub fn converse(&self) -> SessionRef {
        self.enable(Side::B);
        let session = self.open(Side::A);
        self.exchange();
        session
    }

    /// The instance above which A's messages come out.
    #[must_use]
    pub fn end(&self) -> &Node {
        match self.fixture.receiver() {
            Receiver::Upper => &self.b,
            Receiver::Itself => &self.a,
        }
    }

    /// Sends octets through `session` of A and gives back what came out at the end.
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

    /// Carries frames to and fro until there are none.
    ///
    /// # Panics
    /// If the instances do not fall silent.
    pub fn exchange(&self) {
        for _ in 0..ROUNDS_MAX {
            let carried = self.carry(&self.a, &self.b) + self.carry(&self.b, &self.a);
            if carried + self.fixture.carry(self) == 0 {
                return;
            }
        }
        panic!("the two instances do not fall silent after {ROUNDS_MAX} rounds");
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

    /// Who at `to` has the number under which `from` sent.
    #[must_use]
    pub fn selector(from: &Node, to: &Node, sender: ProtocolId) -> Option<ProtocolId> {
        if sender == from.protocol.id() {
            Some(to.protocol.id())
        } else if sender == from.top.id() {
            Some(to.top.id())
        } else {
            None
        }
    }

    /// Sends a small message and gives back the frame that left A for it, which B has not seen.
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
        let sent = self.a.bottom.take_sent().pop();
        sent.expect("law 5: a message pushed reaches the layer below")
    }

    /// How many sessions an instance has, if it tells.
    #[must_use]
    pub fn sessions(&self, node: &Node) -> Option<usize> {
        let question = ListSessions { max: 1, sessions: Vec::new(), total: 0 };
        let answer = node.protocol.ask(&self.cx, question)?;
        // One that forwards the question tells of the layer below.
        let foreign = |s: &SessionRef| s.head().protocol() != node.protocol.id();
        (!answer.sessions.first().is_some_and(foreign)).then_some(answer.total)
    }
}

fn number(cx: &TestKernel, fixture: &dyn Fixture, top: &Top, protocol: &ProtocolRef) {
    if let Some(number) = fixture.number() {
        cx.numbers_mut().override_pair(top.id(), protocol.id(), number);
    }
}

/// Whether a message for `peer` reaches who is at `lower`.
fn addressed_to(lower: &Lower, peer: Option<Part>) -> bool {
    match (lower.addressing, peer) {
        (Addressing::Ether(own), Some(Part::Ether(to))) => own == to || to[0] & 1 != 0,
        (Addressing::Host(own), Some(Part::Host(to))) => own == to || to.is_group(),
        _ => true,
    }
}
