//! # Synopsis
//! `rm LOWER` — record marking: messages on a stream, as ONC RPC has them on TCP.
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
//! A message becomes a record of one fragment: four octets in front say how long it is. What comes
//! may have any number of fragments, cut anywhere; the message goes up when its last is there.
//!
//! The connection is opened by the first message, and again by the first after it broke; the
//! protocol above is told that it broke. What has no room in the stream waits, `queue_max` octets
//! at most. To open again between the same ends gives the same session; to close it closes the
//! connection.
//!
//! Connections of peers make sessions. While a peer leaves its replies lying, nothing more of it is
//! taken, so that it is held back by its window; one that does not read at all meets `queue_max`,
//! and its connection is broken off. So it is with a record longer than `record_max`, of which no
//! octet is kept. Small pieces are copied together, so that slow peers cost little more memory than
//! they have sent.
//!
//! The skeletons of layers (`xk_kit`) do not fit: a session has one connection after another below,
//! and none until something is pushed. Messages begin and end anywhere in what arrives. What is
//! opened here and what peers open are found in different ways.
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
mod protocol;
mod session;
pub mod wire;

pub use protocol::{RecordMarking, Settings, add, build};
pub use session::{CONNECTION_LOST, HELD_MOST, RECORD_TOO_BIG};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("rm", include_str!("lib.rs"), build)
    .summary("record marking: messages on a stream")
    .above(Family::Port)
    .on(&[Realm::Async], &[Family::Port])
    .needs(Guarantees::SESSIONS.and(Guarantees::STREAM))
    .service(Service::changing(Guarantees::WHOLE, Guarantees::STREAM))
    .header_octets(wire::MARK_OCTETS)
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("carries-records", "a session does"),
        question("max-packet", "the largest record"),
        question("opt-packet", "the largest record"),
    ])
    .reasons(&[&session::RECORD_TOO_BIG, &session::CONNECTION_LOST, &session::HELD_MOST]);
