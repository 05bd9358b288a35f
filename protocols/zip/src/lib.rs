//! # Synopsis
//! `zip DDP [ATP]` — Zone Information Protocol: tells a node its networks and its zone, and keeps
//! the zones of all networks in a router.
//!
//! # Participants
//! None.
//!
//! # Above
//! `nbp` of a router, which asks it for the cables of a zone.
//!
//! # Below
//! One `ddp`, whose cables it sets; and, for lists of zones, `atp` on it.
//!
//! # Behaviour
//! On a `ddp` with one port it asks three times, a second apart, for the networks of the cable and
//! the zone, when the node has an address and again when a router is heard first; the answer sets
//! the cable, and the node joins the zone's group. Without an answer all stays as it is.
//!
//! On a `ddp` with several ports it has the zones of its own cables from the graph (`zone` of a
//! port), and asks the next router every ten seconds for those of the networks that it has ways to.
//! It answers such questions, and nodes that ask about their cable. Zones that were not asked for
//! are "unsolicited". A node is sent as many packets a second in answer as `answers_per_second`
//! says; what it asks beyond is "rate limited".
//!
//! With `atp` a router tells nodes that ask the zones of all networks, of their cable, and the one
//! that they are in by default; a node that is asked for `zones` asks its router. A node without a
//! router knows of its own zone alone. A router whose zone is given another name tells the nodes of
//! that cable, and those take the name; other routers keep the old one until they are started
//! again.
//!
//! # Example
//! ```kdl
//! host one {
//!     sim   link=lan
//!     eth   sim
//!     aarp  eth
//!     ddp   aarp
//!     rtmp  ddp
//!     atp   ddp
//!     zip   ddp atp
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 8. Not covered: cables with several zones of a
//! router's own; the old name's way out of the tables of other routers.
#![no_std]

extern crate alloc;

mod lists;
mod protocol;
pub mod wire;

pub use lists::ZoneList;
pub use protocol::{RATE_LIMITED, UNSOLICITED, Zip, ZipZones, ZoneRename, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, int, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("zip", include_str!("lib.rs"), build)
    .realm(Realm::Control)
    .summary("tells a node its networks and its zone; keeps the zones of all networks in a router")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async, Realm::Rpc], &[Family::Other("AppleTalk sockets")])
    .lowers(1..=2)
    .needs(Guarantees::NONE)
    .needs_each(&[Guarantees::SESSIONS.and(Guarantees::EXACT), Guarantees::TRANSACTIONS])
    .service(Service::changing(Guarantees::NONE, Guarantees::INSTANT))
    .numbers(&[("ddp", 6)])
    .parameters(&[
        int("networks_max", 1..=65_535, 1024, "of how many cables it keeps the zones"),
        int("answers_per_second", 1..=1_000_000, 100,
            "how many packets it answers a node's requests with per second"),
    ])
    .questions(&[
        question("zone-nets", "the cables of a zone"),
        own_question::<ZipZones>("the zones that it knows"),
        own_question::<ZoneList>("the zones of all networks, of the cable, or the node's own"),
        own_question::<ZoneRename>("another name for the zone of a router's cable"),
        question("ddp-cable-changed", "from below: a cable's address or networks"),
    ])
    .reasons(&[&protocol::UNSOLICITED, &protocol::RATE_LIMITED]);
