//! A runner for tests that meet peers outside this process.
//!
//! The standard harness cannot report at run time that a test was skipped, so tests that need root
//! or a program live in test programs of their own (`harness = false`), whose `main` calls
//! [`main`]. They run one after another, in the order given, since they share the machine; those
//! that do not mind company may run beside one another, by [`main_with_company`]. The output has
//! the standard harness's form, so that tools that read the one read the other.
//!
//! Arguments understood: words (a test runs when its name contains one of them), `--exact`,
//! `--skip WORD`, `--list`, `--test-threads N` (at most so many beside one another). Other options
//! of the standard harness are accepted and change nothing, for `cargo test` hands them to every
//! test program.

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::needs;

/// A test: its name and its function, which fails by panicking and skips through [`needs`].
pub type Test = (&'static str, fn());

/// Tests that run beside one another, unless more are asked for.
const COMPANY_MAX: usize = 8;

/// A test's stack: what Linux gives the first thread of a program.
const STACK_OCTETS: usize = 8 << 20;

/// The exit code of the standard harness when a test failed.
const FAILED: u8 = 101;

/// Runs the tests that the program's arguments select and gives the exit code: 0, or 101 when one
/// failed.
#[must_use]
pub fn main(tests: &[Test]) -> ExitCode {
    main_with_company(&[], tests)
}

/// Runs tests as [`main`] does, and before them `company`: tests that have nothing to do with one
/// another and do not mind a busy machine. They mostly wait, so twice as many run at a time as it
/// has processors, within reason.
#[must_use]
pub fn main_with_company(company: &[Test], alone: &[Test]) -> ExitCode {
    let plan = Plan::from_arguments(std::env::args().skip(1));
    if plan.list {
        let all = company.iter().chain(alone);
        for (name, _) in all.filter(|(name, _)| plan.selects(name)) {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let summary = run(company, alone, &plan);
    println!("\n{summary}\n");
    if summary.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) }
}

/// Request of the arguments.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    list: bool,
    exact: bool,
    threads: Option<NonZeroUsize>,
    words: Vec<String>,
    without: Vec<String>,
}

impl Plan {
    /// Reads arguments in the standard harness's form.
    fn from_arguments(arguments: impl Iterator<Item = String>) -> Self {
        let mut plan = Self::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--list" => plan.list = true,
                "--exact" => plan.exact = true,
                "--skip" => plan.without.extend(arguments.next()),
                "--test-threads" => {
                    plan.threads = arguments.next().and_then(|number| number.parse().ok());
                }
                // These take a value, which must not be read as the name of a test.
                "--color" | "--format" | "--logfile" | "-Z" | "--shuffle-seed" => {
                    drop(arguments.next());
                }
                option if option.starts_with('-') => {}
                word => plan.words.push(word.to_owned()),
            }
        }
        plan
    }

    /// Whether the test of this name runs.
    fn selects(&self, name: &str) -> bool {
        let fits = |word: &String| {
            if self.exact { name == word } else { name.contains(word.as_str()) }
        };
        (self.words.is_empty() || self.words.iter().any(fits)) && !self.without.iter().any(fits)
    }
}

/// Result of a run; its `Display` is the closing line.
#[derive(Debug, Default)]
struct Summary {
    passed: usize,
    failed: Vec<&'static str>,
    skipped: usize,
    filtered_out: usize,
    seconds: f64,
}

impl Summary {
    /// Counts a test and prints its line.
    fn note(&mut self, name: &'static str, outcome: Outcome) {
        let word = match outcome {
            Err(_) => {
                self.failed.push(name);
                "FAILED".to_owned()
            }
            Ok(Some(reason)) => {
                self.skipped += 1;
                format!("skipped ({reason})")
            }
            Ok(None) => {
                self.passed += 1;
                "ok".to_owned()
            }
        };
        println!("test {name} ... {word}");
        let _closed = std::io::stdout().flush();
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "test result: {}. {} passed; {} failed; {} ignored; 0 measured; {} filtered out; finished in {:.2}s",
            if self.failed.is_empty() { "ok" } else { "FAILED" },
            self.passed,
            self.failed.len(),
            self.skipped,
            self.filtered_out,
            self.seconds,
        )
    }
}

