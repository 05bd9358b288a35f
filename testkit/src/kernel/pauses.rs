//! Operations of a bottom that block, as those of every layer may.

use core::cell::Cell;
use core::time::Duration;
use xk_core::Kernel;
use xk_core::shepherd::Semaphore;

/// For how long the operations of a bottom block.
#[derive(Default)]
pub(super) struct Pauses(Cell<Duration>);

impl Pauses {
    /// Makes each operation block for up to `most` from now on.
    pub(super) fn set(&self, most: Duration) {
        self.0.set(most);
    }

    /// Suspends the shepherd for a while; what runs on none goes on.
    pub(super) fn pause(&self, cx: &Kernel) {
        let most = self.0.get().as_nanos() as u64;
        if most > 0 && cx.shepherds().current().is_some() {
            let time = Duration::from_nanos(1 + cx.random().below(most));
            let _ = cx.wait(&Semaphore::new(0), Some(time));
        }
    }
}
