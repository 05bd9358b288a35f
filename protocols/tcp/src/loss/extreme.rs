//! The largest or smallest of recent values, in constant space.
//!
//! Three candidates are kept: the best of the window, the best since that one, and the best since
//! that. Each stands for a later part of the window, so that when the first grows old the next best
//! is at hand (Kathleen Nichols' way, used by Linux and BBR).

use xk_core::Time;
use xk_core::control::{Field, Reader, Writer};

/// A value and the moment it was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    value: u64,
    at: u64,
}

/// The best value of the last `window`, by the order that [`max`](Extreme::max) or
/// [`min`](Extreme::min) chose.
#[derive(Clone, Debug)]
pub struct Extreme {
    window: u64,
    largest: bool,
    best: Option<[Seen; 3]>,
}

impl Field for Extreme {
    fn put(&self, out: &mut Writer<'_>) {
        (self.window, self.largest, self.best.is_some()).put(out);
        for Seen { value, at } in self.best.iter().flatten() {
            value.put(out);
            match self.largest {
                true => at.put(out),
                false => Time::from_ns(*at).put(out),
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (window, largest, is_any) = <(_, _, bool)>::take(from)?;
        let mut best = is_any.then(<[Seen; 3]>::default);
        for Seen { value, at } in best.iter_mut().flatten() {
            *value = u64::take(from)?;
            *at = if largest { u64::take(from)? } else { Time::take(from)?.as_ns() };
        }
        Some(Self { window, largest, best })
    }
}

impl Extreme {
    /// The largest value of the last `window` rounds, or what else is counted.
    #[must_use]
    pub const fn max(window: u64) -> Extreme {
        Extreme { window, largest: true, best: None }
    }

    /// The smallest value of the last `window` nanoseconds of the clock.
    #[must_use]
    pub const fn min(window: u64) -> Extreme {
        Extreme { window, largest: false, best: None }
    }

    /// The best value, if there is any.
    pub fn get(&self) -> Option<u64> {
        self.best.map(|best| best[0].value)
    }

    /// Forgets all and begins with `value`.
    pub fn reset(&mut self, value: u64, at: u64) {
        self.best = Some([Seen { value, at }; 3]);
    }

    fn better(&self, a: u64, b: u64) -> bool {
        if self.largest { a >= b } else { a <= b }
    }

    /// Takes a value in; the best one after that.
    pub fn update(&mut self, value: u64, at: u64) -> u64 {
        let new = Seen { value, at };
        let Some(mut best) = self.best else {
            self.reset(value, at);
            return value;
        };
        if self.better(value, best[0].value) || at.saturating_sub(best[2].at) > self.window {
            self.reset(value, at);
            return value;
        }
        if self.better(value, best[1].value) {
            best[1] = new;
            best[2] = new;
        } else if self.better(value, best[2].value) {
            best[2] = new;
        }
        self.age(&mut best, new);
        self.best = Some(best);
        best[0].value
    }

    fn age(&self, best: &mut [Seen; 3], new: Seen) {
        let age = new.at.saturating_sub(best[0].at);
        if age > self.window {
            *best = [best[1], best[2], new];
            if new.at.saturating_sub(best[0].at) > self.window {
                *best = [best[1], best[2], new];
            }
        } else if best[1].at == best[0].at && age > self.window / 4 {
            best[1] = new;
            best[2] = new;
        } else if best[2].at == best[1].at && age > self.window / 2 {
            best[2] = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn old_values_are_forgotten() {
        let mut least = Extreme::min(100);
        assert_eq!(least.get(), None);
        assert_eq!(least.update(5, 0), 5);
        assert_eq!(least.update(9, 50), 5);
        assert_eq!(least.update(7, 90), 5);
        assert_eq!(least.update(8, 101), 7, "the next best of what is left");
        assert_eq!(least.update(8, 500), 8);
    }

    proptest! {
        /// Checks that the result is a value of the window, and no worse than the latest.
        #[test]
        fn it_is_one_of_the_window(values in proptest::collection::vec((0_u64..100, 0_u64..60), 1..200)) {
            let mut largest = Extreme::max(100);
            let (mut now, mut seen) = (0, Vec::new());
            for (value, later) in values {
                now += later;
                seen.push((now, value));
                let best = largest.update(value, now);
                prop_assert!(best >= value);
                prop_assert!(seen.iter().any(|&(at, seen)| seen == best && now - at <= 100));
                prop_assert_eq!(largest.get(), Some(best));
            }
        }
    }
}
