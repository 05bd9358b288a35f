//! Counts of a table's sessions that the neighbours of one network have made.

use alloc::boxed::Box;
use core::cell::{Cell, OnceCell};

/// The part of a table that the 256 neighbours of a source may take while others want room: an
/// eighth.
const NEAR_SHARE: usize = 8;
/// The part that all 65,536 around them may take: a quarter.
const FAR_SHARE: usize = 4;
/// The most places of either count. Networks that meet in one make it too high, by little: a share
/// is many of them.
const PLACES_MAX: usize = 1024;

/// Spreads a key's bits (the golden ratio's, as Fibonacci hashing does).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// A crowd of sources: those that agree with one in all bits but the lowest `shift`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crowd {
    prefix: u64,
    shift: u32,
}

impl Crowd {
    fn of(source: u64, shift: u32) -> Self {
        let prefix = source >> shift;
        Self { prefix, shift }
    }

    pub(super) fn has(self, source: u64) -> bool {
        source != 0 && source >> self.shift == self.prefix
    }
}

/// Sessions that messages made, counted by the networks of their sources: without the lowest 8
/// bits, and without 16.
pub(super) struct Crowds {
    /// None before the table has so many sessions that a share of it matters: most tables of most
    /// hosts never have, and 8 KiB each would be most of what a simulated host takes.
    counts: OnceCell<Box<[[Cell<u32>; 2]]>>,
    key: u64,
    room: Cell<usize>,
}

impl Crowds {
    /// For a table with room for so many; `key` keeps strangers from choosing where they are
    /// counted.
    pub(super) fn new(key: u64, room: usize) -> Self {
        Self { counts: OnceCell::new(), key: key.wrapping_mul(SPREAD) | 1, room: Cell::new(room) }
    }

    pub(super) fn set_room(&self, room: usize) {
        self.room.set(room);
    }

    fn place(&self, places: usize, crowd: Crowd) -> usize {
        let mixed = crowd.prefix.wrapping_add(1).wrapping_mul(self.key);
        (mixed >> 40) as usize & (places - 1)
    }

    /// Begins to count; `all` shows the sources of the sessions that there are by now.
    pub(super) fn begin(&self, all: impl FnOnce(&mut dyn FnMut(u64))) {
        if self.counts.get().is_some() {
            return;
        }
        let places = self.room.get().clamp(16, PLACES_MAX).next_power_of_two();
        if self.counts.set((0..places).map(|_| Default::default()).collect()).is_ok() {
            all(&mut |source| self.enter(source));
        }
    }

    fn change(&self, source: u64, by: impl Fn(u32) -> u32) {
        let Some(counts) = self.counts.get().filter(|_| source != 0) else {
            return;
        };
        for (at, shift) in [8, 16].into_iter().enumerate() {
            let place = self.place(counts.len(), Crowd::of(source, shift));
            if let Some(count) = counts.get(place).and_then(|counts| counts.get(at)) {
                count.set(by(count.get()));
            }
        }
    }

    pub(super) fn enter(&self, source: u64) {
        self.change(source, |count| count + 1);
    }

    pub(super) fn leave(&self, source: u64) {
        self.change(source, |count| count.saturating_sub(1));
    }

    /// The networks of a source that have their share of the table or more, the smaller first.
    pub(super) fn of(&self, source: u64) -> [Option<Crowd>; 2] {
        let Some(counts) = self.counts.get().filter(|_| source != 0) else {
            return [None; 2];
        };
        let crowd = |at: usize, shift: u32, share: usize| {
            let crowd = Crowd::of(source, shift);
            let place = self.place(counts.len(), crowd);
            let count = counts.get(place).and_then(|counts| counts.get(at))?;
            (count.get() as usize >= (self.room.get() / share).max(1)).then_some(crowd)
        };
        [crowd(0, 8, NEAR_SHARE), crowd(1, 16, FAR_SHARE)]
    }

    /// All sessions are gone.
    pub(super) fn clear(&self) {
        for count in self.counts.get().into_iter().flatten().flatten() {
            count.set(0);
        }
    }
}
