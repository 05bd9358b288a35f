//! Benchmarks between two processes, and what they need: namespaces with a veth pair between them,
//! and this program started twice more as the two ends.
//!
//! A round of a case starts both ends, lets them exchange messages for a bounded time and ends
//! them; so nothing of one system runs while another is measured.

mod between;
mod call_user;
mod child;
mod course;
pub(crate) mod endpoint;
mod exchange;
mod frame_rate;
mod frames;
mod memory;
mod memory_unsafe;
mod pattern;
mod peer;
mod round_trip;
mod smoltcp_raw;
mod sockets;
mod sockets_unsafe;
mod space;
mod space_unsafe;
mod stack;
mod stream;
mod stream_sockets;
mod stream_user;
mod tcp;
pub(crate) mod testbed;
mod user;

use crate::case::{Benchmark, Case, Sample, Trouble};
use endpoint::{System, Task, Wire};
use serde_json::Value;
use std::time::Duration;
use testbed::{Mode, Setting, Testbed};

pub(crate) use child::run_if_asked;
pub(crate) use endpoint::FLOWS;
pub(crate) use tcp::stream;

/// The benchmarks between two processes.
pub(crate) fn benchmarks() -> Vec<Benchmark> {
    let mut list = vec![round_trip::benchmark(), stream::benchmark(), frame_rate::benchmark()];
    list.extend(tcp::benchmarks());
    list
}

/// Octets that a bare frame carries in place of a datagram of this size: the headers of IP and UDP,
/// and no less than Ethernet wants (IEEE 802.3).
fn octets_of_frame(octets: usize) -> usize {
    const IP_AND_UDP_OCTETS: usize = 28;
    const PAYLOAD_OCTETS_MIN: usize = 46;
    (IP_AND_UDP_OCTETS + octets).max(PAYLOAD_OCTETS_MIN)
}

/// A row of messages one way: what arrived per second; beside it the payload's rate, what was sent,
/// and how much of it was lost. A message has so many octets, of which the setting may leave out
/// some.
fn one_way(testbed: &Testbed, row: String, octets: usize, setting: Setting) -> Case {
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
fn row(octets: usize, mode: Mode) -> String {
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
