//! Time at which the system saw the packet that a socket gave last (socket(7), `SIOCGSTAMPNS`).

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime};

/// `SIOCGSTAMPNS` of machines whose `time_t` has 64 bits.
const STAMP: libc::Ioctl = 0x8907;

/// The time of the packet that `socket` gave last.
///
/// # Errors
/// `ENOENT` the first time: packets are stamped from then on.
pub(super) fn stamp(socket: impl AsFd) -> std::io::Result<SystemTime> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec`, which `time` is and which lives beyond it.
    let done = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), STAMP, &raw mut time) };
    if done < 0 {
        return Err(std::io::Error::last_os_error());
    }
    let (seconds, ns) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    match (seconds, ns) {
        (Ok(seconds), Ok(ns)) => Ok(SystemTime::UNIX_EPOCH + Duration::new(seconds, ns)),
        _ => Err(Errno::RANGE.into()),
    }
}
