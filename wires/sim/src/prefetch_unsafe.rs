//! A hint to the processor.

/// Asks the processor to fetch the line of memory at an address, whatever lies there.
#[inline]
pub(crate) fn prefetch(address: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has the instruction, which reads nothing that a program
        // could see, and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(core::ptr::without_provenance(address)) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}
