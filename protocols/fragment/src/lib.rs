//! # Synopsis
//! `fragment LOWER` — large messages in up to 16 fragments: unreliable, but persistent.
//!
//! # Participants
//! Those of the layer below: a host, `10.0.0.2`, or nothing on a link. The type number of the
//! protocol above selects it.
//!
//! # Above
//! Anything that pushes messages and can live with one that is lost, comes twice, or overtakes
//! another: `channel`, which recovers by itself, or datagrams.
//!
//! # Below
//! One protocol whose participants are hosts, or a link with one other end.
//!
//! # Behaviour
//! A message that fits one packet goes as it is: no copy is kept, no timer set. A larger one is cut
//! into fragments as large as the layer below carries whole (`opt-packet`), up to 16 of them; a
//! fragment is a reference to the message's own buffers. All are sent at once. The sender keeps the
//! message for one second, and another second after each request for missing fragments; it never
//! learns whether it arrived. Sent again, it is a new message.
//!
//! A receiver that lacks fragments asks for them: first after 10 ms for each fragment that the
//! message has, then after twice the time up to one second; three times in all. A fragment that
//! comes after it was asked for without need doubles the session's time; every message that needs
//! no question brings it a sixteenth nearer to 10 ms.
//!
//! Of an instance at most `outstanding_max` messages are kept; a push beyond blocks the shepherd
//! until one is released. It fails with "queue full" by the deadline of a message that bears
//! `call-options`, and at once where no shepherd can block. The protocol above may release a copy
//! early, and ask whether the peer is still collecting.
//!
//! A session collects at most `partial_per_peer` messages at a time, an instance `partial_max`; the
//! oldest makes room. Fragments of a message that is complete, or for other hosts, or at odds with
//! those that came before, are dropped and counted.
//!
//! # Example
//! ```kdl
//! host one {
//!     loopback
//!     fragment loopback
//!     echo fragment
//! }
//! ```
//!
//! # Standard
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel: Evaluating New Design
//! Techniques" (1989), sections 3.2 and 4.2, and its appendix for the header.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod protocol;
mod receiver;
mod sender;
mod table;
pub mod wire;

pub use protocol::{Fragment, Limits, add, build};
pub use table::FragmentFigures;

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("fragment", include_str!("lib.rs"), build)
    .summary("large messages in fragments: unreliable, but persistent")
    .above(Family::Host)
    .on(&[Realm::Async, Realm::Wire], &[Family::Host, Family::Link])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE).and(Guarantees::REPLY))
    .service(Service::changing(Guarantees::EXACT, Guarantees::INSTANT))
    .header_octets(wire::HEADER_OCTETS)
    .numbers(&[("ip", 101), ("null", 101)])
    .parameters(Limits::PARAMETERS)
    .questions(&[
        question("max-packet", "sixteen fragments"),
        question("opt-packet", "one fragment: that of the layer below less 24 octets"),
        question("min-packet", "0: nothing is ever added to a message"),
        question("last-copy", "the name of the copy of the last message"),
        question("free-copy", "releases a copy early"),
        question("ask-copy", "whether the peer is still collecting"),
        own_question::<FragmentFigures>("what was kept, asked for, collected"),
    ])
    .reasons(&[
        &sender::LATE_NACK, &receiver::LATE_FRAGMENT, &receiver::FORGED, &receiver::MISSING,
        &receiver::CROWDED_OUT,
    ]);
