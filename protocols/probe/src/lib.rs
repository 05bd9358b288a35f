//! # Synopsis
//! `probe LOWER to="..."` — sends messages and counts, checks and times what comes back.
//!
//! # Realm
//! top (an anchor: no header, no sessions of its own)
//!
//! # Participants
//! It opens the layer below with `local` and `to`. What is not given is a wildcard at every layer.
//!
//! # Above
//! Nothing.
//!
//! # Below
//! One protocol of the async realm, or a link with one other end. On `icmp` it is ping; on `udp` a client of `echo`;
//! on `eth`, `ip` and `null` it has the number of `echo`.
//!
//! # Behaviour
//! It opens a session when `start` has passed and sends `count` messages, one every `interval`; with an interval of
//! zero the next one as soon as the one before came back or timed out. Each message is expected back unchanged.
//!
//! A message begins with its sequence number, eight octets, and the time of sending in nanoseconds, eight octets, as
//! far as its size allows; the rest is a pattern that follows from the number. One of less than eight octets is taken
//! for the answer to the oldest message of its size; it is counted and not timed.
//!
//! A message that is not back after `timeout` is lost; if it comes later all the same it counts as late. At most
//! 65536 messages are awaited at a time, the oldest one beyond that is given up.
//!
//! On a stream (`tcp`) what comes back is cut into messages of the sizes that went, in their order. When it breaks, what is
//! awaited is lost and nothing more is sent.
//!
//! # Control
//! Answers `report`: `sent`, `received`, `lost`, `corrupt`, `duplicates`, `late`, what could not be sent and what the
//! network reported by kind, why the stream broke, and `rtt min`, `rtt avg`, `rtt p50`, `rtt max`. It has finished when every
//! message is answered, lost or failed; it has failed if then nothing came back, or anything came back corrupt, or if the
//! stream broke. Takes `network-error` and `stream-notice`; forwards the rest.
//!
//! # Parameters
//! - `to`: the peer.
//! - `local`: the local participant.
//! - `count`: how many messages; 0 for no end.
//! - `interval`: from one message to the next.
//! - `size`: octets of a message.
//! - `size_max`: if it is more than `size`, sizes are random from `size` to it.
//! - `timeout`: how long a message is awaited.
//! - `start`: the delay before the first message.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim   link=lan
//!     eth   sim
//!     arp   eth
//!     ip    arp { address "10.0.0.1/24"; }
//!     udp   ip
//!     probe udp to="port7@10.0.0.2" count=10 interval="100ms" size=8192
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cutter;
mod protocol;
mod tally;
mod window;

pub use protocol::{Probe, Settings, add, build};

use xk_core::Entry;
use xk_core::control::QuestionInfo;
use xk_core::graph::{Below, Family, Guarantees, ParamKind, ParamSpec, Realm, Service};
use xk_core::numbers::Number;

/// What the catalog knows of it.
pub static ENTRY: Entry = Entry {
    kind: "probe",
    summary: "sends messages and counts, checks and times what comes back",
    manual: include_str!("lib.rs"),
    realm: Realm::Top,
    above: Family::Any,
    below: Below {
        min: 1,
        max: 1,
        realms: &[Realm::Async, Realm::Wire],
        families: &[Family::Any],
        needs: Guarantees::OPEN
            .and(Guarantees::EXACT)
            .and(Guarantees::REPLY),
    },
    service: Service::TOP,
    header_octets: 0,
    stacking_rules: None,
    numbers: &[
        // Local experimental EtherType 2 (IEEE 802); experimental protocol number (RFC 3692).
        Number {
            upper: "probe",
            lower: "eth",
            number: 0x88b6,
        },
        Number {
            upper: "probe",
            lower: "ip",
            number: 254,
        },
        Number {
            upper: "probe",
            lower: "null",
            number: 7,
        },
        Number {
            upper: "probe",
            lower: "rdgram",
            number: 7,
        },
        Number {
            upper: "probe",
            lower: "fragment",
            number: 7,
        },
    ],
    parameters: PARAMETERS,
    blocks: &[],
    questions: &[
        QuestionInfo {
            name: "report",
            meaning: "messages sent, received, lost; round-trip times",
        },
        QuestionInfo {
            name: "network-error",
            meaning: "counted by kind",
        },
    ],
    probe: None,
    build,
};

const PARTICIPANT: ParamKind = ParamKind::Text("a participant, such as port7@10.0.0.2");

const PARAMETERS: &[ParamSpec] = &[
    ParamSpec::optional("to", PARTICIPANT, "the peer"),
    ParamSpec::optional("local", PARTICIPANT, "the local participant"),
    ParamSpec::new(
        "count",
        ParamKind::Integer {
            min: 0,
            max: i64::MAX,
        },
        "5",
        "how many messages; 0 for no end",
    ),
    ParamSpec::new(
        "interval",
        ParamKind::Duration,
        "1s",
        "from one message to the next",
    ),
    ParamSpec::new("size", ParamKind::Octets, "56", "octets of a message"),
    ParamSpec::new(
        "size_max",
        ParamKind::Octets,
        "0",
        "if more than `size`: sizes are random up to it, in octets",
    ),
    ParamSpec::new(
        "timeout",
        ParamKind::Duration,
        "2s",
        "how long a message is awaited",
    ),
    ParamSpec::new(
        "start",
        ParamKind::Duration,
        "0s",
        "the delay before the first message",
    ),
];
