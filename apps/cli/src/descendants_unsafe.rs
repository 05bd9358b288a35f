//! The processes below this one: all that a program starts, those that go to the background too.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait as wait_for_any};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Makes descendants that lose their parent children of this process (prctl(2),
/// `PR_SET_CHILD_SUBREAPER`), so that a daemon can be waited for.
pub(crate) fn become_theirs() {
    // SAFETY: this option takes one number and touches no memory.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1);
    }
}

/// Waits for the child `first` and then for all that it has left behind: how the first one ended.
/// Says `has_ended` when it has. They all end with the child `stack`, which is not waited for.
pub(crate) fn wait(first: Pid, stack: Pid, has_ended: impl Fn()) -> io::Result<ExitStatus> {
    let mut status = None;
    loop {
        match wait_for_any(WaitOptions::empty()) {
            Ok(Some((pid, how))) if pid == first => {
                has_ended();
                status = Some(ExitStatus::from_raw(how.as_raw()));
            }
            Ok(Some((pid, _))) if pid == stack => signal(Signal::TERM, stack),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return status.ok_or(error.into()),
        }
        if let Some(status) = status.filter(|_| children(stack).is_empty()) {
            return Ok(status);
        }
    }
}

/// The children there are now, without the stack.
pub(crate) fn children(stack: Pid) -> Vec<Pid> {
    // They are noted under the thread that started or inherited them.
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let of = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children"));
    let lists: Vec<String> = threads.flatten().filter_map(|t| of(t).ok()).collect();
    let pids = lists.iter().flat_map(|list| list.split_whitespace());
    pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).filter(|pid| *pid != stack).collect()
}

/// Passes a signal on to every child but the stack.
pub(crate) fn signal(signal: Signal, stack: Pid) {
    for pid in children(stack) {
        // It may be ending just now.
        let _ = kill_process(pid, signal);
    }
}
