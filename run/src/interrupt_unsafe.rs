//! Ctrl-C, and a terminal that goes, as a flag that the poll loop looks at.

use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Makes SIGINT, SIGTERM, SIGHUP and the first SIGQUIT set a flag instead of ending the process,
/// and wake a sleeping poll loop. A SIGHUP that is ignored, as `nohup` has it, stays so.
pub fn catch() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: both actions are fully initialised (all zero is a valid sigaction), the handler
        // only stores to an atomic, which is async-signal-safe, and no flags ask for SA_SIGINFO's
        // signature.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut before);
            if signal == libc::SIGHUP && before.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
            if signal == libc::SIGQUIT {
                // The next one ends what does not end by itself.
                action.sa_flags = libc::SA_RESETHAND;
            }
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
    }
}

/// True once a signal came.
pub fn is_requested() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

/// Asks for an end as a signal would.
pub fn request() {
    INTERRUPTED.store(true, Ordering::Relaxed);
}
