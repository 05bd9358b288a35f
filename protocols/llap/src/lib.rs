//! # Synopsis
//! `llap WIRE` — LLAP: the nodes of a LocalTalk, one of which this becomes.
//!
//! # Participants
//! Nodes, `node18@net10`; the network is ignored, because a LocalTalk is one network. `node255` is
//! all nodes. The local participant is left open.
//!
//! # Behaviour
//! Any link whose frames are kept as they are can stand below it, such as `ltoudp`.
//!
//! The layer above asks by `claim-node` for a node number. `llap` asks the other nodes ten times,
//! 100 ms apart, whether one of them has it. If one answers, uses the number or asks for it as
//! well, `llap` draws another number; if no other number is allowed, it tries again after 10 s. It
//! reports its number by `node-claimed`. From then on it answers requests for the number; another
//! node that uses it is counted as "node conflict". Until then messages wait (`waiting_max`, the
//! oldest dropped as "queue full").
//!
//! Datagrams are sent with the short header if both ends are in one network, otherwise with the
//! long one. A datagram that arrives with the short header gets the long one, with the claimed
//! network, so that the layer above sees only long headers. Frames for other nodes are counted as
//! "not mine".
//!
//! It is a `Machine` of the kit and no `Layer`: its sessions lead to nodes and are no
//! conversations, and its numbers are not those of protocols.
//!
//! # Example
//! ```kdl
//! host one {
//!     ltoudp
//!     llap ltoudp
//!     ddp  llap net=10
//! }
//! ```
//!
//! # Standard
//! Inside AppleTalk, second edition, chapter 1, without the access to the cable (`lapRTS`,
//! `lapCTS`), which UDP does not need.
#![no_std]

extern crate alloc;

mod protocol;
mod session;
pub mod wire;

pub use protocol::{CONFLICT, Llap, NO_NUMBER, Settings, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("llap", include_str!("lib.rs"), build)
    .summary("LLAP: the nodes of a LocalTalk")
    .above(Family::Other("AppleTalk nodes"))
    .on(&[Realm::Async, Realm::Wire], &[Family::Link])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::LAYER)
    .header_octets(wire::HEADER_OCTETS)
    .parameters(Settings::PARAMETERS)
    .questions(&[question("claim-node", "begins to be a node, and answers for it")])
    .reasons(&[&protocol::CONFLICT, &protocol::NO_NUMBER]);
