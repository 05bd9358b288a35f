//! A test, seed by seed.

use crate::{Outcome, Result};
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;

/// Runs a test for each seed, twice, and compares the two outcomes. Each run has a thread of its
/// own, since the standard library keeps the keys of hash maps by thread. The environment's
/// `XK_SEED` chooses one seed.
///
/// # Panics
/// If a run fails, panics, or the two differ: `XK_SEED=n` in the message names the seed.
pub fn seeds(seeds: Range<u64>, test: impl Fn(u64) -> Result<Outcome> + Sync) {
    let only = std::env::var("XK_SEED").ok().map(|seed| match seed.parse() {
        Ok(seed) => seed..seed + 1,
        Err(_) => panic!("XK_SEED=\"{seed}\" is no seed: set a number, or unset it"),
    });
    for seed in only.unwrap_or(seeds) {
        let [one, other] = [run(seed, &test), run(seed, &test)];
        assert!(
            one == other,
            "XK_SEED={seed}: one seed, two runs: {one:?} and {other:?}. Something is not the \
             seed's: `tokio::select!` without `biased`, threads, or, if `octets` alone differ, a \
             generator that makes the system call itself (`World::allow_random_octets`)"
        );
    }
}

fn run(seed: u64, test: &(impl Fn(u64) -> Result<Outcome> + Sync)) -> Outcome {
    let test = || test(seed).map_err(|error| error.to_string());
    let ended = thread::scope(|scope| scope.spawn(test).join());
    match ended {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => panic!("XK_SEED={seed}: {error}"),
        Err(payload) => {
            eprintln!("XK_SEED={seed}");
            resume_unwind(payload)
        }
    }
}
