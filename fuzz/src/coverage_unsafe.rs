//! Counters that the compiler's instrumentation increments: one octet for each edge of the
//! program's flow.

use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

/// The first word of the counters, and how many words there are; none without instrumentation.
static START: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
static WORDS: AtomicUsize = AtomicUsize::new(0);

/// Called by what the compiler has put into each object of an instrumented program, before `main`
/// (LLVM, SanitizerCoverage, "Inline 8bit-counters"). All name the same counters: the linker has
/// joined them.
///
/// # Safety
/// `start` and `end` bound octets that live as long as the program and that nothing but the
/// instrumentation touches.
#[unsafe(no_mangle)]
unsafe extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
    let before = start.align_offset(align_of::<AtomicU64>());
    // What lies in front of the first whole word, or behind the last, is a handful of edges: they
    // are not looked at.
    let words = (end.addr() - start.addr()).saturating_sub(before) / size_of::<AtomicU64>();
    START.store(start.wrapping_add(before).cast(), Ordering::Relaxed);
    WORDS.store(words, Ordering::Relaxed);
}

/// The counters, eight to a word.
pub(crate) fn words() -> &'static [AtomicU64] {
    let (start, words) = (START.load(Ordering::Relaxed), WORDS.load(Ordering::Relaxed));
    if start.is_null() {
        return &[];
    }
    // SAFETY: `start` is aligned, as the function above has made it, and so many words lie between
    // it and the end that it was given; they live as long as the program, and are valid whatever is
    // in them. The instrumentation adds to single octets without atomicity: that another thread's
    // count may be lost or an octet read half way is of no concern, since any value is one.
    unsafe { slice::from_raw_parts(start, words) }
}

#[cfg(test)]
mod tests {
    use crate::coverage::{Reached, clear, is_on, take};
    use std::sync::atomic::{AtomicU64, Ordering};

    static COUNTERS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

    #[test]
    fn what_is_counted_is_new_once() {
        let counters = COUNTERS.as_ptr();
        // SAFETY: the static lives as long as the program; both pointers lie in it or behind its
        // end.
        unsafe {
            super::__sanitizer_cov_8bit_counters_init(
                counters.cast_mut().cast(),
                counters.wrapping_add(3).cast_mut().cast(),
            );
        }
        assert!(is_on());
        let count = |at: usize, octet: usize, times: u64| {
            COUNTERS[at].fetch_add(times << (8 * octet), Ordering::Relaxed);
        };
        let mut reached = Reached::default();
        assert!(!reached.add(), "nothing yet");
        count(0, 0, 1);
        count(2, 7, 1);
        assert!(reached.add());
        count(2, 7, 1);
        assert!(!reached.add(), "known");
        count(2, 7, 4);
        assert!(reached.add(), "more often");
        assert_eq!(reached.edges(), 2);
        count(1, 3, 200);
        assert_eq!(take().len(), 1);
        clear();
        assert!(take().is_empty());
    }
}
