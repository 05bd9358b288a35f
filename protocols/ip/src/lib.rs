//! # Synopsis
//! `ip LOWER...` — the Internet Protocol, version 4: one host, or a router if `forward=#true`.
//!
//! # Participants
//! `10.0.0.1, 10.0.0.2`: the local host or `*` (then the route to the peer chooses the source), and
//! the peer's host: one host, a broadcast or a group. `open_enable` takes the local host or `*`.
//!
//! # Behaviour
//! - The interfaces below, in the graph's order, are `arp` instances, other layers that take IPv4
//!   hosts, or links with one peer. Each is opened with the interface's own host and the next hop;
//!   a link with one peer ignores both.
//! - A datagram that fits the path goes down in one piece; a longer one goes in fragments, without
//!   a copy, unless it must not be fragmented. Identifications count up per source, destination and
//!   protocol, from a start that depends on a secret of this boot (RFC 6864, section 4.2; RFC 7739,
//!   section 5.3). So no peer can predict those to another host, and none repeats within 65,536
//!   datagrams. A datagram that must not be fragmented carries 0 (RFC 6864, section 4.1). Datagrams
//!   are not delayed if they are sent faster than identifications allow.
//! - Fragments are reassembled without a copy. If two overlap, the whole datagram is dropped, as
//!   RFC 5722 demands for version 6. Memory, datagrams and fragments of each are bounded: the
//!   oldest incomplete datagram is dropped for the newest, one of the same source if the source has
//!   its share. Fragments of at most 128 octets are copied, so that none keeps the buffer of a
//!   whole frame. The time limit is 60 s (RFC 1122, section 3.3.2: 60 to 120 s).
//! - Routes are found by longest prefix, then least metric. The session to the next hop is opened
//!   with the session above it, and again after the routes have changed.
//! - Hosts follow the weak model (RFC 1122, section 3.3.4.2): a datagram to any address of the host
//!   is accepted on any interface. Packets to its own addresses and to 127/8 never leave it.
//! - Packets to a group are taken on the interfaces where it was joined, from the sources that one
//!   of the joins wants (RFC 3376, section 3.2): by `group` in the graph or by `join-host`. The
//!   layer below is told of the first join and the last leave. Packets to a group go out by the
//!   interface of the host that they come from, else by that of a route to it (the default route is
//!   none), else by the first, with a time to live of 1, unless their sender asks for another. If
//!   the group is joined on that interface, a copy goes to this host as well. Routers hear of
//!   memberships from a protocol above that asks to be told of them (`igmp`).
//! - Packets that a protocol above refuses, that cannot be forwarded or that are not reassembled in
//!   time go to the error protocol (`icmp`), if one has registered.
//! - With `forward=#true`: time to live, options (record route, time stamp), fragmentation.
//!   Link-layer and directed broadcasts are not forwarded (RFC 2644), nor are groups, link-local
//!   hosts and source routes. Redirects are never sent.
//! - A reported path MTU is remembered for 10 minutes (RFC 1191), and is never below 68 octets.
//!
//! # Example
//! ```kdl
//! host one {
//!     loopback
//!     eth  loopback
//!     arp  eth
//!     ip   arp {
//!         address "10.0.0.1/24"
//!         route "default" via="10.0.0.254"
//!     }
//!     icmp ip
//! }
//! ```
//!
//! # Standard
//! RFC 791, RFC 1112 (IGMP is `igmp`'s), RFC 1122 section 3, RFC 1812 (forwarding), RFC 1191, RFC
//! 1624, RFC 2113, RFC 6864.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod config;
mod control;
mod errors;
mod forward;
mod fragment;
mod groups;
mod identification;
mod interface;
mod path;
mod protocol;
mod reassembly;
mod receive;
mod route;
mod session;
mod shared;
pub mod wire;

pub use control::{
    AddRoute, DontFragment, InterfaceInfo, IpFigures, ListInterfaces, ListRoutes, RemoveRoute,
    RouteInfo,
};
pub use protocol::{Ip, build};
pub use shared::reasons;

use xk_core::Entry;
use xk_core::graph::{
    Family, Guarantees, ParamKind, ParamSpec, Realm, Service, StackingRules, block, int, optional,
    own_question, question, required,
};

