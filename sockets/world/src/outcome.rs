//! What came of a run, and what it is compared by.

use std::cell::Cell;
use xk_core::Time;
use xk_sim::{Sighting, Tap};

/// What came of a run: two runs of one seed have equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// When it ended.
    pub now: Time,
    /// Frames that crossed a link.
    pub frames: u64,
    /// The times, senders and lengths of all of them, folded.
    pub shape: u64,
    /// Their octets, folded; `None` if they may be random.
    pub octets: Option<u64>,
}

/// Folds all frames of a world into two numbers.
#[derive(Default)]
pub(crate) struct Digest {
    frames: Cell<u64>,
    shape: Cell<u64>,
    octets: Cell<u64>,
}

/// One step of the 64-bit FNV-1a hash, over a word.
fn fold(hash: &Cell<u64>, word: u64) {
    hash.set((hash.get() ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29));
}

impl Digest {
    pub(crate) fn outcome(&self, now: Time, with_octets: bool) -> Outcome {
        let octets = with_octets.then_some(self.octets.get());
        Outcome { now, frames: self.frames.get(), shape: self.shape.get(), octets }
    }
}

impl Tap for Digest {
    fn frame(&self, seen: Sighting<'_>) {
        self.frames.set(self.frames.get() + 1);
        let sender = u64::from(seen.link.0) << 32 | u64::from(seen.host.0);
        for word in [seen.time.as_ns(), sender, seen.frame.len() as u64] {
            fold(&self.shape, word);
        }
        let mut octets = seen.frame.octets();
        loop {
            let mut word = [0; 8];
            let mut taken = 0;
            for (place, octet) in word.iter_mut().zip(&mut octets) {
                *place = octet;
                taken += 1;
            }
            fold(&self.octets, u64::from_le_bytes(word));
            if taken < word.len() {
                return;
            }
        }
    }
}
