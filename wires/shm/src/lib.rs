//! # Synopsis
//! `shm path=SOCKET` — shared memory to another process on this machine, which need not be trusted.
//!
//! # Participants
//! None: what is sent goes to the process at the other end.
//!
//! # Behaviour
//! Two processes whose graphs name the same socket are linked. Both graphs have the same line: the
//! first process to start listens at the socket, the other connects, in either order and any number
//! of times. Three or more processes need a switch: start `xk switch PATH` first, and each `shm`
//! that names this path gets a port.
//!
//! Each link has sealed memory of its own (a memfd) with a ring of slots per direction. A frame of
//! up to 120 octets lies in its slot, whose first eight octets also mark it as present, so a small
//! frame costs the receiver one or two cache lines; a longer one lies in a separate buffer. A frame
//! is copied in when it is sent, and out into a message of the receiver's own pool when it arrives,
//! and not otherwise. While both sides are awake they make no system calls, except one every ten
//! milliseconds that checks the peer. A side that is about to sleep says so in the memory; the
//! other then wakes it through a pipe, at most once per flush.
//!
//! Neither side trusts the other. Octets read from the memory are copied, then checked, then used.
//! A peer that writes anything anywhere can send any frames, as any station can, or break its own
//! link, but do no other harm.
//!
//! - The end of a peer, even by `kill -9`, is noticed at once by a sleeping side and within ten
//!   milliseconds otherwise. Frames that it sent before are still received. Then the memory is
//!   released, the loss is counted as "peer gone" and reported to the runner of the graph, and the
//!   wire looks for the peer again, at first after 2 milliseconds, then in growing pauses of a
//!   second at most.
//! - A peer that writes an invalid state loses its link in the same way, counted as "peer broke the
//!   link".
//! - Frames sent while there is no peer are dropped as "link down"; frames for which the ring has
//!   no room as "queue full". The sender is told.
//! - A socket file that a dead process left is taken over, under a lock on the file of that name
//!   with `.lock` behind it. Both files go when the listening side ends.
//! - Only processes of the same user may connect, or those of `peer_uid`. Descriptors that they
//!   send are closed by a separate thread if that could take time, so that no peer can hang the
//!   graph.
//! - If both sides may run only on the same processor, the loop does not spin, because that would
//!   keep the other side from answering; each yields to the other by sleeping.
//!
//! Programs may use a link without a graph, as [`Link`], two threads of a process as
//! [`Link::pair`], and the rings alone, without the operating system, as [`RingEnd`]. The switch is
//! [`Switch`].
//!
//! It has no room (`wire-room`) while the ring is full; without a peer frames are lost, and none
//! waits. `describe` tells the peer, how many links there were, and what went wrong last.
//!
//! # Example
//! ```kdl
//! host here {
//!     shm  path="/run/user/1000/lab.sock"
//!     eth  shm
//!     arp  eth
//!     ip   arp { address "10.0.0.1/24"; }
//!     icmp ip
//! }
//! ```
//!
//! # Standard
//! None for the memory: `docs/decisions/0012-shm-wire.md` describes its format. Frames as on an
//! Ethernet (IEEE 802.3) without check sequence. memfd_create(2), fcntl(2), unix(7), epoll(7).

mod bell;
mod credentials_unsafe;
mod entrance;
mod error;
mod foreign_unsafe;
mod hello;
mod layout;
mod link;
mod listen;
mod meet;
mod memory_unsafe;
mod protocol;
mod ring;
mod socket;
mod switch;

pub use credentials_unsafe::{Peer, peer_of};
pub use entrance::Entrance;
pub use error::{Refusal, ShmError};
pub use foreign_unsafe::Foreign;
pub use layout::{
    FRAME_OCTETS_LEAST, FRAME_OCTETS_MOST, Geometry, INLINE_OCTETS, SLOTS_MAX, SLOTS_MIN,
};
pub use link::{Left, Link, Lost};
pub use listen::remove_left;
pub use meet::{Meeting, Options, Peers, check_path};
pub use memory_unsafe::MemoryError;
pub use protocol::{LINK_BROKEN, LINK_DOWN, LINK_LOST};
pub use ring::{Arrival, Broken, RingEnd, SendError};
pub use switch::{ADDRESSES_A_PORT, AGEING, PORTS_MAX, PortCounters, Switch, SwitchCounters};

use xk_core::Entry;
use xk_core::graph::{ParamKind, int, octets, optional, required};
use xk_kit::wire::entry::{address, ethernet};

/// The entry in the catalog.
#[rustfmt::skip]
pub static ENTRY: Entry = ethernet("shm", include_str!("lib.rs"), protocol::build)
    .summary("shared memory to another process on this machine")
    .parameters(&[
        required("path", ParamKind::Text("the path of a socket, such as /run/user/1000/lab.sock"),
            "the path of the socket where both sides meet, at most 107 octets, in a folder that \
             exists"),
        address("our hardware address; if not given, a random one of local administration"),
        octets("mtu", 1500,
            "the largest packet, in octets without the Ethernet header: 46 to 65536, the same on \
             both sides"),
        int("slots", SLOTS_MIN as i64..=SLOTS_MAX as i64, 512,
            "frames that a direction holds, a power of two; the smaller figure of both sides is \
             taken"),
        optional("peer_uid", ParamKind::integer(0..=u32::MAX as i64 - 1),
            "the number of the user whose processes may be at the other end; if not given, our \
             own"),
    ])
    .probe(protocol::probe)
    .reasons(&[&protocol::LINK_DOWN, &protocol::LINK_LOST, &protocol::LINK_BROKEN]);
