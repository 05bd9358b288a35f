//! # Synopsis
//! `aep ddp` — AppleTalk Echo Protocol: answers pings; sessions ping.
//!
//! # Participants
//! `*, node18@net10`: the local node, left open, and the node to be pinged.
//!
//! # Behaviour
//! There is nothing to enable: no other protocol answers an echo request.
//!
//! A message pushed into a session is sent as an echo request, from a socket of the session's own
//! to socket 4 of the node. The data of each reply comes up. Requests are not repeated.
//!
//! Requests to socket 4 are answered. Those sent to all stations of a link are dropped as
//! "broadcast request", because all stations would answer at once.
//!
//! # Example
//! ```kdl
//! host one {
//!     sim   link=lan
//!     eth   sim
//!     aarp  eth
//!     ddp   aarp net="10-19" node=17
//!     aep   ddp
//!     probe aep to="node18@net10" start="3s"
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 6.
#![no_std]

extern crate alloc;

mod protocol;
pub mod wire;

pub use protocol::{Aep, AepFigures, build, reasons};

use xk_core::Entry;
use xk_core::control::own_question;
use xk_core::graph::{Family, Guarantees, Realm, Service};
use xk_kit::layer::sessions_max;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("aep", include_str!("lib.rs"), build)
    .replaceable()
    .summary("AppleTalk Echo Protocol: answers pings; sessions ping")
    .above(Family::Other("AppleTalk echoers"))
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::SESSIONS.and(Guarantees::EXACT).and(Guarantees::REPLY))
    .service(Service::changing(Guarantees::NONE, Guarantees::ENABLE))
    .header_octets(wire::HEADER_LEN)
    .numbers(&[("ddp", 4)])
    .parameters(&[sessions_max(1024)])
    .questions(&[own_question::<AepFigures>("what it has answered")])
    .reasons(&[&reasons::BROADCAST, &reasons::NOT_SENT, &reasons::UNMATCHED]);
