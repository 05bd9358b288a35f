//! # Synopsis
//! `caller LOWER to="..."` — calls a procedure of a peer again and again, checks, counts and times
//! the replies.
//!
//! # Participants
//! It opens the layer below with `local` and `to`, with `procedure` on top if it is given:
//! `procedure=1 to="10.0.0.2"` is `procedure1@10.0.0.2`. Without `local` the local participant is a
//! wildcard at every layer. Several peers stand in `to` with commas between, for a layer that calls
//! many, such as `groupcall`; the procedure is on top of the first.
//!
//! # Behaviour
//! From `start` on it makes `count` calls, each on a shepherd that waits for the reply, and each
//! through a session that no other call is using: it opens one more when all are in use. With an
//! interval of zero, `concurrency` shepherds each make the next call as soon as the one before is
//! over; a failed call is followed by a pause of a millisecond. With another interval, a call
//! begins every `interval`, unless `concurrency` calls are already waiting.
//!
//! The server is meant to be one of `procedures`. Null gets no octets, sleep the argument `time`,
//! source the argument `size`, and the others a request of `size` octets. With `check` the replies
//! must be those of these procedures: nothing, the octets of the request, or those of the source.
//! To a procedure with any other number it sends `size` octets and accepts any reply.
//!
//! If `size` is a multiple of four and at least four, the request is an XDR `opaque<>`: its length,
//! then a pattern that depends on the number of the call. Otherwise it is the pattern alone.
//!
//! With `deadline` each call has that time in its attribute `call-options`; without it the layers
//! below decide when to give up.
//!
//! Its `report` has `calls`, `replies`, `octets` of replies, `wrong` replies, each kind of error by
//! the layer that gave up and its cause, `waiting`, `waiting at most`, `rtt min`, `rtt avg`, `rtt
//! p50`, `rtt max`, and `why` it has failed. It has finished when every call is over; it has failed
//! if there was no reply by then, or a wrong one.
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
