//! # Synopsis
//! `rdgram LOWER` — reliable datagrams: each is a call with an empty reply.
//!
//! # Realm
//! async
//!
//! # Participants
//! Those of the layer below, passed through: hosts.
//!
//! # Above
//! Any protocol of the async realm that has a type number on `rdgram`.
//!
//! # Below
//! One protocol of the rpc realm whose participants are hosts: `channel`, where a datagram is delivered at most once, or
//! `reqrep`, where it may be more than once.
//!
//! # Behaviour
//! A message pushed gets the type number of the upper protocol in front, four octets, and is called through the session's
//! channel. `push` returns when the empty reply is here, that is when the protocol above the peer has taken the message: its
//! shepherd blocks. A session has one channel, so its messages arrive in the order in which they were pushed; whoever
//! pushes while another does waits for his turn. Sessions do not wait for each other.
//!
//! A push lasts `total` at most, and no longer than the deadline of a message that bears `call-options`: so two hosts whose
//! deliveries wait for each other's come free. One that has not had its turn by then fails with "queue full", one that was
//! called as any whose peer does not answer.
//!
//! A push fails with what the layer below says of the call: a peer that does not answer, has rebooted, or refuses is
//! "unreachable". Whether the message was delivered is then not known, except that a refused one was not.
//!
//! What arrives is passed to the session with this peer, or to the upper protocol that has enabled the number. A session made by
//! an arriving message gets a channel when something is pushed into it.
//!
//! # Control
//! Answers `max-packet` and `opt-packet` (those of the layer below less four octets), `peer-host`, `describe`, `list-sessions`,
//! `list-maps`; forwards the rest.
//!
//! # Parameters
//! - `sessions_max`: how many sessions it holds; idle ones are evicted for new ones.
//! - `total`: how long a push lasts at most.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim      link=lan
//!     eth      sim
//!     arp      eth
//!     ip       arp { address "10.0.0.1/24"; }
//!     fragment ip
//!     channel  fragment
//!     rdgram   channel
//!     probe    rdgram to="10.0.0.2" size="4KiB"
//! }
//! ```
//!
//! # Standard
//! Paper 001, section 3.2, which calls it trivial, given CHANNEL. The header is our own.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod protocol;
mod session;
pub mod wire;

pub use protocol::{Rdgram, add, build};

use xk_core::Entry;
use xk_core::control::QuestionInfo;
use xk_core::graph::{Below, Family, Guarantees, ParamKind, ParamSpec, Realm, Service};
use xk_core::numbers::Number;

/// What the catalog knows of it.
pub static ENTRY: Entry = Entry {
    kind: "rdgram",
    summary: "reliable datagrams: each is a call with an empty reply",
    manual: include_str!("lib.rs"),
    realm: Realm::Async,
    above: Family::Host,
    below: Below {
        min: 1,
        max: 1,
        realms: &[Realm::Rpc],
        families: &[Family::Host, Family::Link],
        needs: Guarantees::SESSIONS,
    },
    service: Service::changing(Guarantees::RELIABLE, Guarantees::PROMPT),
    header_octets: wire::HEADER_OCTETS,
    stacking_rules: None,
    numbers: &[Number {
        upper: "rdgram",
        lower: "channel",
        number: 0x66,
    }],
    parameters: &[
        ParamSpec::new(
            "sessions_max",
            ParamKind::Integer {
                min: 1,
                max: 1_048_576,
            },
            "1024",
            "how many sessions it holds",
        ),
        ParamSpec::new(
            "total",
            ParamKind::Duration,
            "30s",
            "how long a push lasts at most",
        ),
    ],
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
            name: "peer-host",
            meaning: "of a session: the peer",
        },
        QuestionInfo {
            name: "list-sessions",
            meaning: "one per peer and upper protocol",
        },
        QuestionInfo {
            name: "list-maps",
            meaning: "active: peer and type number; passive: type number",
        },
        QuestionInfo {
            name: "describe",
            meaning: "a session's peer and type number",
        },
    ],
    probe: None,
    build,
};
