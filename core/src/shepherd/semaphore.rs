//! Counting semaphores: the only place where a shepherd blocks.

use alloc::rc::Rc;
use core::cell::Cell;
use core::fmt;

use super::table::{NONE, Outcome, Slot, Table};
use super::{Shepherds, Ticket};

/// Why a wait ended without its signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// [`Shepherds::time_out`] came first.
    #[error("timed out")]
    TimedOut,
    /// [`Semaphore::interrupt_all`] or [`Shepherds::interrupt_all`] came first.
    #[error("interrupted")]
    Interrupted,
    /// The semaphore is closed.
    #[error("the semaphore is closed")]
    Closed,
    /// The wait would block, and no shepherd is left to take over the loop. Counted as a refusal.
    #[error("no shepherd is left to go on while this one waits")]
    NoShepherds,
    /// The wait would block, and the caller is on no shepherd: outside [`Shepherds::run`], with
    /// [`NoSwitch`](super::NoSwitch), or inside the `arm` of another wait. Counted as a refusal.
    #[error("only a shepherd can wait, and not while it arms a timer")]
    NotOnShepherd,
}

/// A counting semaphore for the shepherds of one kernel.
///
/// Waiters are served first come, first served, and a signal goes to the waiter
/// itself: none that comes later can take it. Once a wait is decided (signalled,
/// timed out, interrupted, closed) it stays so; a signal that finds its waiter
/// timed out goes to the next, or is kept.
///
/// # Panics
/// Operations panic when two different [`Shepherds`] are used on one semaphore
/// while a shepherd waits on it.
pub struct Semaphore {
    /// Signals kept for waits to come.
    count: Cell<u32>,
    /// Slots of the first and the last shepherd that waits.
    head: Cell<u32>,
    tail: Cell<u32>,
    closed: Cell<bool>,
    /// Table in which `head` and `tail` are slots; compared, never followed.
    owner: Cell<*const Table>,
}

impl Semaphore {
    /// A semaphore that lets `count` waits pass before one blocks.
    pub const fn new(count: u32) -> Self {
        Semaphore {
            count: Cell::new(count),
            head: Cell::new(NONE),
            tail: Cell::new(NONE),
            closed: Cell::new(false),
            owner: Cell::new(core::ptr::null()),
        }
    }

    /// Takes one signal if one is kept; never blocks.
    #[inline]
    pub fn try_wait(&self) -> bool {
        match self.count.get() {
            0 => false,
            _ if self.closed.get() => false,
            count => {
                self.count.set(count - 1);
                true
            }
        }
    }

    /// Takes one signal, and suspends this shepherd until it has one.
    #[inline(always)]
    pub fn wait(&self, shepherds: &Shepherds) -> Result<(), WaitError> {
        self.wait_ticketed(shepherds, |_| ())
    }

    /// Like [`wait`](Self::wait); if it has to block, `arm` is called first,
    /// with the ticket whose [`Shepherds::time_out`] ends the wait. The caller
    /// disarms what `arm` armed after the return; being late does no harm.
    ///
    /// `arm` may signal this semaphore or time the ticket out at once; it
    /// cannot wait itself.
    #[inline(always)]
    pub fn wait_ticketed(
        &self,
        shepherds: &Shepherds,
        arm: impl FnOnce(Ticket),
    ) -> Result<(), WaitError> {
        if self.try_wait() {
            return Ok(());
        }
        if self.closed.get() {
            return Err(WaitError::Closed);
        }
        let table = &shepherds.table;
        let (slot, entry) = table.may_block()?;
        self.link(table, slot, entry);
        let place = Waiting { semaphore: self, table, slot, entry };
        arm(Ticket { slot, wait: Table::begin_wait(entry) });
        let outcome = table.block(slot, entry);
        // It runs again; of what `place` gives up, only the link can be left.
        core::mem::forget(place);
        if entry.place.linked.get() {
            self.unlink(table, entry);
        }
        match outcome {
            Outcome::Signalled => Ok(()),
            Outcome::TimedOut => Err(WaitError::TimedOut),
            Outcome::Interrupted => Err(WaitError::Interrupted),
            Outcome::Closed => Err(WaitError::Closed),
        }
    }

