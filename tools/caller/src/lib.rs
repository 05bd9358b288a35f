//! # Synopsis
//! `caller LOWER to="..."` — calls a procedure of a peer again and again, checks, counts and times
//! the replies.
//!
//! # Participants
//! It opens the layer below with `local` and `to`, with `procedure` on top if it is given:
//! `procedure=1 to="10.0.0.2"` is `procedure1@10.0.0.2`. A `local` that is not given is a wildcard
//! at every layer.
//!
//! # Behaviour
//! From `start` on it makes `count` calls, each on a shepherd that waits for the reply, and each
//! through a session that no other call is using: it opens one more when all are in use. With an
//! interval of zero, `concurrency` shepherds each make the next call as soon as the one before is
//! over; one that failed is followed by a pause of a millisecond. Else a call begins every
//! `interval`, unless `concurrency` are waiting already.
//!
//! What it calls is meant to be a server of `procedures`: null and sleep get no octets and `time`,
//! source an argument of `size`, the others a request of `size` octets. With `check` the replies
//! must be what these procedures reply: nothing, the octets of the request, or those of the source.
//! To a procedure of any other number it sends `size` octets and takes any reply.
//!
//! A request of octets whose number is a multiple of four, at least four, is an XDR `opaque<>`: its
//! length, then a pattern that follows from the number of the call. Any other is the pattern alone.
//!
//! With `deadline` each call bears that time as a `call-options` attribute; without it the layers
//! below decide alone when to give up.
//!
//! # Control
//! Answers `report`: `calls`, `replies`, `octets` of replies, `wrong` replies, each kind of error
//! by the layer that gave up and its cause, `waiting`, `waiting at most`, and `rtt min`, `rtt avg`,
//! `rtt p50`, `rtt max`, and `why` it has failed. It has finished when every call is over; it has
//! failed if then there was no reply, or a wrong one. Answers `try-open` (whether its peer can be
//! opened, for the check). Forwards the rest.
//!
//! # Example
//! ```kdl
//! host alice {
//!     sim      link=lan
//!     eth      sim
//!     arp      eth
//!     ip       arp { address "10.0.0.1/24"; }
//!     fragment ip
//!     channel  fragment
//!     select   channel
//!     caller   select to="procedure1@10.0.0.2" count=10 interval="100ms" size="8KiB" deadline="2s"
//! }
//! ```
//!
//! # Standard
//! None; RFC 4506 for the arguments of the procedures.
#![no_std]

extern crate alloc;

mod octets;
mod protocol;
mod tally;

pub use protocol::{Caller, Settings, add, build};

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, Realm};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("caller", include_str!("lib.rs"), build)
    .summary("calls a procedure of a peer again and again, counts and times the replies")
    .on(&[Realm::Rpc], &[Family::Any])
    .needs(Guarantees::OPEN)
    // The number of `procedures`, on a layer that tells its uppers by number.
    .numbers(&[("channel", 253)])
    .parameters(Settings::PARAMETERS)
    .questions(&[
        question("try-open", "whether its peer can be opened"),
        question("report", "calls, replies, errors by layer and cause; round-trip times"),
    ])
    .reasons(&[&protocol::WRONG]);
