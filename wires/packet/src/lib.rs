//! # Synopsis
//! `packet device=NAME` — an existing network interface, through `AF_PACKET` with rings mapped into
//! memory.
//!
//! # Participants
//! None: what is sent goes out of the interface.
//!
//! # Above
//! One protocol that makes Ethernet frames: `eth`.
//!
//! # Behaviour
//! The wire sees every frame that arrives at the interface and puts frames on it, beside the host's
//! own stack, which goes on seeing and answering the same frames: give the graph an IPv4 address
//! that the host does not have, or an interface without one. As a rule it has a hardware address of
//! its own as well, which makes the interface promiscuous; `address=own` takes the interface's.
//!
//! Both rings have form 2 (`TPACKET_V2`): a slot per frame, given over the moment the frame is in
//! it. Form 3 gives whole blocks after a timeout, which costs latency. Frames sent in one turn go
//! out with one system call.
//!
//! - A VLAN tag that the interface took off is put back, so that the frame is the one on the wire.
//! - A frame from a sender on the same machine may carry a transport checksum that was not
//!   computed, since the wire is memory; UDP takes it as verified, and whatever else passes it on
//!   completes it. What the interface has verified is not verified again. What we send may have its
//!   checksum left to the interface, or to the host on its behalf (`PACKET_VNET_HDR`): a capture
//!   on this machine then shows it open. With `offload=#false` all checksums are computed here,
//!   those of arrivals too.
//! - A sender on this machine leaves cutting into segments to the wire as well, and interfaces join
//!   segments that arrive. A run of TCP segments goes up as one message of up to 64 KiB, marked
//!   with the length of its segments; what else comes that way is cut here. TCP's runs that we send
//!   go out as they are, and the interface, or the host on its behalf, cuts them where it must.
//!   With `offload=#false` runs that arrive are cut here, and none is sent.
//! - Frames that this machine sends, its own stack's and ours, are not received.
//! - Arrivals that are longer than a slot, as most runs are, wait in the socket's queue, which
//!   holds `long_queue` octets as the system counts them; one read takes each.
//! - Arrivals for which ring or queue had no room, or whose slot makes no sense are counted as
//!   "lost in device", never cut. Frames that the sending ring has no room for wait among at most
//!   256, then are dropped as "device full". What the system refuses is counted as "device error";
//!   the wire goes on.
//!
//! Where a process takes the place of another one (`xk upgrade`) it opens a socket of its own, and
//! takes what arrives once it goes on: what comes in the moment before is lost, as in a full queue.
//!
//! Opening needs `CAP_NET_RAW`, and nothing after it. The error names the command that grants it.
//!
//! Programs may use the interface without a graph, as [`PacketDevice`]: [`PacketDevice::receive`]
//! hands out frames where the system put them, [`PacketDevice::transmit`] writes a frame into the
//! ring, [`PacketDevice::flush`] hands all written ones to the interface. None of them blocks.
//!
//! ```no_run
//! use xk_packet::{Options, PacketDevice};
//!
//! let mut device = PacketDevice::open("eth0", &Options::default())?;
//! let seen = device.receive(64, |frame, info| {
//!     println!("{} of {} octets", frame.len(), info.wire_octets);
//! });
//! device.transmit(&[&[0xff; 6], &device.hardware_address(), &[0x88, 0xb5], b"hello"])?;
//! device.flush()?;
//! println!("{seen} frames, {:?}", device.statistics()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Control
//! Answers `max-packet` and `opt-packet` (MTU and Ethernet header), `my-ether`, `link-type` (1),
//! `join-group` (while it is promiscuous, it takes all groups), `describe`, `list-sessions`,
//! `wire-room` (whether its backlog is full).
//!
//! # Example
//! ```kdl
//! host machine {
//!     packet device=eth0
//!     eth    packet
//!     arp    eth
//!     ip     arp { address "192.0.2.9/24"; route default via="192.0.2.1" }
//!     icmp   ip
//! }
//! ```
//!
//! # Standard
//! packet(7); Virtio 1.2, section 5.1.6, for the header in front of frames; Linux
//! `Documentation/networking/packet_mmap.rst` and `include/uapi/linux/if_packet.h`.

mod device;
mod error;
mod frame;
mod protocol;
mod ring_unsafe;
mod run;
mod socket_unsafe;

pub use device::{Options, PacketDevice, Statistics, Transmitted};
pub use error::{PacketError, TransmitError};
pub use frame::{Frame, FrameInfo};
pub use xk_kit::wire::virtio::Note;
pub use xk_linux::InterfaceError;

use xk_core::Entry;
use xk_core::graph::{ParamKind, flag, octets, optional, required};
use xk_kit::wire::entry::{ADDRESS_OR_OWN, ethernet};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = ethernet("packet", include_str!("lib.rs"), protocol::build)
    .replaceable()
    .summary("an existing network interface, through AF_PACKET")
    .parameters(&[
        required("device", ParamKind::Text("an interface's name, such as eth0"),
            "the interface's name"),
        ADDRESS_OR_OWN,
        optional("promiscuous", ParamKind::Bool,
            "receive frames for every hardware address; the default is to do so if ours is not the \
             interface's"),
        flag("offload", true,
            "whether transport checksums, and cutting runs of TCP segments, are left to the \
             interface"),
        octets("long_queue", 4 << 20,
            "room for arrivals that are longer than a slot, such as runs of segments, in octets as \
             the system counts them; what exceeds `net.core.rmem_max` needs `CAP_NET_ADMIN`, and \
             is not had without"),
    ])
    .probe(protocol::probe);
