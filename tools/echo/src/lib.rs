//! # Synopsis
//! `echo LOWER` — sends every message back where it came from.
//!
//! # Participants
//! Those that the layer below enables: `local` as it stands, or `port7` for `port=7`.
//!
//! # Behaviour
//! It enables itself below. Each message goes back through the session that it came by, with its
//! octets unchanged. A message that the session refuses is lost, and counted there and here. It
//! never finishes.
//!
//! One forged message must not make two servers answer each other without end. So a message to a
//! broadcast or a group is refused ("sent to many"), and over datagrams with ports so is one from a
//! port below 1024 or from a port that is served here ("from a service port"). Without ports, the
//! same octets are answered a thousand times at once and a hundred times a second ("in a loop").
//!
//! # Example
//! ```kdl
//! host bob {
//!     sim  link=lan
//!     eth  sim
//!     arp  eth
//!     ip   arp { address "10.0.0.2/24"; }
//!     udp  ip
//!     echo udp port=7
//! }
//! ```
//!
//! # Standard
//! RFC 862 over UDP; the same over other layers.
#![no_std]

extern crate alloc;

mod protocol;

pub use protocol::{Echo, add, build};

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, ParamKind, Realm, optional};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("echo", include_str!("lib.rs"), build)
    .replaceable()
    .summary("sends every message back to whom it came from")
    .on(&[Realm::Async, Realm::Wire], &[Family::Any])
    .needs(Guarantees::ENABLE.and(Guarantees::EXACT).and(Guarantees::REPLY))
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
        optional("local", ParamKind::Participant("port7@10.0.0.1"),
            "the participant that it serves, on a layer without ports; `*` if neither is given"),
    ])
    .questions(&[
        question("report", "messages and octets received, messages sent back and failed"),
    ]);
