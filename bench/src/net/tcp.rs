//! `tcp-stream`, `tcp-rtt`, `tcp-connect`, `tcp-lossy` and `long-fat`: TCP between two processes.

use super::endpoint::{Congestion, FLOWS, Path, System, Task, Wire};
use super::pattern::WRITE_OCTETS;
use super::rows::{row, trips};
use super::testbed::{Mode, Setting, Testbed};
use crate::case::{Case, Goal, Sample, Trouble};
use std::time::Duration;

const LOOPBACK: System = System::LinuxTcpLoopback;
const VETH: System = System::LinuxTcpVeth;
const PLAIN: System = System::LinuxTcpVethPlain;
/// Frames one way without any stack: what the rings and the system behind them bear.
const BARE: System = System::Bare(Wire::Xdp);

/// Octets of a packet on the veth pair, and of the data in it beside headers and timestamps.
const PACKET_OCTETS: usize = 1500;
const SEGMENT_OCTETS: f64 = 1448.0;
/// Time that a round of a stream measures.
const STREAM_TIME: Duration = Duration::from_millis(250);

pub(crate) fn stream_cases() -> Vec<Case> {
    let testbed = Testbed::default();
    let systems = [
        System::XkTcp(Wire::Shm),
        System::XkTcpLarge,
        System::XkTcp(Wire::Xdp),
        System::XkTcp(Wire::Packet),
        PLAIN,
        VETH,
        LOOPBACK,
        BARE,
    ];
    systems
        .into_iter()
        .map(|system| {
            let case = stream(&testbed, "stream", system, WRITE_OCTETS, STREAM_TIME);
            match system {
                System::XkTcp(Wire::Shm) => case.beside(VETH.name()).beside(LOOPBACK.name()),
                System::XkTcpLarge => {
                    case.beside(VETH.name()).goal(Goal::TimesAsFast(3.0)).beside(LOOPBACK.name())
                }
                System::XkTcp(Wire::Xdp) => case
                    .beside(PLAIN.name())
                    .goal(Goal::TimesAsFast(1.0))
                    .beside(VETH.name())
                    .beside(BARE.name()),
                System::XkTcp(_) => case.beside(PLAIN.name()).beside(VETH.name()),
                _ => case,
            }
        })
        .collect()
}

/// A row of one system's stream, written so many octets at a time: Gb/s of data received.
pub(crate) fn stream(
    testbed: &Testbed,
    row: impl Into<String>,
    system: System,
    octets: usize,
    time: Duration,
) -> Case {
    // A bare frame counts for the data that a segment of its length would have.
    let (octets, counted) = match system {
        System::Bare(_) => (PACKET_OCTETS, SEGMENT_OCTETS),
        _ => (octets, 1.0),
    };
    received(testbed, row, system, (octets, Mode::Spinning), time)
        .shown_as(move |octets_per_ns| octets_per_ns * counted * 8.0)
}

/// A row of what one system receives in a nanosecond.
fn received(
    testbed: &Testbed,
    row: impl Into<String>,
    system: System,
    (octets, mode): (usize, Mode),
    time: Duration,
) -> Case {
    let testbed = testbed.clone();
    let case = Case::measured(row, move |effort| {
        let (tasks, time) = ([Task::Send, Task::Receive], time.mul_f64(effort));
        let (received, _) = testbed.run(&Setting { system, tasks, octets, mode, time })?;
        match (received["messages"].as_f64(), received["ns"].as_f64()) {
            (Some(count), Some(ns)) => Ok((count / ns).into()),
            _ => Err(Trouble::Failed("nothing was counted".into())),
        }
    });
    case.of(system.name())
}

/// Time that a round of round trips measures.
const TRIP_TIME: Duration = Duration::from_millis(30);
const SIZES: [usize; 2] = [1, 1400];
const MODES: [Mode; 3] = [Mode::Spinning, Mode::OneCore, Mode::TwoCores];
const TALKERS: [System; 5] = [
    System::XkTcp(Wire::Shm),
    System::XkTcp(Wire::Xdp),
    System::XkTcp(Wire::Packet),
    LOOPBACK,
    VETH,
];

pub(crate) fn round_trip_cases() -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for octets in SIZES {
        for mode in MODES {
            if octets > 1 && mode == Mode::TwoCores {
                // What the octets cost is seen in the others; here it drowns in two wake-ups.
                continue;
            }
            for system in TALKERS {
                let case = trips(&testbed, row(octets, mode), system, octets, mode, TRIP_TIME);
                list.push(trip_goals(case, mode, system));
            }
        }
    }
    list
}

