//! # Synopsis
//! `rdgram LOWER` — reliable datagrams: each is a call with an empty reply.
//!
//! # Participants
//! Those of the layer below, passed through: hosts.
//!
//! # Behaviour
//! On `channel` a datagram is delivered at most once; on `reqrep` it may be more than once.
//!
//! A message pushed gets the type number of the upper protocol in front, four octets, and is called
//! through the session's channel. `push` returns when the empty reply is here, that is when the
//! protocol above the peer has taken the message: its shepherd blocks. A session has one channel,
//! so its messages arrive in the order in which they were pushed; a push while another is under way
//! waits for its turn. Sessions do not wait for each other.
//!
//! A push lasts `total` at most, and no longer than the deadline of a message that bears
//! `call-options`: so two hosts whose deliveries wait for each other's come free. One that has not
//! had its turn by then fails with "queue full", one that was called as any whose peer does not
//! answer.
//!
//! A push fails with what the layer below says of the call: a peer that does not answer, has
//! rebooted, or refuses is "unreachable". Whether the message was delivered is then not known,
//! except that a refused one was not.
//!
//! What arrives is passed to the session with this peer, or to the upper protocol that has enabled
//! the number. A session made by an arriving message gets a channel when something is pushed into
//! it.
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
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel", section 3.2, which calls it
//! trivial, given CHANNEL. The header is our own.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod calls;
mod protocol;
pub mod wire;

pub use protocol::{Rdgram, add, build};

use core::time::Duration;
use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, duration, question};
use xk_kit::layer::sessions_max;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("rdgram", include_str!("lib.rs"), build)
    .summary("reliable datagrams: each is a call with an empty reply")
    .above(Family::Host)
    .on(&[Realm::Rpc], &[Family::Host, Family::Link])
    .needs(Guarantees::SESSIONS)
    .service(Service::changing(
        Guarantees::RELIABLE, Guarantees::PROMPT.and(Guarantees::INSTANT)))
    .header_octets(wire::HEADER_OCTETS)
    .numbers(&[("channel", 0x66)])
    .parameters(&[
        sessions_max(1024),
        duration("total", Duration::from_secs(30), "how long a push lasts at most"),
    ])
    .questions(&[question("peer-host", "of a session: the peer")])
    .reasons(&[&calls::NO_CHANNEL]);
