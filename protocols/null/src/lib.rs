//! # Synopsis
//! `"null" LOWER` — a layer with a four-octet header and nothing else, for measuring what a layer
//! costs. The quotes are needed: null is a keyword of the graph language.
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Behaviour
//! A message sent gets the type number of the upper protocol in front, four octets in network
//! order. On arrival the number selects the session, or the upper protocol that enabled it.
//! Messages are not checked, repeated or ordered.
//!
//! # Example
//! ```kdl
//! host one {
//!     loopback
//!     "null" loopback
//!     echo "null"
//! }
//! ```
//!
//! # Standard
//! None; the base protocol of "The x-Kernel", section IV.B ("one could imagine a simpler null
//! protocol").
#![no_std]

extern crate alloc;

mod protocol;
pub mod wire;

pub use protocol::{Null, add, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm};
use xk_kit::layer::sessions_max;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("null", include_str!("lib.rs"), build)
    .replaceable()
    .summary("a layer with a four-octet header, for measuring what a layer costs")
    .on(&[Realm::Async, Realm::Wire], &[Family::Link, Family::Ether, Family::Host])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .header_octets(wire::HEADER_OCTETS)
    .numbers(&[
        ("null", 1),
        ("fragment", 1),
        // Local experimental EtherType 1 (IEEE 802); experimental protocol number (RFC 3692).
        ("eth", 0x88b5),
        ("ip", 253),
    ])
    .parameters(&[sessions_max(1024)]);
