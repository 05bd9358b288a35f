//! # Synopsis
//! `vip LINK NET` — hosts, reached over the link where they are on it and by IP where they are not;
//! no header.
//!
//! # Participants
//! Hosts, as on `ip`: `10.0.0.2`. The local one may be left open.
//!
//! # Above
//! Any protocol of the async realm that has a type number on `ip` and depends on IP for nothing but
//! delivery. Its number on Ethernet follows: `ether_base` more, unless the table or the graph gives
//! it one. Not `tcp` (it takes the length of its segments from IP) and `icmp`. An upper protocol
//! must know the length of its messages itself, or bear octets behind them: short frames arrive
//! padded. It must bear messages that overtake one another, since two ways may lead to one peer.
//! `udp` has a length and ports of its own: what fits a frame goes in one, with the checksum that
//! it would have in an IP packet, and larger datagrams by IP. A host with several addresses is to
//! one peer the first by which the two spoke; its datagrams to the others are refused, for their
//! checksum is another.
//!
//! # Below
//! Two protocols of the async realm that take hosts: first the one above the link, `arp`, or
//! `vipadv` above that; then the one that reaches all, `ip`.
//!
//! # Behaviour
//! At `open` it asks the upper protocol for its largest message (`largest-push`), and IP whether
//! the host is on the link. If so it opens the way over the link, and asks for the host's address
//! unless it did within the last 20 seconds. Until the address is known, messages go by IP; from
//! then on those that fit the link's frames go over the link, and all others by IP. That is one
//! comparison for each message. The way by IP is opened only when it is needed. Where the link has
//! a table of the hosts that run this protocol (`vipadv`), the others are reached by IP alone;
//! without one, all are taken to run it.
//!
//! All this is looked at again whenever the layer above the link knows more or less of the host,
//! and every 20 seconds: a host that vanishes, moves off the link, gets another address or stops
//! running this protocol is reached by IP from the next message on, and over the link again when
//! that is possible; no session closes.
//!
//! An offer is made to both layers below, and messages are taken by whichever way they come; one
//! peer has one session. What comes from a station of which it is not known which host it is, is
//! refused ("unknown station"). 255.255.255.255 and groups are reached over the link alone, by
//! upper protocols whose every message fits a frame.
//!
//! # Control
//! A session answers `peer-host`, `peer-on-link`, `my-host`, `pseudo-header`, `max-packet`,
//! `opt-packet` (those of the way that is used), `describe`, and forwards the rest to that way's
//! session. The protocol answers `list-sessions`, `list-maps`, forwards the rest to `ip`; from
//! below it takes `host-changed`, and passes `network-error` and `is-outstanding` on to the
//! session's upper protocol. A session that was asked for `pseudo-header` is one host of ours by
//! both ways from then on. Upper protocols that answer `needs-pseudo-header` are refused.
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

mod lowers;
mod protocol;

pub use lowers::Vip;
pub use protocol::{add, build};

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, Shape, int, question};

/// Offset that is added to numbers on IP unless the graph says otherwise.
pub const ETHER_BASE: u32 = 0x3900;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("vip", include_str!("lib.rs"), build)
    .summary("hosts, reached over the link where they are on it and by IP where they are not")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Host])
    .lowers(2..=2)
    .needs(Guarantees::SESSIONS)
    .needs_each(xk_kit::net::receivers::LINK_AND_NET)
    .shape(Shape::Virtual)
    .service(Service::adding(Guarantees::REPLY))
    .stacking_rules(&xk_kit::net::receivers::LINK_OR_NET)
    .parameters(&[
        int("ether_base", 0x0600..=0xff00, ETHER_BASE as i64,
            "the type number on Ethernet of the upper protocol whose number on `ip` is 0; those of \
             256 follow"),
        int("sessions_max", 1..=1_048_575, protocol::SESSIONS_MAX as i64, "how many sessions it holds"),
        int("idle_max", 1..=1_048_575, protocol::IDLE_MAX as i64,
            "from how many sessions on each that a message makes takes the place of an idle one"),
    ])
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
