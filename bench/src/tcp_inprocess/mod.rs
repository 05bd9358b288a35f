//! TCP over IP over Ethernet in one process: a stream from one host to the other.
//!
//! Two hosts, a cable between them for packets of 1500 octets. One operation sends the octets of
//! one segment: they are copied into the sender's memory, cut into segments, carried over, checked,
//! acknowledged at least every second segment, and taken by an application that counts them. All
//! checksums are computed and verified on both sides of the comparison.

pub(crate) mod connects;
mod foreign;
mod ours;
mod smoltcp_peer;

use crate::case::{Better, Case, Goal};
use crate::record::{Ratio, Record};
use connects::trips;
use ours::{OPERATIONS, ROW, SEGMENT};

/// An octet there and back, and a connection's whole life, for their instructions; between
/// processes `tcp-rtt` and `tcp-connect` measure them.
const CONNECTION: &str = "one connection, an octet there and back";
const CONNECTIONS: u64 = 10_000;
const TRIP: &str = "one octet there and back";
const TRIPS: u64 = 50_000;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new(ROW, OPERATIONS, || ours::Pair::new().stream())
            .beside("smoltcp")
            .goal(Goal::TimesAsFast(1.5))
            .beside(foreign::LWIP)
            .beside(foreign::GVISOR),
        Case::new(ROW, OPERATIONS, smoltcp_peer::stream).of("smoltcp"),
        foreign::lwip(),
        foreign::gvisor(),
        Case::new(TRIP, TRIPS, trips),
        Case::new(CONNECTION, CONNECTIONS, connects::connects),
    ]
}

/// Gb/s, which the goal speaks of.
pub(crate) fn derived(records: &[Record]) -> Vec<Record> {
    let gbits = |ns: f64| SEGMENT as f64 * 8.0 / ns;
    let rate = |record: &Record| Record {
        row: "stream".into(),
        unit: "Gb/s",
        better: Better::Higher,
        min: gbits(record.max),
        median: gbits(record.median),
        max: gbits(record.min),
        interval: record.interval.map(|(low, high)| (gbits(high), gbits(low))),
        instructions: None,
        ratios: record
            .ratios
            .iter()
            .map(|ratio| Ratio {
                goal: None,
                ratio: 1.0 / ratio.ratio,
                interval: (1.0 / ratio.interval.1, 1.0 / ratio.interval.0),
                ..*ratio
            })
            .collect(),
        ..record.clone()
    };
    let streams = records.iter().filter(|record| record.row == ROW);
    streams.map(rate).collect()
}
