//! # Synopsis
//! `ddp AARP...` — Datagram Delivery Protocol of AppleTalk: datagrams between sockets of nodes, and
//! between networks where it stands on several links.
//!
//! # Participants
//! A socket of a node of a network, `socket4@node18@net10`.
//!
//! - `open`: local `socket129`, or `*` for a free one from 128 to 254. A network below it in the
//!   local participant, `socket2@*@net20`, chooses the port whose cable has that network. Peer
//!   `socket4@node18@net10`; without `net` it is a node of the cable. `node255` is all nodes; with
//!   a hardware group below the network, `socket2@node255@net0@09:00:07:00:00:f9`, it is all nodes
//!   of a zone.
//! - `open_enable`: `socket4`.
//!
//! A protocol with several types names those beyond its number on top of the local participant,
//! `type5@socket1`.
//!
//! # Behaviour
//! The type number of a protocol above is the protocol type of its datagrams, from 1 to 255. Socket
//! and type together select it.
//!
//! With `net` a node is in these networks; without it in the start-up range, until `set-ddp-cable`
//! gives others. With `node` it has this number, otherwise any. The link below is asked to claim
//! the address; messages wait until it is claimed (`waiting_max`, the oldest dropped as "queue
//! full"). A link that does not claim addresses gives it at once, with node 1 if none is given.
//!
//! Datagrams to nodes of the cable are sent directly. Others go to the router from which datagrams
//! of their network came in the last 40 s (`best_router`), else to the router heard last. A
//! datagram to the node's own address comes up again. A datagram that arrives goes to the session
//! of its sender, else to the protocol enabled for socket and type. For any other socket it is
//! dropped as "no port", and the sender is not told. A refusal of the protocol above is not passed
//! on. With `checksum` datagrams carry one; checksums of arrivals are always verified.
//!
//! With several links it is a router. Each link has a `port` block and networks of its own.
//! Datagrams to other networks are forwarded by the routes that `set-ddp-routes` gives, up to 15
//! times ("too many hops"). A datagram to all nodes of a network goes to all nodes of that cable.
//! Node 0 of one of its networks is the router itself.
//!
//! It is a `Machine` of the kit and no `Layer`: datagrams arrive through other sessions than those
//! that lead to their sender, and carry their own addresses.
//!
//! Enabled protocols are told of a new cable by `ddp-cable-changed`; other questions are forwarded
//! to the first link.
//!
//! # Example
//! ```kdl
//! host one {
//!     sim   link=lan
//!     eth   sim
//!     aarp  eth
//!     ddp   aarp net="10-19" node=17
//!     aep   ddp
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 4. Not covered: the short header, of LocalTalk.
#![no_std]

extern crate alloc;

mod control;
mod hops;
mod ports;
mod protocol;
mod receive;
mod session;
mod shared;
pub mod wire;

pub use protocol::{Ddp, build};
pub use shared::reasons;

use xk_core::Entry;
use xk_core::graph::{
    Family, Guarantees, ParamKind, Realm, Service, block, flag, int, optional, question,
};

/// A range of networks, as a graph gives it.
const NETWORKS: &str = "networks, such as 10-19 or 10, from 1 to 65534";

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("ddp", include_str!("lib.rs"), build)
    .replaceable()
    .summary("Datagram Delivery Protocol of AppleTalk: datagrams between sockets, and routing")
    .above(Family::Other("AppleTalk sockets"))
    .on(&[Realm::Async, Realm::Wire], &[Family::Other("AppleTalk nodes"), Family::Link])
    .lowers(1..=16)
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::adding(Guarantees::EXACT.and(Guarantees::REPLY)))
    .header_octets(wire::LONG_LEN)
    .takes_numbers(|number| matches!(number, 1..=0xff), "a DDP type, 1 to 255")
    // SNAP: Apple's organisation, protocol 0x809b.
    .numbers(&[("eth", 0x0002_809b), ("llap", 2)])
    .parameters(&[
        optional("net", ParamKind::Text(NETWORKS),
            "the networks of the cable; without it, those of nodes that know no router"),
        int("node", 0..=253, 0, "the node number; 0: any"),
        optional("zone", ParamKind::Text("a zone, such as XK"), "the zone that the node is in"),
        flag("best_router", true,
            "whether datagrams go by the router that those of their network came by"),
        flag("checksum", true, "whether datagrams are sent with a checksum"),
        int("sessions_max", 1..=1_048_576, 4096, "how many sessions it holds"),
        int("enables_max", 1..=65_536, 1024, "how many enables it holds"),
        int("waiting_max", 1..=65_536, 256, "how many messages wait for an address of its own"),
        int("routes_max", 0..=65_536, 1024, "how many ways to other networks it holds"),
    ])
    .blocks(&[block("port", 0..=16, &[], &[
        optional("net", ParamKind::Text(NETWORKS), "the networks of its cable"),
        int("node", 0..=253, 0, "the node number there; 0: any"),
        optional("zone", ParamKind::Text("a zone, such as XK"), "the zone of the cable"),
    ], "one for each layer below, in their order, in place of `net`, `node` and `zone`")])
    .questions(&[
        question("ddp-cable", "what is known of a cable"),
        question("set-ddp-cable", "networks and zone of a cable"),
        question("set-ddp-router", "the router heard last"),
        question("set-ddp-routes", "the ways to other networks"),
        question("ddp-routes", "the ways to other networks, as they were told"),
        question("node-claimed", "from below: what came of a claim"),
        question("ddp-ends", "both ends, of a session"),
        question("max-packet", "586 octets"),
        question("opt-packet", "586 octets"),
    ])
    .reasons(&[
        &shared::reasons::HOPS, &shared::reasons::NO_ROUTE, &shared::reasons::CONFLICT,
        &shared::reasons::NO_ADDRESS,
    ]);