/// Runs what the plan selects, first what may run beside one another, and prints a line for each.
fn run(company: &[Test], alone: &[Test], plan: &Plan) -> Summary {
    let begun = Instant::now();
    let choose = |tests: &[Test]| -> Vec<Test> {
        let chosen = tests.iter().filter(|(name, _)| plan.selects(name));
        chosen.copied().collect()
    };
    let (beside, after) = (choose(company), choose(alone));
    let chosen = beside.len() + after.len();
    println!("\nrunning {chosen} test{}", if chosen == 1 { "" } else { "s" });
    let summary = Mutex::new(Summary {
        filtered_out: company.len() + alone.len() - chosen,
        ..Summary::default()
    });
    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let usual = (2 * processors).min(COMPANY_MAX);
    let threads = plan.threads.map_or(usual, NonZeroUsize::get);
    run_some(&beside, threads, &summary);
    run_some(&after, 1, &summary);
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !summary.failed.is_empty() {
        println!("\nfailures:");
        for name in &summary.failed {
            println!("    {name}");
        }
    }
    summary.seconds = begun.elapsed().as_secs_f64();
    summary
}

/// Runs these tests in their order, `threads` at a time.
fn run_some(tests: &[Test], threads: usize, summary: &Mutex<Summary>) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let outcome = run_one(*test);
            let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            summary.note(test.0, outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.min(tests.len()) {
            scope.spawn(work);
        }
    });
}

/// End of a test: well, skipped for a reason, or by a panic.
type Outcome = thread::Result<Option<String>>;

/// Runs a test on a thread of its own, of its name: a message of a panic names the thread.
fn run_one((name, test): Test) -> Outcome {
    let inside = || {
        needs::set_test_name(name);
        test();
        needs::take_skipped()
    };
    let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK_OCTETS);
    thread::scope(|scope| {
        let running = thread.spawn_scoped(scope, inside).expect("a thread");
        running.join()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &[&str]) -> Plan {
        Plan::from_arguments(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn arguments_select_tests() {
        let all = plan(&["--nocapture", "--test-threads", "1", "-q"]);
        assert!(all.selects("anything") && !all.list);
        let some = plan(&["udp", "--skip", "slow"]);
        assert!(some.selects("udp_echo") && !some.selects("tcp_echo") && !some.selects("udp_slow"));
        let one = plan(&["--exact", "udp", "--list"]);
        assert!(one.list && one.selects("udp") && !one.selects("udp_echo"));
    }

    #[test]
    fn each_outcome_is_counted() {
        let tests: [Test; 4] = [
            ("passes", || {}),
            ("skips", || needs::skip("for the example")),
            ("fails", || std::panic::resume_unwind(Box::new("quietly"))),
            ("left out", || {}),
        ];
        let closing = "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 1 filtered out; finished in 1.23s";
        for (company, alone) in [(&[][..], &tests[..]), (&tests, &[]), tests.split_at(2)] {
            let mut summary = run(company, alone, &plan(&["--skip", "left"]));
            summary.seconds = 1.234;
            assert_eq!(summary.to_string(), closing);
            assert_eq!(summary.failed, ["fails"]);
        }
    }

    #[test]
    fn company_is_there_at_the_same_time_and_nobody_else() {
        static HERE: AtomicUsize = AtomicUsize::new(0);
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        // Each waits until the other is there.
        fn meets() {
            HERE.fetch_add(1, Ordering::SeqCst);
            while HERE.load(Ordering::SeqCst) < 2 {
                thread::yield_now();
            }
            ENDED.fetch_add(1, Ordering::SeqCst);
        }
        fn is_alone() {
            assert_eq!(ENDED.load(Ordering::SeqCst), 2);
        }
        let plan = plan(&["--test-threads", "2"]);
        let summary = run(&[("one", meets), ("other", meets)], &[("last", is_alone)], &plan);
        assert_eq!((summary.passed, summary.failed.len()), (3, 0));
    }
}
