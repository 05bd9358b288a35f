//! Shepherds as threads.

use xk_run::switch::ThreadSwitch;

/// A switch for one test.
pub(crate) fn switch() -> ThreadSwitch {
    // SAFETY: the tests pass counters, lists and semaphores between shepherds, none of which asks
    // what thread it is on; no guard of a mutex and no thread-local value passes.
    unsafe { ThreadSwitch::new() }
}
