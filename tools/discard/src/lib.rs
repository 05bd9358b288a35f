//! # Synopsis
//! `discard LOWER` — takes every message, counts it and drops it.
//!
//! # Participants
//! Those that the layer below enables: `local` as it stands, or `port9` for `port=9`.
//!
//! # Behaviour
//! It enables itself below and answers nothing. Its messages count as received, not as dropped. It
//! never finishes.
//!
//! # Example
//! ```kdl
//! host bob {
//!     sim     link=lan
//!     eth     sim
//!     arp     eth
//!     ip      arp { address "10.0.0.2/24"; }
//!     udp     ip
//!     discard udp port=9
//! }
//! ```
//!
//! # Standard
//! RFC 863 over UDP; the same over other layers.
#![no_std]

extern crate alloc;

mod protocol;

pub use protocol::{Discard, add, build};

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, ParamKind, Realm, optional};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("discard", include_str!("lib.rs"), build)
    .replaceable()
    .summary("takes every message, counts it and drops it")
    .on(&[Realm::Async, Realm::Wire], &[Family::Any])
    .needs(Guarantees::ENABLE)
    .numbers(&[
        // Local experimental EtherType 2 (IEEE 802); experimental protocol number (RFC 3692).
        ("eth", 0x88b6),
        ("ip", 254),
        ("null", 7),
        ("rdgram", 7),
        ("fragment", 7),
    ])
    .parameters(&[
        optional("port", ParamKind::integer(1..=65_535),
            "the port that it serves, on a layer with ports"),
        optional("local", ParamKind::Participant("port9@10.0.0.1"),
            "the participant that it serves, on a layer without ports; `*` if neither is given"),
    ])
    .questions(&[question("report", "messages and octets received")]);
