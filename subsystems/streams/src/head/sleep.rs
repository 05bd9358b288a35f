//! Channels on which users of a stream wait.

use crate::errno::Errno;
use core::cell::Cell;
use core::time::Duration;
use xk_core::Kernel;
use xk_core::shepherd::{Semaphore, WaitError};

/// A place to wait: each that waits looks again when it is woken.
pub(crate) struct Sleep {
    waiting: Cell<u32>,
    semaphore: Semaphore,
}

impl Default for Sleep {
    fn default() -> Self {
        Self { waiting: Cell::new(0), semaphore: Semaphore::new(0) }
    }
}

impl Sleep {
    /// Waits until it is woken, for `limit` at most; then, too, the caller looks again.
    ///
    /// # Errors
    /// EINTR if the wait was interrupted, ENOSR if the caller cannot wait.
    pub(crate) fn wait(&self, cx: &Kernel, limit: Option<Duration>) -> Result<(), Errno> {
        self.waiting.set(self.waiting.get() + 1);
        let ended = cx.wait(&self.semaphore, limit);
        if ended.is_err() {
            self.waiting.set(self.waiting.get().saturating_sub(1));
        }
        match ended {
            Ok(()) | Err(WaitError::TimedOut) => Ok(()),
            Err(WaitError::Interrupted | WaitError::Closed) => Err(Errno::EINTR),
            Err(WaitError::NoShepherds | WaitError::NotOnShepherd) => Err(Errno::ENOSR),
        }
    }

    /// Wakes all that wait.
    pub(crate) fn wake_all(&self, cx: &Kernel) {
        for _ in 0..self.waiting.take() {
            cx.signal(&self.semaphore);
        }
    }
}
