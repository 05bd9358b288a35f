//! # Synopsis
//! `vipaddr LINK NET` — hosts, reached over the link or by IP as is decided once, when a session is
//! opened; no header, and no sessions.
//!
//! # Participants
//! Hosts, as on `ip`: `10.0.0.2`. The local one may be left open.
//!
//! # Above
//! As for `vip`: any protocol of the async realm that has a type number on `ip` and depends on IP
//! for nothing but delivery; `vipsize` or `fragment`, usually.
//!
//! # Below
//! Two protocols of the async realm that take hosts: first the one above the link, `arp`, or
//! `vipadv` above that; then the one that reaches all, `ip`.
//!
//! # Behaviour
//! `open` gives the session of the layer below: the link's if the host is on the link, answers for
//! its address, and runs virtual protocols as far as that is known; else IP's. What the upper
//! protocol sends does not pass here. While the host is being asked for, `open` waits, at most
//! `wait`; a shepherd that cannot wait, and one that asks again for a host that was not there less
//! than 20 seconds ago, gets IP's session. An upper protocol that may push more than a frame
//! carries (`largest-push`) gets IP's as well.
//!
//! An offer is made to both layers. Ethernet knows stations and not hosts, so what arrives over the
//! link passes here once, to be shown to the upper protocol as coming through the session to the
//! host. What comes from a station of which it is not known which host it is, is refused ("unknown
//! station").
//!
//! The skeleton of virtual layers (`xk_kit::net::virtual_layer`) does not fit: it makes a session
//! of the layer's own for each host, through which every message passes, and the point of this
//! layer is that it has none. It shares the objects that receive for each upper protocol. Messages
//! that come while it is asked whose a station is wait for the answer, in their order.
//!
//! A session stays what it is: a host that moves off the link is reached again by a session opened
//! after that. The upper protocol is told (`way-changed`) whenever more or less is known of a host,
//! and may open again; `vipsize` does. Where that does not do, `vip` does. A station that becomes
//! another host is shown as that one from then on.
//!
//! # Control
//! The protocol answers `list-maps` and forwards the rest to `ip`; from below it takes
//! `host-changed`, asks `way-changed` above, and passes `network-error` and `is-outstanding` on to
//! the upper protocol. It refuses upper protocols that answer `needs-pseudo-header`.
//!
//! # Example
//! ```kdl
//! host one {
//!     tap     device="tap0"
//!     eth     tap
//!     arp     eth
//!     ip      arp { address "10.0.0.1/24"; }
//!     vipaddr arp ip
//!     fragment vipaddr
//!     echo fragment
//! }
//! ```
//!
//! # Standard
//! Hutchinson, Peterson, Abbott and O'Malley, "RPC in the x-Kernel: Evaluating New Design
//! Techniques" (1989), section 4.3.
#![no_std]

extern crate alloc;

mod protocol;
mod shared;

pub use protocol::{VipAddr, add, build};

/// Offset that is added to numbers on IP unless the graph says otherwise.
pub const ETHER_BASE: u32 = 0x3900;

use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, Shape, duration, int, question};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("vipaddr", include_str!("lib.rs"), build)
    .summary("hosts, reached over the link or by IP as is decided once, when a session is opened")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Host])
    .lowers(2..=2)
    .needs(Guarantees::SESSIONS)
    .needs_each(xk_kit::net::receivers::LINK_AND_NET)
    .service(Service::changing(Guarantees::REPLY, Guarantees::INSTANT))
    .shape(Shape::Virtual)
    .stacking_rules(&xk_kit::net::receivers::LINK_OR_NET)
    .parameters(&[
        int("ether_base", 0x0600..=0xff00, ETHER_BASE as i64,
            "the type number on Ethernet of the upper protocol whose number on `ip` is 0; those of \
             256 follow"),
        duration("wait", protocol::WAIT,
            "how long `open` waits for a host's address at most; 0s: not at all").or_zero(),
    ])
    .questions(&[question("list-maps", "heard: sessions of the link layer")]);
