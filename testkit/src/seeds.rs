//! The seeds of tests by chance: how many there are stands here, for all suites.
//!
//! `XK_LONG=1` has each test take a hundred times as many as usually, `XK_LONG=8` eight hundred
//! times; `XK_SEED=7` has them take that one, in the test's own process, where all that it prints
//! is seen. Else each seed has a process of its own, and nothing of one is left for the next: a
//! pool of [`xk_sweep`] starts the test's program again for the one test, and forks there for each
//! seed. One in a hundred is done twice.

use core::time::Duration;
use std::num::NonZero;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use xk_sweep::pool::{Pool, PoolError};
use xk_sweep::{Call, Folder, Job, Plan, Row, Verdict};

/// Seeds of the ordinary run, where one costs next to nothing.
const SHORT: u64 = 300;
/// The long run has so many times as many.
const TIMES_LONG: u64 = 100;
/// The real time that a seed may take: it hangs, or the machine does.
const LIMIT: Duration = Duration::from_secs(600);
/// After so many seeds at which something did not hold the others are not run.
const FAILURES_MAX: u64 = 20;
/// The most octets that are shown of what a failed seed prints when it is done again.
const SHOWN_OCTETS_MAX: usize = 1 << 16;

/// The variable that names a seed which alone is to be run.
const SEED: &str = "XK_SEED";

/// Calls of this process whose seeds are being run.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// The seeds of a test of which each costs so many times as much as the cheapest do, or the one
/// that the environment names.
///
/// # Panics
/// If that is no number.
pub fn of(cost: u64) -> Seeds {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse().unwrap_or_else(|_| panic!("{name}=\"{text}\" is no number")))
    };
    let count = count(cost, number("XK_LONG").unwrap_or(0));
    Seeds { telling: &[], count, only: number(SEED) }
}

/// Counts the seeds of such a cost in a run that is so long.
fn count(cost: u64, long: u64) -> u64 {
    let times = (long * TIMES_LONG).max(1);
    (SHORT * times / cost).max(1)
}

/// Seeds that are to be run.
#[derive(Debug)]
#[must_use = "`run` and `sum` run them"]
pub struct Seeds {
    telling: &'static [u64],
    count: u64,
    only: Option<u64>,
}

impl Seeds {
    /// Takes those before the others that have shown faults, unless one is done again.
    pub fn behind(mut self, telling: &'static [u64]) -> Self {
        self.telling = telling;
        self
    }

    /// Runs a test for each seed, which panics if something does not hold.
    ///
    /// # Panics
    /// If one does: with the words of the first, and the command that does it again.
    #[track_caller]
    pub fn run(self, test: impl Fn(u64)) {
        self.sum(|seed| {
            test(seed);
            []
        });
    }

    /// Runs a test for each seed, and adds up what they count. `None` if that is not of all seeds:
    /// if one is done again, and in a process that was started for another call of the test.
    ///
    /// # Panics
    /// As [`run`](Self::run).
    #[track_caller]
    pub fn sum<const N: usize>(self, test: impl Fn(u64) -> [u64; N]) -> Option<[u64; N]> {
        let call = Call::here();
        // A plan's seeds stand in a row.
        let told = self.telling.len() as u64;
        let seed_of = |at: u64| {
            let telling = self.telling.get(at as usize);
            telling.copied().unwrap_or_else(|| at - told)
        };
        let run = |job: &Job| {
            let counts = test(seed_of(job.seed)).into_iter().enumerate();
            let figures = counts.map(|(at, count)| (at.to_string(), count as f64)).collect();
            Row { figures, ..Row::silent(job, Verdict::Clean, "") }
        };
        let replay = |job: &Job| call.again(seed_of(job.seed));
        if call.serves(&run, &replay) {
            return None;
        }
        if let Some(seed) = self.only {
            test(seed);
            return None;
        }
        let plan = Plan {
            what: call.name.clone(),
            options: Vec::new(),
            axes: Vec::new(),
            draws: Vec::new(),
            seeds: (0, told + self.count),
        };
        let rows = rows(&call, plan, &run, &replay).unwrap_or_else(|error| panic!("{error}"));
        let failed: Vec<&Row> = rows.iter().filter(|row| row.verdict != Verdict::Clean).collect();
        if let Some(first) = failed.first() {
            // One that hangs would hang again.
            if first.verdict == Verdict::Failed {
                show(&call, seed_of(first.seed));
            }
            let say = |row: &&Row| {
                format!("{}: {}\n  again: {}", row.verdict.word(), row.why, row.replay)
            };
            let all: Vec<String> = failed.iter().map(say).collect();
            panic!("{} of {} seeds:\n{}", failed.len(), rows.len(), all.join("\n"));
        }
        let sum = |at: usize| {
            let counts = rows.iter().filter_map(|row| row.figures.get(&at.to_string()));
            counts.map(|count| *count as u64).sum()
        };
        Some(core::array::from_fn(sum))
    }
}

