//! The loop over long slices with the widest vectors that the processor has.

#[cfg(all(target_arch = "x86_64", not(miri)))]
cpufeatures::new!(wide_vectors, "avx2");

/// The ones' complement sum over `octets` in the machine's order of octets, modulo 2^64 - 1.
#[inline]
pub(super) fn sum_long(octets: &[u8]) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if wide_vectors::get() {
        // SAFETY: the processor has AVX2, and the system saves its registers: both were asked just
        // now.
        return unsafe { avx2::sum(octets) };
    }
    super::sum_plain(octets)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod avx2 {
    use super::super::{add_end_around, add_short};
    use core::arch::x86_64::{
        __m256i, _mm256_add_epi32, _mm256_loadu_si256, _mm256_madd_epi16, _mm256_set1_epi16,
        _mm256_setzero_si256, _mm256_xor_si256,
    };

    /// Octets of a vector.
    const VECTOR: usize = 32;
    /// Octets that the loop takes at a turn: four vectors, which wait for nothing of each other.
    const TURN: usize = 4 * VECTOR;
    /// Octets after which the lanes are emptied: a vector changes each by 2^16 at most, so it stays
    /// below 2^29.
    const ROUND: usize = 1 << 18;

    /// Two multiplications by one and an addition take sixteen words together. They take words for
    /// signed numbers, so each is made one by turning its highest bit, which takes 2^15 from it;
    /// that is added again at the end.
    #[target_feature(enable = "avx2")]
    pub(super) fn sum(octets: &[u8]) -> u64 {
        let mut total = 0_u64;
        for round in octets.chunks(ROUND) {
            let (vectors, rest) = round.as_chunks::<VECTOR>();
            let lanes: i64 = sum_vectors(vectors).iter().map(|lane| i64::from(*lane)).sum();
            let words = (vectors.len() * VECTOR / 2) as i64;
            // Not negative: it is the sum of the words as they are.
            total = add_end_around(total, (lanes + (words << 15)) as u64);
            total = add_short(total, rest);
        }
        total
    }

    #[target_feature(enable = "avx2")]
    fn sum_vectors(vectors: &[[u8; VECTOR]]) -> [i32; 8] {
        let (turns, rest) = vectors.as_chunks::<{ TURN / VECTOR }>();
        let zero = _mm256_setzero_si256();
        let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
        for [e, f, g, h] in turns {
            a = _mm256_add_epi32(a, pairs(e));
            b = _mm256_add_epi32(b, pairs(f));
            c = _mm256_add_epi32(c, pairs(g));
            d = _mm256_add_epi32(d, pairs(h));
        }
        for vector in rest {
            a = _mm256_add_epi32(a, pairs(vector));
        }
        let all = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
        // SAFETY: both are 32 octets, and any octets are eight numbers.
        unsafe { core::mem::transmute::<__m256i, [i32; 8]>(all) }
    }

    /// The sums of eight pairs of words, each less 2^16.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn pairs(octets: &[u8; VECTOR]) -> __m256i {
        // SAFETY: 32 octets lie there, and the load asks for no alignment.
        let words = unsafe { _mm256_loadu_si256(octets.as_ptr().cast()) };
        let signed = _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN));
        _mm256_madd_epi16(signed, _mm256_set1_epi16(1))
    }
}
