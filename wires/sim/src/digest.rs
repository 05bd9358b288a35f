//! Everything that crossed the links of a world, folded into numbers.

use crate::network::{Sighting, Tap};
use std::cell::Cell;

/// Folds all frames of a network. Two runs of one seed have equal digests.
#[derive(Default)]
pub struct Digest {
    frames: Cell<u64>,
    shape: Cell<u64>,
    octets: Option<Cell<u64>>,
}

/// One step of the 64-bit FNV-1a hash, over a word.
fn fold(hash: &Cell<u64>, word: u64) {
    hash.set((hash.get() ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29));
}

impl Digest {
    /// A digest of frames' octets, too, which takes as long as reading them.
    pub fn with_octets() -> Self {
        Self { octets: Some(Cell::default()), ..Self::default() }
    }

    /// Frames that crossed a link.
    pub fn frames(&self) -> u64 {
        self.frames.get()
    }

    /// The times, senders and lengths of all of them, folded.
    pub fn shape(&self) -> u64 {
        self.shape.get()
    }

    /// Their octets, folded; 0 if these are not looked at.
    pub fn octets(&self) -> u64 {
        self.octets.as_ref().map_or(0, Cell::get)
    }
}

impl Tap for Digest {
    fn frame(&self, seen: Sighting<'_>) {
        self.frames.set(self.frames.get() + 1);
        let sender = u64::from(seen.link.0) << 32 | u64::from(seen.host.0);
        for word in [seen.time.as_ns(), sender, seen.frame.len() as u64] {
            fold(&self.shape, word);
        }
        let Some(folded) = &self.octets else { return };
        let mut octets = seen.frame.octets();
        loop {
            let mut word = [0; 8];
            let mut taken = 0;
            for (place, octet) in word.iter_mut().zip(&mut octets) {
                *place = octet;
                taken += 1;
            }
            fold(folded, u64::from_le_bytes(word));
            if taken < word.len() {
                return;
            }
        }
    }
}
