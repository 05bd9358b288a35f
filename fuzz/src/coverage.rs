//! Counts the edges of the program's flow that inputs have reached, if the compiler has been told
//! to count them, as by `cargo xtask fuzz`. The counters are the program's, not a thread's: one
//! target runs at a time.

use crate::coverage_unsafe::words;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Whether edges are counted.
#[must_use]
pub fn is_on() -> bool {
    !words().is_empty()
}

/// Sets all counters to zero.
pub fn clear() {
    for word in words() {
        word.store(0, Ordering::Relaxed);
    }
}

/// Edges reached, each with its count in eight classes of powers of two.
#[derive(Clone, Default)]
pub struct Reached(Vec<u8>);

impl Reached {
    /// Adds what was counted since the counters were cleared, and clears them. Answers whether that
    /// was new.
    pub fn add(&mut self) -> bool {
        let all = words();
        self.0.resize(8 * all.len(), 0);
        let mut new = false;
        for (word, known) in all.iter().zip(self.0.chunks_exact_mut(8)) {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let counts = word.swap(0, Ordering::Relaxed).to_ne_bytes();
            for (count, known) in counts.into_iter().zip(known) {
                let class = count.checked_ilog2().map_or(0, |log| 1 << log);
                new |= *known & class != class;
                *known |= class;
            }
        }
        new
    }

    /// Number of edges.
    #[must_use]
    pub fn edges(&self) -> usize {
        self.0.iter().filter(|known| **known != 0).count()
    }
}

/// The edges that were counted since the counters were cleared.
#[must_use]
pub fn take() -> BTreeSet<usize> {
    // All at once: what makes the set is counted, too.
    let counts: Vec<u64> = words().iter().map(|word| word.load(Ordering::Relaxed)).collect();
    let counts = counts.iter().enumerate().filter(|(_, word)| **word != 0);
    let octets = counts.flat_map(|(at, word)| {
        let octets = word.to_ne_bytes().into_iter().enumerate();
        octets.filter(|(_, count)| *count != 0).map(move |(octet, _)| 8 * at + octet)
    });
    octets.collect()
}
