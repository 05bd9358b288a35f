//! Instruction counts: valgrind's callgrind counts a run of N operations and one of 2 N; the
//! difference is N operations without set-up. The same figure comes out whatever else the machine
//! does.

use crate::benchmark::Benchmark;
use crate::case::Case;
use crate::stretch_unsafe;
use std::process::{Command, Stdio};

/// The environment variable that makes a program run one case and end:
/// `BENCH|ROW|SYSTEM|OPERATIONS`.
pub const VARIABLE: &str = "XK_BENCH_CASE";

/// Operations of the shorter run.
const OPERATIONS: u64 = 1000;
/// Bounds one run, in seconds.
const LIMIT_S: &str = "60";

/// Instructions per unit of a case; `None` if valgrind is missing, fails or
/// does not end in time.
pub fn count(bench: &str, case: &Case) -> Option<f64> {
    if !case.is_countable() || case.is_watched() && !stretch_unsafe::IS_KNOWN {
        return None;
    }
    let once = total(bench, case, OPERATIONS)?;
    let twice = total(bench, case, 2 * OPERATIONS)?;
    Some(twice.saturating_sub(once) as f64 / OPERATIONS as f64 / case.divisor)
}

fn total(bench: &str, case: &Case, operations: u64) -> Option<u64> {
    let program = std::env::current_exe().ok()?;
    // What is watched begins to count by itself.
    let at_start = if case.is_watched() { "--collect-atstart=no" } else { "--collect-atstart=yes" };
    let output = Command::new("timeout")
        .args([
            "--foreground",
            LIMIT_S,
            "valgrind",
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            at_start,
        ])
        .arg(program)
        .env(VARIABLE, format!("{bench}|{}|{}|{operations}", case.row, case.system))
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|l| l.contains("Collected :"))?;
    line.rsplit(' ').find(|w| !w.is_empty())?.parse().ok()
}

/// If the environment asks for one case of these, runs it and answers true.
pub(crate) fn run_if_asked(benchmarks: fn() -> Vec<Benchmark>) -> bool {
    let Ok(wanted) = std::env::var(VARIABLE) else {
        return false;
    };
    let mut parts = wanted.split('|');
    let (Some(bench), Some(row), Some(system), Some(operations)) =
        (parts.next(), parts.next(), parts.next(), parts.next().and_then(|n| n.parse().ok()))
    else {
        return true;
    };
    for benchmark in benchmarks().into_iter().filter(|b| b.name == bench) {
        for mut case in (benchmark.cases)() {
            if case.row == row && case.system == system {
                case.run_counted(operations);
            }
        }
    }
    true
}
