//! Shared state of all queues of a kernel: the scheduler of service procedures, timers, requests
//! that wait for blocks, and figures.

use crate::block::{Blocks, Mblk};
use crate::queue::{Q, QWAITS, WeakQ};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::Kernel;
use xk_core::kernel::Timer;
use xk_core::object::ProtocolId;

/// The token of the timer by which service procedures are run.
const RUN: u64 = 0;
/// The token of the timer that looks whether blocks can be had again.
const BLOCKS: u64 = 1;
/// Tokens of modules' timers begin here.
const TIMERS: u64 = 2;
/// Largest number of pending timers of modules.
const TIMERS_MAX: usize = 65_536;
/// Interval at which it is looked whether blocks can be had again.
const BUFCALL_EVERY: Duration = Duration::from_millis(10);
/// Service procedures that one event runs, beyond those that were enabled when it began.
const RUN_MAX: usize = 256;

/// A timer of a module, for taking it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(u64);

struct ModuleTimer {
    q: WeakQ,
    arg: u64,
    timer: Timer,
}

/// Counters of the scheduler and the modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Service procedures run.
    pub services: u64,
    /// Events of the kernel that ran some.
    pub runs: u64,
    /// Messages freed since nothing was ahead of a queue, or its stream was closed.
    pub lost: u64,
    /// Messages freed by a flush.
    pub flushed: u64,
    /// Requests for blocks that waited.
    pub bufcalls: u64,
    /// Times that a writer found a queue full, and waited for its room.
    pub blocked: u64,
    /// Times that a queue told those behind that it has room again.
    pub back_enables: u64,
}

pub(crate) struct Core {
    pub(crate) blocks: Blocks,
    /// The protocol whose timers these are.
    node: Cell<Option<ProtocolId>>,
    enabled: RefCell<VecDeque<Q>>,
    is_armed: Cell<bool>,
    timers: RefCell<BTreeMap<u64, ModuleTimer>>,
    token_last: Cell<u64>,
    /// Queues that wait for blocks, each once, and for how many of how many octets together.
    bufcalls: RefCell<Vec<(WeakQ, (usize, usize))>>,
    is_looking: Cell<bool>,
    counts: Cell<Counts>,
}

impl Core {
    pub(crate) fn new(blocks: Blocks) -> Self {
        Self {
            blocks,
            node: Cell::new(None),
            enabled: RefCell::default(),
            is_armed: Cell::new(false),
            timers: RefCell::default(),
            token_last: Cell::new(TIMERS),
            bufcalls: RefCell::default(),
            is_looking: Cell::new(false),
            counts: Cell::default(),
        }
    }

