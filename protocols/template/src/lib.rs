//! # Synopsis
//! `template LOWER` — a layer that says how long a message is and notices how many are missing.
//!
//! # Realm
//! async
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Above
//! Any protocol of the async realm that has a type number from 1 to 255 on `template`.
//!
//! # Below
//! One protocol of the async realm, or a wire.
//!
//! # Behaviour
//! A message sent gets eight octets in front, in network order: the version (1), the type number of the
//! protocol above, the length of the message in octets (two), and a sequence number (four) that counts
//! from 0 in every session.
//!
//! On arrival a message of another version is dropped as `wrong version`, one shorter than it says as
//! `bad length`; octets behind its length, as a link pads them, are cut off. The type number finds the
//! session, or the upper protocol that enabled it. Sequence numbers that were skipped are counted;
//! nothing is repeated or put in order.
//!
//! # Control
//! Answers `template-missing` (how many messages of the peer never came), `max-packet` and `opt-packet`
//! (those of the layer below less eight octets, 65535 at most), `list-sessions`, `list-maps`, `describe`;
//! forwards the rest.
//!
//! # Example
//! ```kdl
//! host one {
//!     loopback
//!     template loopback
//!     echo     template
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

#[doc(hidden)]
pub mod fuzz;
mod protocol;
mod session;
pub mod wire;

pub use protocol::{Template, build};
pub use session::Missing;

use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, Realm, Service, int};
use xk_core::reason::Class;
use xk_core::{Entry, Reason};

/// Dropped: a message of a version that this protocol does not speak.
pub static WRONG_VERSION: Reason = Reason::new("wrong version", Class::Bad);

/// What the catalog knows of it.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("template", include_str!("lib.rs"), build)
    .summary("a layer that says how long a message is and notices how many are missing")
    .on(&[Realm::Async, Realm::Wire], &[Family::Link, Family::Ether, Family::Host])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::adding(Guarantees::EXACT))
    .header_octets(wire::HEADER_OCTETS)
    .numbers(&[
        // Local experimental EtherType 2 (IEEE 802), experimental protocol number 2 (RFC 3692 section 2.1).
        ("eth", 0x88b6),
        ("ip", 254),
        ("null", 2),
    ])
    .parameters(&[int("sessions_max", 1..=16_777_216, 1024,
        "how many sessions it holds; idle ones are evicted for new ones")])
    .questions(&[
        question("template-missing", "how many messages of the peer never came"),
        question("max-packet", "that of the layer below less eight octets"),
        question("opt-packet", "that of the layer below less eight octets"),
        question("list-sessions", "one per upper protocol and session below"),
        question("list-maps", "active: session below and type number; passive: type number"),
        question("describe", "a session's type number and what it misses"),
    ]);
