//! # Synopsis
//! `tracer LOWER` — a layer that remembers what crosses the edge that it stands on.
//!
//! # Realm
//! async, and rpc (that of the layer below)
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Above
//! Any protocol that could stand on the layer below.
//!
//! # Below
//! Any protocol or wire.
//!
//! # Behaviour
//! Passes everything on unchanged, and notes each crossing: when, which way, how long, through which session, and its first
//! octets. It keeps the last `ring` of them. If whoever runs the kernel has put a [`TraceLines`] beside it, that gets
//! a line of text for each as well.
//!
//! # Control
//! Answers `trace-log` (the crossings, oldest first); forwards the rest.
//!
//! # Parameters
//! - `ring`: how many crossings it remembers.
//! - `octets`: how many of a message's first octets it keeps, at most 64.
//!
//! # Example
//! ```kdl
//! host one {
//!     sim    link="lan"
//!     eth    sim
//!     arp    eth
//!     ip     arp { address "10.0.0.1/24"; }
//!     tracer ip
//!     udp    tracer
//! }
//! ```
//!
//! # Standard
//! None.

mod protocol;

pub use protocol::{Crossing, FIRST_OCTETS_MAX, TraceLines, TraceLog, Tracer};

use xk_core::Entry;
use xk_core::control::QuestionInfo;
use xk_core::graph::{Family, ParamKind, ParamSpec, Realm, Service};
use xk_kit::passthrough::BELOW_ANYTHING;

/// What the catalog knows of it.
pub static ENTRY: Entry = Entry {
    kind: "tracer",
    summary: "a layer that remembers what crosses its edge",
    manual: include_str!("lib.rs"),
    realm: Realm::Async,
    above: Family::Inherit,
    below: BELOW_ANYTHING,
    service: Service::SAME,
    header_octets: 0,
    stacking_rules: None,
    numbers: &[],
    parameters: &[
        ParamSpec::new(
            "ring",
            ParamKind::Integer {
                min: 1,
                max: 1_000_000,
            },
            "1000",
            "how many crossings it remembers",
        ),
        ParamSpec::new(
            "octets",
            ParamKind::Integer {
                min: 0,
                max: FIRST_OCTETS_MAX as i64,
            },
            "16",
            "how many of a message's first octets it keeps",
        ),
    ],
    blocks: &[],
    questions: &[QuestionInfo {
        name: "trace-log",
        meaning: "the last crossings, oldest first",
    }],
    probe: None,
    build: protocol::build,
};

#[cfg(test)]
mod tests;
