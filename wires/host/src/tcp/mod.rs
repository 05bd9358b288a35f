//! # Synopsis
//! `host-tcp` — streams between ports, carried by the operating system's own TCP: to its uppers
//! what `tcp` is, without privilege.
//!
//! # Participants
//! A port on top of an IPv4 host: `port80@192.0.2.7`.
//!
//! - `open`: local `*` or `port5000@10.0.0.1`, where port and host may be `*`; the peer's port and
//!   host, both definite.
//! - `open_enable`: `port7`, `port7@*` or `port7@10.0.0.1`.
//!
//! # Behaviour
//! It stands on the system's TCP. The port selects the protocol above: `rm`, sockets, or another
//! that takes streams.
//!
//! Each session is one connection of the system. `open` returns while the session still connects;
//! then `stream-notice` tells the protocol above that it is connected, or why it failed. An enable
//! is a socket that listens; a peer for which the protocol above has no room waits in the system's
//! queue.
//!
//! Octets that are pushed are written at once as far as the system takes them. The rest waits,
//! `send_max` octets at most; a push for which there is no room is refused as "queue full".
//! Arrivals are read into message memory, 16 KiB at a time, and cut wherever the system cuts them.
//! A receiver that reports what it has consumed (`stream-consumed`) has at most `receive_max`
//! octets that it has not consumed, beside those in the system's own buffer. Beyond that nothing is
//! read, and the system's window holds the peer back. Nothing is read either while the pool has no
//! buffer.
//!
//! The guarantees are those of the system, which reports that it has taken the octets, not that the
//! peer has them. When a connection breaks, the protocol above is told; octets under way may or may
//! not have arrived, as with any TCP. Closing the last handle writes the octets that wait, then
//! ends the stream; if octets have arrived and were not read, the system resets the connection
//! instead (RFC 1122, section 4.2.2.13). When the process dies, the system ends all streams. The
//! protocol cannot be built under virtual time, because it uses the machine's sockets.
//!
//! The skeleton of layers (`xk_kit`) does not fit: each session has a socket, and no session below.
//!
//! `stream-set` sets all but `segment-max`; `stream-info` has the state and the counts of this
//! layer. It tells the protocol above by `stream-notice`, and asks it by `stream-room`.
//!
//! # Example
//! ```kdl
//! host server {
//!     host-tcp
//!     rm       host-tcp
//!     reqrep   rm
//! }
//! ```
//!
//! # Standard
//! Linux: tcp(7), socket(7); RFC 9293 as far as the system obeys it.

mod protocol;
mod session;

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, Service, Shape, flag, int, octets, text};

/// Guarantees of a wire of messages, with those of a stream added and message boundaries left out.
const SERVICE: Service = Service {
    adds: Service::WIRE
        .adds
        .without(Guarantees::WHOLE)
        .and(Guarantees::STREAM)
        .and(Guarantees::ORDER)
        .and(Guarantees::RELIABLE)
        .and(Guarantees::HOSTS),
    ..Service::WIRE
};

/// The catalog entry of streams over the system's TCP.
#[rustfmt::skip]
pub static TCP_ENTRY: Entry = Entry::layer("host-tcp", include_str!("mod.rs"), protocol::build)
    .summary("streams between ports over the operating system's TCP, without privilege")
    .above(Family::Port)
    .lowers(0..=0)
    .shape(Shape::Wire)
    .service(SERVICE)
    .parameters(&[
        text("local", "an IPv4 address of this machine, or 0.0.0.0 for all", "0.0.0.0",
            "our host, for what is opened and enabled without one"),
        int("sessions_max", 1..=1_000_000, 1024, "how many connections it holds"),
        int("backlog", 1..=65_535, 128, "how many peers the system lets wait at one port"),
        octets("send_max", 256 << 10, "octets that wait to be sent on one connection"),
        octets("receive_max", 256 << 10,
            "octets of one connection that a receiver has not consumed"),
        flag("no_delay", false, "whether small segments go at once"),
    ])
    .questions(&[
        question("my-port", "the local port of a session"),
        question("my-host", "the local host of a session"),
        question("peer-port", "the peer's port of a session"),
        question("peer-host", "the peer's host of a session"),
        question("peer-proved", "of a session: it is connected"),
        question("max-packet", "the send buffer, in octets"),
        question("opt-packet", "16 KiB: what one read takes"),
        question("stream-space", "how many octets a push takes now"),
        question("stream-shutdown", "ends this side's direction behind what was pushed"),
        question("stream-abort", "breaks the connection off"),
        question("stream-consumed", "goes on reading for a receiver that says what it consumed"),
        question("stream-set", "sets something of a session"),
        question("stream-info", "how the connection stands"),
    ])
    .probe(protocol::probe)
    .reasons(&[&session::NOT_TAKEN]);
