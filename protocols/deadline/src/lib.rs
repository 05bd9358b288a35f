//! # Synopsis
//! `deadline LOWER [wait_max=TIME] [time_min=TIME]` — a layer of calls that tells the server how
//! long the client waits.
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Behaviour
//! Above stands any protocol that could stand on the layer below, under the type number that it has
//! there; one serves, any number call. Layers of authentication stand below it.
//!
//! A request gets four octets in front, in network order: the time for which its client still
//! waits, in microseconds, rounded up; 2^32 - 1 is without end. It is the time until the deadline
//! of the call (`call-options`), but at most `wait_max`, which then becomes the deadline. A call
//! whose deadline has passed is not sent, and fails as timed out.
//!
//! The server's clock counts from the request's arrival. A request with less time left than
//! `time_min` is not executed: it is counted as `too little time left`, and the client gets that
//! reason. Any other request goes up with its own deadline, which every call made on its behalf
//! obeys, through any layers. A procedure that makes no calls is not interrupted; a reply after the
//! deadline is still sent, and counted as late. A reply has four octets in front: 0, or 1 if the
//! request was not begun.
//!
//! The server's deadline is never before the client's. It is later by the time that the request
//! took to arrive, and a request that a layer below sent again has the time that was left at first.
//! The server is not told when a client cancels its call. This layer retransmits nothing: the
//! layers below determine how often a call is executed.
//!
//! Calls of a program's procedure 0 and their replies have no header: the layer of programs below
//! answers them itself, and no layer above sees them.
//!
//! # Example
//! ```kdl
//! host bob {
//!     sim        link=lan
//!     eth        sim
//!     arp        eth
//!     ip         arp { address "10.0.0.2/24"; }
//!     fragment   ip
//!     channel    fragment
//!     select     channel
//!     deadline   select wait_max="2s" time_min="5ms"
//!     procedures deadline relay="procedure1@10.0.0.3"
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;

mod protocol;
pub mod wire;

pub use protocol::{Deadline, Tally, build};

use core::time::Duration;
use xk_core::control::own_question;
use xk_core::graph::{Family, Guarantees, Realm, duration, int};
use xk_core::reason::Class;
use xk_core::{Entry, Reason};

/// Not begun: the client will have given up before the reply is there.
pub static TOO_LATE: Reason = Reason::new("too little time left", Class::Exhausted);

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("deadline", include_str!("lib.rs"), build)
    .summary("a layer of calls that tells the server how long the client waits")
    .on(&[Realm::Rpc], &[Family::Inherit])
    .needs(Guarantees::SESSIONS)
    .header_octets(wire::HEADER_OCTETS)
    // No number: what stands on it is known below by its own.
    .parameters(&[
        duration("wait_max", Duration::ZERO,
            "how long a call waits at most, also one without a deadline; 0s: any time"),
        duration("time_min", Duration::from_micros(1),
            "a request with less time left is not begun; 0s: each is").or_zero(),
        int("sessions_max", 1..=16_777_216, 4096,
            "how many sessions it holds, for calls and for requests each; idle ones are evicted \
             for new ones"),
    ])
    .questions(&[own_question::<Tally>("a session's calls or requests, those late, those not begun")])
    .reasons(&[&TOO_LATE]);
