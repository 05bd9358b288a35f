//! # Synopsis
//! `nbp ddp` — Name Binding Protocol: gives sockets names, and finds the sockets of names.
//!
//! # Participants
//! None.
//!
//! # Behaviour
//! Protocols of this kernel ask it by `nbp-register` and `nbp-lookup`. Of a router it also stands
//! on a `zip`, which knows the cables of a zone.
//!
//! Each name of a `register` in the graph, or of an `nbp-register`, is looked up first, and
//! registered if no other node has it; otherwise it is "name exists", and not tried again. Each
//! `lookup` of the graph begins when the node has an address and its `start` has passed. At most
//! `lookups_max` searches run at a time; others wait.
//!
//! A search sends three requests, a second apart (`tries`, `interval`): to all nodes of the cable,
//! or to the router if one is known. It collects up to `answers_max` answers. Names are compared
//! without regard to case; `=` is any object or type, `≈` any characters within one, zone `*` that
//! of the node. Requests of nodes are answered to the socket that they name, with at most
//! `answers_per_second` packets for each node; more are "rate limited".
//!
//! On a shepherd that may wait, `nbp-lookup` and `nbp-register` wait for the answer. Elsewhere they
//! report that there is no answer yet, and a later question gets it.
//!
//! A router sends a request for a zone to all nodes of the zone's cables here, and to the routers
//! of its other cables; each such request counts as an answer.
//!
//! # Example
//! ```kdl
//! host one {
//!     sim   link=lan
//!     eth   sim
//!     aarp  eth
//!     ddp   aarp net="10-19" node=17
//!     nbp   ddp {
//!         register "printer:LaserWriter" socket=130
//!         lookup "=:LaserWriter@*"
//!     }
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 7; the wildcard of phase 2.
#![no_std]

extern crate alloc;

mod control;
mod protocol;
mod route;
pub mod wire;

pub use control::{NbpFound, NbpLookup, NbpRegister, NbpRemove, NbpTable};
pub use protocol::{EXISTS, Nbp, build};
pub use xk_kit::answers::RATE_LIMITED;

use core::time::Duration;
use xk_core::Entry;
use xk_core::graph::{
    Family, Guarantees, ParamKind, Realm, Service, block, duration, int, own_question, question,
    required,
};

/// A name, as a graph gives it.
const NAME: &str = "a name, such as echo:XKernel@*";

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("nbp", include_str!("lib.rs"), build)
    .realm(Realm::Control)
    .summary("gives sockets names, and finds the sockets of names")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async, Realm::Control], &[Family::Other("AppleTalk sockets")])
    .lowers(1..=2)
    .numbers(&[("ddp", 2)])
    .needs(Guarantees::NONE)
    .service(Service::changing(Guarantees::NONE, Guarantees::INSTANT))
    .parameters(&[
        int("names_max", 1..=65_536, 256, "how many names the node's sockets have"),
        int("lookups_max", 1..=128, 64, "how many searches go on at once"),
        int("tries", 1..=100, 3, "how often a name is asked for"),
        duration("interval", Duration::from_secs(1), "time between two requests"),
        int("answers_max", 1..=4096, 64, "how many answers a search collects"),
        int("answers_per_second", 1..=1_000_000, 100,
            "packets by which it answers a node per second"),
    ])
    .blocks(&[
        block("register", 0..=256,
            &[required("name", ParamKind::Text(NAME), "the name")],
            &[int("socket", 1..=254, 254, "the socket that has it")],
            "a name of a socket of this node"),
        block("lookup", 0..=64,
            &[required("name", ParamKind::Text(NAME), "the name, perhaps with wildcards")],
            &[duration("start", Duration::ZERO, "when it begins")],
            "a name to be looked up once"),
    ])
    .questions(&[
        question("nbp-register", "gives a socket a name"),
        own_question::<NbpRemove>("takes a name away"),
        question("nbp-lookup", "finds the sockets of a name"),
        own_question::<NbpTable>("the node's names, and what was looked up"),
        question("report", "names given and refused, what was found"),
        question("ddp-cable-changed", "from below: a cable's address or networks"),
    ])
    .reasons(&[&protocol::EXISTS, &RATE_LIMITED]);
