//! Events: what is to happen at a later time.
//!
//! [`Wheel`] is the data structure alone, without a clock and without a
//! notion of what an event does: a hierarchical timing wheel (Varghese and
//! Lauck, "Hashed and Hierarchical Timing Wheels", SOSP 1987, scheme 7) of
//! nine levels of 64 slots. A tick is 1.024 microseconds, and nine levels of
//! six bits cover all of [`Time`], so nothing overflows.
//!
//! A slot holds its events unordered. Those of the tick being worked on are
//! in a heap instead, ordered by deadline to the nanosecond and then by the
//! order of scheduling: two runs with the same input see the same order.

mod heap;
mod node;
#[cfg(test)]
mod tests;

use crate::time::Time;
use alloc::boxed::Box;
use core::cell::Cell;
use core::fmt;
use core::num::NonZeroU64;
use node::{NONE, Node, NodeState, Slab};

/// Two to this power nanoseconds are one tick.
const TICK_BITS: u32 = 10;
/// Two to this power slots are one level.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// Enough for every tick in 64 bits of nanoseconds.
const LEVELS: usize = (64 - TICK_BITS).div_ceil(LEVEL_BITS) as usize;
/// Number of events of one slot that are looked through for the earliest.
const SCAN_MAX: usize = 32;

/// A bounded set of events, each with a deadline and a payload.
///
/// Scheduling and cancelling take constant time, save for events of the very
/// tick being worked on, where it is the logarithm of their number. Memory is
/// allocated when the number of events reaches a new height, and given back
/// when the wheel is dropped; an empty wheel allocates nothing, and the slots
/// come to 256 octets for each level that has had an event.
pub struct Wheel<T> {
    slab: Slab<T>,
    /// The first event of each slot, by level, once needed.
    slots: [Option<Box<[u32; SLOTS]>>; LEVELS],
    /// Slots of each level that hold events, as bits.
    occupied: [u64; LEVELS],
    /// The root of the heap of events of the current tick and before.
    root: u32,
    /// The current tick. All slots hold later ones.
    tick: u64,
    sequence: NonZeroU64,
    pending: usize,
    /// The answer of [`Wheel::next_expiry`] while it is known; never after the earliest deadline.
    expiry: Cell<Option<Time>>,
}

/// Names one scheduled event, also after it is over: handles are never used
/// twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle {
    sequence: NonZeroU64,
    index: u32,
}

/// Result of [`Wheel::cancel`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cancel<T> {
    /// The event was pending and will not happen; its payload.
    Cancelled(T),
    /// The event is happening: [`Wheel::pop_due`] gave it out, and
    /// [`Wheel::finish`] was not called yet.
    Running,
    /// The event has happened, or was cancelled before.
    Finished,
}

/// The wheel holds as many events as it may; the event was not scheduled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("too many events are pending")]
pub struct Full;

impl<T> Wheel<T> {
    /// An empty wheel of at most `events_max` events, pending and running
    /// ones together; 2^32 - 1 are the most that is possible.
    #[must_use]
    pub fn new(events_max: usize) -> Wheel<T> {
        Wheel {
            slab: Slab::new(events_max),
            slots: [const { None }; LEVELS],
            occupied: [0; LEVELS],
            root: NONE,
            tick: 0,
            sequence: NonZeroU64::MIN,
            pending: 0,
            expiry: Cell::new(None),
        }
    }

    /// Schedules an event for `at`, which may be past: then it is due at once.
    ///
    /// # Errors
    /// [`Full`] when there are `events_max` events. The payload is dropped.
    pub fn schedule(&mut self, at: Time, payload: T) -> Result<Handle, Full> {
        let sequence = self.sequence;
        let index = self.slab.take(at, sequence, payload).ok_or(Full)?;
        // Ten thousand million a second would take 58 years to get there.
        self.sequence = sequence.saturating_add(1);
        self.pending += 1;
        self.place(index, tick_of(at));
        // An unknown expiry stays unknown, unless this is the only event.
        if self.pending == 1 || self.expiry.get().is_some_and(|expiry| at < expiry) {
            self.expiry.set(Some(at));
        }
        Ok(Handle { sequence, index })
    }