#[rustfmt::skip]
const ON: ParamSpec = optional("on", ParamKind::Text("the name of a protocol below, such as arp"),
    "the interface");

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::layer("ip", include_str!("lib.rs"), build)
    .replaceable()
    .summary("the Internet Protocol, version 4: host or router")
    .above(Family::Host)
    .on(&[Realm::Async, Realm::Wire], &[Family::Host, Family::Link])
    .lowers(1..=16)
    .needs(Guarantees::SESSIONS.and(Guarantees::WHOLE).and(Guarantees::NEIGHBOURS))
    .service(Service::changing(
        Guarantees::EXACT.and(Guarantees::REPLY).and(Guarantees::ROUTES).and(Guarantees::HOSTS),
        Guarantees::NEIGHBOURS))
    .header_octets(wire::HEADER_LEN)
    .takes_numbers(|number| number <= 0xff, "a protocol number, 0 to 255")
    .stacking_rules(&StackingRules { own_address: Some("address"), ..StackingRules::NONE })
    .numbers(&[
        // IANA, EtherTypes.
        ("eth", 0x0800),
        ("null", 0x0800),
    ])
    .parameters(config::Config::PARAMETERS)
    .blocks(&[
        block("address", 1..=256,
            &[
                required("address", ParamKind::Text(config::ADDRESS_EXPECTED),
                    "a host of ours and its network"),
            ],
            &[ON],
            "a host of ours and its network; on the first interface if not said"),
        block("route", 0..=route::ROUTES_MAX,
            &[
                required("network", ParamKind::Text(config::NETWORK_EXPECTED), "where to"),
            ],
            &[
                optional("via", ParamKind::Text(config::VIA_EXPECTED),
                    "the router on the way; without it the network is on the link"),
                ON,
                int("metric", 0..=4_294_967_295, 1, "the least one wins among equal prefixes"),
            ],
            "a way to a network, or `default`; without `on`, over the interface whose network \
             `via` lies in"),
        block("group", 0..=256,
            &[
                required("group", ParamKind::Text(config::GROUP_EXPECTED),
                    "a group to take packets of"),
            ],
            &[],
            "a group to take packets of from the start on, on all interfaces; 224.0.0.1 is always \
             taken"),
    ])
    .questions(&[
        question("my-host", "the local host; of the protocol: its first one"),
        question("peer-host", "of a session: the peer"),
        question("specific-destination",
            "of a session: where what arrives was sent to, and whether that is a broadcast or a \
             group"),
        question("peer-proved", "of a session: the peer is this host"),
        question("max-packet", "65515: the longest datagram less its header"),
        question("opt-packet", "the path's maximum less the header"),
        question("keep-whole",
            "of a session: from now on nothing is fragmented, and routers are told not to"),
        question("alert-routers", "of a session: from now on routers are to look at its packets"),
        question("pseudo-header", "of a session: sum over both hosts and the protocol number"),
        question("is-local-host", "whether a packet to this host is delivered here"),
        question("is-group", "whether this host is a broadcast or a group"),
        question("join-host", "takes packets to a group as well, from some sources or all"),
        question("leave-host", "takes a join with the same fields back"),
        question("watch-groups", "tells a protocol of every change of groups and their sources"),
        question("host-route", "over which layer a host is reached, and whether directly"),
        question("deliver-error", "passes an error on to who sent the packet"),
        question("register-error-protocol", "who tells senders of errors"),
        own_question::<AddRoute>("adds a way to a network"),
        own_question::<RemoveRoute>("removes a way to a network"),
        own_question::<ListRoutes>("all routes, longest prefix first"),
        own_question::<ListInterfaces>("all interfaces with their hosts"),
        own_question::<IpFigures>("what it has forwarded, cut and put together"),
        question("network-error", "from below: the next hop does not answer"),
        question("send-error", "from below: a packet that could not go"),
        question("host-conflict", "from below: another station has our host"),
    ])
    .reasons(&[
        &reasons::MARTIAN, &reasons::LINK_BROADCAST, &reasons::BAD_OPTION, &reasons::SOURCE_ROUTE,
        &reasons::TTL_EXCEEDED, &reasons::NO_ROUTE, &reasons::NOT_SENT, &reasons::OVERLAP,
        &reasons::DUPLICATE, &reasons::TOO_LONG, &reasons::TOO_MANY_FRAGMENTS, &reasons::EVICTED,
        &reasons::TIMED_OUT, &reasons::UNMATCHED_ERROR,
    ]);
