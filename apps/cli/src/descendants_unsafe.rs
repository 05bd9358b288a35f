//! The processes below this one: all that a program starts, those that go to the background too.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait as wait_for_any};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// From now on whoever below loses its parent becomes this process's child (prctl(2),
/// `PR_SET_CHILD_SUBREAPER`): a daemon can be waited for.
pub(crate) fn become_theirs() {
    // SAFETY: this option takes one number and touches no memory.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    }
}

/// Waits for the child `first` and then for all that it has left behind: how the first one ended. Says
/// `has_ended` when it has.
pub(crate) fn wait(first: Pid, has_ended: impl Fn()) -> io::Result<ExitStatus> {
    let mut status = Err(io::ErrorKind::NotFound.into());
    loop {
        match wait_for_any(WaitOptions::empty()) {
            Ok(Some((pid, how))) if pid == first => {
                has_ended();
                status = Ok(ExitStatus::from_raw(how.as_raw()));
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // There is none left.
            Err(_) => return status,
        }
    }
}

/// The children there are now.
pub(crate) fn children() -> Vec<Pid> {
    // They are noted under the thread that started or inherited them.
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children"));
    let lists: Vec<String> = threads.flatten().filter_map(|t| of(t).ok()).collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

/// Passes a signal on to every child.
pub(crate) fn signal(signal: Signal) {
    for pid in children() {
        // It may be ending just now.
        let _ = kill_process(pid, signal);
    }
}
