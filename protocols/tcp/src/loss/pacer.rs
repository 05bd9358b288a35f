//! Sends spread over time instead of all at once.

use core::time::Duration;
use xk_core::{Time, fields};

/// Time whose octets at the pacing rate may go out at once, but at least two segments.
const BURST: Duration = Duration::from_millis(1);

/// The longest wait behind a send: a rate that asks for more is a poor estimate, and a better one
/// that follows does not shorten a wait that has begun.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A bucket that fills at a rate; sends empty it, and may go on as long as it is not overdrawn.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pacer {
    /// Time at which the bucket will be, or was, exactly full enough for the next send.
    next: Time,
}

fields!(Pacer { next });

impl Pacer {
    /// Time from which on the next send may go.
    pub fn next(&self) -> Time {
        self.next
    }

    /// Octets that may go out now at `octets_per_s`; some whenever [`next`](Pacer::next) has come.
    #[must_use]
    pub fn allows(&self, octets_per_s: u64, mss: u32, now: Time) -> u32 {
        if now < self.next {
            return 0;
        }
        let saved = octets_in(octets_per_s, now.since(self.next));
        let burst = burst_octets(octets_per_s, mss);
        u32::try_from(saved.min(burst).max(u64::from(mss) + 1)).unwrap_or(u32::MAX)
    }

    /// `octets` went out at `octets_per_s`. What was saved beyond one burst is forfeit.
    pub fn on_sent(&mut self, octets: u32, octets_per_s: u64, mss: u32, now: Time) {
        let burst = time_for(burst_octets(octets_per_s, mss), octets_per_s);
        let base = self.next.max(now.before(burst));
        let wait = base.after(time_for(octets.into(), octets_per_s));
        self.next = wait.min(now.after(WAIT_MAX));
    }

    /// Forgets what was sent: the next send may be at once.
    pub fn reset(&mut self) {
        self.next = Time::ZERO;
    }
}

fn burst_octets(octets_per_s: u64, mss: u32) -> u64 {
    octets_in(octets_per_s, BURST).max(2 * u64::from(mss))
}

fn octets_in(octets_per_s: u64, time: Duration) -> u64 {
    let octets = u128::from(octets_per_s) * time.as_nanos() / 1_000_000_000;
    u64::try_from(octets).unwrap_or(u64::MAX)
}

fn time_for(octets: u64, octets_per_s: u64) -> Duration {
    let ns = u128::from(octets) * 1_000_000_000 / u128::from(octets_per_s.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;
    const RATE: u64 = 1_000_000;

    /// Sends whenever it may, up to `end`.
    fn run(pacer: &mut Pacer, from: Time, end: Time) -> u64 {
        let (mut sent, mut now) = (0, from);
        while now < end {
            while pacer.allows(RATE, MSS, now) >= MSS {
                pacer.on_sent(MSS, RATE, MSS, now);
                sent += u64::from(MSS);
            }
            assert!(pacer.next() > now);
            now = pacer.next();
        }
        sent
    }

    #[test]
    fn the_rate_is_kept() {
        let sent = run(&mut Pacer::default(), Time::from_s(10), Time::from_s(20));
        assert!((10_000_000..=10_004_000).contains(&sent), "{sent}");
    }

    #[test]
    fn a_poor_estimate_does_not_stop_everything() {
        let mut pacer = Pacer::default();
        pacer.on_sent(4096, 1, MSS, Time::from_s(9));
        pacer.on_sent(4096, 1, MSS, Time::from_s(9));
        assert!(pacer.allows(RATE, MSS, Time::from_s(10)) >= MSS);
    }

    #[test]
    fn a_pause_saves_one_burst() {
        let mut pacer = Pacer::default();
        run(&mut pacer, Time::from_s(1), Time::from_s(2));
        let sent = run(&mut pacer, Time::from_s(9), Time::from_ms(9_001));
        assert!((2_000..=4_000).contains(&sent), "{sent}");
    }
}
