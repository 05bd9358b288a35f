//! Spinning: the time for which a loop looks without result before it sleeps.
//!
//! A sleep that ended soon would better have been spent looking. What others on the path take to
//! wake up is part of that sleep, and goes away once they look, too: so "soon" is twice as long as
//! the looking lasts at most, or loops that answer each other would all sleep because the others
//! do. After a moment of looking alone each further look is followed by a yield, since what is
//! looked for may need this very processor to be sent. If that takes long, something else computes
//! on it; a yield has given it a whole slice, which a sleeper that is woken would have cut short,
//! so the loop sleeps at once for a while.

use std::cell::Cell;
use std::time::Duration;
use xk_core::Time;

/// Ratio to the time of looking below which a sleep counts as short.
const SHORT: u32 = 2;
/// The part of its bound that the looking shrinks to.
const LEAST: u32 = 32;
/// Time that the loop looks before it yields: several times what an answer by a loop on another
/// processor takes.
const ALONE_FOR: Duration = Duration::from_micros(4);
/// A yield that takes longer has let something else compute.
const YIELD_MAX: Duration = Duration::from_micros(100);
/// Time that the loop sleeps at once after such a yield. It doubles each time that the next such
/// yield comes sooner after the sleep than that was long.
const CROWDED_LEAST: Duration = Duration::from_millis(2);
const CROWDED_MOST: Duration = Duration::from_millis(128);

/// State of a loop's spinning.
pub(crate) struct Spin {
    max: Duration,
    present: Cell<Duration>,
    crowded_until: Cell<Time>,
    /// Length of the last sleep at once.
    crowded_for: Cell<Duration>,
}

impl Spin {
    /// A spinner that spins for at most `max`, and so long at first.
    pub(crate) fn new(max: Duration) -> Self {
        let (crowded_until, crowded_for) = (Cell::new(Time::ZERO), Cell::default());
        Self { max, present: Cell::new(max), crowded_until, crowded_for }
    }

    /// Whether to look again, `idle` after the last arrival.
    pub(crate) fn goes_on(&self, now: Time, idle: Duration) -> bool {
        idle < self.present.get() && now >= self.crowded_until.get()
    }

    /// Whether to yield before the next look.
    pub(crate) fn yields(&self, idle: Duration) -> bool {
        idle >= ALONE_FOR
    }

    /// A yield took so long.
    pub(crate) fn yielded(&self, now: Time, taken: Duration) {
        if taken > YIELD_MAX {
            let last = self.crowded_for.get();
            let again = now.since(self.crowded_until.get()) < last;
            let pause = if again { (last * 2).min(CROWDED_MOST) } else { CROWDED_LEAST };
            self.crowded_for.set(pause);
            self.crowded_until.set(now.after(pause));
        }
    }

    /// Something has come `idle` after the arrival before it, and the loop has slept.
    pub(crate) fn slept(&self, idle: Duration) {
        let present = self.present.get();
        self.present.set(match idle <= self.max * SHORT {
            true => (present * 2).min(self.max),
            false => (present / 2).max(self.max / LEAST),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_micros(100);

    fn us(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// A message goes from an application, which sleeps, to a module, on to a program and back the
    /// same way, again and again. Answers the time of the last round.
    fn round(wake: Duration, work: Duration) -> Duration {
        let loops = [Spin::new(MAX), Spin::new(MAX)];
        // Both have slept for long.
        (0..8).for_each(|_| loops.iter().for_each(|one| one.slept(us(10_000))));
        let (mut now, mut begun) = (Time::ZERO.after(us(1000)), Time::ZERO);
        let mut heard = [Time::ZERO; 2];
        for _ in 0..10 {
            begun = now;
            now = now.after(wake + work);
            for at in [0, 1, 0] {
                let idle = now.since(heard[at]);
                if !loops[at].goes_on(now, idle) {
                    now = now.after(wake);
                    loops[at].slept(now.since(heard[at]));
                }
                now = now.after(work);
                heard[at] = now;
            }
        }
        now.since(begun)
    }

    #[test]
    fn loops_that_answer_each_other_do_not_keep_each_other_asleep() {
        for wake in [5, 30, 60, 90] {
            // The application alone is woken.
            assert_eq!(round(us(wake), us(2)), us(wake + 4 * 2), "{wake} us");
        }
    }

    #[test]
    fn what_comes_rarely_is_slept_for() {
        let spin = Spin::new(MAX);
        (0..20).for_each(|_| spin.slept(us(201)));
        assert!(!spin.goes_on(Time::ZERO, us(4)) && spin.goes_on(Time::ZERO, us(3)));
        spin.slept(us(200));
        assert!(spin.goes_on(Time::ZERO, us(4)));
    }

    #[test]
    fn a_processor_that_others_compute_on_is_left_to_them_for_a_while() {
        let (spin, begun) = (Spin::new(MAX), Time::ZERO.after(us(1000)));
        spin.yielded(begun, us(100));
        assert!(spin.goes_on(begun, us(10)));
        let mut now = begun;
        for ms in [2, 4, 8, 16, 32, 64, 128, 128] {
            spin.yielded(now, us(101));
            let until = now.after(us(ms * 1000));
            assert!(!spin.goes_on(now.after(us(ms * 1000 - 1)), us(10)), "{ms} ms");
            assert!(spin.goes_on(until, us(10)), "{ms} ms");
            now = until.after(us(1));
        }
        // It was left alone for as long as it had slept.
        let now = now.after(us(128_000));
        spin.yielded(now, us(101));
        assert!(spin.goes_on(now.after(us(2000)), us(10)));
    }
}
