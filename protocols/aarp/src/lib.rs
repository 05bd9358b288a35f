//! # Synopsis
//! `aarp ETH` — finds the hardware addresses of AppleTalk nodes on an Ethernet, gets an address of
//! its own, and leads datagrams there.
//!
//! # Participants
//! Nodes, `node18@net10`; `node255` of any network is all nodes. Instead of a node a hardware
//! address, such as `09:00:07:00:00:f9`, leads to that station or group. The local one is left
//! open.
//!
//! # Above
//! Any protocol of the async realm that speaks of AppleTalk nodes and has a type number on the
//! layer below, as `ddp` has: `aarp` puts no header of its own on messages.
//!
//! # Below
//! One protocol of the async realm that takes hardware addresses, and groups.
//!
//! # Behaviour
//! The layer above asks it by `claim-node` to be a node of some networks. It chooses one, sends ten
//! probes 200 ms apart, and tells by `node-claimed` when no other node has answered; an address
//! that another node has or probes for is left for another one, a given one is tried again after
//! ten to twenty seconds. So is any after ten conflicts in a row. From then on requests and probes
//! for it are answered; another node that uses it all the same is counted as "node conflict". If it
//! does so again within ten seconds, a node that was not given its number chooses another one, once
//! in a minute at most, and uses the old one until it has that.
//!
//! A session leads to one node. Messages to a node whose hardware is not known wait (`queue_max`
//! per session and `waiting_max` in all, the oldest dropped as "queue full") while it is asked for
//! ten times, 200 ms apart, and are dropped as "unresolved" if it keeps silent. Those that come
//! before there is an address of one's own wait for that, if one is claimed. A node is believed for
//! a minute, then asked directly while it is used, and forgotten if it keeps silent.
//!
//! Requests and responses teach the hardware of their senders if these are known, asked for, or ask
//! for this node; probes teach nothing, and have another station's entry forgotten. When the table
//! is full, the node goes that was used longest ago. At most half of it is for nodes that are asked
//! for: beyond that the one is given up that has been asked for longest.
//!
//! What nodes send comes up to the protocol above from the layer below, not through `aarp`. It is
//! no `Layer` of the kit, since its messages have no header of its own.
//!
//! # Example
//! ```kdl
//! host one {
//!     tap  device="tap0"
//!     eth  tap
//!     aarp eth
//!     ddp  aarp net="10-19" node=17
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 2, "AppleTalk Address Resolution Protocol", and
//! chapter 3. Not covered: other hardware than Ethernet; learning from data packets.
#![no_std]

extern crate alloc;

mod protocol;
mod session;
mod shared;
pub mod wire;

pub use protocol::{Aarp, build};
pub use shared::{AarpTable, CONFLICT, LOOPED, NO_ADDRESS, UNRESOLVED, UNSOLICITED};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, Shape, own_question, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("aarp", include_str!("lib.rs"), build)
    .replaceable()
    .summary("finds the hardware addresses of AppleTalk nodes, and gets one an address")
    .above(Family::Other("AppleTalk nodes"))
    .on(&[Realm::Async], &[Family::Ether])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::changing(Guarantees::NONE, Guarantees::REPLY))
    // Packets of its own have a header; messages of those above have none.
    .shape(Shape::Virtual)
    // SNAP: organisation zero, EtherType 0x80f3.
    .numbers(&[("eth", 0x0001_80f3)])
    .parameters(shared::Config::PARAMETERS)
    .questions(&[
        question("claim-node", "begins to be a node, answers for it and defends it"),
        question("peer-ether", "the peer's address, of a session"),
        own_question::<AarpTable>("its own address, and the nodes it knows or asks for"),
    ])
    .reasons(&[
        &shared::CONFLICT, &shared::UNSOLICITED, &shared::UNRESOLVED, &shared::NO_ADDRESS,
        &shared::LOOPED,
    ]);
