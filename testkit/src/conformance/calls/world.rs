//! Two instances of a protocol of the rpc realm, and what carries between them.

use super::CallFixture;
use crate::conformance::world::{self, Harm, Way};
use crate::conformance::{Node, Side};
use crate::kernel::{CallBottom, CallEnd, Sent, Task, TestKernel, Top, in_two_slices};
use core::time::Duration;
use std::rc::Rc;
use xk_core::random::Random;
use xk_core::{Kernel, Message, SessionRef};

/// All chance of the suite comes from this.
const SEED: u64 = 0x0063_616c_6c73;

/// Two instances in one kernel. Messages of one reach the other while [`CallWorld::run`] runs.
pub struct CallWorld<'f> {
    /// The kernel.
    pub cx: TestKernel,
    /// The instance that calls, and the one that is called.
    pub nodes: [Node; 2],
    /// The tested protocol.
    pub fixture: &'f dyn CallFixture,
    way: Way,
}

impl<'f> CallWorld<'f> {
    /// Lets what is on its way across cuts arrive.
    pub(in crate::conformance) fn cross(&self) {
        self.cx.advance(self.fixture.lateness());
    }

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
    pub(in crate::conformance) fn build(fixture: &'f dyn CallFixture, seed: u64) -> Self {
        let cx = TestKernel::with_stacks(seed);
        world::add_numbers(&cx, fixture.entry());
        let nodes = [Side::A, Side::B].map(|side| {
            let lower = (fixture.lower(side), fixture.is_on_calls());
            Node::new(&cx, side, lower, fixture.number(), |below| {
                let tested = fixture.build(&cx, side, below, &fixture.params(side));
                (fixture.above(&cx, side, &tested), tested, fixture.proxies(side))
            })
        });
        let calls: Vec<_> = nodes.iter().filter_map(|node| node.calls.clone()).collect();
        CallBottom::join(&calls);
        Self { cx, nodes, fixture, way: Way::default() }
    }

    /// Adds one more protocol above an instance, selected by the same number as the first.
    pub(super) fn another_top(&self, side: Side, name: &str) -> Top {
        let top = Top::add(&self.cx, name);
        self.node(side).number(&self.cx, self.fixture.number(), &top);
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
    pub fn node(&self, side: Side) -> &Node {
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

    /// Runs each task on a shepherd, carries frames, and lets time pass until all have ended, for
    /// `limit` at most.
    pub fn run(&self, limit: Duration, tasks: Vec<Task>) -> bool {
        self.cx.run_tasks(limit, tasks, self.carrier(None))
    }

    /// Makes a call and returns its end.
    pub fn call(&self, session: &SessionRef, request: &[u8]) -> CallEnd {
        let request = self.cx.message(request);
        self.call_all(vec![(session.clone(), request)]).remove(0)
    }

    /// Makes calls at the same time, and returns their ends.
    pub fn call_all(&self, calls: Vec<(SessionRef, Message)>) -> Vec<CallEnd> {
        self.cx.call_all_carried(calls, self.carrier(None))
    }

    /// Makes calls at the same time while frames come to harm, and gives how they ended.
    pub(super) fn call_all_harmed(&self, calls: Vec<(SessionRef, Message)>) -> Vec<CallEnd> {
        self.cx.call_all_carried(calls, self.carrier(Some(harmed)))
    }

    /// Makes a call while all that arrives lies in two slices: the first has `cut` octets where the
    /// layer below carries calls, and another length in each frame where it does not.
    pub(super) fn call_sliced(&self, call: (SessionRef, Message), cut: usize) -> CallEnd {
        let below = self.nodes.iter().filter_map(|node| node.calls.as_ref());
        below.clone().for_each(|calls| calls.cut(Some(cut)));
        let end = self.cx.call_all_carried(vec![call], self.carrier(Some(sliced))).remove(0);
        below.for_each(|calls| calls.cut(None));
        end
    }

    /// Moves what lies below both instances to the other one.
    fn carrier(&self, harm: Harm) -> impl Fn(&Kernel) -> usize + 'static {
        world::carrier(self.nodes.clone(), Rc::clone(&self.way), harm)
    }

    /// Interrupts shepherds that wait, stops the graph, and checks that nothing is left.
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

/// A frame in two slices, cut where its headers are; the first may be empty.
fn sliced(cx: &Kernel, sent: Sent) -> Vec<Sent> {
    let octets: Vec<u8> = sent.message.octets().collect();
    let cut = cx.random().below(octets.len().min(48) as u64 + 1) as usize;
    let message = in_two_slices(cx, &octets, cut).expect("a buffer for a test message");
    vec![Sent { message, ..sent }]
}

/// Fate of a frame: lost, doubled, cut short, changed in one octet, or as it was.
fn harmed(cx: &Kernel, sent: Sent) -> Vec<Sent> {
    let Sent { session, peer, selector, message } = sent;
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
        let message = cx.pool().copy_from(crate::kernel::HEADROOM, &octets);
        let message = message.expect("a buffer for a test message");
        Sent { session: session.clone(), peer, selector, message }
    };
    (0..copies).map(copy).collect()
}
