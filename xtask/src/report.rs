//! Results of the steps: counts from the runners' closing lines, and the table at the end.

use std::fmt;
use std::time::Duration;

/// Tests, as the runners' own closing lines count them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; ...`; any other line is `None`.
    pub(crate) fn from_closing_line(line: &str) -> Option<Self> {
        let rest = line.trim().strip_prefix("test result:")?;
        let (_, figures) = rest.split_once(". ")?;
        let mut counts = Self::default();
        for figure in figures.split(';') {
            let mut words = figure.split_whitespace();
            let number = words.next().and_then(|n| n.parse().ok());
            let (Some(number), Some(kind)) = (number, words.next()) else {
                continue;
            };
            match kind {
                "passed" => counts.passed = number,
                "failed" => counts.failed = number,
                "ignored" | "skipped" => counts.skipped = number,
                _ => {}
            }
        }
        Some(counts)
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// End of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed(Counts),
    Failed(Counts, String),
    /// Why, and what to type to have it run.
    Skipped(String),
    /// An earlier step failed.
    NotReached,
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) step: &'static str,
    pub(crate) outcome: Outcome,
    pub(crate) took: Duration,
}

/// The table, the seconds, and last the line that counts.
pub(crate) fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut total = Counts::default();
    let mut took = Duration::ZERO;
    for row in rows {
        let (word, remark) = match &row.outcome {
            Outcome::Passed(counts) => ("ok", shown(*counts)),
            Outcome::Failed(counts, why) => {
                ("FAILED", format!("{why}{}{}", separator(*counts), shown(*counts)))
            }
            Outcome::Skipped(why) => ("skipped", why.clone()),
            Outcome::NotReached => ("not run", String::new()),
        };
        let line =
            format!("{:<14} {word:<8} {:>7.1} s  {remark}", row.step, row.took.as_secs_f64());
        text += line.trim_end();
        text.push('\n');
        total.add(in_total(&row.outcome));
        took += row.took;
    }
    text += &format!("total {:.1} s\n{total}\n", took.as_secs_f64());
    text
}

fn shown(counts: Counts) -> String {
    if counts == Counts::default() { String::new() } else { counts.to_string() }
}

fn separator(counts: Counts) -> &'static str {
    if counts == Counts::default() { "" } else { "; " }
}

/// A step without tests of its own that fails or is left out counts as one, so as not to be
/// overlooked in the last line.
fn in_total(outcome: &Outcome) -> Counts {
    match outcome {
        Outcome::Passed(counts) => *counts,
        Outcome::Failed(counts, _) => Counts { failed: counts.failed.max(1), ..*counts },
        Outcome::Skipped(_) | Outcome::NotReached => Counts { skipped: 1, ..Counts::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_read() {
        let line = "test result: ok. 12 passed; 1 failed; 3 ignored; 0 measured; 9 filtered out; finished in 0.01s";
        assert_eq!(
            Counts::from_closing_line(line),
            Some(Counts { passed: 12, failed: 1, skipped: 3 })
        );
        assert_eq!(
            Counts::from_closing_line("test result: FAILED. 0 passed; 2 failed"),
            Some(Counts { passed: 0, failed: 2, skipped: 0 })
        );
        assert_eq!(Counts::from_closing_line("test x ... ok"), None);
    }

    #[test]
    fn the_last_line_counts_everything() {
        let row = |step, outcome| Row { step, outcome, took: Duration::from_millis(1500) };
        let counts = Counts { passed: 7, failed: 0, skipped: 1 };
        let text = summary(&[
            row("tests", Outcome::Passed(counts)),
            row("clippy", Outcome::Failed(Counts::default(), "exit status: 1".into())),
            row("miri", Outcome::Skipped("no Miri".into())),
            row("peers", Outcome::NotReached),
        ]);
        assert!(text.ends_with("total 6.0 s\n7 passed, 1 failed, 3 skipped\n"), "{text}");
        assert!(text.contains("clippy         FAILED       1.5 s  exit status: 1\n"), "{text}");
    }
}