    /// Cancels an event that is still pending.
    pub fn cancel(&mut self, handle: Handle) -> Cancel<T> {
        let Some(node) = self.node(handle) else {
            return Cancel::Finished;
        };
        let at = node.at;
        match node.place {
            NodeState::Running => return Cancel::Running,
            NodeState::Free => return Cancel::Finished,
            NodeState::Heap => self.root = heap::remove(&mut self.slab, self.root, handle.index),
            NodeState::Slot(slot) => self.unlink(handle.index, slot),
        }
        self.pending -= 1;
        self.forget_expiry(at);
        match self.slab.give(handle.index) {
            Some(payload) => Cancel::Cancelled(payload),
            None => Cancel::Finished,
        }
    }

    /// The next event whose deadline is not after `now`, which is running
    /// from here on; events come in the order of their deadlines, and of
    /// scheduling where those are equal. `None` when no more are due.
    ///
    /// Call it until it says `None`, and call [`Wheel::finish`] after each
    /// event, for until then it counts as one. `now` may jump forward by any
    /// amount, and work grows with the events passed, not with the time.
    /// Should `now` go back, events are still not early.
    pub fn pop_due(&mut self, now: Time) -> Option<(Handle, T)> {
        loop {
            if let Some(node) = self.slab.get(self.root) {
                if node.at <= now {
                    return self.run_root();
                }
                break;
            }
            if self.tick >= tick_of(now) {
                break;
            }
            self.advance(tick_of(now));
        }
        // Nothing is due, so an expiry that has come was the beginning of a
        // span, and an executor that sleeps by it must hear of a later one.
        if self.expiry.get().is_some_and(|expiry| expiry <= now) {
            self.expiry.set(None);
        }
        None
    }

    /// Marks a running event as finished; false when it was not running.
    pub fn finish(&mut self, handle: Handle) -> bool {
        let running = self.node(handle).is_some_and(|node| node.place == NodeState::Running);
        if running {
            self.slab.give(handle.index);
        }
        running
    }

    /// Time at which to call [`Wheel::pop_due`] next; `None` when nothing is pending.
    ///
    /// This is the earliest deadline. Only when more than 32 events fall into
    /// the same span of some wheel level (or did, before some were cancelled),
    /// and none earlier, it may be the beginning of that span: never after the
    /// earliest deadline, always after the `now` of the last `pop_due` that
    /// said `None`. A `pop_due` at that time narrows the span, so after nine
    /// rounds at most the answer is the deadline. It is past when something is
    /// due already.
    pub fn next_expiry(&self) -> Option<Time> {
        if self.pending == 0 {
            return None;
        }
        if self.expiry.get().is_none() {
            self.expiry.set(self.find_expiry());
        }
        self.expiry.get()
    }

    /// Time at which a pending or running event was due.
    #[must_use]
    pub fn deadline(&self, handle: Handle) -> Option<Time> {
        self.node(handle).map(|node| node.at)
    }

