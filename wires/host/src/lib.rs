//! # Synopsis
//! `host-eth local="..." peer="..."` — Ethernet in UDP: frames cross any network in datagrams of
//! the operating system's own sockets, without privilege.
//!
//! # Participants
//! None: a frame goes to the peer behind which its station was heard, or to all.
//!
//! # Above
//! One protocol that makes Ethernet frames: `eth`.
//!
//! # Below
//! Nothing: the system's UDP. For ports without frames see `host-udp`.
//!
//! # Behaviour
//! Each frame is one datagram. With `vni` it has a VXLAN header in front: then
//! `ip link add ... type vxlan id VNI dstport PORT` on Linux is a peer like any other, and peers
//! are told by their host, since such ends send from any port. Without, the datagram is the frame,
//! and peers are told by host and port. Linux leaves checksums inside a tunnel to the device
//! outside; where that is memory (a veth pair, a bridge of containers) they never get computed, and
//! UDP drops what comes so as "bad checksum": `ethtool -K vxlan7 tx off` at Linux's end prevents
//! it.
//!
//! Datagrams from others than the peers are dropped as "bad source", unless `learn` makes each
//! sender a peer, to be forgotten after five silent minutes; 256 peers at most, the most silent of
//! those learned gives way. With one peer every frame goes there. With several the wire learns
//! which station is behind which, for five minutes; frames for groups and for stations not heard of
//! go to all. What one peer sends is not passed on to another: all are to know all.
//!
//! Arrivals are read into message memory, 16 at a time, and where the system joins datagrams of one
//! length (UDP GRO) they are taken apart without copying. What is pushed waits for the end of the
//! turn, or for 128 frames, and goes in batches of 16, runs of one length to one peer as one (UDP
//! GSO), unless the system refuses such runs. 1024 frames wait at most for a full socket; then they
//! are dropped as "device full".
//!
//! With a `vni` the peer may be this system's own VXLAN device, which leaves checksums, and cutting
//! runs of TCP segments, to the interface below; if that is memory too, it is not done. Then frames
//! of up to 64 KiB arrive, and a checksum that is only begun counts as verified. Such a socket has
//! a receive buffer of 4 MiB if it may, unless `buffer` says otherwise.
//!
//! A datagram longer than the way takes is dropped as "too big", unless `fragment` lets the system
//! fragment it. What the network reports about datagrams sent before, such as that no program
//! listens there, is counted ("unreachable") and ends nothing: the peer may come back. Arrivals
//! that the socket had no room for count as "socket buffer full".
//!
//! # Control
//! Answers `max-packet` and `opt-packet` (MTU and Ethernet header), `my-ether`, `link-type` (1),
//! `join-group` (it takes all groups), `describe`, `list-sessions`, `wire-room` (whether a frame
//! for all peers finds a place in the queue).
//!
//! # Example
//! ```kdl
//! host alice {
//!     host-eth local="127.0.0.1:7001" peer="127.0.0.1:7002" vni=7
//!     eth      host-eth
//!     arp      eth
//!     ip       arp { address "10.0.0.1/24"; }
//!     icmp     ip
//! }
//! ```
//!
//! # Standard
//! RFC 7348 sections 4 and 5: no VLAN tags are removed, no multicast outside. Linux: udp(7), ip(7)
//! (`IP_RECVERR`, `IP_MTU_DISCOVER`).

mod address;
mod batch_unsafe;
mod error;
mod eth;
mod inbox;
mod outbox;
mod socket;
mod tcp;
mod udp;

pub use eth::vxlan;
pub use socket::OVERFLOW;
pub use tcp::TCP_ENTRY;
pub use udp::UDP_ENTRY;

use xk_core::Entry;
use xk_core::graph::{ParamKind, ParamSpec, StackingRules, flag, int, optional, required};
use xk_kit::wire::entry::{address, ethernet};

/// The catalog entry of Ethernet in UDP.
#[rustfmt::skip]
pub static ENTRY: Entry = ethernet("host-eth", include_str!("lib.rs"), eth::build)
    .summary("Ethernet in UDP (VXLAN): frames across any network, without privilege")
    .stacking_rules(&StackingRules { sole: Some("local"), ..StackingRules::NONE })
    .parameters(&[
        required("local", ParamKind::Text("an address and a port, such as 0.0.0.0:4789"),
            "our address and port, IPv4 or IPv6; 0.0.0.0 for every address that we have"),
        optional("peer",
            ParamKind::Text("addresses and ports between commas, such as 192.0.2.7:4789"),
            "the peers' addresses and ports, of the same family as `local`"),
        optional("vni", ParamKind::integer(0..=vxlan::VNI_MAX as i64),
            "the number of the VXLAN network; if not given, there is no header before the frame"),
        flag("learn", false, "whether whoever sends becomes a peer"),
        address("our hardware address; if not given, one that follows from `local` and from the \
             host that the first peer sees"),
        optional("mtu", ParamKind::Octets,
            "the most octets behind a frame's header; if not given, as many as make an IP packet \
             of 1500"),
        flag("fragment", false, "whether the system may fragment datagrams"),
        int("stations_max", 1..=65_536, 1024, "how many stations are remembered"),
        BUFFER,
    ])
    .probe(eth::probe)
    .reasons(&[&eth::protocol::OTHER_NETWORK, &OVERFLOW]);

/// The size of a socket's buffers.
#[rustfmt::skip]
pub(crate) const BUFFER: ParamSpec = optional("buffer", ParamKind::Octets,
    "octets of the socket's buffers each way; if not given, as the system has it");
