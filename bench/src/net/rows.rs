//! Rows of round trips and of messages one way, on a testbed.

use super::endpoint::{System, Task, Wire};
use super::testbed::{Mode, Setting, Testbed};
use crate::case::{Case, Sample, Trouble};
use serde_json::Value;
use std::time::Duration;

/// Octets that a bare frame carries in place of a datagram of this size: the headers of IP and UDP,
/// and no less than Ethernet wants (IEEE 802.3).
pub(super) fn octets_of_frame(octets: usize) -> usize {
    const IP_AND_UDP_OCTETS: usize = 28;
    const PAYLOAD_OCTETS_MIN: usize = 46;
    (IP_AND_UDP_OCTETS + octets).max(PAYLOAD_OCTETS_MIN)
}

/// A row of messages one way: what arrived per second; beside it the payload's rate, what was sent,
/// and how much of it was lost. A message has so many octets, of which the setting may leave out
/// some.
pub(super) fn one_way(testbed: &Testbed, row: String, octets: usize, setting: Setting) -> Case {
    let testbed = testbed.clone();
    Case::measured(row, move |effort| {
        let time = setting.time.mul_f64(effort);
        let (received, sent) = testbed.run(&Setting { time, ..setting })?;
        let per_second =
            |value: &Value, key: &str| Some(value[key].as_f64()? / (value["ns"].as_f64()? / 1e9));
        let none = || Trouble::Failed("nothing was counted".into());
        let value = per_second(&received, "messages").ok_or_else(none)?;
        let also = [
            ("Gb/s", Some(value * octets as f64 * 8.0 / 1e9)),
            ("sent/s", per_second(&sent, "sent")),
            ("lost %", received["lost"].as_f64().map(|share| share * 100.0)),
        ];
        let also = also.into_iter().filter_map(|(name, x)| Some((name, x?))).collect();
        Ok(Sample { value, also, ..Sample::default() })
    })
}

/// The name of a row of so many octets.
pub(super) fn row(octets: usize, mode: Mode) -> String {
    format!("{octets} octet{}, {}", if octets == 1 { "" } else { "s" }, mode.name())
}

/// A row of one system's round trips of so many octets, there and back whole, or there alone where
/// that is a call; in microseconds.
pub(crate) fn trips(
    testbed: &Testbed,
    row: impl Into<String>,
    system: System,
    octets: usize,
    mode: Mode,
    time: Duration,
) -> Case {
    let answer = match system {
        System::Rpc(stack, _) if stack.has_calls() => Task::Execute,
        _ => Task::Answer,
    };
    answered(testbed, row, system, (octets, answer), mode, time)
}

/// [`trips`] of messages that are answered in this way.
pub(crate) fn answered(
    testbed: &Testbed,
    row: impl Into<String>,
    system: System,
    message: (usize, Task),
    mode: Mode,
    time: Duration,
) -> Case {
    timed(testbed, row, system, message, mode, (time, "p50"))
}

/// [`trips`] with the mean as the figure.
pub(crate) fn mean_trips(
    testbed: &Testbed,
    row: impl Into<String>,
    system: System,
    octets: usize,
    mode: Mode,
    time: Duration,
) -> Case {
    timed(testbed, row, system, (octets, Task::Answer), mode, (time, "mean"))
}

fn timed(
    testbed: &Testbed,
    row: impl Into<String>,
    system: System,
    (octets, answer): (usize, Task),
    mode: Mode,
    (time, figure): (Duration, &'static str),
) -> Case {
    let testbed = testbed.clone();
    let case = Case::measured(row, move |effort| {
        let setting = Setting {
            system,
            tasks: match answer {
                Task::Execute => [Task::Call, answer],
                _ => [Task::Ask, answer],
            },
            octets: match system {
                System::Bare(Wire::Xdp | Wire::Packet) => octets_of_frame(octets),
                _ => octets,
            },
            mode,
            time: time.mul_f64(effort),
        };
        let (found, _) = testbed.run(&setting)?;
        let us = |key: &str| found[key].as_f64().map(|ns| ns / 1000.0);
        let none = || Trouble::Failed("no round trip was timed".into());
        let value = us(figure).ok_or_else(none)?;
        Ok(Sample { value, p50: us("p50"), p99: us("p99"), also: Vec::new() })
    });
    case.of(system.name())
}
