//! # Synopsis
//! `aarp ETH` — finds the hardware addresses of AppleTalk nodes on an Ethernet, gets an address of
//! its own, and leads datagrams there.
//!
//! # Participants
//! Nodes, `node18@net10`; `node255` of any network is all nodes. A hardware address in place of a
//! node, such as `09:00:07:00:00:f9`, is that station or group. The local participant is left open.
//!
//! # Behaviour
//! The layer below takes hardware addresses, and groups.
//!
//! The layer above asks by `claim-node` for an address in some networks. `aarp` chooses one, sends
//! ten probes 200 ms apart, and reports it by `node-claimed` if no other node has answered. If
//! another node has the address or probes for it, `aarp` chooses another one. An address given in
//! the graph is tried again after ten to twenty seconds, and so is any after ten conflicts in a
//! row.
//!
//! From then on requests and probes for the address are answered. Another node that uses it is
//! counted as "node conflict". If that happens again within ten seconds, and the node number was
//! not given, `aarp` probes for a new one, at most once in a minute, and uses the old one
//! meanwhile.
//!
//! A session leads to one node. While the node's hardware address is not known, messages wait
//! (`queue_max` per session and `waiting_max` in all, the oldest dropped as "queue full"), and ten
//! requests are sent, 200 ms apart. Without a response the messages are dropped as "unresolved".
//! Messages also wait while this node has claimed an address and not got it yet. An entry is valid
//! for a minute; then, while it is in use, the node is asked directly, and forgotten if it does not
//! respond.
//!
//! Requests and responses update the entry of their sender if it exists or is being resolved; a
//! request for this node makes a new one. Probes make none, and remove another station's entry.
//! When the table is full, the entry used longest ago is evicted. At most half of the table is for
//! nodes being resolved; beyond that the oldest of them is given up.
//!
//! Messages from nodes come up to the protocol above from the layer below, not through `aarp`. So
//! `aarp` has no header and is no `Layer` of the kit, but a `Machine`.
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
pub mod wire;

pub use protocol::{Aarp, AarpTable, CONFLICT, LOOPED, NO_ADDRESS, UNRESOLVED, UNSOLICITED, build};

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
    .parameters(protocol::Config::PARAMETERS)
    .questions(&[
        question("claim-node", "begins to be a node, answers for it and defends it"),
        question("peer-ether", "the peer's address, of a session"),
        own_question::<AarpTable>("its own address, and the nodes it knows or asks for"),
    ])
    .reasons(&[
        &protocol::CONFLICT, &protocol::UNSOLICITED, &protocol::UNRESOLVED, &protocol::NO_ADDRESS,
        &protocol::LOOPED,
    ]);
