//! `group-delivery` and `group-stream`: conversations of many processes, in xk, JGroups and
//! corosync.
//!
//! In each round a system has all its messages of one number of members sent in one go, row by row;
//! the others do not run meanwhile.

mod foreign;
pub(crate) mod member;
mod ours;

use super::endpoint::Wire;
use crate::case::{Case, Goal, Sample, Trouble};
use crate::child::Running;
use foreign::Foreign;
use member::Phase;
use ours::Ours;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// The numbers of members: more processes than this have no sensible figures on two cores.
const MEMBERS: [usize; 3] = [2, 4, 8];
const OCTETS: [usize; 2] = [64, 1024];
/// Messages of a row that are sent one in each gap, and the gap.
const SINGLE: f64 = 100.0;
const GAP: Duration = Duration::from_millis(1);
/// Messages that all send together without waiting, for each member less of them.
const STREAM: f64 = 8000.0;
/// Messages before those, so that a virtual machine has compiled what it runs often.
const WARM_UP: u32 = 24_000;
/// Longest time for the members to find each other, and for one row.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The order that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ordering {
    Partial,
    Total,
}

impl Ordering {
    const ALL: [Self; 2] = [Self::Partial, Self::Total];

    fn name(self) -> &'static str {
        match self {
            Self::Partial => "partial",
            Self::Total => "total",
        }
    }
}

/// A system that has conversations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Xk(Wire),
    Jgroups,
    Corosync,
}

impl System {
    const ALL: [Self; 4] =
        [Self::Xk(Wire::Packet), Self::Xk(Wire::Shm), Self::Jgroups, Self::Corosync];

    fn name(self) -> &'static str {
        match self {
            Self::Xk(Wire::Shm) => "xk shm",
            Self::Xk(_) => "xk packet",
            Self::Jgroups => "JGroups",
            Self::Corosync => "corosync",
        }
    }

    /// Whether it has such an order alone, and not by way of a stronger one.
    fn has(self, order: Ordering) -> bool {
        self != Self::Corosync || order == Ordering::Total
    }
}

/// The messages of one row.
#[derive(Clone, Copy)]
struct Row {
    words: &'static str,
    octets: usize,
    /// Whether all send, without waiting; else one does, one message in each gap.
    is_stream: bool,
    all_send: bool,
}

impl Row {
    fn phase(self, members: usize, effort: f64) -> Phase {
        let senders = if self.all_send { members } else { 1 };
        let (count, gap) = match self.is_stream {
            true => (STREAM * effort / members as f64 / senders as f64, Duration::ZERO),
            false => (SINGLE * effort, GAP),
        };
        Phase { senders, each: count as u32 + 1, octets: self.octets, gap }
    }

    fn sample(self, phase: Phase, found: &[Vec<f64>]) -> Sample {
        match self.is_stream {
            true => rate(phase, found).into(),
            false => delivery(found),
        }
    }
}

/// Words of every member about a row: when it first sent and last heard something, in nanoseconds,
/// and if there was a gap how long each message took.
type Said = Vec<Vec<f64>>;

/// The time until the last has heard a message.
fn delivery(found: &[Vec<f64>]) -> Sample {
    let count = found.iter().map(Vec::len).max().unwrap_or(0);
    let last =
        |at: usize| found.iter().filter_map(|said| said.get(at)).fold(0.0, |a: f64, b| a.max(*b));
    let mut times: Vec<f64> = (2..count).map(last).collect();
    times.sort_by(f64::total_cmp);
    Sample::of_times(&times, 1e3)
}

/// Messages a second, from the first sending to the last hearing.
fn rate(phase: Phase, found: &[Vec<f64>]) -> f64 {
    let first = found.iter().filter_map(|said| said.first()).filter(|ns| **ns > 0.0);
    let first = first.fold(f64::INFINITY, |a, b| a.min(*b));
    let last = found.iter().filter_map(|said| said.get(1)).fold(0.0, |a: f64, b| a.max(*b));
    phase.all() as f64 / ((last - first) / 1e9)
}

/// State that all cases of a benchmark share.
#[derive(Clone, Default)]
struct Systems {
    ours: Rc<Ours>,
    foreign: Rc<Foreign>,
}

impl Systems {
    fn run(
        &self,
        system: System,
        order: Ordering,
        members: usize,
        phases: &[Phase],
    ) -> Result<Vec<Said>, Trouble> {
        match system {
            System::Xk(wire) => self.ours.run(&self.foreign, (wire, order), members, phases),
            System::Jgroups => self.foreign.jgroups(order, members, phases),
            System::Corosync => self.foreign.corosync(members, phases),
        }
    }
}

