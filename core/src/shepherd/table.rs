//! The table of shepherds: which runs the loop, which are idle, ready or waiting.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};

use super::switch::{StackError, Switch};
use super::{Flow, Limits, RunError, Stats, WaitError};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// End of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Signalled,
    TimedOut,
    Interrupted,
    Closed,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotState {
    /// Has no stack yet, or lost it by a panic.
    Unmade,
    Idle,
    Running,
    Waiting,
    Ready(Outcome),
}

/// A shepherd's link in the queue of the semaphore that it waits on. After a time-out it stays
/// linked until the shepherd runs again and takes itself out.
pub(super) struct QueueLink {
    pub(super) previous: Cell<u32>,
    pub(super) next: Cell<u32>,
    pub(super) linked: Cell<bool>,
}

pub(super) struct Slot {
    state: Cell<SlotState>,
    /// Number of its waits; tells a stale ticket from a live one.
    wait: Cell<u64>,
    /// True if its waits end at once.
    is_ending: Cell<bool>,
    /// Next unmade, idle or ready slot; a slot is only ever one of these.
    next: Cell<u32>,
    /// The shepherd that resumed it last, if one did: the leader of that time.
    resumer: Cell<u32>,
    pub(super) place: QueueLink,
}

/// The table that [`super::Shepherds`] is a handle of. Every shepherd's `main` holds it.
pub(super) struct Table {
    switch: Box<dyn Switch>,
    limits: Limits,
    slots: Box<[Slot]>,
    /// Last in, first out: the warmest stack is taken first.
    unmade: Cell<u32>,
    idle: Cell<u32>,
    /// First in, first out.
    ready_head: Cell<u32>,
    ready_tail: Cell<u32>,
    ready_count: Cell<u32>,
    /// Number of ready shepherds to resume before the next dispatch.
    batch: Cell<u32>,
    /// The shepherd that this code is on.
    current: Cell<u32>,
    /// The shepherd that runs the loop. Below it lie those in reserve, each of
    /// which resumed the one above it.
    leader: Cell<u32>,
    /// A leader taken from the pool, until it was first resumed as such.
    new_leader: Cell<u32>,
    active: Cell<bool>,
    stop: Cell<bool>,
    retiring: Cell<bool>,
    /// The switch has said that it has no stacks to give, ever.
    in_place: Cell<bool>,
    body: RefCell<Option<Rc<dyn Fn() -> Flow>>>,
    /// Number of the run that `body` belongs to.
    runs: Cell<u64>,
    made_count: Cell<u32>,
    /// Number of running and suspended shepherds; the others are idle or in reserve.
    in_use_count: Cell<u32>,
    suspended_count: Cell<u32>,
    in_use_high_water: Cell<u32>,
    dispatches: Cell<u64>,
    blocks: Cell<u64>,
    timeouts: Cell<u64>,
    interrupts: Cell<u64>,
    refusals_no_shepherds: Cell<u64>,
    refusals_not_on_shepherd: Cell<u64>,
}

