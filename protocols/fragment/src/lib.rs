//! # Synopsis
//! `fragment LOWER` — large messages in up to 16 fragments: unreliable, but persistent.
//!
//! # Participants
//! Those of the layer below: a host, `10.0.0.2`, or nothing on a link. The type number of the
//! protocol above selects it.
//!
//! # Behaviour
//! The protocol above tolerates losses, duplicates and reordering: `channel`, which recovers from
//! them, or datagrams.
//!
//! A message that fits one packet is sent as it is, without a copy or a timer. A larger one is cut
//! into at most 16 fragments, each as large as the layer below carries whole (`opt-packet`). A
//! fragment refers to the message's own buffers. All are sent at once. The sender keeps the message
//! for one second, and for another second after each request for missing fragments; it never learns
//! whether the message arrived. A message that the protocol above sends again is a new message.
//!
//! A receiver that lacks fragments asks for them, three times in all: first after 10 ms for each
//! fragment of the message, then after twice that time, up to one second. If a fragment that was
//! asked for turns out to be late and not lost, the session's 10 ms are doubled; every message that
//! needs no request brings the time a sixteenth nearer to 10 ms again.
//!
//! An instance keeps at most `outstanding_max` sent messages. A further push blocks its shepherd
//! until one is released. It fails with "queue full" at the deadline of a message with
//! `call-options`, and at once if it runs on no shepherd. The protocol above may release a message
//! early, and may ask whether the peer is still collecting it.
//!
//! A session collects at most `partial_per_peer` messages at a time, an instance `partial_max`;
//! beyond that the oldest is dropped. Fragments of a complete message, for other hosts, or in
//! contradiction to earlier ones are dropped and counted.
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
