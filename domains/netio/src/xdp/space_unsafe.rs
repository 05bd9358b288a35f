//! A network namespace of one's own.

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves the calling thread into a fresh network namespace (unshare(2)).
pub(crate) fn leave_for_a_fresh_one() -> rustix::io::Result<()> {
    // SAFETY: the table of open files, which is what makes this function unsafe, is not asked to be
    // parted.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
}
