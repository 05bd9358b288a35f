//! The parent's side of the two processes of a measurement: this program, started twice more.
//!
//! Every wait is bounded. A child that does not do its part in time is killed, and so is one whose
//! parent ends.

use super::endpoint::{Endpoint, READY, Task, VARIABLE};
use crate::case::Trouble;
use crate::child::Running;
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Longest time for a child to be ready, and to measure longer than asked.
const CHILD_TIME_MAX: Duration = Duration::from_secs(6);
/// Longest time for a child to end when told to.
const FAREWELL: Duration = Duration::from_secs(2);

/// A running child.
pub(super) struct Peer {
    running: Running,
    lines: Receiver<String>,
    name: String,
}

impl Peer {
    pub(super) fn start(end: &Endpoint) -> Result<Self, Trouble> {
        let name = format!("{:?} of {}", end.task, end.system.name());
        let mut command = Command::new("/proc/self/exe");
        command.env(VARIABLE, end.to_text()).env_remove(crate::instructions::VARIABLE);
        let running = Running::start(command.stdout(Stdio::piped()), (Signal::TERM, FAREWELL));
        let mut running = running.map_err(|error| {
            Trouble::Failed(format!("{name}: cannot start this program again: {error}"))
        })?;
        Ok(Self { lines: running.lines(), running, name })
    }

    /// The next line that it writes.
    fn line(&mut self, limit: Duration) -> Result<String, Trouble> {
        let what = match self.lines.recv_timeout(limit) {
            Ok(line) => return Ok(line),
            Err(RecvTimeoutError::Timeout) => format!("said nothing within {limit:?}"),
            Err(RecvTimeoutError::Disconnected) => match self.running.child.wait() {
                Ok(status) => format!("ended with {status}"),
                Err(error) => format!("is lost: {error}"),
            },
        };
        Err(Trouble::Failed(format!("{}: {what}", self.name)))
    }

    pub(super) fn ready(&mut self) -> Result<(), Trouble> {
        match self.line(CHILD_TIME_MAX)? {
            line if line == READY => Ok(()),
            line => Err(self.judge(&line).err().unwrap_or_else(|| {
                Trouble::Failed(format!("{}: ended before it began", self.name))
            })),
        }
    }

    fn result(&mut self, limit: Duration) -> Result<Value, Trouble> {
        let line = self.line(limit)?;
        self.judge(&line)
    }

    /// A child's last line: what it found, or why not.
    fn judge(&self, line: &str) -> Result<Value, Trouble> {
        let strange = || Trouble::Failed(format!("{}: wrote {line:?}", self.name));
        let value: Value = serde_json::from_str(line).map_err(|_| strange())?;
        let words = |key: &str| value[key].as_str().map(str::to_owned);
        match (words("skipped"), words("error")) {
            (Some(why), _) => Err(Trouble::Skipped(why)),
            (_, Some(what)) => Err(Trouble::Failed(format!("{}: {what}", self.name))),
            _ if value.is_object() => Ok(value),
            _ => Err(strange()),
        }
    }

    /// Asks it to end and answers what it found.
    fn end(mut self) -> Result<Value, Trouble> {
        self.running.signal();
        self.result(FAREWELL)
    }
}

/// Runs both ends: that of side `first` is started first. The one that asks or receives says when
/// it is over. Answers what that one found, then what the other did.
///
/// # Errors
/// What either says, or that it said nothing.
pub(super) fn run(ends: &[Endpoint; 2], first: usize) -> Result<(Value, Value), Trouble> {
    let mut peers = Vec::with_capacity(2);
    for end in [&ends[first], &ends[1 - first]] {
        let mut peer = Peer::start(end)?;
        peer.ready()?;
        peers.push((
            matches!(end.task, Task::Ask | Task::Receive | Task::Connect | Task::Call),
            end.time,
            peer,
        ));
    }
    // The one that says when it is over comes first.
    peers.sort_by_key(|(decides, ..)| !decides);
    let mut results = Vec::with_capacity(2);
    for (decides, time, mut peer) in peers {
        results.push(if decides { peer.result(time + CHILD_TIME_MAX)? } else { peer.end()? });
    }
    match <[Value; 2]>::try_from(results) {
        Ok([found, rest]) => Ok((found, rest)),
        Err(_) => Err(Trouble::Failed("two ends are needed".into())),
    }
}
