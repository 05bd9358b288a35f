//! Shepherds: the light-weight processes that carry messages through the graph.
//!
//! A message runs to completion on the stack of the shepherd that found it. The executor's
//! poll loop itself runs on a shepherd, so a message that never blocks costs a
//! function call and no switch. Only where code deep inside has to wait (a
//! `call` for its reply, on a [`Semaphore`]) is its shepherd suspended, and the
//! loop goes on with the next message on another shepherd from the pool. Once
//! signalled, the suspended shepherd is *ready*; between two messages the loop
//! resumes the ready ones, first come first served, each until it blocks again
//! or has finished its message. In the latter case the loop goes on right there,
//! and the shepherd that led it so far stays in reserve below: it takes the loop
//! back when the new leader blocks. So a wait costs two switches, one each way.
//!
//! ```text
//!             run()          loop shepherd blocks: a spare takes the loop over
//!   caller ----------> A ------------------------------------> (caller) --> B
//!                      ^                                                    |
//!                      |  ready: resumed by B, finishes its message, leads  |
//!                      '----------------------------------------------------'
//!                         blocks again, in that message or as the leader:
//!                         back to B, which leads as before
//! ```
//!
//! # What code that may block must keep in mind
//! - No `RefCell` borrow, lock or other guard may be held across an operation
//!   that can block: other messages run meanwhile.
//! - What a body has on its stack waits with it. An executor that polls frames
//!   in batches therefore keeps the batch in a queue that every shepherd sees,
//!   and leaves its body once [`Shepherds::on_loop`] turns false.
//! - A suspended shepherd never changes its thread, and reads no thread-local
//!   storage before and after a wait in the hope of finding it unchanged.
//!
//! # Bounds
//! [`Limits`] bounds the number of shepherds and the stack of each. A wait that
//! would need one more is refused at once ([`WaitError::NoShepherds`]) and
//! counted. Nothing is allocated after the shepherds exist: a shepherd is at
//! most in one queue of one semaphore, and the links lie in its slot.
//!
//! Source: Hutchinson and Peterson, "The x-Kernel: An Architecture for
//! Implementing Network Protocols" (1991), section 2 on processes, and O'Malley
//! and Peterson, "A Dynamic Network Architecture" (1992).

mod semaphore;
mod switch;
mod table;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::fmt;

pub use semaphore::{Semaphore, WaitError};
pub use switch::{NoSwitch, StackError, Switch};
use table::{NONE, Table};

/// Next step of the poll loop after this turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Call the body again.
    Continue,
    /// Leave [`Shepherds::run`].
    Stop,
}

/// Bounds on the shepherds of one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of shepherds, the one that runs the loop included; so one less can be
    /// suspended. A slot takes 32 octets from the start, a stack only once it is needed.
    pub shepherds_max: u32,
    /// Octets of stack for each shepherd; rounded up to whole pages.
    pub stack_octets: usize,
}

impl Default for Limits {
    /// 1024 shepherds with 64 KiB each.
    fn default() -> Self {
        Limits { shepherds_max: 1024, stack_octets: 64 * 1024 }
    }
}

/// Figures of the shepherds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Shepherds that exist: running, suspended, and idle or in reserve.
    pub made: u32,
    /// Shepherds in the middle of a body now. Two while the loop's shepherd
    /// resumes a ready one.
    pub running: u32,
    /// Shepherds that wait or are ready.
    pub suspended: u32,
    /// Suspended shepherds whose wait is over.
    pub ready: u32,
    /// The most shepherds running and suspended at one time.
    pub in_use_high_water: u32,
    /// Bodies begun.
    pub dispatches: u64,
    /// Waits that suspended their shepherd.
    pub blocks: u64,
    /// Waits ended by [`Shepherds::time_out`].
    pub timeouts: u64,
    /// Waits ended by an interrupt or by closing the semaphore.
    pub interrupts: u64,
    /// Waits refused because no further shepherd could take the loop over.
    pub refusals_no_shepherds: u64,
    /// Waits refused because the caller was on no shepherd that could block.
    pub refusals_not_on_shepherd: u64,
}

