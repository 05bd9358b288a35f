//! # Synopsis
//! `template LOWER` — a layer that says how long a message is.
//!
//! # Realm
//! async
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Above
//! Any protocol of the async realm that has a type number below 65536 on `template`.
//!
//! # Below
//! One protocol of the async realm, or a wire.
//!
//! # Behaviour
//! A message sent gets four octets in front, in network order: the type number of the protocol
//! above and the length of the message in octets, two each. On arrival the type number finds the
//! session, or the upper protocol that enabled it. A message shorter than it says is dropped as
//! `bad length`; octets behind its length, as a link pads them, are cut off. Nothing is repeated or
//! ordered.
//!
//! # Control
//! Answers `max-packet` and `opt-packet` (those of the layer below less four octets, 65535 at
//! most), `list-sessions`, `list-maps`, `describe`; forwards the rest.
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
mod protocol;
pub mod wire;

pub use protocol::{Template, build};

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, Realm, Service, int};

/// What the catalog knows of it.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("template", include_str!("lib.rs"), build)
    .summary("a layer that says how long a message is")
    .on(&[Realm::Async, Realm::Wire], &[Family::Link, Family::Ether, Family::Host])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::adding(Guarantees::EXACT))
    .header_octets(wire::HEADER_OCTETS)
    .numbers(&[
        // Local experimental EtherType 2 (IEEE 802); experimental protocol number (RFC 3692).
        ("eth", 0x88b6),
        ("ip", 254),
        ("null", 2),
    ])
    .parameters(&[int("sessions_max", 1..=16_777_216, 1024,
        "how many sessions it holds; idle ones are evicted for new ones")])
    .questions(&[
        question("max-packet", "that of the layer below less four octets"),
        question("opt-packet", "that of the layer below less four octets"),
        question("list-sessions", "one per upper protocol and session below"),
        question("list-maps", "active: session below and type number; passive: type number"),
        question("describe", "a session's type number"),
    ]);
