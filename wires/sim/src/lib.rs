//! # Synopsis
//! `sim link=NAME` — an Ethernet interface of a host in a simulated network, in virtual time.
//!
//! # Participants
//! None: what is sent goes into the link.
//!
//! # Behaviour
//! A [`World`] has hosts, each a kernel, and a [`Network`] of links between them. It has no clock:
//! time jumps from one event to the next, and the same seed repeats a run to the bit, captures
//! included.
//!
//! A link is one of three kinds. All carry a frame of `n` octets in `8 n / rate` seconds, without
//! preamble, gap and check sequence, or in no time if they have no rate. Frames wait for their turn
//! in one of the port's `queue` places; if there is none, a frame is dropped and counted as "queue
//! full".
//!
//! - `switch`: every port is a full-duplex line to a switch, which stores each frame, learns where
//!   its source is (at most `addresses` stations, for `ageing`), and sends it out of the
//!   destination's port, or of all others if it knows none or the destination is a group. At each
//!   port out, frames wait for their turn again. With `snooping` it reads the IGMP messages of
//!   members and routers, and sends the frames of an IPv4 group only to their ports, as long as a
//!   router sends queries. Frames of other groups, of 224.0.0.x, and of members for which its table
//!   of `addresses` entries has no room, go to all ports.
//! - `hub`: one medium for all; one frame at a time, first come first served. All other ports
//!   receive it.
//! - `pointtopoint`: two ports, one line each way.
//!
//! A frame arrives `delay` after its last bit was sent. On the way it may meet, for each receiver,
//! a partition in force, `loss`, `corrupt` (one bit flipped, in a private copy), `duplicate`, and a
//! later delivery by `jitter` (a uniform part of it, drawn for each frame, so frames may overtake
//! one another) and by `reorder` (this share of the frames comes `reorder_delay` later). All chance
//! comes from one stream of random numbers per link, which depends only on the seed and the link's
//! name.
//!
//! Buffers cross a link without a copy; attributes do not cross it.
//!
//! While `queue` frames wait at its port, `wire-room` says how long until one of them leaves.
//!
//! # Example
//! ```kdl
//! link "lan" kind="switch" delay="50us" rate="100Mbit" loss="1%" {
//!     partition from="10s" until="20s" between="a"
//! }
//! host a {
//!     sim link="lan"
//!     eth sim
//! }
//! ```
//!
//! # Standard
//! IEEE 802.1D-2004 section 7.8 (learning) and 7.9 (ageing); RFC 4541 section 2.1 (snooping).

mod config;
mod digest;
mod line;
mod link;
mod network;
mod prefetch_unsafe;
mod protocol;
mod queue;
mod snooping;
mod stations;
mod stats;
mod world;

pub use config::{LINKS, LinkConfig, LinkKind, Partition, QUEUE_FRAMES_DEFAULT};
pub use digest::Digest;
pub use network::{HostId, IN_FLIGHT_MAX, LinkError, LinkId, Network, Sighting, Tap};
pub use protocol::HostSeat;
pub use stats::{LinkStats, WorldStats};
pub use world::{Ended, Progress, World};

use xk_core::Entry;
use xk_core::graph::{ParamKind, StackingRules, optional, required};
use xk_kit::wire::entry::{address, ethernet, station};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = ethernet("sim", include_str!("lib.rs"), protocol::build)
    .summary("an interface on a simulated link")
    .links(&LINKS)
    .stacking_rules(&StackingRules { own_address: Some("address"), ..StackingRules::NONE })
    .parameters(&[
        required("link", ParamKind::Text("a link's name"), "the link that it hangs on"),
        address("its hardware address; if not given, one made of the host's number and how many \
             interfaces it has"),
        optional("mtu", ParamKind::Octets,
            "the largest payload of a frame, in octets; never more than the link's"),
    ])
    .probe(|params, _| station(params).map(drop))
    .reasons(&[&network::IN_FLIGHT_FULL, &world::NO_SHEPHERDS, &world::pause::PAUSED_FULL]);

#[cfg(test)]
mod tests;