/// Why [`Shepherds::run`] did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The call came from within itself.
    #[error("the loop of these shepherds already runs")]
    AlreadyRunning,
    /// Not even the first shepherd could be had: all are suspended, or the
    /// system gives no stack.
    #[error("no shepherd is left to run the loop")]
    NoShepherds,
}

/// Names one wait of one shepherd, for the timer that may end it. A ticket
/// whose wait is over is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    slot: u32,
    wait: u64,
}

impl Ticket {
    /// The place of the shepherd that waits.
    #[inline]
    pub(crate) fn slot(self) -> u32 {
        self.slot
    }
}

/// The shepherds of one kernel, all on one thread.
///
/// Dropping it frees the idle shepherds. Suspended ones still hold values and
/// borrows that only their own code can end, so they are leaked with their
/// stacks: call [`interrupt_all`](Self::interrupt_all) and
/// [`run`](Self::run) once more before, until [`Stats::suspended`] is 0.
pub struct Shepherds {
    table: Rc<Table>,
}

impl Shepherds {
    /// Makes the table of shepherds; stacks come when they are needed.
    pub fn new(switch: Box<dyn Switch>, limits: Limits) -> Self {
        Shepherds { table: Rc::new(Table::new(switch, limits)) }
    }

    /// Runs the loop: calls `body` again and again until it answers
    /// [`Flow::Stop`], and before each call resumes the shepherds that are ready.
    ///
    /// A body usually polls wires and timers, hands what it finds to the graph,
    /// and sleeps only if nothing was there and [`has_ready`](Self::has_ready)
    /// is false. Shepherds still suspended at the stop stay so until a later
    /// `run`, and hold on to the body that they are in; this is why a body is
    /// counted and not borrowed. A body that a resumed shepherd ends with
    /// [`Flow::Stop`] stops the loop too.
    pub fn run(&self, body: Rc<dyn Fn() -> Flow>) -> Result<(), RunError> {
        self.table.run(body)
    }

    /// Whether a suspended shepherd waits only for its turn: then do not sleep.
    #[inline]
    pub fn has_ready(&self) -> bool {
        self.table.ready_count() != 0
    }

    /// Whether a shepherd can ever be suspended. If not, what an executor would run by
    /// [`run`](Self::run) it may as well call itself.
    #[inline]
    pub fn may_suspend(&self) -> bool {
        self.table.has_stacks()
    }

    /// Number of the shepherd the caller is on; none outside
    /// [`run`](Self::run). For traces.
    #[inline]
    pub fn current(&self) -> Option<u32> {
        let slot = self.table.current();
        (slot != NONE).then_some(slot)
    }

    /// Whether the caller is still on the shepherd that runs the loop. False
    /// after a wait in the same body blocked: the loop went on elsewhere.
    #[inline]
    pub fn on_loop(&self) -> bool {
        self.table.on_loop()
    }

    /// Ends the wait that `ticket` names with [`WaitError::TimedOut`]. False if
    /// something else ended it before: the first to come decides.
    pub fn time_out(&self, ticket: Ticket) -> bool {
        self.table.time_out(ticket.slot, ticket.wait)
    }

    /// While `is_ending`, the wait of this shepherd and each that it begins end at once with
    /// [`WaitError::Interrupted`]: a call that it carries, which is needed no more, comes back from
    /// whatever it waits for. What carried the call sets that back.
    pub fn set_ending(&self, shepherd: u32, is_ending: bool) {
        self.table.set_ending(shepherd, is_ending);
    }

    /// Ends every wait with [`WaitError::Interrupted`], before a shutdown.
    /// Returns how many it ended.
    pub fn interrupt_all(&self) -> u32 {
        self.table.interrupt_all()
    }

    /// Figures since the start.
    pub fn stats(&self) -> Stats {
        self.table.stats()
    }

    /// The bounds it was made with.
    pub fn limits(&self) -> Limits {
        self.table.limits()
    }
}

impl Drop for Shepherds {
    fn drop(&mut self) {
        self.table.retire_idle();
    }
}

impl fmt::Debug for Shepherds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Shepherds").field(&self.stats()).finish()
    }
}
