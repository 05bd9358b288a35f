//! The host's clock.

use std::time::Instant;
use xk_core::Time;

/// The host's monotonic clock, counted from when it was made.
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    start: Instant,
}

impl Default for HostClock {
    fn default() -> Self {
        Self::start()
    }
}

impl HostClock {
    /// A clock that shows zero now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// The present time.
    #[inline]
    pub fn now(&self) -> Time {
        Time::from_ns(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
