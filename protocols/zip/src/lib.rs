//! # Synopsis
//! `zip ddp` — Zone Information Protocol: tells a node its networks and its zone, and keeps the
//! zones of all networks in a router.
//!
//! # Realm
//! control, no sessions
//!
//! # Participants
//! None.
//!
//! # Above
//! `nbp` of a router, which asks it for the cables of a zone.
//!
//! # Below
//! One `ddp`, whose cables it sets.
//!
//! # Behaviour
//! On a `ddp` with one port it asks three times, a second apart, for the networks of the cable and
//! the zone, when the node has an address and again when a router is heard first; the answer sets
//! the cable, and the node joins the zone's group. Without an answer all stays as it is.
//!
//! On a `ddp` with several ports it has the zones of its own cables from the graph (`zone` of a
//! port), and asks the next router every ten seconds for those of the networks that it has ways to.
//! It answers such questions, and nodes that ask about their cable. Zones that were not asked for
//! are "unsolicited".
//!
//! # Control
//! Answers `zone-nets`, `zip-zones`, `ddp-cable-changed`, `describe`; forwards the rest.
//!
//! # Example
//! ```kdl
//! host one {
//!     sim   link=lan
//!     eth   sim
//!     aarp  eth
//!     ddp   aarp
//!     rtmp  ddp
//!     zip   ddp
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 8. Not covered: lists of zones, which go by ATP;
//! changes of zones' names.
#![no_std]

extern crate alloc;

mod protocol;
pub mod wire;

pub use protocol::{UNSOLICITED, Zip, ZipZones, build};

use xk_core::Entry;
use xk_core::control::{own_question, question};
use xk_core::graph::{Family, Guarantees, Realm, int};

/// What the catalog knows of it.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("zip", include_str!("lib.rs"), build)
    .realm(Realm::Control)
    .summary("tells a node its networks and its zone; keeps the zones of all networks in a router")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::SESSIONS.and(Guarantees::EXACT))
    .numbers(&[("ddp", 6)])
    .parameters(&[int("networks_max", 1..=65_535, 1024, "of how many cables it keeps the zones")])
    .questions(&[
        question("zone-nets", "the cables of a zone"),
        own_question::<ZipZones>("the zones that it knows"),
        question("ddp-cable-changed", "from below: a cable's address or networks"),
    ])
    .reasons(&[&protocol::UNSOLICITED]);
