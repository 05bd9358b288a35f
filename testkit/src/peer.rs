//! A runner for tests that meet peers outside this process.
//!
//! The standard harness cannot report at run time that a test was skipped, so tests that need root or a program live in test
//! programs of their own (`harness = false`), whose `main` calls [`main`]. They run one after another, in the order given,
//! since they share the machine. The output has the standard harness's form, so that tools that read the one read the other.
//!
//! Arguments understood: words (a test runs when its name contains one of them), `--exact`, `--skip WORD`, `--list`. Other
//! options of the standard harness are accepted and change nothing, for `cargo test` hands them to every test program.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use crate::needs;

/// A test: its name and its function, which fails by panicking and skips through [`needs`].
pub type Test = (&'static str, fn());

/// The exit code of the standard harness when a test failed.
const FAILED: u8 = 101;

/// Runs the tests that the program's arguments select and gives the exit code: 0, or 101 when one failed.
#[must_use]
pub fn main(tests: &[Test]) -> ExitCode {
    let plan = Plan::from_arguments(std::env::args().skip(1));
    if plan.list {
        for (name, _) in tests.iter().filter(|(name, _)| plan.selects(name)) {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let summary = run(tests, &plan);
    println!("\n{summary}\n");
    if summary.failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    }
}

/// What the arguments ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    list: bool,
    exact: bool,
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
                // These take a value, which must not be read as the name of a test.
                "--test-threads" | "--color" | "--format" | "--logfile" | "-Z"
                | "--shuffle-seed" => drop(arguments.next()),
                option if option.starts_with('-') => {}
                word => plan.words.push(word.to_owned()),
            }
        }
        plan
    }

    /// Whether the test of this name runs.
    fn selects(&self, name: &str) -> bool {
        let fits = |word: &String| {
            if self.exact {
                name == word
            } else {
                name.contains(word.as_str())
            }
        };
        (self.words.is_empty() || self.words.iter().any(fits)) && !self.without.iter().any(fits)
    }
}

/// How a run ended; its `Display` is the closing line.
#[derive(Debug, Default)]
struct Summary {
    passed: usize,
    failed: Vec<&'static str>,
    skipped: usize,
    filtered_out: usize,
    seconds: f64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "test result: {}. {} passed; {} failed; {} ignored; 0 measured; {} filtered out; finished in {:.2}s",
            if self.failed.is_empty() {
                "ok"
            } else {
                "FAILED"
            },
            self.passed,
            self.failed.len(),
            self.skipped,
            self.filtered_out,
            self.seconds,
        )
    }
}

/// Runs what the plan selects and prints a line for each.
fn run(tests: &[Test], plan: &Plan) -> Summary {
    let begun = Instant::now();
    let chosen: Vec<&Test> = tests
        .iter()
        .filter(|(name, _)| plan.selects(name))
        .collect();
    println!(
        "\nrunning {} test{}",
        chosen.len(),
        if chosen.len() == 1 { "" } else { "s" }
    );
    let mut summary = Summary {
        filtered_out: tests.len() - chosen.len(),
        ..Summary::default()
    };
    for (name, test) in chosen {
        needs::set_test_name(name);
        let _stale = needs::take_skipped();
        let outcome = catch_unwind(AssertUnwindSafe(test));
        let skipped = needs::take_skipped();
        let word = match (&outcome, skipped) {
            (Err(_), _) => {
                summary.failed.push(name);
                "FAILED".to_owned()
            }
            (Ok(()), Some(reason)) => {
                summary.skipped += 1;
                format!("skipped ({reason})")
            }
            (Ok(()), None) => {
                summary.passed += 1;
                "ok".to_owned()
            }
        };
        println!("test {name} ... {word}");
        let _ = std::io::stdout().flush();
    }
    if !summary.failed.is_empty() {
        println!("\nfailures:");
        for name in &summary.failed {
            println!("    {name}");
        }
    }
    summary.seconds = begun.elapsed().as_secs_f64();
    summary
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
        let mut summary = run(&tests, &plan(&["--skip", "left"]));
        summary.seconds = 1.234;
        assert_eq!(
            summary.to_string(),
            "test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 1 filtered out; finished in 1.23s"
        );
        assert_eq!(summary.failed, ["fails"]);
    }
}
