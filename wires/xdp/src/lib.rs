//! # Synopsis
//! `xdp device=NAME` — an existing network interface, through `AF_XDP` sockets.
//!
//! # Participants
//! None: what is sent goes out of the interface.
//!
//! # Behaviour
//! A BPF program of a few instructions runs at the entrance of the interface. It gives the graph's
//! frames to the graph's sockets and leaves the others to the host's own stack, which goes on using
//! the interface. Frames lie in message memory: the system puts an arrival into a buffer of the
//! message pool, and sends a frame from the buffer of its message. A frame in several pieces, or
//! from another pool, is copied first; `describe` tells how often.
//!
//! `share` selects the graph's frames:
//!
//! | share | the graph's | the host's |
//! | --- | --- | --- |
//! | `address` | frames for the graph's hardware address, for groups and for all | all others, and those for groups and for all |
//! | `"10.0.0.2,0x88b5"` | the same, but of frames for the graph's hardware address only IPv4 packets for these hosts, ARP packets with these targets, and frames of these EtherTypes | the same, and the rest |
//! | `nothing` | all | none |
//!
//! By default the graph has a hardware address of its own, and so gets its own ARP replies, like
//! another station beside the host. `address=own` uses the interface's address, and then needs a
//! list. Both sides get frames for groups and for all, such as ARP requests: the BPF program leaves
//! them to the host, and a packet socket receives them for the graph. Frames with a VLAN tag are
//! the host's.
//!
//! `mode` selects how frames pass: `zero-copy` and `native` need support in the driver, `generic`
//! works with all, and `auto` takes the first of these that works. On a veth pair `native` and
//! `generic` work; `generic` is faster there with one or a few frames at a time.
//!
//! - While idle, a poll of a queue is one load from memory. Frames sent in one turn go out with one
//!   system call, or none if the driver polls by itself.
//! - Each queue lends up to `frames` buffers of 2048 octets to the system. All queues together may
//!   lend a quarter of the message memory. The system pins that memory as long as the wire is open.
//! - Arrivals without a buffer or without room are counted as "lost in device". If the sending ring
//!   is full, up to 256 frames wait, and more are dropped as "device full".
//! - If the interface goes down that is counted as "device down", and frames pass again once it is
//!   up. If it is removed that is counted as "device gone"; the graph goes on without it.
//! - When the process ends, in whatever way, the BPF program is removed: nothing is pinned or left
//!   behind. If the system is still releasing the interface from its last user, opening waits for
//!   up to two seconds.
//! - A sender on this machine may leave a transport checksum to the wire. On interfaces of kind
//!   veth and tun it is computed here. Such a sender also leaves segmentation to the wire, and the
//!   system joins arriving segments before it runs the program of mode `generic`. There a run of
//!   TCP segments comes in several buffers (`XDP_USE_SG`, Linux 6.6) and goes up as one message;
//!   its segments are assumed to be as long as the MTU allows, since the system does not tell. In
//!   mode `native` the system makes a veth peer send single segments. Sent runs are cut here.
//! - In mode `zero-copy`, buffers that the driver still has when the wire ends are lost until the
//!   process ends.
//!
//! Opening needs `CAP_NET_RAW`, `CAP_NET_ADMIN` and `CAP_BPF`; after that no privilege is needed.
//! The error names the command that grants them. The MTU is at most 1774 octets.
//!
//! Programs may use one queue without a graph, with memory of its own, as [`XdpSocket`].
//!
//! While it is promiscuous it takes all groups, else those that it is asked for
//! (`PACKET_ADD_MEMBERSHIP`). It has no room (`wire-room`) while its backlog is full.
//!
//! # Example
//! ```kdl
//! host machine {
//!     xdp  device=eth0
//!     eth  xdp
//!     arp  eth
//!     ip   arp { address "192.0.2.9/24"; route default via="192.0.2.1" }
//!     icmp ip
//! }
//! ```
//!
//! # Standard
//! Linux `Documentation/networking/af_xdp.rst` and `include/uapi/linux/if_xdp.h`; bpf(2); RFC 9669.

mod assembler;
mod bare;
mod bpf_unsafe;
mod device;
mod driver_unsafe;
mod error;
mod frames_unsafe;
mod groups_unsafe;
mod memory_unsafe;
mod program;
mod protocol;
mod queue;
mod ring_unsafe;

pub use bare::{Fate, Granted, Mode, Options, Statistics, XdpSocket, find, grant};
pub use bpf_unsafe::{Found, Object, objects};
pub use driver_unsafe::is_in_memory;
pub use error::XdpError;
pub use program::{MATCHES_MAX, Share};
pub use queue::{Losses, Redirect};
pub use xk_linux::InterfaceError;

/// Programs and maps of the system's, for parts that steer frames themselves.
pub mod bpf {
    pub use crate::assembler::{
        Assembler, DATA, DATA_END, DROP, Function, Instruction, Label, Operand, Operation, PASS,
        QUEUE, REDIRECT, Register, Test, Width,
    };
    pub use crate::bpf_unsafe::{Attachment, Map, MapKind, Program};
}

use xk_core::Entry;
use xk_core::graph::{ParamKind, StackingRules, int, optional, required, word};
use xk_kit::wire::entry::{ADDRESS_OR_OWN, ethernet};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = ethernet("xdp", include_str!("lib.rs"), protocol::build)
    .summary("an existing network interface, through AF_XDP")
    .stacking_rules(&StackingRules { sole: &["device"], ..StackingRules::NONE })
    .parameters(&[
        required("device", ParamKind::Text("an interface's name, such as eth0"),
            "the interface's name"),
        word("mode", &["auto", "zero-copy", "native", "generic"], "auto",
            "how frames pass: the first that works, or one of them"),
        int("queues", 1..=64, 1,
            "how many of the interface's queues, from the first on; frames of other queues are the \
             host's"),
        int("frames", 64..=16384, 1024,
            "arrivals that may wait in each queue, and frames that may wait to be sent; rounded up \
             to a power of two"),
        ADDRESS_OR_OWN,
        optional("share",
            ParamKind::Text("address, nothing, or a list such as \"10.0.0.2,0x88b5\""),
            "which frames are ours and not the host's: those for our hardware address, all, or of \
             those for our hardware address these IPv4 hosts and EtherTypes; if not given, \
             `address`"),
        optional("promiscuous", ParamKind::Bool,
            "receive frames for every hardware address; the default is to do so if ours is not the \
             interface's"),
        optional("finish_checksums", ParamKind::Bool,
            "compute checksums that a sender on this machine has left open; the default is to do \
             so on interfaces whose driver is veth or tun"),
    ])
    .probe(protocol::probe)
    .reasons(&[&device::DEVICE_GONE]);
