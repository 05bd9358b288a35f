//! The seeds of tests by chance: how many there are stands here, for all suites.
//!
//! `XK_LONG=1` has each test take a hundred times as many as usually, `XK_LONG=8` eight hundred
//! times; `XK_SEED=7` has them take that one. Seeds run in the test's own process, one after
//! another: beside it are threads of other tests, and a process with threads at work is not forked.
//! Tests whose processes are to have nothing of one seed left for the next are sweeps of
//! `xk-world`.

use core::ops::Range;
use std::thread;

/// Seeds of the ordinary run, where one costs next to nothing.
const SHORT: u64 = 300;
/// The long run has so many times as many.
const TIMES_LONG: u64 = 100;

/// The seeds of a test of which each costs so many times as much as the cheapest do, or the one
/// that the environment names.
///
/// # Panics
/// If that is no number.
#[must_use]
pub fn of(cost: u64) -> Seeds {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}=\"{text}\" is no number")))
    };
    let (left, is_whole) = match number("XK_SEED") {
        Some(seed) => (seed..seed + 1, false),
        None => (0..count(cost, number("XK_LONG").unwrap_or(0)), true),
    };
    Seeds { telling: &[], left, is_whole, current: None }
}

/// Counts the seeds of such a cost in a run that is so long.
fn count(cost: u64, long: u64) -> u64 {
    let times = (long * TIMES_LONG).max(1);
    (SHORT * times / cost).max(1)
}

/// Seeds, one after the other. If the test panics over one, the command that does it again is
/// printed.
#[derive(Debug)]
pub struct Seeds {
    telling: &'static [u64],
    left: Range<u64>,
    is_whole: bool,
    current: Option<u64>,
}

impl Seeds {
    /// Takes those before the others that have shown faults, unless one is done again.
    #[must_use]
    pub fn behind(mut self, telling: &'static [u64]) -> Self {
        if self.is_whole {
            self.telling = telling;
        }
        self
    }

    /// Counts the seeds of a whole run without [telling ones](Self::behind); `None` if it is one
    /// that is done again.
    #[must_use]
    pub fn whole(&self) -> Option<u64> {
        self.is_whole.then_some(self.left.end)
    }
}

impl Iterator for Seeds {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        self.current = match self.telling {
            [first, rest @ ..] => {
                self.telling = rest;
                Some(*first)
            }
            [] => self.left.next(),
        };
        self.current
    }
}

impl Drop for Seeds {
    fn drop(&mut self) {
        if let Some(seed) = self.current
            && thread::panicking()
        {
            eprintln!("again: {}", again(seed));
        }
    }
}

/// Returns the command that does a seed of this thread's test again.
#[must_use]
pub fn again(seed: u64) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let thread = thread::current();
    let test = thread.name().unwrap_or_default();
    format!("XK_SEED={seed} cargo test -p {package} {test} -- --exact")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::process::Command;

    #[test]
    fn a_long_run_has_a_hundred_times_as_many_whatever_one_costs() {
        for cost in [1, 3, 30, 300] {
            assert_eq!(count(cost, 1), 100 * count(cost, 0), "{cost}");
            assert_eq!(count(cost, 8), 800 * count(cost, 0), "{cost}");
        }
        assert_eq!(count(1000, 0), 1);
    }

    /// The seed over which a test panics is told of, and it alone is taken when it is named; one
    /// that panics behind its seeds tells of none.
    #[test]
    fn the_seed_of_a_panic_is_told_and_done_again() {
        if std::env::var_os("XK_SEEDS_TOLD").is_some() {
            let mut done = Vec::new();
            let ran = catch_unwind(AssertUnwindSafe(|| {
                for seed in of(1) {
                    done.push(seed);
                    assert!(seed < 4, "as it must");
                }
            }));
            println!("done {done:?} {}", ran.is_err());
            for _ in of(100) {}
            panic!("behind them");
        }
        let name = "seeds::tests::the_seed_of_a_panic_is_told_and_done_again";
        let said = |seed: Option<&str>| {
            let mut command = Command::new("/proc/self/exe");
            command.args([name, "--exact", "--nocapture"]).env("XK_SEEDS_TOLD", "1");
            command.env_remove("XK_LONG").env_remove("XK_SEED");
            let output = command.envs(seed.map(|seed| ("XK_SEED", seed))).output().unwrap();
            let [out, error] =
                [output.stdout, output.stderr].map(|octets| String::from_utf8(octets).unwrap());
            format!("{out}{error}")
        };
        let again = format!("again: XK_SEED=4 cargo test -p xk-testkit {name} -- --exact");
        let all = said(None);
        assert!(all.contains("done [0, 1, 2, 3, 4] true"), "{all}");
        assert_eq!((all.matches(&again).count(), all.matches("again: ").count()), (1, 1), "{all}");
        let one = said(Some("4"));
        assert!(one.contains("done [4] true") && one.contains(&again), "{one}");
        let fine = said(Some("2"));
        assert!(fine.contains("done [2] false") && !fine.contains("again: "), "{fine}");
    }
}
