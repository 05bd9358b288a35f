//! # Synopsis
//! `"null" LOWER` — a layer with a four-octet header and nothing else, for measuring what a layer costs. The quotes are
//! needed: null is a keyword of the graph language.
//!
//! # Realm
//! async
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Above
//! Any protocol of the async realm that has a type number on `null`.
//!
//! # Below
//! One protocol of the async realm, or a wire.
//!
//! # Behaviour
//! A message sent gets the type number of the upper protocol in front, four octets in network order; on
//! arrival the number finds the session, or the upper protocol that enabled it. Nothing is checked,
//! repeated or ordered.
//!
//! # Control
//! Answers `max-packet` and `opt-packet` (those of the layer below less four octets), `list-sessions`,
//! `list-maps`, `describe`; forwards the rest.
//!
//! # Parameters
//! - `sessions_max`: how many sessions it holds; idle ones are evicted for new ones.
//!
//! # Example
//! ```kdl
//! host one {
//!     loopback
//!     "null" loopback
//!     echo "null"
//! }
//! ```
//!
//! # Standard
//! None; the base protocol of paper 000, section IV.B ("one could imagine a simpler null protocol").
#![no_std]

extern crate alloc;

mod protocol;
pub mod wire;

pub use protocol::{Null, add, build};

use xk_core::Entry;
use xk_core::control::QuestionInfo;
use xk_core::graph::{Below, Family, Guarantees, ParamKind, ParamSpec, Realm, Service};
use xk_core::numbers::Number;

/// What the catalog knows of it.
pub static ENTRY: Entry = Entry {
    kind: "null",
    summary: "a layer with a four-octet header, for measuring what a layer costs",
    manual: include_str!("lib.rs"),
    realm: Realm::Async,
    above: Family::Inherit,
    below: Below {
        min: 1,
        max: 1,
        realms: &[Realm::Async, Realm::Wire],
        families: &[Family::Link, Family::Ether, Family::Host],
        needs: Guarantees::SESSIONS.and(Guarantees::WHOLE),
    },
    service: Service::LAYER,
    header_octets: wire::HEADER_OCTETS,
    stacking_rules: None,
    numbers: &[
        Number {
            upper: "null",
            lower: "null",
            number: 1,
        },
        Number {
            upper: "null",
            lower: "fragment",
            number: 1,
        },
        // Local experimental EtherType 1 (IEEE 802); experimental protocol number (RFC 3692).
        Number {
            upper: "null",
            lower: "eth",
            number: 0x88b5,
        },
        Number {
            upper: "null",
            lower: "ip",
            number: 253,
        },
    ],
    parameters: &[ParamSpec::new(
        "sessions_max",
        ParamKind::Integer {
            min: 1,
            max: 16_777_216,
        },
        "1024",
        "how many sessions it holds",
    )],
    blocks: &[],
    questions: &[
        QuestionInfo {
            name: "max-packet",
            meaning: "that of the layer below less four octets",
        },
        QuestionInfo {
            name: "opt-packet",
            meaning: "that of the layer below less four octets",
        },
        QuestionInfo {
            name: "list-sessions",
            meaning: "one per upper protocol and session below",
        },
        QuestionInfo {
            name: "list-maps",
            meaning: "active: session below and type number; passive: type number",
        },
        QuestionInfo {
            name: "describe",
            meaning: "a session's type number",
        },
    ],
    probe: None,
    build,
};
