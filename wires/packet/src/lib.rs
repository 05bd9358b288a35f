//! # Synopsis
//! `packet device=NAME` — an existing network interface, through `AF_PACKET` with rings mapped into
//! memory.
//!
//! # Participants
//! None: what is sent goes out of the interface.
//!
//! # Behaviour
//! The wire receives every frame that arrives at the interface, and sends frames through it. The
//! host's own stack still receives and answers the same frames. So give the graph an IPv4 address
//! that the host does not have, or use an interface without one. By default the wire has a hardware
//! address of its own, which makes the interface promiscuous; `address=own` takes the interface's.
//!
//! Both rings are of version 2 (`TPACKET_V2`): a slot for each frame, handed over as soon as the
//! frame is in it. Version 3 hands over whole blocks after a timeout, which costs latency. Frames
//! sent in one turn go out with one system call.
//!
//! - A VLAN tag that the interface took off is put back, so that the frame is the one on the wire.
//! - A frame from a sender on the same machine may carry a transport checksum that was not
//!   computed, because the wire is memory; UDP accepts it as verified, and a layer that passes it
//!   on completes it. Checksums that the interface has verified are not verified again. Checksums
//!   of sent frames may be left to the interface, or to the host on its behalf (`PACKET_VNET_HDR`);
//!   a capture on this machine then shows them unfinished. With `offload=#false` all checksums are
//!   computed here, those of arrivals too.
//! - A sender on this machine also leaves segmentation to the wire, and interfaces join segments
//!   that arrive. A run of TCP segments goes up as one message of up to 64 KiB, marked with the
//!   length of its segments; other long frames are cut here. Runs of TCP segments are sent whole,
//!   and the interface, or the host on its behalf, cuts them if necessary. With `offload=#false`
//!   runs that arrive are cut here, and none is sent.
//! - Frames sent by this machine, by its own stack or by this wire, are not received.
//! - Arrivals longer than a slot, such as most runs, wait in the socket's queue, which holds
//!   `long_queue` octets as the system counts them; each takes a read.
//! - Arrivals that find ring or queue full, or whose slot is invalid, are counted as "lost in
//!   device", never truncated. If the sending ring is full, up to 256 frames wait, and more are
//!   dropped as "device full". Frames that the system refuses are counted as "device error"; the
//!   wire goes on.
//!
//! When a process replaces another one (`xk upgrade`), it opens a socket of its own, and frames
//! that arrive before it goes on are lost.
//!
//! Opening needs `CAP_NET_RAW`; after that no privilege is needed. The error names the command that
//! grants it.
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
//! While it is promiscuous it takes all groups, else those that it is asked for
//! (`PACKET_ADD_MEMBERSHIP`). It has no room (`wire-room`) while its backlog is full.
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
