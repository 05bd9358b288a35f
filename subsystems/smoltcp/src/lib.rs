//! smoltcp and xk, each above the other.
//!
//! **smoltcp above xk.** A [`Port`] is a protocol at the top of a graph, and a
//! [`phy::Device`](smoltcp::phy::Device) below smoltcp's `Interface`. It stands on a link
//! ([`Port::on_link`]): a wire, a filter such as `tracer`, `fault` or `pcap` on one, or another
//! layer that carries whole messages, such as `rm` on `tcp`. Or it stands on hosts
//! ([`Port::on_hosts`]): on xk's `ip`, which handles routes, fragments and links, while smoltcp has
//! the transports. A program with a loop of its own uses [`Port::device`]; a program under virtual
//! time, or beside other protocols, is a [`Station`], which the kernel's events drive.
//!
//! **xk above smoltcp.** [`wire`] makes a wire of any smoltcp device, including one inside its
//! `FaultInjector`, `Tracer` or `PcapWriter`.
//!
//! ```
//! use smoltcp::phy::{Loopback, Medium};
//! use xk_smoltcp::{Wake, wire};
//! # let pool = xk_core::Pool::new(&Default::default()).unwrap();
//! # let shepherds = xk_core::shepherd::Shepherds::new(
//! #     Box::new(xk_core::shepherd::NoSwitch), Default::default());
//! # let random = xk_core::random::Random::new(1);
//! # let kernel = xk_core::Kernel::new(
//! #     xk_core::kernel::Config { random, pool, shepherds, timers_max: 8 });
//! let device = Loopback::new(Medium::Ethernet);
//! let address = [2, 0, 0, 0, 0, 1].into();
//! let below = wire(&kernel, "wire", device, Wake::every_ms(1), address);
//! assert!(below.wire().is_some());
//! ```
//!
//! # What is translated
//!
//! | smoltcp | xk |
//! | --- | --- |
//! | `Medium::Ethernet`, `Medium::Ip` | the question `link-type`: 1 or 101 |
//! | `max_transmission_unit` | `max-packet`, 1514 octets of Ethernet or 1500 of IP at most unless said otherwise |
//! | `RxToken` | a message; copied only if it lies in several buffers |
//! | `TxToken` | a message of the kernel's pool, written in place and pushed |
//! | no token | no session yet, or (below xk) a device that is busy: 256 messages wait |
//! | `Instant` | the kernel's time, in microseconds |
//! | `ChecksumCapabilities` | all in software: a partial checksum of an arriving message is completed |
//! | `poll_at` | a timer of the [`Station`] |
//!
//! Not translated: smoltcp is not told of a failed push, which the layer that refused it counts;
//! packet identifiers (`PacketMeta`) do not pass; xk has no link for other media than these two;
//! `ip` reassembles datagrams, so it refuses fragments made by smoltcp above it.
#![no_std]

extern crate alloc;

mod hosts;
mod port;
mod station;
mod wire;

pub use port::{Device, Ends, Link, NO_SESSION, Port, REASONS, Received, Sending};
pub use station::{Borrowed, Lent, Station};
pub use wire::{Wake, wire};

use smoltcp::time::Instant;
use xk_core::Time;

/// A kernel's time as smoltcp's.
#[must_use]
pub fn instant(time: Time) -> Instant {
    Instant::from_micros(i64::try_from(time.as_us()).unwrap_or(i64::MAX))
}
