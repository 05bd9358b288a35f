//! A wire's descriptor as the executor uses it.

use std::os::fd::BorrowedFd;

/// The descriptor that a wire names, for epoll.
pub(crate) fn descriptor(fd: i32) -> Option<BorrowedFd<'static>> {
    // SAFETY: the wire that named `fd` owns it and lives in the kernel that the runner holds, so it
    // stays open while the runner uses it; -1, the one value `BorrowedFd` excludes, is sorted out.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}
