//! Advice to the system about the message memory.

use std::ffi::c_void;

use rustix::mm::{Advice, madvise};
use xk_core::Pool;

/// Asks for large pages below the pool's memory, which is about to be claimed whole: fewer faults
/// now, and fewer misses of the processor's address tables later. The system may decline.
pub(crate) fn prefer_large_pages(pool: &Pool) {
    let (base, octets) = pool.region();
    // SAFETY: the pool's arena is mapped while there is a handle; the advice changes no octet and
    // takes no page away.
    let _declined =
        unsafe { madvise(base.as_ptr().cast::<c_void>(), octets, Advice::LinuxHugepage) };
}
