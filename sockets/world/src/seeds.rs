//! A test, seed by seed.

use crate::faults::{Counts, idle, take_counts};
use crate::runs::{Order, Report, run_alone};
use crate::{Outcome, Result};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::thread;
use xk_sweep::Call;

/// Runs a test for each seed, twice, and compares the two outcomes. The environment variable
/// `XK_SEED` selects one seed.
///
/// Each run is a new process: the test's program is started again for this test alone, up to this
/// call. So statics and counters of libraries depend only on the seed, too; and values outside the
/// closure do not keep changes that its runs make. If the test cannot be started alone, as a test
/// in documentation or of libtest with one thread, runs have threads of their own instead.
///
/// A failure is reported with the command that repeats that seed, and with a capture of each link.
/// `XK_CAPTURE` names a folder for captures of a run without a failure.
///
/// # Panics
/// If a run fails, panics, or the two differ: `XK_SEED=n` in the message names the seed. If a fault
/// that all these seeds were to have has fired in none of them: it is named.
#[track_caller]
pub fn seeds(seeds: Range<u64>, test: impl Fn(u64) -> Result<Outcome> + Sync) {
    let call = Call::here();
    if let Some(order) = call.order() {
        if let Some(order) = order.as_deref().and_then(Order::of) {
            let report = run(order.seed, order.capture.as_deref(), &test);
            order.end(&report);
        }
        // This process is for another call.
        return;
    }
    let only = only_seed().map(|seed| seed..seed + 1);
    let are_all = only.is_none();
    let mut fired = Counts::new();
    for seed in only.unwrap_or(seeds.clone()) {
        let again = |capture: Option<&Path>| run_twice(&call, seed, [capture, None], &test);
        let reports = again(None);
        let counts = outcome(&call, seed, &reports, || {
            let folder = capture_folder(&call, seed)?;
            again(Some(&folder));
            Some(folder)
        });
        for (name, count) in counts {
            *fired.entry(name).or_default() += count;
        }
    }
    if let Some(idle) = idle(&fired).filter(|_| are_all) {
        panic!("a fault has fired in none of the seeds {seeds:?}: {idle}");
    }
}

/// The seed that the environment names.
///
/// # Panics
/// If it names something else.
pub(crate) fn only_seed() -> Option<u64> {
    let seed = std::env::var("XK_SEED").ok()?;
    let number = seed.parse();
    Some(
        number
            .unwrap_or_else(|_| panic!("XK_SEED=\"{seed}\" is no seed: set a number, or unset it")),
    )
}

/// Two runs of a seed, alone if that can be.
fn run_twice(
    call: &Call,
    seed: u64,
    captures: [Option<&Path>; 2],
    test: &(impl Fn(u64) -> Result<Outcome> + Sync),
) -> [Report; 2] {
    let alone = call.test.as_deref().and_then(|_| {
        // One behind the other: what the test does before may be in files.
        let [one, other] = captures.map(|capture| run_alone(call, seed, capture));
        Some([one?, other?])
    });
    alone.unwrap_or_else(|| captures.map(|capture| run(seed, capture, test)))
}

/// Counts of the faults.
///
/// # Panics
/// If the runs have failed, or differ: once `capture` has captured them.
fn outcome(
    call: &Call,
    seed: u64,
    reports: &[Report; 2],
    capture: impl FnOnce() -> Option<PathBuf>,
) -> Counts {
    let [one, other] = reports;
    let why = match (one, other) {
        (Report::Ended(one, counts), Report::Ended(other, _)) if one == other => {
            return counts.clone();
        }
        (Report::Ended(one, _), Report::Ended(other, _)) => format!(
            "one seed, two runs: {one:?} and {other:?}. Something is not the seed's: what the \
             system says of its files, processes or time beside the C library, or addresses \
             in memory"
        ),
        (Report::Failed(why), _) | (_, Report::Failed(why)) => why.clone(),
    };
    let captured = match capture().filter(|folder| folder.is_dir()) {
        Some(folder) => format!("\n  captures: {}", folder.display()),
        None => String::new(),
    };
    panic!("XK_SEED={seed}: {why}\n  again: {}{captured}", call.again(seed));
}

fn capture_folder(call: &Call, seed: u64) -> Option<PathBuf> {
    let test = call.test.as_deref().unwrap_or("test").replace("::", "-");
    let name = format!("{test}-{seed}-{}", std::process::id());
    Some(crate::folder::own().ok()?.join(name))
}

/// One run, in this process.
fn run(
    seed: u64,
    capture: Option<&Path>,
    test: &(impl Fn(u64) -> Result<Outcome> + Sync),
) -> Report {
    let test = || {
        crate::parts::begin();
        crate::outcome::capture_into(capture.map(Path::to_owned));
        let ended = test(seed).map_err(|error| error.to_string());
        (ended, take_counts())
    };
    match thread::scope(|scope| scope.spawn(test).join()) {
        Ok((Ok(outcome), counts)) => Report::Ended(outcome, counts),
        Ok((Err(error), _)) => Report::Failed(error),
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            Report::Failed(format!("it panicked: {}", text.unwrap_or_default()))
        }
    }
}
