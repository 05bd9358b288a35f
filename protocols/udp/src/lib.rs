//! # Synopsis
//! `udp LOWER` — User Datagram Protocol: datagrams between ports, checked but neither repeated nor
//! ordered.
//!
//! # Participants
//! A port on top of what the layer below needs: `port7@10.0.0.2`.
//!
//! - `open`: local `port5000@10.0.0.1`, where port and host may be `*` (an ephemeral port, the host
//!   that the route gives); peer `port7@10.0.0.2`, both definite. A peer of `*` alone opens an
//!   unconnected session, and so do the port of a broadcast or a group, and several peers.
//! - `open_enable`: `port7`, `port7@*` or `port7@10.0.0.1`.
//!
//! # Behaviour
//! Without a pseudo-header from below datagrams carry no checksum. Over hosts of IPv6 every
//! datagram has one (RFC 8200, section 8.1): none is sent without, whatever `checksum` says, and
//! one that arrives without is dropped.
//!
//! A datagram goes to the session of its peer, found by the lower session and both ports. If there
//! is none, it goes to an unconnected session or an enable, for the local host first and then for
//! any host; an enable makes a session for each new peer. A protocol that wants to keep such a
//! session takes a hold on it in `open_done`. A session without a hold has none on the session
//! below either. It is evicted when its table or the one below is full, those with a single
//! datagram first.
//!
//! An unconnected session receives from every peer without a session of its own; one that was
//! opened to several peers receives from those alone. Each message has its sender as the attribute
//! `peer`. The session sends each message to the peer in that attribute, or without one to the
//! broadcast, the group or all the peers that it was opened to. It keeps the sessions below for the
//! last 64 peers.
//!
//! A datagram to a group goes to the unconnected session that is bound to the group at its port,
//! and a copy to the one that is bound to any host. `join-host` joins a session to a group: the
//! layer below takes packets to it, and the session takes what the filters of its joins admit. A
//! session that has not joined the group takes all that arrives. Its joins end with the session.
//!
//! Checksums are verified whenever the sender computed one. Octets beyond the length field are cut
//! off. A datagram for a port that is not taken is refused with its header in front, so that the
//! layer below can tell the sender; one that came as a broadcast is dropped. After a report that
//! the peer's port is unreachable, the next push into a session with a holder fails once.
//!
//! `network-error` is passed on to the session's upper protocol. `pseudo-header` is not forwarded,
//! since the checksum covers its hosts.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim  link=lan
//!     eth  sim
//!     arp  eth
//!     ip   arp { address "10.0.0.1/24"; }
//!     udp  ip
//!     echo udp port=7
//! }
//! ```
//!
//! # Standard
//! RFC 768; RFC 1122 section 4.1 (specific destination: section 4.1.3.5); ports by RFC 6335 section
//! 6 and RFC 6056 section 3.3.1.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod protocol;
mod unconnected;
pub mod wire;

pub use protocol::{Udp, build};
pub use unconnected::PEERS_MAX;

use xk_core::graph;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: graph::Entry = graph::Entry::layer("udp", include_str!("lib.rs"), build)
    .replaceable()
    .summary("User Datagram Protocol: datagrams between ports")
    .above(graph::Family::Port)
    .on(&[graph::Realm::Async, graph::Realm::Wire], &[graph::Family::Host, graph::Family::Link])
    .needs(graph::Guarantees::SESSIONS.and(graph::Guarantees::WHOLE).and(graph::Guarantees::REPLY))
    .service(graph::Service::adding(graph::Guarantees::EXACT.and(graph::Guarantees::MANY)))
    .header_octets(wire::HEADER_LEN)
    .numbers(&[("ip", wire::IP_PROTOCOL as u32)])
    .takes_peers()
    .parameters(&[
        graph::int("sessions_max", 1..=16_777_216, 65_536,
            "how many connected sessions it holds; idle ones are evicted for new ones"),
        graph::int("passive_max", 0..=16_777_216, 0,
            "how many sessions datagrams may make for one protocol above; 0: as many as it holds"),
        graph::int("enables_max", 1..=131_072, 16_384,
            "how many enables and unconnected sessions it holds"),
        graph::flag("checksum", true, "whether datagrams are sent with a checksum"),
        xk_kit::net::drop_sources::PARAMETER,
    ])
    .questions(&[
        graph::question("needs-pseudo-header", "its checksum covers the hosts of the layer below"),
        graph::question("my-port", "the local port of a session"),
        graph::question("peer-port", "the peer's port of a session that has one"),
        graph::question("serves-port", "whether another port of a session's host is enabled"),
        graph::question("join-host", "joins an unconnected session to a group"),
        graph::question("leave-host", "takes a join of the session back"),
    ]);