fn increment(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

impl Table {
    pub(super) fn new(switch: Box<dyn Switch>, limits: Limits) -> Self {
        // NONE names no slot, and every other number may.
        let slots: Box<[Slot]> = (0..limits.shepherds_max.min(NONE - 1))
            .map(|slot| Slot {
                state: Cell::new(SlotState::Unmade),
                wait: Cell::new(0),
                is_ending: Cell::new(false),
                next: Cell::new(slot + 1),
                resumer: Cell::new(NONE),
                place: QueueLink {
                    previous: Cell::new(NONE),
                    next: Cell::new(NONE),
                    linked: Cell::new(false),
                },
            })
            .collect();
        if let Some(last) = slots.last() {
            last.next.set(NONE);
        }
        Table {
            switch,
            limits,
            unmade: Cell::new(if slots.is_empty() { NONE } else { 0 }),
            slots,
            idle: Cell::new(NONE),
            ready_head: Cell::new(NONE),
            ready_tail: Cell::new(NONE),
            ready_count: Cell::new(0),
            batch: Cell::new(0),
            current: Cell::new(NONE),
            leader: Cell::new(NONE),
            new_leader: Cell::new(NONE),
            active: Cell::new(false),
            stop: Cell::new(false),
            retiring: Cell::new(false),
            in_place: Cell::new(false),
            body: RefCell::new(None),
            runs: Cell::new(0),
            made_count: Cell::new(0),
            in_use_count: Cell::new(0),
            suspended_count: Cell::new(0),
            in_use_high_water: Cell::new(0),
            dispatches: Cell::new(0),
            blocks: Cell::new(0),
            timeouts: Cell::new(0),
            interrupts: Cell::new(0),
            refusals_no_shepherds: Cell::new(0),
            refusals_not_on_shepherd: Cell::new(0),
        }
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn has_stacks(&self) -> bool {
        self.switch.has_stacks()
    }

    pub(super) fn stats(&self) -> Stats {
        Stats {
            made: self.made_count.get(),
            running: self.in_use_count.get() - self.suspended_count.get(),
            suspended: self.suspended_count.get(),
            ready: self.ready_count.get(),
            in_use_high_water: self.in_use_high_water.get(),
            dispatches: self.dispatches.get(),
            blocks: self.blocks.get(),
            timeouts: self.timeouts.get(),
            interrupts: self.interrupts.get(),
            refusals_no_shepherds: self.refusals_no_shepherds.get(),
            refusals_not_on_shepherd: self.refusals_not_on_shepherd.get(),
        }
    }

    #[inline]
    pub(super) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(super) fn current(&self) -> u32 {
        self.current.get()
    }

    #[inline]
    pub(super) fn on_loop(&self) -> bool {
        self.current.get() != NONE && self.current.get() == self.leader.get()
    }

    #[inline]
    pub(super) fn ready_count(&self) -> u32 {
        self.ready_count.get()
    }

    // ---- the loop

    pub(super) fn run(self: &Rc<Self>, body: Rc<dyn Fn() -> Flow>) -> Result<(), RunError> {
        if self.active.replace(true) {
            return Err(RunError::AlreadyRunning);
        }
        let _end = RunEnd(self);
        self.stop.set(false);
        if self.in_place.get() {
            self.run_in_place(&*body);
            return Ok(());
        }
        match self.have_spare() {
            Ok(()) => {}
            Err(Some(StackError::NoSwitch)) => {
                // From now on nothing is allocated for a shepherd that cannot be.
                self.in_place.set(true);
                self.run_in_place(&*body);
                return Ok(());
            }
            Err(_) => return Err(RunError::NoShepherds),
        }
        self.body.replace(Some(body));
        increment(&self.runs);
        self.appoint_leader();
        // A leader above no reserve comes back here when it blocks, with its
        // successor appointed, or when it stops.
        loop {
            let leader = self.new_leader.replace(NONE);
            if leader == NONE {
                return Ok(());
            }
            self.resume(leader);
        }
    }

    /// Without a switch nothing is ever suspended, so nothing becomes ready.
    fn run_in_place(&self, body: &dyn Fn() -> Flow) {
        loop {
            increment(&self.dispatches);
            if body() == Flow::Stop {
                return;
            }
        }
    }

    /// Runs on a shepherd's own stack: leads the loop until the loop stops, then waits in the pool.
    fn shepherd_main(&self, slot: u32) {
        while !self.retiring.get() {
            let body = self.body.borrow().clone();
            if let Some(body) = body {
                self.lead(slot, &*body, self.runs.get());
            }
            let leads = self.leader.get() == slot;
            if leads && !self.stop.get() {
                continue; // with the body of this run, and not of a former one
            }
            self.slot(slot).state.set(SlotState::Idle);
            self.in_use_count.set(self.in_use_count.get() - 1);
            if leads {
                self.recall_reserve(self.slot(slot));
            }
            self.push_idle(slot);
            self.switch.suspend(slot);
        }
    }

    /// Calls the body of that run again and again. A message that blocked on
    /// the way ends on a shepherd that the leader resumed; the loop then goes on
    /// right here, and that leader stays in reserve for when this one blocks:
    /// half the switches of going back to it.
    fn lead(&self, slot: u32, body: &dyn Fn() -> Flow, run: u64) {
        // A body dropped after the stop may have blocked.
        if self.stop.get() {
            return;
        }
        loop {
            if self.batch.get() != 0 && self.resume_batch() == Flow::Stop {
                return;
            }
            increment(&self.dispatches);
            if body() == Flow::Stop {
                self.stop.set(true);
                return;
            }
            if self.leader.get() == slot {
                self.batch.set(self.ready_count.get());
            } else {
                self.leader.set(slot);
                self.in_use_count.set(self.in_use_count.get() - 1);
                if self.runs.get() != run {
                    return;
                }
            }
        }
    }

    /// Resumes those that were ready when the batch was begun; those that
    /// become so meanwhile are for the next turn, that the wires get theirs.
    /// The batch is the table's: the shepherd that takes the loop over finishes it.
    fn resume_batch(&self) -> Flow {
        loop {
            let left = self.batch.get();
            if left == 0 {
                return Flow::Continue;
            }
            self.batch.set(left - 1);
            let slot = self.pop_ready();
            if slot == NONE {
                self.batch.set(0);
                return Flow::Continue;
            }
            self.resume(slot);
            if self.stop.get() {
                return Flow::Stop;
            }
        }
    }

    #[inline]
    fn resume(&self, slot: u32) {
        let resumer = self.current.replace(slot);
        self.slot(slot).resumer.set(resumer);
        let unwound = Unwound { table: self, slot, resumer };
        self.switch.resume(slot);
        core::mem::forget(unwound);
        self.current.set(resumer);
    }

    /// Makes a spare shepherd, if none is idle. `None` as the error: the limit.
    fn have_spare(self: &Rc<Self>) -> Result<(), Option<StackError>> {
        if self.idle.get() != NONE {
            return Ok(());
        }
        let slot = self.unmade.get();
        if slot == NONE {
            return Err(None);
        }
        let table = Rc::clone(self);
        let main = Box::new(move || table.shepherd_main(slot));
        self.switch.create(slot, self.limits.stack_octets, main).map_err(Some)?;
        self.unmade.set(self.slot(slot).next.get());
        self.made_count.set(self.made_count.get() + 1);
        self.slot(slot).state.set(SlotState::Idle);
        self.push_idle(slot);
        Ok(())
    }

    /// Gives the loop to an idle shepherd; the caller knows that there is one.
    fn appoint_leader(&self) {
        let slot = self.pop_idle();
        self.slot(slot).state.set(SlotState::Running);
        self.new_leader.set(slot);
        self.set_leader(slot);
    }

    /// Gives the loop back to the one in reserve below this leader; false if
    /// there is none.
    #[inline]
    fn recall_reserve(&self, leader: &Slot) -> bool {
        let resumer = leader.resumer.get();
        if resumer == NONE {
            return false;
        }
        self.set_leader(resumer);
        true
    }

    /// The new leader, idle or in reserve so far, first resumes all that are ready.
    #[inline]
    fn set_leader(&self, slot: u32) {
        self.leader.set(slot);
        self.batch.set(self.ready_count.get());
        let in_use = self.in_use_count.get() + 1;
        self.in_use_count.set(in_use);
        if in_use > self.in_use_high_water.get() {
            self.in_use_high_water.set(in_use);
        }
    }

    /// Lets every idle shepherd return from its `main`, which gives its stack
    /// back and its count of this table.
    pub(super) fn retire_idle(&self) {
        self.retiring.set(true);
        while self.idle.get() != NONE {
            let slot = self.pop_idle();
            self.resume(slot);
            self.forget(slot);
        }
    }

    /// The shepherd in `slot` is no more; the slot may get a new one.
    fn forget(&self, slot: u32) {
        let entry = self.slot(slot);
        entry.state.set(SlotState::Unmade);
        entry.next.set(self.unmade.replace(slot));
        self.made_count.set(self.made_count.get() - 1);
    }

    // ---- waiting

    /// The caller's slot, if the caller may block: it is on a shepherd, and
    /// another can lead the loop meanwhile.
    #[inline]
    pub(super) fn may_block(self: &Rc<Self>) -> Result<(u32, &Slot), WaitError> {
        let slot = self.current.get();
        let Some(entry) = self.slots.get(slot as usize) else {
            increment(&self.refusals_not_on_shepherd);
            return Err(WaitError::NotOnShepherd);
        };
        if entry.state.get() != SlotState::Running {
            increment(&self.refusals_not_on_shepherd);
            return Err(WaitError::NotOnShepherd);
        }
        if entry.is_ending.get() {
            return Err(WaitError::Interrupted);
        }
        let needs_spare = slot == self.leader.get() && entry.resumer.get() == NONE;
        if needs_spare && self.have_spare().is_err() {
            increment(&self.refusals_no_shepherds);
            return Err(WaitError::NoShepherds);
        }
        Ok((slot, entry))
    }

    /// Begins a wait, which can be decided from here on. Returns its number.
    #[inline]
    pub(super) fn begin_wait(entry: &Slot) -> u64 {
        let wait = entry.wait.get() + 1;
        entry.wait.set(wait);
        entry.state.set(SlotState::Waiting);
        wait
    }

    /// Suspends until the wait is decided. A wait decided already takes its
    /// turn among the ready all the same.
    ///
    /// Inlined, as is the wait around it: the processor's return stack is of no
    /// use after a switch, so every frame between costs a misprediction.
    #[inline(always)]
    pub(super) fn block(&self, slot: u32, entry: &Slot) -> Outcome {
        increment(&self.blocks);
        self.suspended_count.set(self.suspended_count.get() + 1);
        if slot == self.leader.get() && !self.recall_reserve(entry) {
            self.appoint_leader();
        }
        self.switch.suspend(slot);
        self.suspended_count.set(self.suspended_count.get() - 1);
        match entry.state.replace(SlotState::Running) {
            SlotState::Ready(outcome) => outcome,
            // Only pop_ready leads here, and it takes none but ready ones.
            _ => Outcome::Interrupted,
        }
    }

    /// Leaves the wait; if by a panic before it blocked, leaves the ready too.
    pub(super) fn end_wait(&self, slot: u32) {
        let state = self.slot(slot).state.replace(SlotState::Running);
        if let SlotState::Ready(_) = state {
            for _ in 0..self.ready_count.get() {
                let other = self.pop_ready();
                if other != slot {
                    self.push_ready(other, self.slot(other));
                }
            }
        }
    }

    pub(super) fn time_out(&self, slot: u32, wait: u64) -> bool {
        let entry = self.slots.get(slot as usize);
        entry.is_some_and(|entry| {
            entry.wait.get() == wait && self.decide(slot, entry, Outcome::TimedOut)
        })
    }

    /// Decides a wait and makes its shepherd ready; false if there is none that
    /// is still open.
    #[inline]
    pub(super) fn decide(&self, slot: u32, entry: &Slot, outcome: Outcome) -> bool {
        if entry.state.get() != SlotState::Waiting {
            return false;
        }
        match outcome {
            Outcome::Signalled => {}
            Outcome::TimedOut => increment(&self.timeouts),
            Outcome::Interrupted | Outcome::Closed => increment(&self.interrupts),
        }
        entry.state.set(SlotState::Ready(outcome));
        self.push_ready(slot, entry);
        true
    }

    pub(super) fn set_ending(&self, slot: u32, is_ending: bool) {
        let Some(entry) = self.slots.get(slot as usize) else {
            return;
        };
        entry.is_ending.set(is_ending);
        if is_ending {
            self.decide(slot, entry, Outcome::Interrupted);
        }
    }

    pub(super) fn interrupt_all(&self) -> u32 {
        let mut ended = 0;
        for (slot, entry) in (0..).zip(&self.slots) {
            ended += u32::from(self.decide(slot, entry, Outcome::Interrupted));
        }
        ended
    }

    // ---- the two lists

    #[inline]
    fn push_ready(&self, slot: u32, entry: &Slot) {
        entry.next.set(NONE);
        match self.ready_tail.replace(slot) {
            NONE => self.ready_head.set(slot),
            last => self.slot(last).next.set(slot),
        }
        self.ready_count.set(self.ready_count.get() + 1);
    }

    #[inline]
    fn pop_ready(&self) -> u32 {
        let slot = self.ready_head.get();
        // None has the number NONE.
        if let Some(entry) = self.slots.get(slot as usize) {
            let next = entry.next.get();
            self.ready_head.set(next);
            if next == NONE {
                self.ready_tail.set(NONE);
            }
            self.ready_count.set(self.ready_count.get() - 1);
        }
        slot
    }

    fn push_idle(&self, slot: u32) {
        self.slot(slot).next.set(self.idle.replace(slot));
    }

    fn pop_idle(&self) -> u32 {
        let slot = self.idle.get();
        self.idle.set(self.slot(slot).next.get());
        slot
    }
}

/// The end of [`Table::run`], however it comes.
struct RunEnd<'a>(&'a Table);

impl Drop for RunEnd<'_> {
    fn drop(&mut self) {
        self.0.leader.set(NONE);
        self.0.new_leader.set(NONE);
        self.0.batch.set(0);
        self.0.active.set(false);
        // Taken out first: dropping a body may call back into the table.
        let body = self.0.body.take();
        drop(body);
    }
}

/// The end of a [`Table::resume`] by a panic: that shepherd has no stack any
/// more, and the panic goes on, through those in reserve, to the caller of
/// [`Table::run`].
struct Unwound<'a> {
    table: &'a Table,
    slot: u32,
    resumer: u32,
}

impl Drop for Unwound<'_> {
    fn drop(&mut self) {
        let table = self.table;
        table.current.set(self.resumer);
        table.in_use_count.set(table.in_use_count.get() - 1);
        if table.leader.get() == self.slot {
            table.recall_reserve(table.slot(self.slot));
        }
        table.forget(self.slot);
    }
}
