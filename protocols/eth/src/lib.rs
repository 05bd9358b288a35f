//! # Synopsis
//! `eth WIRE` — one station on an Ethernet: Ethernet II and IEEE 802.3 with LLC or SNAP.
//!
//! # Participants
//! The hardware address of one station or group, `02:00:00:00:00:01`. The local one may be left
//! open.
//!
//! # Behaviour
//! The type number of a protocol above selects the encapsulation. From 0x600 to 0xffff it is a type
//! of Ethernet II. From 0 to 0xff (without 0xaa) it is an LLC service access point of IEEE 802.3,
//! the same at both ends. From 0x10000 on it is a SNAP protocol: the protocol's number plus 0x10000
//! for Ethernet types (organisation zero), 0x20000 for Apple's protocols, 0x30000 for those of IEEE
//! 802.1, and 0x40000 for Cisco's.
//!
//! There is one session per peer and type number. A frame sent gets a header of 14 octets (17 with
//! LLC, 22 with SNAP), and zeros at the end up to the least length of 60 octets. An arriving frame
//! is accepted if it is addressed to this station, to all, or to a group that was joined; others
//! are refused as "not mine". Joins of a group count, since 32 groups of IPv4 share one address
//! (RFC 1112, section 6.4); each is taken back by one `leave-group`. A frame with this station's
//! address as its source has looped, or comes from another station with the same address; it is
//! dropped as "looped". A frame from a group address or from address zero has a "bad source".
//! Frames to all or to a group get the attribute `link-cast`. In IEEE 802.3 padding is cut off by
//! the length in the frame; in Ethernet II only the layer above can do that. Of LLC, only
//! unnumbered information is accepted (LLC type 1 without XID and TEST). Frames are neither
//! repeated nor ordered.
//!
//! # Example
//! ```kdl
//! host one {
//!     tap  device="tap0"
//!     eth  tap
//!     arp  eth
//!     ip   arp { address "10.0.0.1/24"; }
//! }
//! ```
//!
//! # Standard
//! IEEE 802.3 section 3 (frames), IEEE 802.2 sections 3 and 5 (LLC), RFC 894 and RFC 1042 (IP on
//! both), RFC 1122 section 2.3.3.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod number;
mod protocol;
#[cfg(test)]
mod tests;
pub mod wire;

pub use number::ORGANISATIONS;
pub use protocol::{Eth, build};

use xk_core::Entry;
use xk_core::graph::{
    Family, Guarantees, ParamKind, Realm, Service, StackingRules, int, optional, question,
};
use xk_kit::layer::sessions_max;

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("eth", include_str!("lib.rs"), build)
    .replaceable()
    .summary("one station on an Ethernet: Ethernet II and IEEE 802.3 with LLC or SNAP")
    .above(Family::Ether)
    // Async for what fits any edge: capture, trace, fault.
    .on(&[Realm::Wire, Realm::Async], &[Family::Link])
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE))
    .service(Service::changing(Guarantees::NONE, Guarantees::EXACT))
    .header_octets(wire::HEADER_LEN)
    .takes_numbers(
        |number| wire::Selector::from_number(number).is_some(),
        "an Ethernet type, 0x600 to 0xffff; a service access point, 0 to 0xff without 0xaa; or a \
         number of SNAP: `xk help eth`",
    )
    .stacking_rules(&StackingRules { own_address: Some("address"), ..StackingRules::NONE })
    .parameters(&[
        optional("address", ParamKind::Text("a hardware address, such as 02:00:00:00:00:01"),
            "the station's hardware address, in place of the wire's; if neither gives one, a local \
             one is drawn"),
        sessions_max(65_536),
        int("idle_max", 1..=16_777_216, 4096,
            "from how many sessions on each that a frame makes takes the place of an idle one"),
        int("passive_max", 0..=16_777_216, 0,
            "how many sessions frames may make for one protocol above; 0: as many as it holds"),
        int("groups_max", 0..=65_536, protocol::GROUPS_MAX as i64,
            "how many group addresses it lists; while more are joined it takes frames to all groups"),
        xk_kit::net::drop_sources::PARAMETER,
    ])
    .questions(&[
        question("my-ether", "this station's address"),
        question("peer-ether", "the peer's address, of a session"),
        question("link-type", "that of the payload, of a session"),
        question("join-group", "takes frames to this group as well, as the wire does from then on"),
        question("leave-group", "takes one join back; with the last one frames to the group are refused"),
    ])
    .reasons(&[&protocol::LOOPED]);
