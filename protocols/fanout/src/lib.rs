//! # Synopsis
//! `fanout LOWER [joins=#true]` — one conversation of several hosts: each message goes to all of
//! them.
//!
//! # Participants
//! Our own end, with `roomN` on top of it for another room than 0, and one to 63 hosts, as the
//! layer below takes them. All hosts of a room name the same room.
//!
//! # Above
//! Any protocol of the async realm that has a type number below 65536 on `fanout`, and bears
//! messages of several peers on one session.
//!
//! # Below
//! One protocol of the async realm that opens sessions to hosts.
//!
//! # Behaviour
//! `open` opens a session below to each host, and fails if one of them fails; then it closes those
//! that it has opened. A room that is open already gains the hosts that it lacks.
//!
//! A message sent gets six octets in front, in network order: the type number of the protocol above
//! (two), the room (two), the length of the message in octets (two). One copy goes to each host. An
//! upper protocol that sets the attribute `peer` on a message sends it to that host alone. The push
//! fails with the first error, and the other hosts get their copies all the same. Where a session
//! below has ended, the next message opens it again.
//!
//! On arrival number and room find the session, and the message goes up with its sender as `peer`.
//! A sender that is none of the room's hosts is refused as `not a member`; with `joins=#true` it
//! becomes one, until its session below ends or, of 63 hosts, until its place is needed. The first
//! message for a room that is not open makes a room with its sender, if the protocol above has
//! enabled the layer. While the protocol above does not hold such a room, it ends with the first
//! message of another host, which makes another: no stranger keeps others out.
//!
//! Nothing is sent again, put in order, or told of those that came and went.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim    link=lan
//!     eth    sim
//!     arp    eth
//!     ip     arp { address "10.0.0.1/24"; }
//!     fanout ip
//!     echo   fanout { number fanout=7 }
//! }
//! ```
//!
//! # Standard
//! None. Several participants of one `open` are those of Hutchinson and Peterson, "The x-Kernel: An
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
    .service(Service::adding(Guarantees::EXACT))
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
