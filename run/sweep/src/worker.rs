//! A worker process: does the runs that it is handed, each in a child of its own.

use crate::fork_unsafe::{Child, Ended, in_child};
use crate::plan::{Job, Plan};
use crate::row::{Row, Verdict};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::time::{Duration, Instant};

/// The first line to a worker.
#[derive(Serialize, Deserialize)]
pub(crate) struct Task {
    pub(crate) plan: Plan,
    /// The real time that a run may take.
    pub(crate) limit_ms: u64,
}

/// A worker's line on a run that has ended.
#[derive(Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) number: u64,
    pub(crate) us: u64,
    pub(crate) row: Row,
}

/// The preparation of runs with these parameters.
struct Prepared<P> {
    set: Vec<(String, String)>,
    made: Result<P, String>,
}

/// The runs of a process that a [`pool`](crate::pool) has started, and which talks with it by the
/// standard input, a socket. `prepare` makes of parameters what a run needs, once for all runs in a
/// row that have the same; `run` does one, in a child of this process; `replay` says which command
/// does it again.
///
/// Other threads of this process must wait, for it forks.
///
/// # Errors
/// The system's, or what is said on the standard input reads as nothing that a pool says.
pub fn serve<P>(
    mut prepare: impl FnMut(&Plan, &Job) -> Result<P, String>,
    mut run: impl FnMut(&P, &Job) -> Row,
    replay: impl Fn(&Plan, &Job) -> String,
) -> io::Result<()> {
    // One that is killed takes its workers with it.
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let mut output = File::from(rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?);
    let mut input = BufReader::new(output.try_clone()?);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let task: Task = serde_json::from_str(&line)?;
    let limit = Duration::from_millis(task.limit_ms);
    let mut prepared: Option<Prepared<P>> = None;
    // The pool knows by it that the program runs.
    output.write_all(b"\n")?;
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        for word in line.split_ascii_whitespace() {
            let number = word.parse().map_err(io::Error::other)?;
            let (job, begun) = (task.plan.job(number), Instant::now());
            if prepared.as_ref().is_none_or(|prepared| prepared.set != job.set) {
                let made = prepare(&task.plan, &job);
                prepared = Some(Prepared { set: job.set.clone(), made });
            }
            let Some(Prepared { made, .. }) = &prepared else { continue };
            let row = match made {
                Ok(made) => alone(limit, &job, || run(made, &job))?,
                Err(why) => Row::silent(&job, Verdict::Failed, first_line(why)),
            };
            let row = Row { replay: replay(&task.plan, &job), ..row };
            let us = begun.elapsed().as_micros() as u64;
            let mut octets = serde_json::to_vec(&Done { number, us, row })?;
            octets.push(b'\n');
            output.write_all(&octets)?;
        }
    }
}

/// One run in a child of this process, whose other threads must wait: the row that it answers, or
/// one that says how it ended without.
///
/// # Errors
/// The system's: no process, no pipe.
pub fn alone(limit: Duration, job: &Job, run: impl FnOnce() -> Row) -> io::Result<Row> {
    let child = in_child(limit, || serde_json::to_vec(&run()).unwrap_or_default())?;
    Ok(row_of(job, limit, &child))
}

fn row_of(job: &Job, limit: Duration, child: &Child) -> Row {
    let said = String::from_utf8_lossy(&child.said);
    let why = |what: String| match panic_of(&said) {
        Some(line) => format!("{what}: {line}"),
        None => what,
    };
    match child.ended {
        Ended::Answered => serde_json::from_slice(&child.answer).unwrap_or_else(|error| {
            Row::silent(job, Verdict::Failed, format!("its row does not read: {error}"))
        }),
        Ended::Late => {
            let what = format!("it had not ended after {limit:?} of real time");
            Row::silent(job, Verdict::Exhausted, what)
        }
        Ended::Status(101) => Row::silent(job, Verdict::Failed, why("it panicked".into())),
        Ended::Status(code) => {
            Row::silent(job, Verdict::Failed, why(format!("it ended with status {code}")))
        }
        Ended::Signal(signal) => {
            Row::silent(job, Verdict::Failed, why(format!("it was ended by signal {signal}")))
        }
    }
}

/// Returns the place and the message of a panic, in one line.
fn panic_of(said: &str) -> Option<String> {
    let from = said.find("panicked at ")?;
    let mut lines = said[from + "panicked at ".len()..].lines();
    let place = lines.next().unwrap_or_default().trim_end_matches(':');
    Some(format!("{place}: {}", lines.next().unwrap_or_default()))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
