//! # Synopsis
//! `seq LOWER [wait=TIME] [hold=N]` — a layer that puts datagrams in order and drops duplicates.
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Behaviour
//! Each message gets a header of twelve octets, in network order: the type number of the protocol
//! above (two octets), the length of the message (two), and a sequence number (eight). The first
//! number of a session is random; each further message has the next number.
//!
//! An arriving message goes to the session of its type number, or to the protocol above that has
//! enabled that number. A message that is shorter than its header says is dropped as `bad length`;
//! octets behind that length, such as a link's padding, are cut off.
//!
//! A message that comes before its turn waits until all messages before it have come, `wait` is
//! over, or more than `hold` messages wait. Then the messages before it that have not come are
//! given up and counted as missing. A message that comes twice or after its turn is dropped as
//! `stale`. A number more than 4096 away from the expected one comes from a peer that began again:
//! the waiting messages go up, and the new number is the expected one. So is the first number of a
//! session.
//!
//! Nothing is sent again: a message that the network loses stays lost. With `hold=0` no message
//! waits, and a late one is dropped.
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

/// A message that came too late: a duplicate, or one whose number was given up.
pub static STALE: Reason = Reason::new("stale", Class::Bad);

/// A number farther than this from the expected one comes from a peer that began again.
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
