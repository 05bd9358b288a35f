//! Points in time, as one kernel counts them.

use core::fmt;
use core::time::Duration;

/// A point in time: nanoseconds since the epoch of the kernel that holds it.
///
/// The epoch is the kernel's start, under a real clock as under a virtual
/// one, so a `Time` means nothing in another kernel. Sixty-four bits last 584
/// years; all arithmetic saturates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time(u64);

impl Time {
    /// The epoch.
    pub const ZERO: Time = Time(0);

    /// The last point in time there is: what never comes.
    pub const MAX: Time = Time(u64::MAX);

    /// The point `nanoseconds` after the epoch.
    #[must_use]
    pub const fn from_ns(nanoseconds: u64) -> Time {
        Time(nanoseconds)
    }

    /// The point `microseconds` after the epoch, saturating.
    #[must_use]
    pub const fn from_us(microseconds: u64) -> Time {
        Time(microseconds.saturating_mul(1_000))
    }

    /// The point `milliseconds` after the epoch, saturating.
    #[must_use]
    pub const fn from_ms(milliseconds: u64) -> Time {
        Time(milliseconds.saturating_mul(1_000_000))
    }

    /// The point `seconds` after the epoch, saturating.
    #[must_use]
    pub const fn from_s(seconds: u64) -> Time {
        Time(seconds.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the epoch.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the epoch.
    #[must_use]
    pub const fn as_us(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds since the epoch.
    #[must_use]
    pub const fn as_ms(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Whether this is [`Time::MAX`], the point that never comes.
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }

    /// This point, `later` on; [`Time::MAX`] when that is beyond the end.
    #[must_use]
    pub fn after(self, later: Duration) -> Time {
        Time(self.0.saturating_add(saturated_ns(later)))
    }

    /// This point, `sooner` back; [`Time::ZERO`] when that is before the epoch.
    #[must_use]
    pub fn before(self, sooner: Duration) -> Time {
        Time(self.0.saturating_sub(saturated_ns(sooner)))
    }

    /// Time since `earlier`; zero if it was not earlier.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn saturated_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl core::ops::Add<Duration> for Time {
    type Output = Time;

    fn add(self, later: Duration) -> Time {
        self.after(later)
    }
}

impl core::ops::AddAssign<Duration> for Time {
    fn add_assign(&mut self, later: Duration) {
        *self = self.after(later);
    }
}

impl core::ops::Sub<Duration> for Time {
    type Output = Time;

    fn sub(self, sooner: Duration) -> Time {
        self.before(sooner)
    }
}

impl core::ops::Sub<Time> for Time {
    type Output = Duration;

    fn sub(self, earlier: Time) -> Duration {
        self.since(earlier)
    }
}

/// Seconds with six decimals (`1.234567s`), or as many as the caller's
/// precision asks for, up to nine; further digits are cut off, not rounded.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() {
            return f.pad("never");
        }
        let decimals = f.precision().unwrap_or(6).min(9);
        let seconds = self.0 / 1_000_000_000;
        let mut fraction = self.0 % 1_000_000_000;
        for _ in decimals..9 {
            fraction /= 10;
        }
        if decimals == 0 {
            write!(f, "{seconds}s")
        } else {
            write!(f, "{seconds}.{fraction:0decimals$}s")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn displays_seconds_with_six_decimals() {
        assert_eq!(format!("{}", Time::from_ns(1_234_567_890)), "1.234567s");
        assert_eq!(format!("{}", Time::from_ns(1_000_999)), "0.001000s");
        assert_eq!(format!("{:.9}", Time::from_ns(1_000_999)), "0.001000999s");
        assert_eq!(format!("{:.0}", Time::from_ns(1_999_999_999)), "1s");
        assert_eq!(format!("{}", Time::ZERO), "0.000000s");
        assert_eq!(format!("{}", Time::MAX), "never");
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Time::ZERO + Duration::MAX, Time::MAX);
        assert_eq!(Time::MAX + Duration::from_nanos(1), Time::MAX);
        assert_eq!(Time::from_ms(3) - Duration::from_secs(1), Time::ZERO);
        assert_eq!(Time::from_s(u64::MAX), Time::MAX);
        assert_eq!(Time::ZERO.since(Time::MAX), Duration::ZERO);
        assert_eq!(Time::from_ms(5).since(Time::from_ms(2)), Duration::from_millis(3));
        let mut time = Time::from_us(7);
        time += Duration::from_micros(2);
        assert_eq!((time.as_us(), time.as_ms(), time.as_ns()), (9, 0, 9_000));
        assert_eq!(time - Time::from_us(4), Duration::from_micros(5));
    }
}