    /// Number of pending events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pending
    }

    /// Whether no event is pending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pending == 0
    }

    /// Number of events that were given out and are not finished.
    #[must_use]
    pub fn running(&self) -> usize {
        self.slab.len() - self.pending
    }

    /// Whether no more events can be scheduled.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.slab.len() >= self.slab.nodes_max()
    }

    /// Largest number of events, pending and running ones together.
    #[must_use]
    pub fn events_max(&self) -> usize {
        self.slab.nodes_max()
    }

    /// Shows each pending event to `see`, in no useful order.
    pub fn for_each(&self, mut see: impl FnMut(Time, &T)) {
        for node in self.slab.iter() {
            if let Some(payload) = &node.payload {
                see(node.at, payload);
            }
        }
    }

    fn node(&self, handle: Handle) -> Option<&Node<T>> {
        self.slab.get(handle.index).filter(|node| node.sequence == Some(handle.sequence))
    }

    /// Gives out the root of the heap.
    fn run_root(&mut self) -> Option<(Handle, T)> {
        let index = self.root;
        self.root = heap::remove(&mut self.slab, index, index);
        let node = &mut self.slab[index];
        node.place = NodeState::Running;
        let (at, sequence, payload) = (node.at, node.sequence?, node.payload.take()?);
        self.pending -= 1;
        self.forget_expiry(at);
        Some((Handle { sequence, index }, payload))
    }

    /// Puts an event where its tick belongs, seen from the current one.
    fn place(&mut self, index: u32, tick: u64) {
        if tick <= self.tick {
            self.slab[index].place = NodeState::Heap;
            self.root = heap::insert(&mut self.slab, self.root, index);
            return;
        }
        // The level is that of the first six bits in which the ticks differ,
        // so all events of one level come before all of the next, and the
        // slots of a level from the lowest to the highest.
        let level = (63 - (tick ^ self.tick).leading_zeros()) / LEVEL_BITS;
        let in_level = (tick >> (level * LEVEL_BITS)) as usize % SLOTS;
        let slot = level as usize * SLOTS + in_level;
        let slots = self.slots[level as usize].get_or_insert_with(|| Box::new([NONE; SLOTS]));
        let second = core::mem::replace(&mut slots[in_level], index);
        let node = &mut self.slab[index];
        (node.place, node.prev, node.next) = (NodeState::Slot(slot as u16), NONE, second);
        if let Some(second) = self.slab.get_mut(second) {
            second.prev = index;
        }
        self.occupied[level as usize] |= 1 << in_level;
    }

    /// Takes an event out of its slot.
    fn unlink(&mut self, index: u32, slot: u16) {
        let node = &self.slab[index];
        let (prev, next) = (node.prev, node.next);
        if let Some(next) = self.slab.get_mut(next) {
            next.prev = prev;
        }
        if let Some(prev) = self.slab.get_mut(prev) {
            prev.next = next;
        } else {
            self.set_first(usize::from(slot), next);
        }
    }

    fn set_first(&mut self, slot: usize, first: u32) {
        if let Some(slots) = &mut self.slots[slot / SLOTS] {
            slots[slot % SLOTS] = first;
        }
        if first == NONE {
            self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
        }
    }

    /// The earliest slot that holds events, its first event and first tick.
    fn earliest_slot(&self) -> Option<(usize, u32, u64)> {
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        let in_level = self.occupied[level].trailing_zeros() as usize;
        let slot = level * SLOTS + in_level;
        let shift = level as u32 * LEVEL_BITS;
        let above = self.tick >> shift >> LEVEL_BITS << LEVEL_BITS;
        let first_tick = (above | in_level as u64) << shift;
        Some((slot, self.slots[level].as_ref()?[in_level], first_tick))
    }

    /// Brings the current tick nearer to `target`: to the earliest tick with
    /// events, which are then in the heap, or to `target` itself. Called only
    /// while the heap is empty.
    ///
    /// No tick with events is passed, so events in other slots stay in the
    /// level that [`Wheel::place`] would give them.
    fn advance(&mut self, target: u64) {
        let Some((slot, first, first_tick)) = self.earliest_slot() else {
            self.tick = target;
            return;
        };
        if first_tick > target {
            self.tick = target;
            return;
        }
        // All events of a slot of the lowest level have the same tick.
        let earliest = if slot < SLOTS {
            first_tick
        } else {
            let ticks = self.slab.list(first).map(|node| tick_of(node.at));
            ticks.min().unwrap_or(first_tick)
        };
        self.tick = earliest.min(target);
        self.set_first(slot, NONE);
        let mut index = first;
        while let Some(node) = self.slab.get(index) {
            let (next, tick) = (node.next, tick_of(node.at));
            self.place(index, tick);
            index = next;
        }
    }

    /// Forgets the next expiry if it is `at`, where an event is pending no
    /// more. Any other stays a bound: it was before that event.
    fn forget_expiry(&self, at: Time) {
        if self.expiry.get() == Some(at) {
            self.expiry.set(None);
        }
    }

    fn find_expiry(&self) -> Option<Time> {
        if let Some(node) = self.slab.get(self.root) {
            return Some(node.at);
        }
        let (_, first, first_tick) = self.earliest_slot()?;
        let mut deadlines = self.slab.list(first).map(|node| node.at);
        let earliest = deadlines.by_ref().take(SCAN_MAX).min();
        if deadlines.next().is_none() {
            return earliest;
        }
        Some(Time::from_ns(first_tick << TICK_BITS))
    }
}

/// Without the payloads, which may know the wheel in turn.
impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("pending", &self.pending)
            .field("running", &self.running())
            .field("next_expiry", &self.next_expiry())
            .finish_non_exhaustive()
    }
}

fn tick_of(at: Time) -> u64 {
    at.as_ns() >> TICK_BITS
}
