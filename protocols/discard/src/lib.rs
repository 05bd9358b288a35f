//! # Synopsis
//! `discard LOWER` — takes every message, counts it and drops it.
//!
//! # Realm
//! top (an anchor: no header, no sessions of its own)
//!
//! # Participants
//! Those that the layer below enables: `local` as it stands, or `port9` for `port=9`.
//!
//! # Above
//! Nothing.
//!
//! # Below
//! One protocol of the async realm, or a link with one other end.
//!
//! # Behaviour
//! It enables itself below and answers nothing. To take messages is its purpose, so they count as received and not as
//! dropped. It serves for ever.
//!
//! # Control
//! Answers `report`: `received`, `octets`; forwards the rest.
//!
//! # Parameters
//! - `port`: the port that it serves, on a layer with ports.
//! - `local`: the participant that it serves, on any other layer; `*` if neither is given.
//!
//! # Example
//! ```kdl
//! host bob {
//!     sim     link=lan
//!     eth     sim
//!     arp     eth
//!     ip      arp { address "10.0.0.2/24"; }
//!     udp     ip
//!     discard udp port=9
//! }
//! ```
//!
//! # Standard
//! RFC 863, over UDP; over anything else its idea.
#![no_std]

extern crate alloc;

mod protocol;

pub use protocol::{Discard, add, build};

use xk_core::Entry;
use xk_core::control::QuestionInfo;
use xk_core::graph::{Below, Family, Guarantees, ParamKind, ParamSpec, Realm, Service};
use xk_core::numbers::Number;

/// What the catalog knows of it.
pub static ENTRY: Entry = Entry {
    kind: "discard",
    summary: "takes every message, counts it and drops it",
    manual: include_str!("lib.rs"),
    realm: Realm::Top,
    above: Family::Any,
    below: Below {
        min: 1,
        max: 1,
        realms: &[Realm::Async, Realm::Wire],
        families: &[Family::Any],
        needs: Guarantees::ENABLE,
    },
    service: Service::TOP,
    header_octets: 0,
    stacking_rules: None,
    numbers: &[
        // Local experimental EtherType 2 (IEEE 802); experimental protocol number (RFC 3692).
        Number {
            upper: "discard",
            lower: "eth",
            number: 0x88b6,
        },
        Number {
            upper: "discard",
            lower: "ip",
            number: 254,
        },
        Number {
            upper: "discard",
            lower: "null",
            number: 7,
        },
        Number {
            upper: "discard",
            lower: "rdgram",
            number: 7,
        },
        Number {
            upper: "discard",
            lower: "fragment",
            number: 7,
        },
    ],
    parameters: &[
        ParamSpec::optional(
            "port",
            ParamKind::Integer {
                min: 1,
                max: 65_535,
            },
            "the port that it serves",
        ),
        ParamSpec::optional(
            "local",
            ParamKind::Text("a participant, such as port9@10.0.0.1"),
            "the participant that it serves, if no port is given; any if neither is",
        ),
    ],
    blocks: &[],
    questions: &[QuestionInfo {
        name: "report",
        meaning: "messages and octets received",
    }],
    probe: None,
    build,
};
