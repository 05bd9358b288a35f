//! # Synopsis
//! `host-eth local="..." peer="..."` — Ethernet in UDP: frames cross any network in datagrams of
//! the operating system's own sockets, without privilege.
//!
//! # Participants
//! None: a frame goes to the peer behind which its station was heard, or to all.
//!
//! # Behaviour
//! It stands on the system's UDP. For ports without frames see `host-udp`.
//!
//! Each frame is one datagram. With `vni` it has a VXLAN header in front. A peer can then be a
//! Linux device made by `ip link add ... type vxlan id VNI dstport PORT`, and peers are
//! distinguished by host only, because such devices send from any port. Without `vni` the datagram
//! is the frame, and peers are distinguished by host and port. Linux leaves checksums inside a
//! tunnel to the device outside. If that device is memory (a veth pair, a bridge of containers)
//! they are never computed, and UDP drops such datagrams as "bad checksum"; `ethtool -K vxlan7 tx
//! off` at Linux's end prevents it.
//!
//! Datagrams from other hosts than the peers are dropped as "bad source". With `learn` each sender
//! becomes a peer, and is forgotten after five silent minutes; beyond 256 peers, the learned one
//! silent for longest is forgotten. With one peer every frame goes there. With several, the wire
//! learns for five minutes which station is behind which peer; frames for groups and for unknown
//! stations go to all peers. Frames of one peer are not passed on to another, so each host has to
//! name all others.
//!
//! Arrivals are read into message memory, 16 at a time; if the system joins datagrams of one length
//! (UDP GRO), they are separated without copying. Pushed frames wait for the end of the turn, or
//! until there are 128, and are sent in batches of 16. Runs of frames of one length to one peer are
//! sent as one (UDP GSO), unless the system refuses that. At most 1024 frames wait for a full
//! socket; more are dropped as "device full".
//!
//! With a `vni` the peer may be this system's own VXLAN device, which leaves checksums, and cutting
//! runs of TCP segments, to the interface below; if that is memory too, neither is done. Then
//! frames of up to 64 KiB arrive, and an unfinished checksum counts as verified. The socket has a
//! receive buffer of 4 MiB if the system allows it, unless `buffer` gives another size.
//!
//! A datagram too long for the path is dropped as "too big", unless `fragment` lets the system
//! fragment it. Errors that the network reports about earlier datagrams, for example that no
//! program listens there, are counted ("unreachable") and have no other effect, because the peer
//! may come back. Arrivals lost at a full socket count as "socket buffer full".
//!
//! It has no room (`wire-room`) while a frame for all peers finds no place in the queue.
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
    .stacking_rules(&StackingRules { sole: &["local"], ..StackingRules::NONE })
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
