//! Signals of a process that has another below it: they are that one's.

use rustix::process::{Signal, set_parent_process_death_signal};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Signals that ask for an end.
const ENDS: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

fn set() -> libc::sigset_t {
    // SAFETY: all octets zero make a valid set, which is on this stack; the signals exist.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in ENDS {
            libc::sigaddset(&raw mut set, signal);
        }
        set
    }
}

/// Signals that were held back before.
#[derive(Clone, Copy)]
pub(crate) struct Before(libc::sigset_t);

/// Makes those signals wait for [`next`] from now on, on this thread and on all that it makes.
pub(crate) fn hold_back() -> Before {
    let set = set();
    // SAFETY: all octets zero make a valid set.
    let mut before: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: both sets are on this stack.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
    }
    Before(before)
}

/// Waits for the next of those signals: which it is, and whether a terminal has sent it, to the
/// child as well.
pub(crate) fn next() -> Option<(Signal, bool)> {
    /// The sender of a terminal's signals: the system itself.
    const SI_KERNEL: libc::c_int = 0x80;
    let set = set();
    // SAFETY: all octets zero make valid information.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: both are on this stack.
    let number = unsafe { libc::sigwaitinfo(&raw const set, &raw mut info) };
    let signal = Signal::from_named_raw(number)?;
    Some((signal, info.si_code == SI_KERNEL))
}

/// Has the command find signals as they were, and end when this process ends without it, however
/// that comes.
pub(crate) fn ends_with_us(command: &mut Command, before: Before) {
    // SAFETY: between fork and exec only two system calls are made, which allocate nothing and take
    // no lock; the set is the closure's own.
    unsafe {
        command.pre_exec(move || {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before.0, std::ptr::null_mut());
            Ok(set_parent_process_death_signal(Some(Signal::TERM))?)
        });
    }
}
