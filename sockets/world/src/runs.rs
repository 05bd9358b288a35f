//! Runs in processes of their own: a test's program is started again for one test, and tells what
//! came of it in a file.

use crate::Outcome;
use crate::faults::Counts;
use crate::system_unsafe::have_one_layout;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::sync::atomic::{AtomicU32, Ordering};
use xk_core::Time;

/// Says to a process what it is to run: see [`Order`].
const ORDER: &str = "XK_WORLD_RUN";

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Ended(Outcome, Counts),
    Failed(String),
}

thread_local! {
    /// Counts the calls of each place on this thread.
    static CALLS: RefCell<BTreeMap<String, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// A name for the next call from a place.
pub(crate) fn count(place: &str) -> String {
    CALLS.with_borrow_mut(|calls| {
        let count = calls.entry(place.into()).or_default();
        *count += 1;
        format!("{place}#{count}")
    })
}

/// The run that this process is to do.
pub(crate) struct Order {
    pub(crate) call: String,
    pub(crate) seed: u64,
    pub(crate) capture: Option<PathBuf>,
    /// Where the report goes.
    into: PathBuf,
}

impl Order {
    /// `None` if it is no such process.
    pub(crate) fn of_this_process() -> Option<Self> {
        let text = std::env::var(ORDER).ok()?;
        let mut fields = text.split('\n');
        let mut next = || fields.next().map(str::to_owned);
        let (call, seed, into, capture) = (next()?, next()?, next()?, next()?);
        let capture = Some(capture).filter(|path| !path.is_empty()).map(PathBuf::from);
        Some(Self { call, seed: seed.parse().ok()?, capture, into: into.into() })
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

/// This program, for one test alone, which finds an order when it comes to a call.
fn again(test: &str, order: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .args([test, "--exact", "--nocapture", "--include-ignored", "--test-threads=2"])
        .env(ORDER, order);
    have_one_layout(&mut command);
    command
}

/// The command of a process that does the runs of a sweep as they are handed out.
pub(crate) fn worker(test: &str, call: &str) -> Command {
    // What the harness prints is no part of a run.
    let mut command = again(test, &format!("{call}\n0\n\n"));
    command.stdout(Stdio::null());
    command
}

/// Runs one test in a process of its own, up to one call there. `None` if it cannot be started, or
/// has not come to the call.
pub(crate) fn run_alone(
    test: &str,
    call: &str,
    seed: u64,
    capture: Option<&Path>,
) -> Option<Report> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    // Of one length for all runs, so that their memory is laid out alike.
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    let name = format!("run-{:08}-{number:08}", std::process::id());
    let path = crate::folder::own().ok()?.join(name);
    let folder = capture.map_or_else(String::new, |path| path.display().to_string());
    let order = format!("{call}\n{seed}\n{}\n{folder}", path.display());
    let output = again(test, &order).stdin(Stdio::null()).output().ok()?;
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
