//! Pseudo-random numbers: one seed replays a run to the bit.
//!
//! The generator is xoshiro256** with its state filled by SplitMix64, both as
//! published by Blackman and Vigna ("Scrambled Linear Pseudorandom Number
//! Generators", ACM TOMS 47/4, 2021). It is fast and statistically sound, and
//! it is **not** a cipher: who sees some of its output can compute the rest.
//! What a stranger must not guess (initial sequence numbers, the key of a
//! hash table) has to come from a seed he does not know, through a keyed hash
//! or a fork whose own output is never sent.

use core::cell::Cell;

/// A source of pseudo-random numbers, advanced through a shared reference.
#[derive(Debug)]
pub struct Random {
    seed: u64,
    state: Cell<[u64; 4]>,
}

impl Random {
    /// A generator whose whole output follows from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        let mut counter = seed;
        let state = core::array::from_fn(|_| split_mix(&mut counter));
        Random {
            seed,
            state: Cell::new(state),
        }
    }

    /// The seed it was made from, to be printed where a run may be replayed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// An independent generator, which follows from this one's seed and
    /// `label` alone.
    ///
    /// How much was drawn before does not matter, so a part of a simulation
    /// that draws more or less than yesterday leaves all other parts as they
    /// were. The same label gives the same stream each time: one per user.
    #[must_use]
    pub fn fork(&self, label: u64) -> Random {
        let mut parent = self.seed;
        let mut counter = split_mix(&mut parent) ^ label;
        // Mixed again, lest labels that differ in one bit give seeds that do.
        Random::new(split_mix(&mut counter))
    }

    /// Sixty-four random bits.
    #[inline]
    pub fn next_u64(&self) -> u64 {
        let mut state = self.state.get();
        let result = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        self.state.set(state);
        result
    }

    /// Thirty-two random bits.
    #[inline]
    pub fn next_u32(&self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// Sixteen random bits.
    #[inline]
    pub fn next_u16(&self) -> u16 {
        (self.next_u64() >> 48) as u16
    }

    /// A number from 0 to `n - 1`, each equally likely; 0 when `n` is 0.
    ///
    /// Multiplication with rejection: Lemire, "Fast Random Integer Generation
    /// in an Interval", section 4.
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

    /// True with probability `p`; never when `p` is 0, negative or not a
    /// number, always from 1 on. One number is drawn in every case.
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
        for chunk in octets.chunks_mut(8) {
            let bits = self.next_u64().to_le_bytes();
            for (octet, bits) in chunk.iter_mut().zip(bits) {
                *octet = bits;
            }
        }
    }
}

/// The next output of SplitMix64.
fn split_mix(counter: &mut u64) -> u64 {
    *counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *counter;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn known_answers_of_split_mix() {
        let mut counter = 1_234_567;
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        for answer in expected {
            assert_eq!(split_mix(&mut counter), answer);
        }
    }

    #[test]
    fn known_answers_of_xoshiro256_star_star() {
        let random = Random {
            seed: 0,
            state: Cell::new([1, 2, 3, 4]),
        };
        let expected = [
            11_520,
            0,
            1_509_978_240,
            1_215_971_899_390_074_240,
            1_216_172_134_540_287_360,
            607_988_272_756_665_600,
            16_172_922_978_634_559_625,
            8_476_171_486_693_032_832,
            10_595_114_339_597_558_777,
            2_904_607_092_377_533_576,
        ];
        for answer in expected {
            assert_eq!(random.next_u64(), answer);
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
    fn forks_depend_on_seed_and_label_alone() {
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
}
