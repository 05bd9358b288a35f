//! Time, or instructions, of one part of what is called: what is entered counts, but for what is
//! left meanwhile.
//!
//! Ends that stand around a protocol enter it and are called out of it again, as the paper's code
//! "at all entry and exit points". The processor's counter of time is read at each such point, and
//! what reading it twice costs with nothing in between is taken off each stretch.

use crate::stretch_unsafe::{ticks, toggle};
use std::cell::Cell;
use std::time::Instant;

/// Direction in which a protocol is entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By what stands on it.
    Down,
    /// By what it stands on.
    Up,
}

/// The ways that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// One of them.
    One(Way),
    /// Both together.
    Both,
}

impl Watched {
    fn is(self, way: Way) -> bool {
        self == Self::Both || self == Self::One(way)
    }
}

/// Instrument that measures a stretch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Clock,
    Callgrind,
}

/// The watch of a thread.
struct Watch {
    watched: Cell<Option<(Watched, By)>>,
    runs: Cell<bool>,
    since: Cell<u64>,
    ticks: Cell<u64>,
    stretches: Cell<u64>,
}

thread_local! {
    static WATCH: Watch = const {
        Watch {
            watched: Cell::new(None),
            runs: Cell::new(false),
            since: Cell::new(0),
            ticks: Cell::new(0),
            stretches: Cell::new(0),
        }
    };
}

impl Watch {
    #[inline]
    fn start(&self, by: By) {
        self.runs.set(true);
        match by {
            By::Clock => self.since.set(ticks()),
            By::Callgrind => toggle(),
        }
    }

    #[inline]
    fn stop(&self, by: By) {
        match by {
            By::Clock => {
                let stretch = ticks().saturating_sub(self.since.get());
                self.ticks.set(self.ticks.get() + stretch);
                self.stretches.set(self.stretches.get() + 1);
            }
            By::Callgrind => toggle(),
        }
        self.runs.set(false);
    }
}

/// Calls into what is watched.
#[inline]
pub(crate) fn enter<T>(way: Way, call: impl FnOnce() -> T) -> T {
    WATCH.with(|watch| match watch.watched.get() {
        Some((watched, by)) if watched.is(way) && !watch.runs.get() => {
            watch.start(by);
            let answer = call();
            watch.stop(by);
            answer
        }
        _ => call(),
    })
}

/// Does what does not count, wherever it is called from.
#[inline]
pub(crate) fn leave<T>(call: impl FnOnce() -> T) -> T {
    WATCH.with(|watch| match watch.watched.get() {
        Some((_, by)) if watch.runs.get() => {
            watch.stop(by);
            let answer = call();
            watch.start(by);
            answer
        }
        _ => call(),
    })
}

fn watch(watched: Watched, by: By, work: impl FnOnce()) {
    WATCH.with(|watch| {
        watch.ticks.set(0);
        watch.stretches.set(0);
        watch.watched.set(Some((watched, by)));
    });
    work();
    WATCH.with(|watch| watch.watched.set(None));
}

/// Result of the time counter: ticks, and the number of stretches.
fn found() -> (f64, f64) {
    WATCH.with(|watch| (watch.ticks.get() as f64, watch.stretches.get() as f64))
}

/// Stretches of nothing from which the cost of reading the counter is known: so often so many, the
/// batch that was disturbed least.
const BATCHES: u32 = 25;
const EMPTY: u32 = 100;

/// Ticks of a stretch of nothing.
fn empty_ticks() -> f64 {
    let batch = |_| {
        watch(Watched::Both, By::Clock, || (0..EMPTY).for_each(|_| enter(Way::Down, || ())));
        let (ticks, stretches) = found();
        ticks / stretches.max(1.0)
    };
    (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min)
}

/// Nanoseconds within what is watched, of all that `work` does.
pub(crate) fn time(watched: Watched, work: impl FnOnce()) -> f64 {
    let (begun, first) = (Instant::now(), ticks());
    let empty = empty_ticks();
    watch(watched, By::Clock, work);
    let (within, stretches) = found();
    // The counter's rate is known from the clock over all of it.
    let all = ticks().saturating_sub(first).max(1) as f64;
    let ns_per_tick = begun.elapsed().as_nanos() as f64 / all;
    (within - stretches * empty) * ns_per_tick
}

/// Does `work`, for a callgrind that was started with `--collect-atstart=no` to count within what
/// is watched.
pub(crate) fn count(watched: Watched, work: impl FnOnce()) {
    watch(watched, By::Callgrind, work);
}

/// Time of reading the clock, in nanoseconds: the median of many.
pub(crate) fn clock_ns() -> f64 {
    let mut last = Instant::now();
    let mut list = [0; 1001];
    for ns in &mut list {
        let now = Instant::now();
        *ns = u32::try_from(now.duration_since(last).as_nanos()).unwrap_or(u32::MAX);
        last = now;
    }
    list.sort_unstable();
    f64::from(list[list.len() / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(turns: u32) -> u32 {
        (0..turns).fold(1, |sum, turn| std::hint::black_box(sum ^ turn))
    }

    #[test]
    fn what_is_left_does_not_count_and_what_is_entered_again_does() {
        let inside = |outer: u32, left: u32, again: u32| {
            let work = move || {
                let inner = || enter(Way::Up, || spin(again));
                enter(Way::Down, || spin(outer) ^ leave(|| spin(left) ^ inner()));
            };
            move |watched| time(watched, work)
        };
        // Ratios of one run, of stretches that are a hundred times as long as others.
        let run = inside(1_000_000, 10_000, 10_000);
        let (down, up) = (run(Watched::One(Way::Down)), run(Watched::One(Way::Up)));
        assert!(down > 10.0 * up, "{down} {up}");
        let run = inside(10_000, 1_000_000, 10_000);
        let (down, whole) = (run(Watched::One(Way::Down)), run(Watched::Both));
        let begun = Instant::now();
        spin(1_000_000);
        let left = begun.elapsed().as_nanos() as f64;
        assert!(down < left && whole < left, "{down} {whole} {left}");
    }

    #[test]
    fn without_a_watch_everything_is_called_all_the_same() {
        assert_eq!(enter(Way::Down, || leave(|| enter(Way::Up, || 3))), 3);
    }
}
