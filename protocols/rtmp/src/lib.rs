//! # Synopsis
//! `rtmp ddp` — Routing Table Maintenance Protocol: tells a node its cable's networks and a router,
//! and a router the ways to all networks.
//!
//! # Participants
//! None.
//!
//! # Behaviour
//! It sets the networks, routers and routes of `ddp` below.
//!
//! On a `ddp` with one port it is the stub for a node. From routers' data it learns the networks of
//! the cable, if they are not known, and the router heard last, which is forgotten after 50 s of
//! silence. It asks for a router when it starts. Data about other networks than the cable's, or
//! from a sender outside them, is "not plausible".
//!
//! On a `ddp` with several ports it is a router's. It keeps a table of networks (`networks_max`),
//! and sends it to each port every 10 s, without the routes through that port. Routes that are not
//! confirmed age every 20 s: they become suspect, then bad (announced as bad, and not used), and
//! are then removed. Networks that overlap others are a "network conflict". Requests of a node are
//! answered with at most `answers_per_second` packets a second; more are "rate limited".
//!
//! # Example
//! ```kdl
//! host router {
//!     sim   link=left name=sim1
//!     sim   link=right name=sim2
//!     eth   sim1 name=eth1
//!     eth   sim2 name=eth2
//!     aarp  eth1 name=aarp1
//!     aarp  eth2 name=aarp2
//!     ddp   aarp1 aarp2 {
//!         port net="10-19" node=1 zone="Left"
//!         port net="20-29" node=1 zone="Right"
//!     }
//!     rtmp  ddp
//! }
//! link left
//! link right
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 5. Not covered: seeding a port's networks from other
//! routers.
#![no_std]

extern crate alloc;

mod protocol;
pub mod wire;

pub use protocol::{CONFLICT, IMPLAUSIBLE, Rtmp, RtmpTable, build};
pub use xk_kit::answers::RATE_LIMITED;

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, int, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("rtmp", include_str!("lib.rs"), build)
    .realm(Realm::Control)
    .summary("tells a node its networks and a router, and a router the ways to all networks")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async], &[Family::Other("AppleTalk sockets")])
    .needs(Guarantees::SESSIONS.and(Guarantees::EXACT))
    .numbers(&[("ddp", 1)])
    .parameters(&[
        int("networks_max", 1..=65_535, 1024, "how many networks behind others it remembers"),
        int("answers_per_second", 1..=1_000_000, 100,
            "how many packets it answers a node's requests with per second"),
    ])
    .questions(&[
        own_question::<RtmpTable>("the networks behind other routers"),
        question("ddp-cable-changed", "from below: a cable's address or networks"),
    ])
    .reasons(&[&protocol::IMPLAUSIBLE, &protocol::CONFLICT, &RATE_LIMITED]);
