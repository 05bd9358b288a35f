//! Two instances of a protocol of the rpc realm, and what carries between them.

use super::CallFixture;
use crate::conformance::Side;
use crate::kernel::{
    Addressing, Bottom, CallBottom, CallEnd, CallTop, Lower, Sent, Task, TestKernel,
};
use core::cell::RefCell;
use core::time::Duration;
use std::collections::VecDeque;
use std::rc::Rc;
use xk_core::random::Random;
use xk_core::{Kernel, Message, Part, ProtocolRef, SessionRef};

/// All chance of the suite comes from this.
const SEED: u64 = 0x0063_616c_6c73;

/// What stands below an instance.
#[derive(Clone)]
pub enum Below {
    /// A layer of messages.
    Frames(Bottom),
    /// A layer of calls.
    Calls(CallBottom),
}

impl Below {
    fn protocol(&self) -> &ProtocolRef {
        match self {
            Below::Frames(bottom) => bottom.protocol(),
            Below::Calls(bottom) => bottom.protocol(),
        }
    }
}

/// One instance, with what stands below and above it.
#[derive(Clone)]
pub struct CallNode {
    /// What stands below.
    pub below: Below,
    /// The protocol under test.
    pub protocol: ProtocolRef,
    /// What stands above.
    pub top: CallTop,
    own: Option<Part>,
    is_link: bool,
}

impl CallNode {
    /// Its own address below; `None` on a link.
    #[must_use]
    pub fn own(&self) -> Option<Part> {
        self.own
    }

    /// How many messages the instance, or what stands below it, dropped or refused.
    #[must_use]
    pub fn drops(&self) -> u64 {
        let all = [&self.protocol, self.below.protocol(), self.top.protocol()];
        all.iter().map(|p| p.head().drops().total()).sum()
    }
}

/// What is done to frames on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// Nothing.
    None,
    /// Each is lost, doubled, cut or changed by chance.
    Any,
}

/// Frames under way, with the side that sent them.
type Way = Rc<RefCell<VecDeque<(usize, Sent)>>>;

/// Two instances in one kernel. What one sends reaches the other while [`CallWorld::run`] runs.
pub struct CallWorld<'f> {
    /// The kernel.
    pub cx: TestKernel,
    /// The instance that calls, and the one that is called.
    pub nodes: [CallNode; 2],
    /// What is tested.
    pub fixture: &'f dyn CallFixture,
    way: Way,
}

impl<'f> CallWorld<'f> {
    /// Builds and starts both instances.
    ///
    /// # Panics
    /// If the protocol does not start.
    #[must_use]
    pub fn new(fixture: &'f dyn CallFixture) -> Self {
        let world = Self::build(fixture, SEED);
        if let Err((protocol, error)) = world.cx.start() {
            panic!("{protocol:?} does not start: {error}");
        }
        world
    }

    /// Builds both instances.
    pub(super) fn build(fixture: &'f dyn CallFixture, seed: u64) -> Self {
        let cx = TestKernel::with_stacks(seed);
        for number in fixture.entry().type_numbers() {
            cx.numbers_mut()
                .add(number)
                .expect("a protocol's numbers do not contradict each other");
        }
        let nodes = [Side::A, Side::B].map(|side| node(&cx, fixture, side));
        if let [CallNode { below: Below::Calls(a), .. }, CallNode { below: Below::Calls(b), .. }] =
            &nodes
        {
            CallBottom::join(&[a.clone(), b.clone()]);
        }
        Self { cx, nodes, fixture, way: Way::default() }
    }

    /// Adds one more protocol above an instance, selected by the same number as the first.
    pub(super) fn another_top(&self, side: Side, name: &str) -> CallTop {
        let top = CallTop::add(&self.cx, name);
        number(&self.cx, self.fixture, &top, &self.node(side).protocol);
        top
    }

    /// Lets the protocol above a side serve every procedure.
    ///
    /// # Panics
    /// If the protocol does not accept the fixture's participants.
    pub fn serve(&self, side: Side) {
        let node = self.node(side);
        let enabled = node.top.enable(&self.cx, &node.protocol, self.fixture.enable(side));
        if let Err(error) = enabled {
            panic!("`open_enable` accepts valid participants, not: {error}");
        }
    }

    /// The instance of this side.
    #[must_use]
    pub fn node(&self, side: Side) -> &CallNode {
        &self.nodes[side as usize]
    }

    /// Opens a procedure of the other side.
    ///
    /// # Panics
    /// If the protocol does not accept the fixture's participants.
    #[must_use]
    pub fn open(&self, side: Side, procedure: u32) -> SessionRef {
        let node = self.node(side);
        let both = self.fixture.open(side, procedure);
        match node.top.open(&self.cx, &node.protocol, both) {
            Ok(session) => session,
            Err(error) => panic!("`open` accepts valid participants, not: {error}"),
        }
    }

    /// Does each task on a shepherd, carries frames, and lets time pass until all have ended, for
    /// `limit` at most.
    pub fn run(&self, limit: Duration, tasks: Vec<Task>) -> bool {
        self.cx.run_tasks(limit, tasks, self.carrier(Harm::None))
    }

