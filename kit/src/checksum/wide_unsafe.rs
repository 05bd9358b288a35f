//! The loop over long slices with the widest vectors that the processor has.

/// The ones' complement sum of native words, modulo 2^64 - 1.
#[inline]
pub(super) fn sum_words(words: &[[u8; 8]]) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if core_detect::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, and the system saves its registers: both were asked just now.
        return unsafe { sum_words_avx2(words) };
    }
    super::sum_words(words)
}

/// The same loop, of which the compiler makes vectors of four words.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
fn sum_words_avx2(words: &[[u8; 8]]) -> u64 {
    super::sum_words(words)
}
