//! # Synopsis
//! `vipaddr LINK NET` — hosts, reached over the link or by IP as is decided once, when a session is
//! opened; no header, and no sessions.
//!
//! # Participants
//! Hosts, as on `ip`: `10.0.0.2`. The local one may be left open.
//!
//! # Behaviour
//! For the layers above and below holds what `vip` says; above stands usually `vipsize` or
//! `fragment`.
//!
//! `open` gives the session of the layer below: the link's if the host is on the link, answers for
//! its address, runs virtual protocols as far as that is known, and the upper protocol pushes no
//! more than a frame carries (`largest-push`); else IP's. While the host is being asked for, `open`
//! waits, at most `wait`; a shepherd that cannot wait, and one that asks within 20 seconds for a
//! host that was not there, gets IP's session. What the upper protocol sends does not pass here.
//!
//! An offer is made to both layers. Ethernet knows stations and not hosts, so what arrives over the
//! link passes here, to be shown to the upper protocol as coming through the session to the host.
//! Messages that come while it is asked whose a station is wait for the answer, in their order. A
//! message from a station that is not known as a host is refused ("unknown station").
//!
//! The skeleton of virtual layers (`xk_kit::net::virtual_layer`) does not fit: every message passes
//! through its sessions, and the point of this layer is that it has none.
//!
//! A session stays as it is: a host that moves off the link is reached by a session opened after
//! that. The upper protocol is told (`way-changed`) whenever more or less is known of a host, and
//! may open again; `vipsize` does. Where that does not do, `vip` does. A station that becomes
//! another host is shown as that one from then on.
//!
//! Questions go to `ip`. From below it takes `host-changed`, asks `way-changed` above, and passes
//! `network-error` and `is-outstanding` on to the upper protocol. It refuses upper protocols that
//! answer `needs-pseudo-header`.
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

mod protocol;
mod shared;

use crate::ETHER_BASE_PARAM;
use core::time::Duration;
use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Realm, Service, Shape, duration, question};
use xk_kit::net::receivers;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("vipaddr", include_str!("vipaddr.rs"), protocol::build)
    .summary("hosts, reached over the link or by IP as is decided once, when a session is opened")
    .above(Family::Host)
    .on(&[Realm::Async], &[Family::Host])
    .lowers(2..=2)
    .needs(Guarantees::SESSIONS)
    .needs_each(receivers::LINK_AND_NET)
    .service(Service::changing(Guarantees::REPLY, Guarantees::INSTANT))
    .shape(Shape::Virtual)
    .stacking_rules(&receivers::LINK_OR_NET)
    .parameters(&[
        ETHER_BASE_PARAM,
        duration("wait", Duration::from_secs(3),
            "how long `open` waits for a host's address at most; 0s: not at all").or_zero(),
    ])
    .questions(&[question("list-maps", "heard: sessions of the link layer")]);
