//! An existing network interface as a wire, through `AF_PACKET` with rings mapped into memory.
//!
//! # Synopsis
//! [`PacketDevice`] sees every frame that arrives at an interface and puts frames on it, beside the host's own stack.
//! [`PacketDevice::receive`] hands out frames where the system put them, [`PacketDevice::transmit`] writes a frame into the
//! ring, [`PacketDevice::flush`] hands all written ones to the interface with one system call. None of them blocks.
//!
//! # Behaviour
//! Both rings have form 2 (`TPACKET_V2`): a slot per frame, given over the moment the frame is in it. Form 3 gives whole blocks
//! after a timeout, which costs latency.
//!
//! - A VLAN tag that the interface took off is put back, so that the frame is the one on the wire.
//! - A frame that came from a sender on the same machine may carry a checksum that nobody has computed, since the wire is
//!   memory: [`FrameInfo::checksum_not_ready`]. A receiver must not hold it against the frame.
//! - Frames that this machine sends, its own stack's and ours, are not received.
//! - A frame longer than a slot is handed out cut, with [`FrameInfo::truncated`]; frames for which the ring had no room are
//!   counted by the system: [`Statistics::dropped`]. A slot whose own words do not fit together is never followed; it is
//!   counted: [`Statistics::inconsistent`].
//! - A sender on this machine may leave cutting into segments to the wire as well. Such a frame exceeds the MTU and mostly a slot;
//!   `ethtool -K DEVICE tso off gso off` at the sender's end prevents it.
//!
//! The host's stack goes on seeing and answering the same frames. Give the graph an address that the host does not have, or an
//! interface without one; [`Options::promiscuous`] lets it have a hardware address of its own too.
//!
//! # Privilege
//! Opening needs `CAP_NET_RAW`, and nothing after it. [`PacketError`] names the command that grants it.
//!
//! # Example
//! ```no_run
//! use xk_packet::{Options, PacketDevice};
//!
//! let mut device = PacketDevice::open("eth0", &Options::default())?;
//! let seen = device.receive(64, |frame, info| println!("{} of {} octets", frame.len(), info.wire_octets));
//! device.transmit(&[&[0xff; 6], &device.hardware_address(), &[0x88, 0xb5], b"hello"])?;
//! device.flush()?;
//! println!("{seen} frames, {:?}", device.statistics()?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Standard
//! packet(7); Linux `Documentation/networking/packet_mmap.rst` and `include/uapi/linux/if_packet.h`.

mod device;
mod error;
mod ring_unsafe;
mod socket_unsafe;

pub use device::{FrameInfo, Options, PacketDevice, Statistics, Transmitted};
pub use error::{PacketError, TransmitError};
