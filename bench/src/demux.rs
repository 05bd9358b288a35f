//! Finding the right one of many open sessions.
//!
//! A message of 64 octets goes from one host to another in the same process and comes back: two
//! demultiplexings by UDP among as many sessions as are open. As in figure 6 of the first paper one
//! session is used among all; besides, two in turn, so that no single last hit helps, and one at
//! random, so that nothing of it is in a near cache.

use crate::case::{Case, Goal, Sample, Shared, Trouble};
use crate::child;
use crate::many_sessions::{Choice, ManySessions};
use crate::papers::linux::sockets::Sockets;
use crate::record::Record;
use std::time::Instant;

/// The numbers of open sessions.
const OPEN: [usize; 5] = [1, 10, 100, 10_000, 1_000_000];
/// Beyond this the peer is not asked.
const SOCKETS_MAX: usize = 10_000;
/// Round trips of a round, and those of them that are timed one by one.
const TRIPS: f64 = 50_000.0;
const TIMED: f64 = 10_000.0;
/// Round trips of a round between sockets.
const SOCKET_TRIPS: f64 = 3000.0;
/// Sessions of the process whose memory is looked at.
const MEMORY_SESSIONS: f64 = 100_000.0;

const CHOICES: [Choice; 3] = [Choice::One, Choice::InTurn, Choice::Random];

fn row(open: usize, choice: Choice) -> String {
    let which = match choice {
        Choice::One => "one in use",
        Choice::InTurn => "two in turn",
        Choice::Random => "one at random",
    };
    format!("{open} open, {which}")
}

pub(crate) fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for open in OPEN {
        let (many, sockets) = (Shared::default(), Shared::default());
        for choice in CHOICES {
            list.push(ours(&many, open, choice).beside("Linux"));
            list.push(theirs(&sockets, open, choice).of("Linux"));
        }
    }
    let memory = Case::measured("memory of an open session", |effort| {
        let count = (MEMORY_SESSIONS * effort) as usize + 1;
        let figures = child::ask("demux-memory", &count.to_string())?;
        Ok(figures.first().copied().unwrap_or(f64::NAN).into())
    });
    list.push(memory.unit("octets"));
    list
}

fn ours(many: &Shared<Result<ManySessions, Trouble>>, open: usize, choice: Choice) -> Case {
    let make = move |effort: f64| {
        ManySessions::new((open as f64 * effort).ceil() as usize).map_err(Trouble::Failed)
    };
    Case::measured_on(row(open, choice), many, make, move |many, effort| {
        let trips = (TRIPS * effort) as u64 + 1;
        let start = Instant::now();
        let came = many.trips(choice, trips);
        let mean = start.elapsed().as_nanos() as f64 / trips as f64;
        let times = many.times(choice, (TIMED * effort) as usize + 1);
        if came != trips {
            return Err(Trouble::Failed(format!("{came} of {trips} answers came")));
        }
        Ok(sample(mean, &times))
    })
}

fn theirs(sockets: &Shared<Result<Sockets, Trouble>>, open: usize, choice: Choice) -> Case {
    let make = move |effort: f64| {
        if open > SOCKETS_MAX {
            let why =
                "an address has 65,535 ports, and a process as many descriptors as its limit says";
            return Err(Trouble::Skipped(why.into()));
        }
        Sockets::new((open as f64 * effort).ceil() as usize)
    };
    Case::measured_on(row(open, choice), sockets, make, move |sockets, effort| {
        let times = sockets.times(choice, (SOCKET_TRIPS * effort) as usize + 1)?;
        Ok(sample(times.iter().sum::<f64>() / times.len() as f64, &times))
    })
}

fn sample(mean: f64, times: &[f64]) -> Sample {
    Sample { also: vec![("mean", mean)], ..Sample::of_times(times, 1.0) }
}

/// The row that the others of a choice are compared with: the fewest sessions that leave it a
/// choice.
fn few(choice: Choice) -> usize {
    if choice == Choice::One { 1 } else { 10 }
}

/// Ratios of many sessions to few, which have the goals.
pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let find = |open, choice| Record::find(records, &row(open, choice), "xk");
    let mut list = Vec::new();
    for choice in CHOICES {
        let (one, ten_thousand, million) =
            (find(few(choice), choice), find(10_000, choice), find(1_000_000, choice));
        let words = row(10_000, choice);
        let words = words.split_once(", ").map_or("", |(_, words)| words);
        if let (Some(one), Some(many)) = (one, ten_thousand) {
            let name = format!("10000 over {}, {words}", few(choice));
            let more = many.with(one, (name, "%"), |x, y| (x / y - 1.0) * 100.0);
            list.push(Record { goal: Some(Goal::AtMost(5.0)), ..more });
        }
        if let (Some(one), Some(many)) = (one, million) {
            let name = format!("1000000 less {}, {words}", few(choice));
            let more = many.with(one, (name, many.unit), |x, y| x - y);
            list.push(Record { goal: Some(Goal::AtMost(80.0)), ..more });
        }
    }
    list
}

/// Octets of memory for each end of a conversation, in a process that does nothing else.
pub(crate) fn memory(count: &str) -> Result<Vec<f64>, String> {
    let count: usize = count.parse().map_err(|_| "not a number of sessions")?;
    drop(ManySessions::new(1)?);
    let before = child::resident()?;
    let many = ManySessions::new(count)?;
    let octets = (child::resident()? - before) / count as f64 / 2.0;
    drop(many);
    Ok(vec![octets])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::many_sessions::Chooser;

    #[test]
    fn every_message_comes_back_through_its_own_session() {
        let many = ManySessions::new(2000).unwrap();
        for choice in CHOICES {
            assert_eq!(many.trips(choice, 100), 100);
            let times = many.times(choice, 10);
            assert!(times.len() == 10 && times.is_sorted());
        }
    }

    #[test]
    fn a_random_choice_reaches_all() {
        let mut chooser = Chooser::new(Choice::Random, 10);
        let mut seen = [false; 10];
        for _ in 0..1000 {
            seen[chooser.next()] = true;
        }
        assert_eq!(seen, [true; 10]);
    }
}