    /// Gives one signal: to the first that waits, which becomes ready, or else it
    /// is kept. At most `u32::MAX` signals are kept. True if a waiter got it.
    /// Never switches; may be called from anywhere on the thread.
    #[inline]
    pub fn signal(&self, shepherds: &Shepherds) -> bool {
        let woke = self.wake_first(&shepherds.table, Outcome::Signalled);
        if !woke {
            self.count.set(self.count.get().saturating_add(1));
        }
        woke
    }

    /// Ends every present wait with [`WaitError::Interrupted`]; later waits are
    /// not touched. Returns how many it ended.
    pub fn interrupt_all(&self, shepherds: &Shepherds) -> u32 {
        self.end_all(&shepherds.table, Outcome::Interrupted)
    }

    /// Ends every present and every later wait with [`WaitError::Closed`], as
    /// when a session is reset. Waits already signalled keep their signal.
    /// Returns how many it ended.
    pub fn close(&self, shepherds: &Shepherds) -> u32 {
        self.closed.set(true);
        self.end_all(&shepherds.table, Outcome::Closed)
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Signals kept.
    pub fn count(&self) -> u32 {
        self.count.get()
    }

    fn end_all(&self, table: &Rc<Table>, outcome: Outcome) -> u32 {
        let mut ended = 0;
        while self.wake_first(table, outcome) {
            ended += 1;
        }
        ended
    }

    /// Decides the first wait that is still open. Those decided but not yet
    /// resumed are stepped over for good: their shepherd needs its place no more.
    #[inline]
    fn wake_first(&self, table: &Rc<Table>, outcome: Outcome) -> bool {
        loop {
            let slot = self.head.get();
            if slot == NONE {
                return false;
            }
            self.check_owner(table);
            let entry = table.slot(slot);
            self.unlink_first(table, entry);
            if table.decide(slot, entry, outcome) {
                return true;
            }
        }
    }

    /// Called only while a shepherd waits.
    #[inline]
    fn check_owner(&self, table: &Rc<Table>) {
        let own = self.owner.get() == Rc::as_ptr(table);
        assert!(own, "semaphore used with the shepherds of two kernels");
    }

    /// Puts the slot at the end of the queue.
    #[inline]
    fn link(&self, table: &Rc<Table>, slot: u32, entry: &Slot) {
        let place = &entry.place;
        if self.head.get() == NONE {
            self.owner.set(Rc::as_ptr(table));
            self.head.set(slot);
            place.previous.set(NONE);
        } else {
            self.check_owner(table);
            let last = self.tail.get();
            table.slot(last).place.next.set(slot);
            place.previous.set(last);
        }
        self.tail.set(slot);
        place.next.set(NONE);
        place.linked.set(true);
    }

    /// Takes the first out of the queue.
    #[inline]
    fn unlink_first(&self, table: &Table, first: &Slot) {
        first.place.linked.set(false);
        let next = first.place.next.get();
        self.head.set(next);
        match next {
            NONE => self.tail.set(NONE),
            next => table.slot(next).place.previous.set(NONE),
        }
    }

    #[cold]
    fn unlink(&self, table: &Table, entry: &Slot) {
        let place = &entry.place;
        if !place.linked.replace(false) {
            return;
        }
        let (previous, next) = (place.previous.get(), place.next.get());
        match previous {
            NONE => self.head.set(next),
            previous => table.slot(previous).place.next.set(next),
        }
        match next {
            NONE => self.tail.set(previous),
            next => table.slot(next).place.previous.set(previous),
        }
    }
}

impl Default for Semaphore {
    /// One without a signal kept.
    fn default() -> Self {
        Self::new(0)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("count", &self.count.get())
            .field("waited_on", &(self.head.get() != NONE))
            .field("closed", &self.closed.get())
            .finish()
    }
}

/// A place in the queue, given up if `arm` panics.
struct Waiting<'a> {
    semaphore: &'a Semaphore,
    table: &'a Table,
    slot: u32,
    entry: &'a Slot,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.semaphore.unlink(self.table, self.entry);
        self.table.end_wait(self.slot);
    }
}
