//! # Synopsis
//! `fanout LOWER [joins=#true]` — one conversation of several hosts: each message goes to all of
//! them.
//!
//! # Participants
//! - `open`: our own end, such as `room3` or `room3@10.0.0.1` (room 0 where it names none, 65535 at
//!   most), and one to 63 peers, as the layer below takes them. All hosts name the same room.
//! - `open_enable`: any local end; it enables all rooms.
//!
//! # Behaviour
//! The protocol above has a type number below 65536, and receives the messages of several peers
//! through one session.
//!
//! `open` opens a session below to each host. If one of these cannot be opened, `open` closes the
//! others and fails. A room that is already open gains the hosts that it does not have yet.
//!
//! A message sent gets six octets in front, in network order: the type number of the protocol above
//! (two), the room (two), the length of the message in octets (two). One copy goes to each host; a
//! message with the attribute `peer` goes to that host alone. The push returns the first error, and
//! the other hosts get their copies all the same. If the session below to a host that an `open`
//! named has ended, the next message for that host opens it again.
//!
//! An arriving message goes to the session of its type number and room, and goes up with its sender
//! as the attribute `peer`. A message whose sender is none of the room's hosts is refused as `not a
//! member`. With `joins=#true` the sender becomes one of them, until its session below ends; if the
//! room has 63 hosts and needs a place, the host that joined first loses its own. If the protocol
//! above has enabled the layer, the first message for a room that is not open makes the room, with
//! its sender as the only host. While the protocol above does not hold such a room, the message of
//! a host that may not join ends it and makes another: no stranger keeps others out.
//!
//! Nothing is sent again or put in order. The protocol above is not told when hosts join or leave.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim    link=lan
//!     eth    sim
//!     arp    eth
//!     ip     arp { address "10.0.0.1/24"; }
//!     fanout ip
//!     echo   fanout
//! }
//! ```
//!
//! # Standard
//! None. An `open` with several participants is from Hutchinson and Peterson, "The x-Kernel: An
//! Architecture for Implementing Network Protocols", section III.
#![no_std]

extern crate alloc;

mod protocol;
pub mod wire;

pub use protocol::{Fanout, ROOM, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, flag, question};
use xk_kit::layer::sessions_max;

/// The catalog entry.
pub static ENTRY: Entry = Entry::layer("fanout", include_str!("lib.rs"), build)
    .summary("one conversation of several hosts: each message goes to all of them")
    .on(&[Realm::Async], &[Family::Host])
    .needs(Guarantees::SESSIONS)
    .service(Service::adding(Guarantees::EXACT.and(Guarantees::MANY)))
    .header_octets(wire::HEADER_OCTETS)
    // Experimental protocol number 2 (RFC 3692, section 2.1).
    .numbers(&[("ip", 254), ("fanout", 1)])
    .numbers_above(&[("echo", 7), ("discard", 7), ("probe", 7)])
    .takes_peers()
    .parameters(&[
        flag("joins", false, "whether a host that sends to a room becomes one of its hosts"),
        sessions_max(1024),
    ])
    .questions(&[question("describe", "a room, and its hosts")]);
