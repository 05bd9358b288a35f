//! Runs in processes of their own: a test's program is started again for one test, and tells what
//! came of it in a file.

use crate::Outcome;
use crate::faults::Counts;
use crate::system_unsafe::have_one_layout;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::sync::atomic::{AtomicU32, Ordering};
use xk_core::Time;
use xk_sweep::Call;

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Ended(Outcome, Counts),
    Failed(String),
}

/// The run that this process is to do.
pub(crate) struct Order {
    pub(crate) seed: u64,
    pub(crate) capture: Option<PathBuf>,
    /// File of the report.
    into: PathBuf,
}

impl Order {
    pub(crate) fn of(text: &str) -> Option<Self> {
        let mut fields = text.split('\n');
        let mut next = || fields.next().map(str::to_owned);
        let (seed, into, capture) = (next()?, next()?, next()?);
        let capture = Some(capture).filter(|path| !path.is_empty()).map(PathBuf::from);
        Some(Self { capture, seed: seed.parse().ok()?, into: into.into() })
    }

    /// Tells what came of it, and ends this process.
    pub(crate) fn end(&self, report: &Report) -> ! {
        match std::fs::write(&self.into, report.text()) {
            Ok(()) => exit(0),
            Err(error) => {
                eprintln!("cannot write {}: {error}", self.into.display());
                exit(1)
            }
        }
    }
}

/// The command of a process that does the runs of a sweep as they are handed out.
pub(crate) fn worker(call: &Call) -> Command {
    let mut command = call.process(Some(""));
    have_one_layout(&mut command);
    // What the harness prints is no part of a run.
    command.stdout(Stdio::null());
    command
}

/// Runs one test in a process of its own, up to one call there. `None` if it cannot be started, or
/// has not come to the call.
pub(crate) fn run_alone(call: &Call, seed: u64, capture: Option<&Path>) -> Option<Report> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    // Of one length for all runs, so that their memory is laid out alike.
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let name = format!("run-{:08}-{number:08}", std::process::id());
    let path = crate::folder::own().ok()?.join(name);
    let folder = capture.map_or_else(String::new, |path| path.display().to_string());
    let mut command = call.process(Some(&*format!("{seed}\n{}\n{folder}", path.display())));
    have_one_layout(&mut command);
    let output = command.stdin(Stdio::null()).output().ok()?;
    let report = std::fs::read_to_string(&path).ok();
    // It may never have been written.
    let _ = std::fs::remove_file(&path);
    // What the run says is the test's, and may be captured as that.
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{}", said.strip_prefix("\nrunning 1 test\n").unwrap_or(&said));
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    match report {
        Some(text) => Report::of(&text),
        None if output.status.success() => None,
        None => Some(Report::Failed(format!("it ended with {}", output.status))),
    }
}

impl Report {
    fn text(&self) -> String {
        let (outcome, counts) = match self {
            Self::Ended(outcome, counts) => (outcome, counts),
            Self::Failed(why) => return format!("failed\n{why}"),
        };
        let Outcome { now, frames, shape, octets } = outcome;
        let octets = octets.map_or_else(|| "-".into(), |octets| octets.to_string());
        let mut text = format!("ended {} {frames} {shape} {octets}\n", now.as_ns());
        for (name, count) in counts {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{count} {name}");
        }
        text
    }

    fn of(text: &str) -> Option<Self> {
        let (first, rest) = text.split_once('\n')?;
        if first == "failed" {
            return Some(Self::Failed(rest.into()));
        }
        let words: Vec<&str> = first.split(' ').collect();
        let [_, now, frames, shape, octets] = words[..] else { return None };
        let outcome = Outcome {
            now: Time::from_ns(now.parse().ok()?),
            frames: frames.parse().ok()?,
            shape: shape.parse().ok()?,
            octets: octets.parse().ok(),
        };
        let count = |line: &str| {
            let (count, name) = line.split_once(' ')?;
            Some((name.to_owned(), count.parse().ok()?))
        };
        Some(Self::Ended(outcome, rest.lines().filter_map(count).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_come_back() {
        let outcome = Outcome { now: Time::from_ms(7), frames: 1, shape: 2, octets: Some(3) };
        let counts = Counts::from([("loss of link `a b`".to_owned(), 5), ("other".into(), 0)]);
        let random = Outcome { octets: None, ..outcome };
        let all = [
            Report::Ended(outcome, counts),
            Report::Ended(random, Counts::new()),
            Report::Failed("two\nlines".into()),
        ];
        for report in all {
            assert_eq!(Report::of(&report.text()), Some(report));
        }
        assert_eq!(Report::of("ended 1 2"), None);
    }
}
