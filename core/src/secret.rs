//! Secrets: keys that cannot be known outside, and what is made with them.

use crate::random::Random;
use core::cell::Cell;
use core::fmt;
use core::hash::Hasher;
use siphasher::sip::{SipHasher13, SipHasher24};

/// A key of 128 bits for one purpose, from [`Kernel::secret`](crate::Kernel::secret).
///
/// Each is drawn apart: whatever becomes known of one tells nothing of the others. So a protocol
/// that needs keys for two purposes asks for two, when it is built, and keeps them.
#[derive(Clone, Copy)]
pub struct Secret([u64; 2]);

impl Secret {
    /// A secret that is known, for tests.
    #[must_use]
    pub const fn known(key: [u64; 2]) -> Self {
        Self(key)
    }

    /// The hash of `words` under this key, for what is shown to others: SipHash-2-4 (Aumasson and
    /// Bernstein, "SipHash: a fast short-input PRF"). One that has seen it of any other words
    /// cannot say what it is of these.
    #[must_use]
    pub fn hash(&self, words: &[u64]) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.0[0], self.0[1]);
        for word in words {
            // As little-endian octets on every machine.
            hasher.write_u64(word.to_le());
        }
        hasher.finish()
    }

    /// Hasher by which a map places its keys; its results are never shown.
    #[inline(always)]
    pub(crate) fn hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }
}

/// Draws secrets: a generator that is used seldom, and keeps its key without the block that it is
/// about to put out.
pub(crate) struct Secrets {
    key: [u8; 32],
    drawn: Cell<u64>,
}

impl Secrets {
    /// Takes the place of a generator whose other output is not seen.
    pub(crate) fn new(random: &Random) -> Self {
        Self { key: random.key(), drawn: Cell::new(0) }
    }

    /// The next one.
    pub(crate) fn draw(&self) -> Secret {
        let drawn = self.drawn.get();
        self.drawn.set(drawn + 1);
        let random = Random::from_key(self.key);
        random.skip(drawn * 4);
        Secret([random.next_u64(), random.next_u64()])
    }
}

/// Without the key.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of SipHash-2-4's authors: the key 00 01 .. 0f, the octets 00 01 ...
    #[test]
    fn known_answers_of_siphash_2_4() {
        let secret = Secret::known([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(secret.hash(&[]), 0x726f_db47_dd0e_0e31);
        assert_eq!(secret.hash(&words[..1]), 0x93f5_f579_9a93_2462);
        assert_eq!(secret.hash(&words), 0x3f2a_cc7f_57c2_9bdb);
        assert_eq!(std::format!("{secret:?}"), "Secret { .. }");
    }

    #[test]
    fn no_two_are_alike() {
        let random = Random::new(1);
        let secrets = Secrets::new(&random);
        let [a, b] = [secrets.draw(), secrets.draw()];
        let drawn = [0; 4].map(|_: u64| random.next_u64());
        assert_eq!([a.0, b.0].concat(), drawn, "those of the generator, one after the other");
        assert_ne!(a.hash(&[1]), b.hash(&[1]));
        assert_ne!(a.hash(&[1]), a.hash(&[1, 0]));
    }
}
