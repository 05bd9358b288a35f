//! # Synopsis
//! `calltemplate LOWER` — a layer of calls that says how long the server took.
//!
//! # Realm
//! rpc
//!
//! # Participants
//! Those of the layer below, passed through.
//!
//! # Above
//! Any protocol that could stand on the layer below, under the type number that it has there; one
//! that serves, any number that call.
//!
//! # Below
//! One protocol of the rpc realm.
//!
//! # Behaviour
//! A request gets four octets in front: the version (1) and three zeros. A reply gets four octets
//! in front: the microseconds from the request's arrival to the reply, in network order, 2^32 - 1
//! at most. A client's session adds them up.
//!
//! A request of another version is refused as `wrong version`, one that is shorter than four octets
//! as `truncated`; a reply that is shorter is counted as that, and the call fails as a bad reply.
//! Refusals pass as they are. Nothing waits here: deadlines and cancelled calls are the business of
//! the layers below.
//!
//! # Control
//! Answers `calltemplate-server-time` (a session's calls, and the server's share of their time),
//! `max-packet` and `opt-packet` (those of the layer below less four octets), `list-sessions`,
//! `list-maps`, `describe`; forwards the rest.
//!
//! # Example
//! ```kdl
//! host bob {
//!     sim          link=lan
//!     eth          sim
//!     arp          eth
//!     ip           arp { address "10.0.0.2/24"; }
//!     fragment     ip
//!     channel      fragment
//!     select       channel
//!     calltemplate select
//!     procedures   calltemplate
//! }
//! ```
//!
//! # Standard
//! None.
#![no_std]

extern crate alloc;

mod protocol;
pub mod wire;

pub use protocol::{Calltemplate, ServerTime, build};

use xk_core::control::question;
use xk_core::graph::{Family, Guarantees, Realm, int};
use xk_core::reason::Class;
use xk_core::{Entry, Reason};

/// Refused: a request of a version that this protocol does not speak.
pub static WRONG_VERSION: Reason = Reason::new("wrong version", Class::Bad);

/// What the catalog knows of it.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::calls("calltemplate", include_str!("lib.rs"), build)
    .summary("a layer of calls that says how long the server took")
    .on(&[Realm::Rpc], &[Family::Inherit])
    .needs(Guarantees::SESSIONS)
    .header_octets(wire::HEADER_OCTETS)
    // No number: what stands on it is known below by its own.
    .parameters(&[
        int("sessions_max", 1..=16_777_216, 4096,
            "how many sessions it holds, for calls and for requests each; idle ones are evicted \
             for new ones"),
    ])
    .questions(&[
        question("calltemplate-server-time",
            "a session's calls, and the server's share of their time"),
        question("max-packet", "that of the layer below less four octets"),
        question("opt-packet", "that of the layer below less four octets"),
        question("list-sessions", "one per session below and, for calls, protocol above"),
        question("list-maps", "calling: session below and protocol above; serving: session below"),
        question("describe", "a session's calls and the server's time"),
    ]);