    pub(crate) fn set_node(&self, node: ProtocolId) {
        self.node.set(Some(node));
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts.get()
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Frees a message that could go nowhere.
    #[cold]
    pub(crate) fn count_loss(&self, mp: Mblk) {
        drop(mp);
        self.add_losses(1);
    }

    pub(crate) fn add_losses(&self, messages: usize) {
        self.count(|counts| counts.lost += messages as u64);
    }

    pub(crate) fn add_blocked(&self) {
        self.count(|counts| counts.blocked += 1);
    }

    pub(crate) fn add_back_enable(&self) {
        self.count(|counts| counts.back_enables += 1);
    }

    pub(crate) fn add_flushed(&self, messages: usize) {
        self.count(|counts| counts.flushed += messages as u64);
    }

    /// Puts an enabled queue into the line of those to be served.
    pub(crate) fn schedule(&self, cx: &Kernel, q: Q) {
        self.enabled.borrow_mut().push_back(q);
        self.arm(cx);
    }

    fn arm(&self, cx: &Kernel) {
        if self.is_armed.get() {
            return;
        }
        let Some(node) = self.node.get().and_then(|id| cx.protocol(id)) else { return };
        // If no timer is left, the next one that is set, or the next user that waits, runs them.
        self.is_armed.set(cx.schedule_protocol(&node, Duration::ZERO, RUN).is_ok());
    }

    /// Runs the service procedures of the enabled queues, first enabled first served, within a
    /// bound; answers how many ran.
    pub(crate) fn run_queues(&self, cx: &Kernel) -> usize {
        let mut left = self.enabled.borrow().len() + RUN_MAX;
        let mut ran = 0;
        loop {
            let mut enabled = self.enabled.borrow_mut();
            let Some(q) = enabled.pop_front() else { break };
            let is_last = enabled.is_empty();
            drop(enabled);
            if !is_last {
                // Should this service procedure wait all the same, the others go on without it.
                self.arm(cx);
            }
            q.serve(cx);
            ran += 1;
            left -= 1;
            if left == 0 || cx.must_leave() {
                break;
            }
        }
        if !self.enabled.borrow().is_empty() {
            self.arm(cx);
        }
        if ran > 0 {
            self.count(|counts| {
                counts.services += ran as u64;
                counts.runs += 1;
            });
        }
        self.arm_bufcalls(cx);
        ran
    }

    /// A timer of the node went off.
    pub(crate) fn timeout(&self, cx: &Kernel, token: u64) {
        match token {
            RUN => {
                self.is_armed.set(false);
                self.run_queues(cx);
            }
            BLOCKS => {
                self.is_looking.set(false);
                self.serve_bufcalls(cx);
                self.arm_bufcalls(cx);
            }
            _ => {
                let found = self.timers.borrow_mut().remove(&token);
                let Some(ModuleTimer { q, arg, .. }) = found else { return };
                if let Some(q) = q.upgrade() {
                    q.module().timer(cx, &q, arg);
                }
            }
        }
    }

    pub(crate) fn set_timer(
        &self,
        cx: &Kernel,
        q: &Q,
        delay: Duration,
        arg: u64,
    ) -> Option<TimerId> {
        if self.timers.borrow().len() >= TIMERS_MAX {
            return None;
        }
        let node = cx.protocol(self.node.get()?)?;
        let token = self.token_last.get() + 1;
        let timer = cx.schedule_protocol(&node, delay, token).ok()?;
        self.token_last.set(token);
        self.timers.borrow_mut().insert(token, ModuleTimer { q: q.downgrade(), arg, timer });
        Some(TimerId(token))
    }

    pub(crate) fn cancel_timer(&self, cx: &Kernel, timer: TimerId) -> bool {
        let found = self.timers.borrow_mut().remove(&timer.0);
        found.is_some_and(|found| cx.cancel(found.timer) == xk_core::kernel::Cancel::Cancelled)
    }

    pub(crate) fn bufcall(&self, cx: &Kernel, q: &Q, need: (usize, usize)) {
        if q.flags() & QWAITS != 0 {
            return;
        }
        q.set_flag(QWAITS);
        self.bufcalls.borrow_mut().push((q.downgrade(), need));
        self.count(|counts| counts.bufcalls += 1);
        self.arm_bufcalls(cx);
    }

    /// If no timer is left, the next that runs service procedures, or waits, tries again.
    fn arm_bufcalls(&self, cx: &Kernel) {
        if self.bufcalls.borrow().is_empty() || self.is_looking.get() {
            return;
        }
        if let Some(node) = self.node.get().and_then(|id| cx.protocol(id)) {
            self.is_looking.set(cx.schedule_protocol(&node, BUFCALL_EVERY, BLOCKS).is_ok());
        }
    }

    /// Enables the queues whose blocks can be had, in the order in which they asked: what one is to
    /// have, no other gets.
    fn serve_bufcalls(&self, cx: &Kernel) {
        let mut promised = (0, 0);
        self.bufcalls.borrow_mut().retain(|(weak, need)| {
            let Some(q) = weak.upgrade() else { return false };
            let sum = (promised.0 + need.0, promised.1 + need.1);
            let waits = !self.blocks.has(sum);
            if !waits {
                promised = sum;
                q.clear_flag(QWAITS);
                q.qenable(cx);
            }
            waits
        });
    }

    /// Forgets all that waits: the graph is taken down.
    pub(crate) fn stop(&self) {
        let gone = (self.enabled.take(), self.timers.take(), self.bufcalls.take());
        drop(gone);
    }
}