/// Runs the seeds of a call, with the processors shared among the calls of this process.
fn rows(
    call: &Call,
    plan: Plan,
    run: &impl Fn(&Job) -> Row,
    replay: &impl Fn(&Job) -> String,
) -> Result<Vec<Row>, PoolError> {
    let mut folder = Folder::unnamed(plan)?;
    let others = RUNNING.fetch_add(1, Ordering::Relaxed);
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let pool = Pool {
        jobs: processors / (others + 1),
        limit: LIMIT,
        keeps_going: true,
        // Not in a short run of a few seeds that take long.
        canary: 99,
        command: &|| {
            let mut command = call.process(Some(""));
            // What the harness prints is no part of a run.
            command.stdout(Stdio::null());
            command
        },
    };
    let filled = call.fill(&pool, &mut folder, run, replay, &mut |progress, _| {
        progress.failed + progress.exhausted < FAILURES_MAX
    });
    RUNNING.fetch_sub(1, Ordering::Relaxed);
    filled?;
    Ok(folder.rows().collect::<Result<_, _>>()?)
}

/// Shows all that a seed prints, which is done again in the way that a person does it again.
fn show(call: &Call, seed: u64) {
    let Ok(output) = call.process(None).env(SEED, seed.to_string()).stdin(Stdio::null()).output()
    else {
        return;
    };
    for octets in [output.stdout, output.stderr] {
        let from = octets.len().saturating_sub(SHOWN_OCTETS_MAX);
        eprint!("{}", String::from_utf8_lossy(&octets[from..]));
    }
    if output.status.success() {
        eprintln!("done again by itself, seed {seed} holds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_long_run_has_a_hundred_times_as_many_whatever_one_costs() {
        for cost in [1, 3, 30, 300] {
            assert_eq!(count(cost, 1), 100 * count(cost, 0), "{cost}");
            assert_eq!(count(cost, 8), 800 * count(cost, 0), "{cost}");
        }
        assert_eq!(count(1000, 0), 1);
    }

    /// A seed does not see what another has set in its process. The counts are added up, those of
    /// seeds that have shown faults, too. A second call of a test has processes of its own.
    #[test]
    fn no_seed_sees_what_another_has_left() {
        static LEFT: AtomicU32 = AtomicU32::new(0);
        for telling in [&[][..], &[u64::MAX, 7]] {
            let sums = of(30).behind(telling).sum(|seed| {
                assert_eq!(LEFT.fetch_add(1, Ordering::Relaxed), 0, "left over for seed {seed}");
                [1, u64::from(seed == 7), u64::from(seed == u64::MAX)]
            });
            if std::env::var_os("XK_LONG").is_none()
                && let Some(sums) = sums
            {
                let (one, told) = (telling.len() as u64, u64::from(!telling.is_empty()));
                assert_eq!(sums, [10 + one, 1 + told, told]);
            }
        }
    }

    /// The seeds over which a test panics, or its process dies, are told of, each with what does it
    /// again, and with all words of the first; that one is then done alone in the test's process.
    #[test]
    fn the_seeds_of_failures_are_told_and_done_again() {
        let name = "seeds::tests::the_seeds_of_failures_are_told_and_done_again";
        if std::env::var_os("XK_SEEDS_TOLD").is_some() {
            of(30).run(|seed| {
                println!("this is seed {seed}");
                assert!(seed != 4, "as it must\nand more");
                if seed == 6 {
                    std::process::abort();
                }
            });
            println!("all hold");
            return;
        }
        let said = |seed: Option<&str>| {
            let mut command = Command::new("/proc/self/exe");
            command.args([name, "--exact", "--nocapture"]).env("XK_SEEDS_TOLD", "1");
            command.env_remove("XK_LONG").env_remove(SEED);
            let output = command.envs(seed.map(|seed| (SEED, seed))).output().unwrap();
            let [out, error] =
                [output.stdout, output.stderr].map(|octets| String::from_utf8(octets).unwrap());
            format!("{out}{error}")
        };
        let all = said(None);
        for words in [
            "2 of 10 seeds:\nfailed: it panicked: testkit/src/seeds.rs:",
            "failed: it was ended by signal 6\n",
            &format!("  again: XK_SEED=4 cargo test -p xk-testkit {name} -- --exact\n"),
            &format!("  again: XK_SEED=6 cargo test -p xk-testkit {name} -- --exact\n"),
            "this is seed 4\n",
            "as it must\nand more\n",
        ] {
            assert!(all.contains(words), "{words} is not in {all}");
        }
        let one = said(Some("4"));
        assert!(one.contains("this is seed 4") && one.contains("as it must\nand more"), "{one}");
        let fine = said(Some("2"));
        assert!(fine.contains("this is seed 2") && fine.contains("all hold"), "{fine}");
    }
}