/// Adds the goals of a system, and the systems that it is compared with.
fn trip_goals(case: Case, mode: Mode, system: System) -> Case {
    match (system, mode) {
        (System::XkTcp(Wire::Shm), Mode::Spinning) => {
            case.beside(LOOPBACK.name()).goal(Goal::TimesAsFast(15.0))
        }
        (System::XkTcp(Wire::Shm), _) => case.beside(LOOPBACK.name()),
        (System::XkTcp(Wire::Xdp), Mode::Spinning) => {
            case.beside(VETH.name()).goal(Goal::TimesAsFast(1.5))
        }
        (System::XkTcp(_), _) => case.beside(VETH.name()),
        _ => case,
    }
}

/// Time that a round of connections measures.
const CONNECT_TIME: Duration = Duration::from_millis(80);

const CALLERS: [System; 4] = [System::XkTcp(Wire::Shm), System::XkTcp(Wire::Xdp), LOOPBACK, VETH];

pub(crate) fn connect_cases() -> Vec<Case> {
    let testbed = Testbed::default();
    let mut list = Vec::new();
    for mode in MODES {
        for system in CALLERS {
            let testbed = testbed.clone();
            let case = Case::measured(mode.name(), move |effort| {
                connections(&testbed, system, mode, CONNECT_TIME.mul_f64(effort))
            });
            let case = case.of(system.name());
            list.push(match system {
                System::XkTcp(Wire::Shm) => {
                    case.beside(LOOPBACK.name()).goal(Goal::TimesAsFast(1.0))
                }
                System::XkTcp(_) => case.beside(VETH.name()).goal(Goal::TimesAsFast(1.0)),
                _ => case,
            });
        }
    }
    list
}

/// Connections per second; beside it how long one took.
fn connections(
    testbed: &Testbed,
    system: System,
    mode: Mode,
    time: Duration,
) -> Result<Sample, Trouble> {
    let (found, _) = testbed.run(&Setting {
        system,
        tasks: [Task::Connect, Task::Accept],
        octets: 1,
        mode,
        time,
    })?;
    let figure = |key: &str| found[key].as_f64();
    let (Some(count), Some(ns)) = (figure("trips"), figure("ns").filter(|ns| *ns > 0.0)) else {
        return Err(Trouble::Failed("no connection was timed".into()));
    };
    let us = |key| figure(key).map_or(f64::NAN, |ns| ns / 1e3);
    Ok(Sample {
        value: count / ns * 1e9,
        also: vec![("p50 us", us("p50")), ("p99 us", us("p99"))],
        ..Sample::default()
    })
}

/// Time that a round over the wire with faults measures.
const LOSSY_TIME: Duration = Duration::from_millis(800);
const LOSSY_ROW: &str = "1 % lost, 20 ms";

pub(crate) fn lossy_cases() -> Vec<Case> {
    let testbed = Testbed::default();
    let linux = System::LinuxTcpFaulty(Path::Lossy);
    let mut list = Vec::new();
    for system in [System::XkTcpFaulty(Path::Lossy, Congestion::Cubic), linux] {
        let all = (WRITE_OCTETS, Mode::TwoCores);
        let case = received(&testbed, LOSSY_ROW, system, all, LOSSY_TIME);
        // Mb/s of one connection of many.
        list.push(case.shown_as(|octets_per_ns| octets_per_ns * 8e3 / f64::from(FLOWS)));
    }
    // In seconds of virtual time; the last one carries ten times as much in each.
    for (system, congestion, seconds) in [
        ("simulated, cubic", "cubic", 5.0),
        ("simulated, newreno", "newreno", 5.0),
        ("simulated, bbr", "bbr", 0.5),
    ] {
        let mut seed = 0;
        let case = Case::measured(LOSSY_ROW, move |effort| {
            seed += 1;
            let time = Duration::from_secs_f64(seconds * effort);
            crate::tcp_lossy::goodput(congestion, seed, time)
        });
        list.push(case.of(system));
    }
    let compared = |case: Case| match case.system {
        "xk, cubic" | "simulated, cubic" => case.beside(linux.name()).goal(Goal::TimesAsFast(0.9)),
        _ => case,
    };
    list.into_iter().map(compared).collect()
}

/// Time that a round measures; a fifth of that goes by before, in which windows open.
const LONG_FAT_TIME: Duration = Duration::from_secs(7);

pub(crate) fn long_fat_cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (row, path) in [
        ("no loss, one connection", Path::LongFat),
        ("1 % lost, 16 connections", Path::LongFatLossy),
    ] {
        let testbed = Testbed::default();
        let linux = System::LinuxTcpFaulty(path);
        let own = [Congestion::Cubic, Congestion::Bbr].map(|c| System::XkTcpFaulty(path, c));
        for system in own.into_iter().chain([linux]) {
            let all = (WRITE_OCTETS, Mode::TwoCores);
            let case = received(&testbed, row, system, all, LONG_FAT_TIME);
            let case = case.shown_as(|octets_per_ns| octets_per_ns * 8e3);
            list.push(match system == linux {
                true => case,
                false => case.beside(linux.name()).goal(Goal::TimesAsFast(0.95)),
            });
        }
    }
    list
}
