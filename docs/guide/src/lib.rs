//! # Synopsis
//! `seq LOWER [wait=TIME] [hold=N]` — a layer that puts datagrams in order and drops duplicates.
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Behaviour
//! A message sent gets twelve octets in front, in network order: the type number of the protocol
//! above (two), the length of the message in octets (two), and a sequence number (eight) that
//! begins with a random one when the session is opened and counts from there.
//!
//! On arrival the type number finds the session, or the upper protocol that enabled it. A message
//! shorter than it says is dropped as `bad length`; octets behind its length, as a link pads them,
//! are cut off. A message that comes before its turn is kept until those before it have come,
//! `wait` is over, or more than `hold` messages wait; then those that have not come are given up,
//! and counted as missing. One that comes twice or after its turn is dropped as `stale`. A number
//! that is more than 4096 away from the one whose turn it is comes from a peer that began again, as
//! does the first: what waits is handed up, and that number is believed.
//!
//! Nothing is sent again: what the network loses stays lost. With `hold=0` nothing waits, and what
//! comes late is dropped.
//!
//! # Example
//! ```kdl
//! host one {
//!     loopback
//!     seq  loopback wait="5ms"
//!     echo seq { number seq=7 }
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;

mod protocol;
pub mod wire;

pub use protocol::{Seq, build};

use core::time::Duration;
use xk_core::control::{own_question, question};
use xk_core::graph::{Entry, Family, Guarantees, Realm, Service, duration, int};
use xk_core::reason::{Class, Reason};
use xk_kit::layer::sessions_max;

/// Dropped: a message whose number has had its turn; a duplicate, or one later than `wait`.
pub static STALE: Reason = Reason::new("stale", Class::Bad);

/// A number farther than this from the one whose turn it is comes from a peer that began again.
pub const JUMP: u64 = 4096;

/// Asks a session for counts of the peer's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Messages that were given up: they never came, or came too late.
    pub missing: u64,
    /// Messages kept at this moment.
    pub held: u64,
}

question!(Tally { missing, held }, "seq-tally", Ask);

/// The catalog entry.
pub static ENTRY: Entry = Entry::layer("seq", include_str!("lib.rs"), build)
    .summary("a layer that puts datagrams in order and drops duplicates")
    .on(&[Realm::Async, Realm::Wire], &[Family::Inherit])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::adding(Guarantees::EXACT.and(Guarantees::ORDER)))
    .header_octets(wire::HEADER_OCTETS)
    // Local experimental EtherType 1 (IEEE 802), experimental protocol number 1 (RFC 3692, section
    // 2.1).
    .numbers(&[("eth", 0x88b5), ("ip", 253), ("seq", 1)])
    .parameters(&[
        int("hold", 0..=4096, 32, "how many messages wait at most"),
        duration("wait", Duration::from_millis(20), "how long a missing message is waited for"),
        sessions_max(1024),
    ])
    .questions(&[own_question::<Tally>("messages missing, messages kept now")])
    .reasons(&[&STALE]);
