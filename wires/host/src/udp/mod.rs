//! # Synopsis
//! `host-udp` — datagrams between ports, carried by the operating system's own UDP: to its uppers
//! what `udp` is, without privilege.
//!
//! # Participants
//! A port on top of an IPv4 host: `port7@10.0.0.2`.
//!
//! - `open`: local `port5000@10.0.0.1`, where port and host may be `*` (a port that the system
//!   gives; the host that its routes give); peer `port7@10.0.0.2`, both definite. A peer of `*`
//!   alone opens an unconnected session, and so does the port of a broadcast or a group.
//! - `open_enable`: `port7`, `port7@*` or `port7@10.0.0.1`.
//!
//! # Behaviour
//! It stands on the system's UDP. For whole frames see `host-eth`. The port selects the protocol
//! above.
//!
//! Each local port in use is one socket of the system, bound to `local`; it is closed with the last
//! session and enable on it. Messages find their session by our host and port and the peer's. Next
//! come unconnected sessions and enables, for the local host first and for any host then; an enable
//! makes a session for each new peer. A session answers from the host that its peer spoke to.
//!
//! An unconnected session receives from all peers that have no session of their own; each message
//! carries its sender as the attribute `peer`, and goes to the peer in that attribute, without one
//! to the broadcast or group that it was opened to.
//!
//! The system computes and verifies checksums and fragments what is longer than the way takes,
//! unless `fragment` forbids it. What the network says about a datagram goes up as `network-error`
//! to the session that sent it; after a report that the peer's port is unreachable, the next push
//! into a session that is held fails once. A sender to a port that has no socket hears so from the
//! system; a message for a host or peer that no session takes is dropped as "no port".
//!
//! Arrivals are read into message memory, one by one, or 16 at a time where they come faster than
//! that; where the system joins datagrams (UDP GRO) they are taken apart without copying. A stack
//! with one socket and nothing else to sleep on sleeps in the call that takes the arrival. What is
//! pushed waits for the end of the turn, or for 128 messages on one port, and goes in batches of
//! 16, runs of one length to one peer as one (UDP GSO). 1024 messages wait at most on one port for
//! a full socket.
//!
//! The skeleton of layers (`xk_kit`) does not fit: it puts a header in front of what goes to a
//! session below, and here there is none below, but a socket for each local port; those of a port
//! share it, and bursts are made over all of them.
//!
//! `opt-packet` is what the way took when the session was made. `network-error` is passed up.
//!
//! # Example
//! ```kdl
//! host alice {
//!     host-udp
//!     echo     host-udp port=7007
//! }
//! ```
//!
//! # Standard
//! RFC 768; RFC 1122 section 4.1, as far as the system obeys it. Linux: udp(7), ip(7)
//! (`IP_RECVERR`, `IP_PKTINFO`).

mod ports;
mod protocol;
mod session;

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, Service, Shape, flag, int, text};

/// The catalog entry of datagrams over the system's UDP.
#[rustfmt::skip]
pub static UDP_ENTRY: Entry = Entry::layer("host-udp", include_str!("mod.rs"), protocol::build)
    .summary("datagrams between ports over the operating system's UDP, without privilege")
    .above(Family::Port)
    .lowers(0..=0)
    .shape(Shape::Wire)
    .service(Service { adds: Service::WIRE.adds.and(Guarantees::HOSTS), ..Service::WIRE })
    .parameters(&[
        text("local", "an IPv4 address of this machine, or 0.0.0.0 for all", "0.0.0.0",
            "our host, for every port; 0.0.0.0 for every address that we have, which costs each \
             datagram its control data"),
        int("sessions_max", 1..=16_777_216, 65_536,
            "how many connected sessions it holds; idle ones are evicted for new ones"),
        int("ports_max", 1..=65_535, 256, "how many sockets it opens"),
        flag("fragment", true, "whether the system may fragment datagrams"),
        crate::BUFFER,
    ])
    .questions(&[
        question("my-port", "the local port of a session"),
        question("my-host", "the local host of a session"),
        question("peer-port", "the peer's port of a session that has one"),
        question("peer-host", "the peer's host of a session that has one"),
        question("peer-proved",
            "of a session with a loopback address: nobody else can pretend to be there"),
        question("serves-port", "whether another port of a session's host is enabled"),
        question("is-group", "whether this host is a broadcast or a group"),
        question("max-packet", "65507 octets, or what the way takes without fragmenting"),
        question("opt-packet", "what the way takes without fragmenting"),
    ])
    .probe(protocol::probe)
    .reasons(&[&crate::OVERFLOW]);
