//! # Synopsis
//! `vipaddr LINK NET` — hosts, reached over the link or by IP; the choice is made once, when a
//! session is opened; no header, and no sessions.
//!
//! # Participants
//! Hosts, as on `ip`: `10.0.0.2`. The local host may be left open.
//!
//! # Behaviour
//! The layers above and below are as for `vip`; `vipsize` or `fragment` usually stands above.
//!
//! `open` returns a session of a layer below. It is the link's if four conditions hold: the host is
//! on the link, it answers for its address, it runs virtual protocols as far as is known, and the
//! upper protocol pushes no more than a frame carries (`largest-push`). Otherwise it is IP's. While
//! the host's address is resolved, `open` waits, at most `wait`. A shepherd that cannot wait, or
//! that opens a host within 20 seconds after it did not answer, gets IP's session. Messages of the
//! upper protocol do not pass through this layer.
//!
//! An offer is made to both layers. Ethernet knows stations and not hosts, so messages that arrive
//! over the link pass through this layer, which passes them up as from the session to the host.
//! While it asks for the host of a station, the messages of that station wait for the answer, in
//! their order. A message from a station that is not known as a host is refused ("unknown
//! station").
//!
//! The skeleton of virtual layers (`xk_kit::net::virtual_layer`) does not fit: every message passes
//! through its sessions, and the point of this layer is that it has none.
//!
//! A session does not change: a host that moves off the link is reached by a session opened
//! afterwards. The upper protocol is told of every change (`way-changed`), and may open again, as
//! `vipsize` does; an upper protocol that does not should stand on `vip`. If a station becomes
//! another host, its later messages come from that host.
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
