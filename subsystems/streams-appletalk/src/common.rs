//! What the multiplexors of this crate share.

use core::cell::Cell;
use core::time::Duration;
use xk_core::Kernel;
use xk_core::time::Time;
use xk_streams::{Q, TimerId};

/// The time of the machines, and one timer for what they have to do next.
#[derive(Default)]
pub(crate) struct Clock(Cell<Option<(Duration, TimerId)>>);

impl Clock {
    /// The time as the machines have it.
    pub(crate) fn now(cx: &Kernel) -> Duration {
        cx.now().since(Time::ZERO)
    }

    /// Sets the timer of `q` for this time, unless it goes off before.
    pub(crate) fn set(&self, cx: &Kernel, q: &Q, at: Duration) {
        if let Some((due, timer)) = self.0.get() {
            if due <= at {
                return;
            }
            q.untimeout(cx, timer);
        }
        let timer = q.timeout(cx, at.saturating_sub(Self::now(cx)), 0);
        self.0.set(timer.map(|timer| (at, timer)));
    }

    /// The timer went off.
    pub(crate) fn went_off(&self) {
        self.0.set(None);
    }
}

/// The kernel's random numbers as the machines want them.
pub(crate) fn random(cx: &Kernel) -> impl FnMut() -> u32 + '_ {
    || cx.random().next_u32()
}

/// Enables the write queues of these streams, whose lower has room again.
pub(crate) fn enable(cx: &Kernel, queues: impl Iterator<Item = Q>) {
    for q in queues {
        q.write_side().qenable(cx);
    }
}
