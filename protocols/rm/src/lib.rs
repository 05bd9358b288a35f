//! # Synopsis
//! `rm LOWER` — record marking: messages on a stream, as ONC RPC has them on TCP.
//!
//! # Realm
//! async
//!
//! # Participants
//! Those of the layer below, passed through: `port2049@10.0.0.2` on `tcp`.
//!
//! # Above
//! `reqrep`, or any other protocol that sends messages; one that serves, any number that open.
//!
//! # Below
//! One protocol that carries streams: `tcp`.
//!
//! # Behaviour
//! A message becomes a record of one fragment: four octets in front say how long it is. What comes may have any number of
//! fragments, cut anywhere; the message goes up when its last is there.
//!
//! The connection is opened by the first message, and again by the first after it broke; the protocol above is told that it
//! broke. What has no room in the stream waits, `queue_max` octets at most. To open again between the same ends gives the same
//! session; to close it closes the connection.
//!
//! Connections of peers make sessions. While a peer leaves its replies lying, nothing more of it is taken, so that it is held
//! back by its window; one that does not read at all meets `queue_max`, and its connection is broken off. So it is with
//! a record longer than `record_max`, of which no octet is kept. Small pieces are copied together, so that slow peers cost little
//! more memory than they have sent.
//!
//! # Control
//! Answers `carries-records`, `max-packet` and `opt-packet` (`record_max`), `describe`, `list-sessions`, `list-maps`; takes
//! `stream-notice` from below; forwards the rest to the connection.
//!
//! # Parameters
//! - `record_max`: octets of a message, at most, sent and received.
//! - `queue_max`: octets that wait to be sent on one connection, at most.
//! - `held_max`: octets that the connections of all peers together hold, at most, of records that are not whole and of replies that
//!   are not read; no less than one record and one queue. Of those that hold their share or more,
//!   those are broken off first of which nothing got done for longest.
//! - `sessions_max`: how many connections it holds, of peers and of its own each; of the idle ones of peers that used least gives way.
//!
//! # Example
//! ```kdl
//! host server {
//!     sim       link=lan
//!     eth       sim
//!     arp       eth
//!     ip        arp { address "10.0.0.2/24"; }
//!     tcp       ip
//!     rm        tcp
//!     reqrep    rm
//!     sunselect reqrep
//!     sunprog   sunselect
//! }
//! ```
//!
//! # Standard
//! RFC 5531, section 11.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod assembly;
#[doc(hidden)]
pub mod fuzz;
mod protocol;
mod session;
pub mod wire;

pub use protocol::{RecordMarking, Settings, add, build};
pub use session::{CONNECTION_LOST, HELD_MOST, RECORD_TOO_BIG};

use xk_core::Entry;
use xk_core::control::QuestionInfo;
use xk_core::graph::{Below, Family, Guarantees, ParamKind, ParamSpec, Realm, Service};

/// What the catalog knows of it.
pub static ENTRY: Entry = Entry {
    kind: "rm",
    summary: "record marking: messages on a stream",
    manual: include_str!("lib.rs"),
    realm: Realm::Async,
    above: Family::Port,
    below: Below {
        min: 1,
        max: 1,
        realms: &[Realm::Async],
        families: &[Family::Port],
        needs: Guarantees::SESSIONS.and(Guarantees::STREAM),
    },
    service: Service::changing(Guarantees::WHOLE, Guarantees::STREAM),
    header_octets: wire::MARK_OCTETS,
    stacking_rules: None,
    numbers: &[],
    parameters: &[
        ParamSpec::new(
            "record_max",
            ParamKind::Octets,
            "1MiB",
            "octets of a message, at most",
        ),
        ParamSpec::new(
            "queue_max",
            ParamKind::Octets,
            "2MiB",
            "octets that wait to be sent on one connection, at most",
        ),
        ParamSpec::new(
            "held_max",
            ParamKind::Octets,
            "16MiB",
            "octets that the connections of all peers hold, at most",
        ),
        ParamSpec::new(
            "sessions_max",
            ParamKind::Integer {
                min: 1,
                max: 16_777_216,
            },
            "4096",
            "how many connections it holds, of peers and of its own each",
        ),
    ],
    blocks: &[],
    questions: &[
        QuestionInfo {
            name: "carries-records",
            meaning: "a session does",
        },
        QuestionInfo {
            name: "max-packet",
            meaning: "the largest record",
        },
        QuestionInfo {
            name: "opt-packet",
            meaning: "the largest record",
        },
        QuestionInfo {
            name: "describe",
            meaning: "a session's connection, and how many octets wait",
        },
        QuestionInfo {
            name: "list-sessions",
            meaning: "one per connection of a peer, one per pair of ends opened here",
        },
        QuestionInfo {
            name: "list-maps",
            meaning: "passive and active: connection",
        },
    ],
    probe: None,
    build,
};
