//! Becoming another user. The C library does it for all threads; the system's own calls are for
//! one.

use rustix::fs::{Gid, Uid};
use std::io;

fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The group alone, without any other.
pub(crate) fn join(gid: Gid) -> io::Result<()> {
    let gid = gid.as_raw();
    // SAFETY: no group is read of an empty list; the other call takes numbers alone.
    unsafe {
        done(libc::setgroups(0, std::ptr::null()))?;
        done(libc::setresgid(gid, gid, gid))
    }
}

/// The real, the effective and the saved user.
pub(crate) fn become_user(real: Uid, effective: Uid, saved: Uid) -> io::Result<()> {
    // SAFETY: it takes numbers alone.
    done(unsafe { libc::setresuid(real.as_raw(), effective.as_raw(), saved.as_raw()) })
}

/// A second process, in which only this thread goes on (fork(2)): its number, or none in itself.
///
/// # Errors
/// If the system has no room for it, or there are other threads, whose locks would stay closed
/// there.
pub(crate) fn fork() -> io::Result<Option<libc::pid_t>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("a process with threads cannot be divided"));
    }
    // SAFETY: there is no other thread, so that nothing is left half done in the second process.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid)),
    }
}