    /// Makes a call and gives how it ended.
    pub fn call(&self, session: &SessionRef, request: &[u8]) -> CallEnd {
        let request = self.cx.message(request);
        self.call_all(vec![(session.clone(), request)]).remove(0)
    }

    /// Makes calls at the same time, and gives how they ended.
    pub fn call_all(&self, calls: Vec<(SessionRef, Message)>) -> Vec<CallEnd> {
        self.cx.call_all_carried(calls, self.carrier(Harm::None))
    }

    /// Makes calls at the same time while frames come to harm, and gives how they ended.
    pub(super) fn call_all_harmed(&self, calls: Vec<(SessionRef, Message)>) -> Vec<CallEnd> {
        self.cx.call_all_carried(calls, self.carrier(Harm::Any))
    }

    /// Moves what lies below both instances to the other one. Whoever takes a message may block;
    /// what is still under way then is the next one's to carry.
    pub(super) fn carrier(&self, harm: Harm) -> impl Fn(&Kernel) -> usize + 'static {
        let (nodes, way) = (self.nodes.clone(), Rc::clone(&self.way));
        move |cx| {
            let mut carried = 0;
            for (side, node) in nodes.iter().enumerate() {
                if let Below::Frames(bottom) = &node.below {
                    let mut way = way.borrow_mut();
                    bottom.drain_sent(|sent| way.push_back((side, sent)));
                }
            }
            loop {
                let next = way.borrow_mut().pop_front();
                let Some((side, sent)) = next else { break };
                carried += 1;
                deliver(cx, &nodes[side], &nodes[1 - side], sent, harm);
                if cx.must_leave() {
                    break;
                }
            }
            carried
        }
    }

    /// Interrupts who waits, stops the graph, and sees that nothing is left.
    ///
    /// # Panics
    /// If something is.
    pub fn finish(self) {
        self.way.take();
        self.cx.finish();
        let live = self.cx.live();
        assert_eq!(live, (0, 0), "after `stop` no message is left");
    }
}

fn node(cx: &TestKernel, fixture: &dyn CallFixture, side: Side) -> CallNode {
    let lower = fixture.lower(side);
    let name = format!("bottom-{side:?}");
    let below = match fixture.is_on_calls() {
        true => Below::Calls(CallBottom::add(cx, &name, lower)),
        false => Below::Frames(Bottom::add(cx, &name, lower)),
    };
    let params = fixture.params(side);
    let protocol = fixture.build(cx, side, below.protocol(), &params);
    let top = CallTop::add(cx, &format!("top-{side:?}"));
    number(cx, fixture, &top, &protocol);
    CallNode { below, protocol, top, own: lower.own(), is_link: is_link(&lower) }
}

fn number(cx: &TestKernel, fixture: &dyn CallFixture, top: &CallTop, protocol: &ProtocolRef) {
    if let Some(number) = fixture.number() {
        cx.numbers_mut().override_pair(top.protocol().id(), protocol.id(), number);
    }
}

fn is_link(lower: &Lower) -> bool {
    lower.addressing == Addressing::Link
}

/// Lets a frame sent below `from` arrive below `to`.
fn deliver(cx: &Kernel, from: &CallNode, to: &CallNode, sent: Sent, harm: Harm) {
    let Below::Frames(bottom) = &to.below else {
        return;
    };
    if !to.is_link && sent.peer.is_some() && sent.peer != to.own {
        return;
    }
    let selector = match sent.selector {
        id if id == from.protocol.id() => Some(to.protocol.id()),
        id if id == from.top.protocol().id() => Some(to.top.protocol().id()),
        _ => None,
    };
    let arrives = |message| match selector {
        // Who refuses has counted it.
        Some(selector) => drop(bottom.inject_for(cx, from.own, selector, message)),
        None => drop(bottom.inject(cx, from.own, message)),
    };
    match harm {
        Harm::None => arrives(sent.message),
        Harm::Any => harmed(cx, sent.message).into_iter().for_each(arrives),
    }
}

/// What becomes of a frame: lost, doubled, cut short, changed in one octet, or as it was.
fn harmed(cx: &Kernel, message: Message) -> Vec<Message> {
    let chance: &Random = cx.random();
    let mut octets: Vec<u8> = message.octets().collect();
    drop(message);
    let mut copies = 1;
    match chance.below(8) {
        0 => copies = 0,
        1 => copies = 2,
        2 => octets.truncate(chance.below(octets.len() as u64 + 1) as usize),
        3 | 4 if !octets.is_empty() => {
            // More often in front, where headers are.
            let within = octets.len().min(if chance.below(2) == 0 { 32 } else { octets.len() });
            let at = chance.below(within as u64) as usize;
            octets[at] ^= 1 << chance.below(8);
        }
        5 => octets.extend([0; 7]),
        _ => {}
    }
    let copy = |_| {
        cx.pool().copy_from(crate::kernel::HEADROOM, &octets).expect("a buffer for a test message")
    };
    (0..copies).map(copy).collect()
}
