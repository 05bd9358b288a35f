//! Descriptors that another program has opened and left to this one.
//!
//! Source: fcntl(2).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Duplicates the open descriptor `number`. The number itself may be in use for anything by any
/// part of this process, so it is not taken: the copy is the caller's, to look at what it is.
///
/// # Errors
/// No such descriptor is open (`EBADF`), or there are too many.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes a number, touches no memory of ours, and leaves what the number
    // stands for as it is.
    let copy = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has just opened `copy`, so it is open and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Keeps the descriptor `number`, of which `copy` was made, from programs that this one starts, and
/// has calls on it return at once.
///
/// # Errors
/// What the system says.
pub fn claim(number: RawFd, copy: &OwnedFd) -> io::Result<()> {
    // SAFETY: F_SETFD takes a number and a flag, and touches no memory of ours; what the number
    // stands for stays open.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(rustix::io::ioctl_fionbio(copy, true)?)
}