/// The results of one system's rows in the last round, and its number.
type Found = Rc<RefCell<(u32, Result<Vec<Said>, Trouble>)>>;

fn cases(rows: &'static [Row]) -> Vec<Case> {
    let systems = Systems::default();
    let mut list = Vec::new();
    for order in Ordering::ALL {
        for members in MEMBERS {
            let found = System::ALL.map(|_| Found::new(RefCell::new((0, Ok(Vec::new())))));
            for (at, row) in rows.iter().enumerate() {
                let words = format!("{}, {members} members, {}", order.name(), row.words);
                for (system, found) in System::ALL.into_iter().zip(&found) {
                    if !system.has(order) {
                        continue;
                    }
                    let (systems, found, round) = (systems.clone(), found.clone(), Cell::new(0));
                    let case = Case::measured(words.clone(), move |effort| {
                        let warm_up = Phase {
                            senders: members,
                            each: WARM_UP / members as u32,
                            octets: OCTETS[0],
                            gap: Duration::ZERO,
                        };
                        let measured = rows.iter().map(|row| row.phase(members, effort));
                        let phases: Vec<_> = [warm_up].into_iter().chain(measured).collect();
                        round.set(round.get() + 1);
                        let mut found = found.borrow_mut();
                        // The first row of a round has all of them measured.
                        if found.0 < round.get() {
                            *found = (round.get(), systems.run(system, order, members, &phases));
                        }
                        let said = found.1.as_ref().map_err(Clone::clone)?;
                        Ok(row.sample(phases[at + 1], &said[at + 1]))
                    });
                    list.push(beside(case.of(system.name()), system, order));
                }
            }
        }
    }
    list
}

/// The goals: beside JGroups.
const TIMES_AS_FAST: f64 = 5.0;

fn beside(case: Case, system: System, order: Ordering) -> Case {
    if !matches!(system, System::Xk(_)) {
        return case;
    }
    let case = case.beside(System::Jgroups.name()).goal(Goal::TimesAsFast(TIMES_AS_FAST));
    match System::Corosync.has(order) {
        true => case.beside(System::Corosync.name()),
        false => case,
    }
}

const fn row(words: &'static str, octets: usize, is_stream: bool, all_send: bool) -> Row {
    Row { words, octets, is_stream, all_send }
}

pub(crate) fn delivery_cases() -> Vec<Case> {
    const ROWS: &[Row] =
        &[row("64 octets", OCTETS[0], false, false), row("1024 octets", OCTETS[1], false, false)];
    cases(ROWS)
}

pub(crate) fn stream_cases() -> Vec<Case> {
    const ROWS: &[Row] = &[
        row("64 octets, one sends", OCTETS[0], true, false),
        row("64 octets, all send", OCTETS[0], true, true),
        row("1024 octets, one sends", OCTETS[1], true, false),
        row("1024 octets, all send", OCTETS[1], true, true),
    ];
    cases(ROWS)
}

/// A running member, and the lines that it writes.
struct Process {
    running: Running,
    lines: Receiver<String>,
}

impl Process {
    fn new(mut running: Running) -> Self {
        Self { lines: running.lines(), running }
    }

    /// The next line that it writes, other than what its libraries say.
    fn line(&self) -> Result<String, Trouble> {
        loop {
            let line = self.lines.recv_timeout(TIME_MAX);
            let line = line.map_err(|error| {
                Trouble::Failed(format!("a member said nothing within {TIME_MAX:?}: {error}"))
            })?;
            let is_word = ["ready", "joined"].contains(&line.as_str());
            if is_word || line.starts_with(|first: char| first.is_ascii_digit()) {
                return Ok(line);
            }
            if line.contains("error") {
                return Err(Trouble::Failed(format!("a member: {line}")));
            }
        }
    }

    fn numbers(&self) -> Result<Vec<f64>, Trouble> {
        let line = self.line()?;
        let numbers: Result<Vec<f64>, _> = line.split(' ').map(str::parse).collect();
        numbers.map_err(|_| Trouble::Failed(format!("a member wrote {line:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_hear_a_message_counts() {
        let found = [vec![5.0, 9.0], vec![0.0, 8.0, 1000.0, 3000.0], vec![0.0, 11.0, 2000.0, 1.0]];
        let sample = delivery(&found);
        assert_eq!((sample.value, sample.p99), (3.0, Some(3.0)));
        let phase = Phase { senders: 2, each: 3, octets: 64, gap: Duration::ZERO };
        assert_eq!(rate(phase, &found), 6.0 / 6e-9);
    }
}
