//! How many errors may be sent: a token bucket.

use core::cell::Cell;
use xk_core::Time;

/// Parts of a token, so that nanoseconds times tokens per second need no division.
const TOKEN: u128 = 1_000_000_000;

/// A token bucket.
pub(crate) struct Bucket {
    per_second: u32,
    burst: u32,
    /// In parts of a token.
    filled: Cell<u128>,
    at: Cell<Time>,
}

impl Bucket {
    /// A full bucket of `burst` tokens, into which `per_second` flow.
    pub(crate) fn new(per_second: u32, burst: u32) -> Self {
        Self {
            per_second,
            burst,
            filled: Cell::new(u128::from(burst) * TOKEN),
            at: Cell::new(Time::ZERO),
        }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&self, now: Time) -> bool {
        if self.per_second == 0 {
            return false;
        }
        let flown = now.since(self.at.replace(now)).as_nanos() * u128::from(self.per_second);
        let filled = (self.filled.get() + flown).min(u128::from(self.burst) * TOKEN);
        let left = filled.checked_sub(TOKEN);
        self.filled.set(left.unwrap_or(filled));
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate() {
        let bucket = Bucket::new(10, 3);
        let taken = |now: Time| (0..10).filter(|_| bucket.take(now)).count();
        assert_eq!(taken(Time::ZERO), 3);
        assert_eq!(taken(Time::from_ms(99)), 0);
        assert_eq!(taken(Time::from_ms(100)), 1);
        assert_eq!(taken(Time::from_ms(300)), 2);
        assert_eq!(taken(Time::from_s(9)), 3);
        assert!(!Bucket::new(0, 5).take(Time::ZERO));
    }
}
