//! # Synopsis
//! `vip LINK NET` — hosts, reached over the link where they are on it and by IP where they are not;
//! no header.
//!
//! # Participants
//! Hosts, as on `ip`: `10.0.0.2`. The local host may be left open.
//!
//! # Behaviour
//! The protocol above has a type number on `ip`, and needs nothing of IP but delivery. So `tcp`,
//! whose segments take their length from IP, and `icmp` cannot stand here. The protocol's number on
//! Ethernet is its number on `ip` plus `ether_base`, unless the table or the graph gives another.
//! Messages may overtake one another, and short ones may have padding behind them: the protocol
//! must bear the first, and know the length of its messages if it cannot bear the second. `udp`
//! does both: a datagram that fits a frame goes in one, with the checksum that it would have in an
//! IP packet. A peer with several addresses has the address by which the two hosts spoke first;
//! datagrams to its other addresses are refused, because their checksums differ.
//!
//! Two layers stand below: first `arp`, or `vipadv` on `arp`; then `ip`, which reaches all hosts.
//!
//! `open` asks the upper protocol for its largest message (`largest-push`), and IP whether the host
//! is on the link. If it is, `open` opens a session over the link, and asks for the host's hardware
//! address unless that was done within the last 20 seconds. Messages go by IP until the address is
//! known. From then on those that fit a frame go over the link, at the price of one comparison. The
//! session by IP is opened when it is first needed. `vipadv` has a table of the hosts that run this
//! protocol, and all others are reached by IP alone; with `arp`, every host is taken to run it.
//!
//! The choice is made again whenever `arp` or `vipadv` reports a change of the host, and every 20
//! seconds. A host that vanishes, moves off the link, gets another address or stops running this
//! protocol is reached by IP from the next message on, and over the link again when that is
//! possible; no session closes.
//!
//! An offer is made to both layers below. A peer has one session, by whichever of the two its
//! messages come. A message from a station that is not known as a host is refused ("unknown
//! station"). Broadcasts and groups are reached over the link alone, by upper protocols whose every
//! message fits a frame.
//!
//! Other questions go to the session below that is in use, or to `ip`. From below the protocol
//! takes `host-changed`, and passes `network-error` and `is-outstanding` on to the session's upper
//! protocol. A session that was asked for `pseudo-header` has the same local host over both layers
//! from then on. Upper protocols that answer `needs-pseudo-header` are refused.
//!
//! # Example
//! ```kdl
//! host one {
//!     tap   device="tap0"
//!     eth   tap
//!     arp   eth
//!     ip    arp { address "10.0.0.1/24"; }
//!     vip   arp ip
//!     fragment vip
//!     echo fragment
//! }
//! ```
//!
//! # Standard
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel: Evaluating New Design
//! Techniques" (1989), sections 3.1 and 5. The range of type numbers, 0x3900 to 0x39ff, is assigned
//! to no protocol; Ethernet's registry knows none there.
#![no_std]

extern crate alloc;

mod below;
mod lowers;
mod protocol;
pub mod vipaddr;
pub mod vipadv;
pub mod vipsize;

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, ParamSpec, Realm, Service, Shape, int, question};
use xk_kit::net::{receivers, virtual_layer};

/// Offset from an upper protocol's number on `ip` to its number on Ethernet, unless the graph says
/// otherwise; also the protocol type by which hosts say that they run virtual protocols.
pub const ETHER_BASE: u16 = 0x3900;

#[rustfmt::skip]
const ETHER_BASE_PARAM: ParamSpec = int("ether_base", 0x0600..=0xff00, ETHER_BASE as i64,
    "the type number on Ethernet of the upper protocol whose number on `ip` is 0; those of 256 \
     follow");

/// The catalog entry. A program without a graph file gives the protocols above their numbers on
/// Ethernet by [`receivers::LINK_OR_NET`], as the check of a graph does.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("vip", include_str!("lib.rs"), protocol::build)
    .summary("hosts, reached over the link where they are on it and by IP where they are not")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Host])
    .lowers(2..=2)
    .needs(Guarantees::SESSIONS)
    .needs_each(receivers::LINK_AND_NET)
    .shape(Shape::Virtual)
    .service(Service::adding(Guarantees::REPLY))
    .stacking_rules(&receivers::LINK_OR_NET)
    .parameters(&[ETHER_BASE_PARAM, virtual_layer::SESSIONS_MAX, virtual_layer::IDLE_MAX])
    .questions(&[
        question("peer-host", "the peer, of a session"),
        question("my-host", "our host towards it"),
        question("pseudo-header",
            "the sum over both hosts and the number of the upper protocol on `ip`"),
        question("peer-on-link", "whether the peer is on the link now"),
        question("max-packet", "the largest message that one of the ways takes"),
        question("opt-packet", "the largest message that goes whole by the way that is used"),
        question("describe", "a session's host and its ways"),
        question("list-sessions", "one for each host and upper protocol"),
        question("list-maps", "active: host and upper protocol"),
    ]);
