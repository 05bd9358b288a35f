//! # Synopsis
//! `rm LOWER` — record marking: messages on a stream, as ONC RPC has them on TCP.
//!
//! # Participants
//! Those of the layer below, passed through: `port2049@10.0.0.2` on `tcp`.
//!
//! # Behaviour
//! One protocol above serves, any number open.
//!
//! A message is sent as a record of one fragment; four octets in front have its length. A record
//! that arrives may have any number of fragments, which begin and end anywhere in the stream; the
//! message goes up when the last one is complete.
//!
//! The first message opens the connection, and so does the first one after the connection broke;
//! the protocol above is told when it breaks. Octets that do not fit into the stream wait, up to
//! `queue_max`. A second open between the same ends returns the same session. Closing the session
//! closes the connection.
//!
//! A connection opened by a peer makes a session. While a peer does not read its replies, `rm`
//! reads no further requests, so that TCP's window stops the peer. If `queue_max` is exceeded all
//! the same, the connection is reset. The same happens at a record longer than `record_max`, of
//! which no octet is kept. Small pieces are copied together, so that slow peers cost little more
//! memory than they have sent.
//!
//! The skeletons of layers (`xk_kit`) do not fit: a session has one connection after another below,
//! and none before the first push. Messages begin and end anywhere in the octets that arrive.
//! Sessions opened here and those of peers are found in different ways.
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
