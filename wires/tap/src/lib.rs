//! A TAP device: the graph becomes a machine on an Ethernet whose other machine is the host.
//!
//! # Synopsis
//! [`TapDevice`] opens or makes a TAP device, sets it up as asked, and carries whole Ethernet frames: [`TapDevice::receive`]
//! takes one that the host sent, [`TapDevice::transmit`] gives the host one. It never blocks.
//!
//! # Behaviour
//! Frames are Ethernet II without preamble, padding and check sequence, at most [`TapDevice::frame_octets_max`] long. A frame
//! longer than the caller's buffer is counted ([`TapDevice::oversized`]) and left out, never cut. Checksums are complete: the
//! host computes them before a frame enters the device, since no offload is agreed on.
//!
//! The host's end has the hardware address [`TapDevice::host_hardware_address`]; the graph's end is another machine and needs
//! another one, such as [`TapDevice::hardware_address`].
//!
//! # Privilege
//! Making a device, or changing one, needs `CAP_NET_ADMIN`; opening one that somebody made for this user needs nothing. What
//! is already as asked is not set again, so that `sudo ip tuntap add dev xk0 mode tap user $USER` and a few `ip` commands,
//! once, let every later run do without. [`TapError`] names the command for each case.
//!
//! # Example
//! ```no_run
//! use std::io::IoSlice;
//! use xk_tap::{Options, TapDevice};
//!
//! let options = Options { host_address: Some(("10.0.5.1".parse()?, 24)), up: true, ..Options::create() };
//! let mut tap = TapDevice::open("xk0", &options)?;
//! let mut frame = vec![0; tap.frame_octets_max()];
//! while let Some(octets) = tap.receive(&mut frame)? {
//!     let received = frame.get(..octets).unwrap_or_default();
//!     tap.transmit(&[IoSlice::new(received)])?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Standard
//! Linux, `Documentation/networking/tuntap.rst`; netdevice(7) for the interface's settings.

mod device;
mod device_unsafe;
mod error;

pub use device::{Options, TapDevice, Transmitted};
pub use error::TapError;
