//! # Synopsis
//! `zip DDP [ATP]` — Zone Information Protocol: tells a node its networks and its zone, and keeps
//! the zones of all networks in a router.
//!
//! # Participants
//! None.
//!
//! # Behaviour
//! It sets the cables of `ddp`; for lists of zones it needs `atp` on it. `nbp` of a router asks it
//! for the cables of a zone.
//!
//! On a `ddp` with one port it asks for the networks of the cable and the zone, three times, a
//! second apart: when the node has an address, and again when it first hears a router. The answer
//! sets the cable, and the node joins the zone's group. Without an answer nothing changes.
//!
//! On a `ddp` with several ports it knows the zones of its own cables from the graph (`zone` of a
//! port). Every ten seconds it asks the next router for the zones of the other networks that it has
//! routes to. It answers such requests, and nodes that ask about their cable. Zones that it did not
//! ask for are "unsolicited". A node gets at most `answers_per_second` answers a second; more
//! requests are "rate limited".
//!
//! With `atp` a router tells nodes the zones of all networks, those of their cable, and their
//! default zone. A node that is asked for `zones` asks its router; without a router it knows only
//! its own zone. A router whose zone gets another name tells the nodes of that cable, which adopt
//! it; other routers keep the old name until they are restarted.
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
//! Inside AppleTalk, second edition, chapter 8. Not covered: several zones on a router's own cable;
//! removing an old name from the tables of other routers.
#![no_std]

extern crate alloc;

mod lists;
mod protocol;
pub mod wire;

pub use lists::ZoneList;
pub use protocol::{UNSOLICITED, Zip, ZipZones, ZoneRename, build};
pub use xk_kit::answers::RATE_LIMITED;

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
    .reasons(&[&protocol::UNSOLICITED, &RATE_LIMITED]);
