//! The seeds of tests by chance: how many there are stands here, for all suites.
//!
//! `XK_LONG=1` has them all take ten thousand each, which takes minutes each; `XK_SEED=7` has them
//! take that one. Seeds run in the test's own process, one after another: beside it are threads of
//! other tests, and a process with threads at work is not forked. Tests whose processes are to have
//! nothing of one seed left for the next are sweeps of `xk-world`.

use core::ops::Range;
use std::thread;

/// Seeds of the ordinary run, where one costs next to nothing.
const SHORT: u64 = 300;
/// Seeds of the long run.
const LONG: u64 = 10_000;

/// The seeds of a test of which each costs so many times as much as the cheapest do, or the one
/// that the environment names.
///
/// # Panics
/// If that is no number.
#[must_use]
pub fn of(cost: u64) -> Range<u64> {
    match std::env::var("XK_SEED") {
        Ok(seed) => {
            let seed: u64 = seed.parse().expect("XK_SEED is a number");
            seed..seed + 1
        }
        Err(_) if std::env::var_os("XK_LONG").is_some() => 0..LONG,
        Err(_) => 0..(SHORT / cost).max(1),
    }
}

/// Does `test` for each of these seeds. When it panics, the command that does that seed again is
/// printed.
pub fn each(seeds: &Range<u64>, mut test: impl FnMut(u64)) {
    for seed in seeds.clone() {
        let _told = Told(seed);
        test(seed);
    }
}

/// Returns true for the seeds of a whole run, false for one that is done again.
#[must_use]
pub fn are_all(seeds: &Range<u64>) -> bool {
    seeds.start == 0 && seeds.end > 1
}

/// Tells of a seed when its test panics.
struct Told(u64);

impl Drop for Told {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("again: {}", again(self.0));
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

    #[test]
    fn each_seed_is_done_until_one_panics() {
        let mut done = Vec::new();
        let ran = catch_unwind(AssertUnwindSafe(|| {
            each(&(0..9), |seed| {
                done.push(seed);
                assert!(seed < 4, "as it must");
            });
        }));
        assert!(ran.is_err() && done == [0, 1, 2, 3, 4], "{done:?}");
        let name = "seeds::tests::each_seed_is_done_until_one_panics";
        assert_eq!(again(4), format!("XK_SEED=4 cargo test -p xk-testkit {name} -- --exact"));
    }
}
