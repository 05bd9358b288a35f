//! Signals as a program finds them that a person starts.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Signals that ask for an end, and that the tests may have inherited as ignored: `nohup` SIGHUP, a
/// shell SIGINT and SIGQUIT of what it starts in the background (signal(7): the ignored stay so).
const ENDS: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Has the command find its signals neither ignored nor held back, whatever this process inherited.
pub fn usual(command: &mut Command) -> &mut Command {
    // SAFETY: between fork and exec only system calls are made, which allocate nothing and take no
    // lock; all octets zero make a valid set, which is on the closure's stack.
    unsafe {
        command.pre_exec(|| {
            for signal in ENDS {
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
            Ok(())
        })
    }
}
