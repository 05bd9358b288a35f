//! Random numbers: a cipher makes all of them.
//!
//! The generator is ChaCha with twenty rounds (RFC 8439, section 2.3, with 64 bits of counter and
//! 64 of nonce, as in Bernstein's "ChaCha, a variant of Salsa20"). However much of its output is
//! seen, the rest of it cannot be told from chance without the key. So a number
//! drawn here may go onto the wire as it is, and there is no second, weaker generator to be taken
//! by mistake.
//!
//! A real kernel's key is drawn from the operating system. A simulation's follows from a seed of 64
//! bits, and one seed replays a run to the bit.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use core::cell::RefCell;
use core::fmt;

/// The block at which the keys of forks lie in their streams. A generator's own output, from block
/// 0 on, never gets there.
const FORKS: u64 = 1 << 63;

/// A source of random numbers, advanced through a shared reference.
pub struct Random {
    stream: RefCell<ChaCha20Rng>,
}

impl Random {
    /// A generator for what is to be replayed: its whole output follows from `seed`, and no secret
    /// does.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        Random::from_key(key)
    }

    /// A generator whose output can be foretold only with `key`.
    #[must_use]
    pub fn from_key(key: [u8; 32]) -> Random {
        Random { stream: RefCell::new(ChaCha20Rng::from_seed(key)) }
    }

    /// An independent generator, which follows from this one's key and `label` alone.
    ///
    /// How much was drawn before does not matter, so a part of a simulation that draws more or less
    /// than yesterday leaves all other parts as they were. The same label gives the same stream
    /// each time: one per user. What one of them puts out tells nothing of the others.
    #[must_use]
    pub fn fork(&self, label: u64) -> Random {
        let mut stream = ChaCha20Rng::from_seed(self.stream.borrow().get_seed());
        stream.set_stream(label);
        stream.set_block_pos(FORKS);
        let mut key = [0; 32];
        stream.fill_bytes(&mut key);
        Random::from_key(key)
    }

    /// The key that a generator's whole output follows from.
    pub(crate) fn key(&self) -> [u8; 32] {
        self.stream.borrow().get_seed()
    }

    /// Goes to this place in the output, in words of 32 bits from its beginning.
    pub(crate) fn skip(&self, words: u64) {
        self.stream.borrow_mut().set_word_pos(words.into());
    }

    /// Sixty-four random bits.
    #[inline]
    pub fn next_u64(&self) -> u64 {
        self.stream.borrow_mut().next_u64()
    }

    /// Thirty-two random bits.
    #[inline]
    pub fn next_u32(&self) -> u32 {
        self.stream.borrow_mut().next_u32()
    }

    /// Sixteen random bits.
    #[inline]
    pub fn next_u16(&self) -> u16 {
        self.next_u32() as u16
    }

    /// A number from 0 to `n - 1`, each equally likely; 0 when `n` is 0.
    ///
    /// Multiplication with rejection: Lemire, "Fast Random Integer Generation in an Interval",
    /// section 4.
    pub fn below(&self, n: u64) -> u64 {
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let unfair = n.wrapping_neg() % n;
            while (product as u64) < unfair {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// True with probability `p`; never when `p` is 0, negative or not a number, always from 1 on.
    /// One number is drawn in every case.
    pub fn chance(&self, p: f64) -> bool {
        // The upper 53 bits as a fraction in [0, 1).
        let fraction = (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
        fraction < p
    }

    /// True `n` times in a million, on average.
    pub fn chance_per_million(&self, n: u32) -> bool {
        self.below(1_000_000) < u64::from(n)
    }

    /// Fills `octets` with random bits.
    pub fn fill(&self, octets: &mut [u8]) {
        self.stream.borrow_mut().fill_bytes(octets);
    }
}

/// Without key and position, which stay secret.
impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Random").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// RFC 8439, appendix A.1, test vectors 1 to 4: key, block and the first half of its octets.
    #[test]
    fn known_answers_of_chacha_20() {
        let zero = [0; 32];
        let mut last = zero;
        last[31] = 1;
        let mut second = zero;
        second[1] = 0xff;
        let answers: [([u8; 32], usize, [u8; 32]); 4] = [
            (
                zero,
                0,
                [
                    0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53,
                    0x86, 0xbd, 0x28, 0xbd, 0xd2, 0x19, 0xb8, 0xa0, 0x8d, 0xed, 0x1a, 0xa8, 0x36,
                    0xef, 0xcc, 0x8b, 0x77, 0x0d, 0xc7,
                ],
            ),
            (
                zero,
                1,
                [
                    0x9f, 0x07, 0xe7, 0xbe, 0x55, 0x51, 0x38, 0x7a, 0x98, 0xba, 0x97, 0x7c, 0x73,
                    0x2d, 0x08, 0x0d, 0xcb, 0x0f, 0x29, 0xa0, 0x48, 0xe3, 0x65, 0x69, 0x12, 0xc6,
                    0x53, 0x3e, 0x32, 0xee, 0x7a, 0xed,
                ],
            ),
            (
                last,
                1,
                [
                    0x3a, 0xeb, 0x52, 0x24, 0xec, 0xf8, 0x49, 0x92, 0x9b, 0x9d, 0x82, 0x8d, 0xb1,
                    0xce, 0xd4, 0xdd, 0x83, 0x20, 0x25, 0xe8, 0x01, 0x8b, 0x81, 0x60, 0xb8, 0x22,
                    0x84, 0xf3, 0xc9, 0x49, 0xaa, 0x5a,
                ],
            ),
            (
                second,
                2,
                [
                    0x72, 0xd5, 0x4d, 0xfb, 0xf1, 0x2e, 0xc4, 0x4b, 0x36, 0x26, 0x92, 0xdf, 0x94,
                    0x13, 0x7f, 0x32, 0x8f, 0xea, 0x8d, 0xa7, 0x39, 0x90, 0x26, 0x5e, 0xc1, 0xbb,
                    0xbe, 0xa1, 0xae, 0x9a, 0xf0, 0xca,
                ],
            ),
        ];
        for (key, block, answer) in answers {
            let mut octets = std::vec![0; 64 * block + 32];
            Random::from_key(key).fill(&mut octets);
            assert_eq!(octets[64 * block..], answer);
            // By words and by octets it is one stream.
            let words = Random::from_key(key);
            let by_words: Vec<u8> =
                (0..octets.len() / 8).flat_map(|_| words.next_u64().to_le_bytes()).collect();
            assert_eq!(by_words, octets);
        }
    }

    #[test]
    fn below_stays_below_and_is_even() {
        let random = Random::new(7);
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[random.below(6) as usize] += 1;
        }
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)));
        assert_eq!((random.below(0), random.below(1)), (0, 0));
        for _ in 0..100 {
            assert!(random.below(u64::MAX) < u64::MAX);
        }
    }

    #[test]
    fn chances_at_the_ends_and_between() {
        let random = Random::new(9);
        let hits = |p: f64| (0..10_000).filter(|_| random.chance(p)).count();
        assert_eq!((hits(0.0), hits(-1.0), hits(f64::NAN)), (0, 0, 0));
        assert_eq!((hits(1.0), hits(2.0)), (10_000, 10_000));
        assert!((2_300..2_700).contains(&hits(0.25)));
        let hits = |n: u32| (0..10_000).filter(|_| random.chance_per_million(n)).count();
        assert_eq!((hits(0), hits(1_000_000)), (0, 10_000));
        assert!((2_300..2_700).contains(&hits(250_000)));
    }

    #[test]
    fn forks_depend_on_key_and_label_alone() {
        let draw = |random: &Random| (0..4).map(|_| random.next_u64()).collect::<Vec<_>>();
        let (fresh, used) = (Random::new(1), Random::new(1));
        draw(&used);
        assert_eq!(draw(&fresh.fork(5)), draw(&used.fork(5)));
        assert_ne!(draw(&fresh.fork(5)), draw(&fresh.fork(6)));
        assert_ne!(draw(&fresh.fork(5)), draw(&Random::new(2).fork(5)));
        assert_ne!(draw(&fresh.fork(0)), draw(&fresh));
        assert_ne!(draw(&fresh.fork(1).fork(2)), draw(&fresh.fork(2).fork(1)));
    }

    #[test]
    fn fill_covers_every_octet_and_repeats_from_the_seed() {
        for length in 0..40 {
            let (mut one, mut two) = (std::vec![0u8; length], std::vec![0u8; length]);
            Random::new(3).fill(&mut one);
            Random::new(3).fill(&mut two);
            assert_eq!(one, two);
            assert!(length < 16 || one[length - 8..].iter().any(|&o| o != 0));
        }
    }

    #[test]
    fn its_text_shows_no_key() {
        let text = std::format!("{:?}", Random::new(0x0102_0304_0506_0708));
        assert_eq!(text, "Random { .. }");
    }
}
