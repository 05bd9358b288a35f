//! Benchmarks between two processes, and what they need: namespaces with a veth pair between them,
//! and this program started twice more as the two ends.
//!
//! A round of a case starts both ends, lets them exchange messages for a bounded time and ends
//! them; so nothing of one system runs while another is measured.

mod between;
mod call_user;
mod child;
pub(crate) mod endpoint;
mod exchange;
mod frame_rate;
mod frames;
mod memory;
mod memory_unsafe;
mod pattern;
mod peer;
mod raw_ip;
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
pub(crate) use tcp::streamed;

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

/// What arrived per second; beside it the payload's rate, what was sent, and how much of it was
/// lost.
fn rate(found: &(Value, Value), octets: usize) -> Result<Sample, Trouble> {
    let (received, sent) = found;
    let per_second =
        |value: &Value, key: &str| Some(value[key].as_f64()? / (value["ns"].as_f64()? / 1e9));
    let none = || Trouble::Failed("nothing was counted".into());
    let value = per_second(received, "messages").ok_or_else(none)?;
    let also = [
        ("Gb/s", Some(value * octets as f64 * 8.0 / 1e9)),
        ("sent/s", per_second(sent, "sent")),
        ("lost %", received["lost"].as_f64().map(|share| share * 100.0)),
    ];
    Ok(Sample {
        value,
        also: also.into_iter().filter_map(|(name, x)| Some((name, x?))).collect(),
        ..Sample::default()
    })
}

/// A row of one system's round trips of so many octets, there and back whole.
fn trips(testbed: &Testbed, octets: usize, mode: Mode, system: System, time: Duration) -> Case {
    let testbed = testbed.clone();
    let unit = if octets == 1 { "octet" } else { "octets" };
    let case = Case::measured(format!("{octets} {unit}, {}", mode.name()), move |effort| {
        round_trips(&testbed, system, (octets, Task::Answer), mode, time.mul_f64(effort))
    });
    case.of(system.name())
}

/// Times messages of so many octets there and, whole or as one octet, back; what is found is in
/// microseconds.
///
/// # Errors
/// [`Trouble`], the machine's or an end's.
pub(crate) fn round_trips(
    testbed: &Testbed,
    system: System,
    (octets, answer): (usize, Task),
    mode: Mode,
    time: Duration,
) -> Result<Sample, Trouble> {
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
        time,
    };
    let (found, _) = testbed.run(&setting)?;
    let us = |key: &str| found[key].as_f64().map(|ns| ns / 1000.0);
    let none = || Trouble::Failed("no round trip was timed".into());
    Ok(Sample {
        value: us("p50").ok_or_else(none)?,
        p50: us("p50"),
        p99: us("p99"),
        also: Vec::new(),
    })
}
