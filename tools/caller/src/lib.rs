//! # Synopsis
//! `caller LOWER to="..."` — calls a procedure of a peer again and again, checks, counts and times
//! the replies.
//!
//! # Realm
//! top (an anchor: no header, no sessions of its own)
//!
//! # Participants
//! It opens the layer below with `local` and `to`, with `procedure` on top if it is given:
//! `procedure=1 to="10.0.0.2"` is `procedure1@10.0.0.2`. A `local` that is not given is a wildcard
//! at every layer.
//!
//! # Above
//! Nothing.
//!
//! # Below
//! One protocol of the rpc realm.
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
//! `rtt p50`, `rtt max`. It has finished when every call is over; it has failed if then there was
//! no reply, or a wrong one. Forwards the rest.
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

use core::time::Duration;
use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, ParamKind, Realm, duration, flag, int, octets, optional};

/// What the catalog knows of it.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::top("caller", include_str!("lib.rs"), build)
    .summary("calls a procedure of a peer again and again, counts and times the replies")
    .on(&[Realm::Rpc], &[Family::Any])
    .needs(Guarantees::OPEN)
    // The number of `procedures`, on a layer that tells its uppers by number.
    .numbers(&[("channel", 253)])
    .parameters(&[
        optional("to", PARTICIPANT, "the peer"),
        optional("local", PARTICIPANT, "the local participant"),
        optional("procedure", ParamKind::integer(0..=u32::MAX as i64),
            "the procedure's number, on top of `to`"),
        int("count", 0..=i64::MAX, 5, "how many calls; 0 for no end"),
        duration("interval", Duration::ZERO,
            "from the beginning of one call to the next; 0s: as soon as the one before is over"),
        int("concurrency", 1..=65_536, 1, "how many calls wait at a time"),
        octets("size", 0, "octets of a request, or of what source replies"),
        octets("size_max", 0, "if more than `size`: sizes are random up to it, in octets"),
        duration("time", Duration::from_millis(1),
            "how long the procedure sleeps, in whole milliseconds"),
        duration("deadline", Duration::ZERO,
            "how long after its beginning a call is given up; 0s: never"),
        flag("check", true, "whether replies are compared with what they must be"),
        duration("start", Duration::ZERO, "the delay before the first call"),
    ])
    .questions(&[
        question("report", "calls, replies, errors by layer and cause; round-trip times"),
    ])
    .reasons(&[&protocol::WRONG]);

const PARTICIPANT: ParamKind = ParamKind::Text("a participant, such as procedure1@10.0.0.2");
