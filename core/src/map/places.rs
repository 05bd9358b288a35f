//! Places at which keys were found of late: the cache in front of a map for many conversations in
//! turn.

use super::Key;
use crate::secret::Secret;
use alloc::vec::Vec;
use core::cell::Cell;
use core::hash::Hasher;

/// Places of a set. With two keys a set, 999 of 1000 have a place of their own.
const WAYS: usize = 8;
const SETS_MIN: usize = 2;
/// 80 KiB, for 4096 keys or more.
const SETS_MAX: usize = 2048;
/// Among more, four to a place, nothing is noted: of keys at random too few would be found again to
/// pay for the notes.
const ENTRIES_MAX: usize = 4 * WAYS * SETS_MAX;
/// One in each octet.
const ONES: u64 = u64::MAX / 0xff;

/// A keyed hash of a few instructions that chooses a set. It is no more than hard to guess: keys
/// that are aimed at one set take each other's places there, and are searched for in the table.
#[derive(Clone, Copy)]
pub(super) struct Mix {
    state: u64,
    factor: u64,
}

impl Mix {
    /// Keyed by what tells nothing of `secret`, whatever becomes known of it.
    pub(super) fn new(secret: &Secret) -> Mix {
        Mix { state: secret.hash(&[0]), factor: secret.hash(&[1]) | 1 }
    }

    #[inline(always)]
    pub(super) fn of<K: Key>(mut self, key: &K) -> u64 {
        key.put(&mut self);
        // Once more, for what one multiplication makes of keys in steps lies in steps.
        self.write_u64(0);
        self.state
    }
}

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.state
    }

    fn write(&mut self, octets: &[u8]) {
        for octet in octets {
            self.write_u8(*octet);
        }
    }

    #[inline(always)]
    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    #[inline(always)]
    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    #[inline(always)]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    /// Both halves of a product, for the lower one knows nothing of the word's upper bits.
    #[inline(always)]
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.state ^ word) * u128::from(self.factor);
        self.state = product as u64 ^ (product >> 64) as u64;
    }
}

/// Places of keys that share one choice of places.
#[derive(Default)]
struct Set {
    /// The tag of each way's key, that of the first way lowest.
    tags: Cell<u64>,
    buckets: [Cell<u32>; WAYS],
}

/// Buckets in which keys were found, in sets by the keys' [`Mix`]. What lies in a bucket now is for
/// the asker to compare, so any number is safe here, and no change of the table can leave a wrong
/// answer.
#[derive(Default)]
pub(super) struct Places(Vec<Set>);

impl Places {
    #[inline(always)]
    fn set(&self, mix: u64) -> Option<&Set> {
        self.0.get(mix as usize & self.0.len().wrapping_sub(1))
    }

    /// The bucket in which this key may have been found.
    #[inline(always)]
    pub(super) fn find(&self, mix: u64) -> Option<usize> {
        let set = self.set(mix)?;
        // All ways at once, for nothing could predict which it is. An octet is zero if the borrow
        // of the one subtracted turns its highest bit; the lowest such octet is one in any case.
        let differing = set.tags.get() ^ (tag(mix) * ONES);
        let zeros = differing.wrapping_sub(ONES) & !differing & (ONES << 7);
        let way = zeros.trailing_zeros() / 8;
        (zeros != 0).then(|| set.buckets[way as usize % WAYS].get() as usize)
    }

    #[cfg(test)]
    pub(super) fn sets(&self) -> usize {
        self.0.len()
    }

    /// Notes where a key was found among so many entries, in place of any of its set: which one is
    /// chosen by `nth`, the number of the note. So few keys soon have places that are none of each
    /// other's, and of too many some. More places are made as more are needed, which forgets all.
    pub(super) fn note(&mut self, entries: usize, mix: u64, bucket: usize, nth: u64) {
        if !(2..=ENTRIES_MAX).contains(&entries) {
            return;
        }
        if self.0.len() < sets(entries) {
            self.0 = Vec::new();
            self.0.resize_with(sets(entries), Set::default);
        }
        if let Some(set) = self.set(mix)
            && let Ok(bucket) = u32::try_from(bucket)
        {
            // The upper bits of a multiple of the golden ratio: in no step with turns of keys.
            let way = (nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) as usize % WAYS;
            let others = set.tags.get() & !(0xff << (8 * way));
            set.tags.set(others | tag(mix) << (8 * way));
            set.buckets[way].set(bucket);
        }
    }
}

/// The upper bits of the hash: the lower ones have chosen the set.
#[inline(always)]
fn tag(mix: u64) -> u64 {
    mix >> 56
}

fn sets(entries: usize) -> usize {
    (entries.min(2 * SETS_MAX).next_power_of_two() / 2).max(SETS_MIN)
}
