//! # Synopsis
//! `fault LOWER loss="5%"` — a layer for any edge that loses, repeats, reorders, damages, delays and slows down messages.
//!
//! # Realm
//! async; calls of the rpc realm pass unharmed
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
//! For each message of the chosen direction, in this order: one larger than `mtu` is refused (going down) or dropped
//! (going up); one is dropped with probability `loss`; one bit of it is flipped, in a private copy, with probability
//! `corrupt`; an Internet packet, with or without an Ethernet header, whose sender can be told of congestion (RFC 3168) gets the
//! mark of a router that has it, with probability `mark`; it goes on twice with probability `duplicate`. With a `rate`, messages take their turns on a line of that
//! speed, one for each direction. Then each waits for `delay`, and with probability `reorder` for `reorder_delay` more, so
//! that later ones overtake it.
//!
//! At most `queue` messages are held back; more are dropped, and refused to who sends them. All chance comes from the kernel's
//! seed and the layer's name. Every fault is counted among the layer's drops under its own reason: `lost`, `corrupted`,
//! `marked`, `duplicated`, `reordered`, `queue full`, `too big`.
//!
//! # Control
//! Answers `max-packet` and `opt-packet` (no more than `mtu`); forwards the rest.
//!
//! # Parameters
//! - `direction`: whose messages suffer: `down`, `up` or `both`.
//! - `loss`, `duplicate`, `reorder`, `corrupt`, `mark`: shares of the messages.
//! - `reorder_delay`: how long a reordered message is held back.
//! - `delay`: how long every message is held back.
//! - `rate`: bits per second.
//! - `mtu`: the largest message, in octets.
//! - `queue`: how many messages are held back at most.
//!
//! # Example
//! ```kdl
//! host one {
//!     tap   device="xk0"
//!     fault tap loss="5%" delay="20ms" direction="down"
//!     eth   fault
//! }
//! ```
//!
//! # Standard
//! None; for marks RFC 3168, section 5.

mod mark;
mod protocol;

pub use protocol::{CORRUPTED, DUPLICATED, Fault, Faults, LOST, MARKED, REORDERED};

use xk_core::Entry;
use xk_core::control::QuestionInfo;
use xk_core::graph::{Family, ParamKind, ParamSpec, Realm, Service};
use xk_kit::passthrough::BELOW_ANYTHING;

/// What the catalog knows of it.
pub static ENTRY: Entry = Entry {
    kind: "fault",
    summary: "a layer that loses, repeats, reorders, damages and delays messages",
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
            "direction",
            ParamKind::Word(&["down", "up", "both"]),
            "both",
            "whose messages suffer",
        ),
        ParamSpec::new(
            "loss",
            ParamKind::Fraction,
            "0%",
            "the share that is dropped",
        ),
        ParamSpec::new(
            "duplicate",
            ParamKind::Fraction,
            "0%",
            "the share that goes on twice",
        ),
        ParamSpec::new(
            "reorder",
            ParamKind::Fraction,
            "0%",
            "the share that later ones overtake",
        ),
        ParamSpec::new(
            "reorder_delay",
            ParamKind::Duration,
            "1ms",
            "how long a reordered message is held back",
        ),
        ParamSpec::new(
            "corrupt",
            ParamKind::Fraction,
            "0%",
            "the share with one bit flipped",
        ),
        ParamSpec::new(
            "mark",
            ParamKind::Fraction,
            "0%",
            "the share that is marked for congestion, of what can be",
        ),
        ParamSpec::new(
            "delay",
            ParamKind::Duration,
            "0s",
            "how long every message is held back",
        ),
        ParamSpec::optional(
            "rate",
            ParamKind::Rate,
            "bits per second; without it, no limit",
        ),
        ParamSpec::optional("mtu", ParamKind::Octets, "the largest message, in octets"),
        ParamSpec::new(
            "queue",
            ParamKind::Integer {
                min: 1,
                max: 1_000_000,
            },
            "1000",
            "how many messages are held back at most",
        ),
    ],
    blocks: &[],
    questions: &[
        QuestionInfo {
            name: "max-packet",
            meaning: "that of the layer below, at most `mtu`",
        },
        QuestionInfo {
            name: "opt-packet",
            meaning: "that of the layer below, at most `mtu`",
        },
    ],
    probe: None,
    build: protocol::build,
};

#[cfg(test)]
mod tests;
