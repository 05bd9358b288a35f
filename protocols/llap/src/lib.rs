//! # Synopsis
//! `llap WIRE` — LLAP: the nodes of a LocalTalk, one of which this becomes.
//!
//! # Participants
//! Nodes, `node18@net10`; the network is not looked at, for a LocalTalk is one. `node255` is all
//! nodes. The local one is left open.
//!
//! # Above
//! One protocol that speaks of AppleTalk nodes: `ddp`.
//!
//! # Below
//! One wire that carries frames of LocalTalk: `ltoudp`; any link whose frames are kept as they are.
//!
//! # Behaviour
//! The layer above asks it by `claim-node` to be a node. It asks the others ten times, 100 ms
//! apart, whether one has the number; if one answers, uses it or asks for it, too, it takes another
//! number by chance, or, if it is to have this one alone, tries again after 10 s. Then it tells by
//! `node-claimed`. From then on it answers for its number; another node that uses it all the same
//! is counted as "node conflict". Messages that come down before wait (`waiting_max`, the oldest
//! dropped as "queue full").
//!
//! Datagrams go with the short header if both ends are of one network, and with the long one
//! otherwise. One that arrives with the short header gets the long one, in the network that was
//! claimed, so that the layer above knows but one. Frames for other nodes are counted as
//! "not mine".
//!
//! It is no `Layer` of the kit: what it opens and what it hears are nodes, not conversations, and
//! its numbers are not those of protocols.
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
//! Inside AppleTalk, second edition, chapter 1, without what shares the cable (`lapRTS`, `lapCTS`):
//! UDP has no use for it.
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
