//! # Synopsis
//! `subsystem bsd { ... }` — the 4.3BSD network subsystem: mbufs, protocol switch, interfaces,
//! sockets.
//!
//! # Participants
//! None of its own: the lines of the block have theirs, as socket addresses ([`Sockaddr`]).
//!
//! # Above
//! Programs, by sockets ([`socreate`] and the others), on protocols that are not BSD's by the line
//! [`sockets`]; protocols of other subsystems, by adapters.
//!
//! # Below
//! Nothing of its own.
//!
//! # Behaviour
//! ## What it is
//! A framework of BSD's shape: sockets on top, a table-driven layer of protocols ([`Protosw`],
//! functions [`ProtoFns`]), interfaces below ([`Ifnet`], [`Driver`]), software interrupts between
//! them ([`Bsd::schednetisr`]), two timeouts of 200 and 500 ms. It has no process, thread, clock or
//! I/O of its own: time and events are the kernel's, and waits are shepherds'.
//!
//! One lock: whatever enters does so by [`Bsd::splnet`], and when the last caller leaves, the
//! software interrupts that were scheduled meanwhile are served, never within each other. No
//! protocol waits; only the socket layer does, and gives the lock up meanwhile.
//!
//! Buffers are freed as in BSD: what is handed an [`Mbuf`] consumes it, also if it fails. A packet
//! that is dropped is counted at the line's node ([`Protosw::m_drop`]).
//!
//! Bounds: mbufs and clusters (`mbufs`, `clusters`), clusters besides by the kernel's message pool;
//! sockets (`sockets`); octets of a socket each way (`sb_max`); 50 packets in an interface's queue;
//! [`CALLOUTS_MAX`] pending timeouts. What is beyond is refused with `ENOBUFS`, or dropped, and
//! counted. A request that the pool denies has the protocols drained (`pr_drain`).
//!
//! ## For the author of a line
//! An `ENTRY` of `.subsystem("bsd")` whose `build` makes the protocol's functions, an
//! `Rc<dyn ProtoFns>`, and ends with [`add_line`]: the node in the kernel, for name, counters and
//! drops, and the entry in the protocol switch. The lower neighbour is
//! `bsd.protocol(build.lower(0)?.id())`, an `Rc<Protosw>`, whether it is a line or an adapter; send
//! by [`Protosw::pr_output`], ask by `pr_usrreq` with [`Pru::Control`]. Upwards a protocol finds
//! what stands on it by the number in its header ([`Protosw::upper`]) and calls
//! [`Protosw::pr_input`].
//!
//! ## For the author of an adapter
//! - *A foreign protocol below BSD's*: at build, [`Bsd::register`] the adapter's node with
//!   functions whose `pr_output` sends into the other subsystem, and whose `pr_usrreq` answers
//!   [`SIOCGIFMTU`] and [`SIOCGIFSRCADDR`]. The line above finds it as its lower neighbour and puts
//!   itself on it with its own number ([`Bsd::stack`]). What arrives goes to [`Protosw::upper`],
//!   which exists from the start on, by `pr_input` with [`InputArg::Addressed`], within
//!   [`Bsd::splnet`]. What has no use for a packet says so by `pr_unreach`.
//! - *A wire below an interface*: [`WireDevice`] does the work, for whatever has one session that
//!   takes whole frames.
//! - *A foreign layer with hosts below IP or DDP*: an interface of its own, [`Bsd::if_attach`] with
//!   a [`Driver`] whose `if_output` resolves addresses by itself, and [`Bsd::set_interface`] for
//!   the adapter's node; arrivals go to [`Bsd::netisr_input`].
//! - *A foreign protocol above BSD's*: [`Bsd::register`] with functions whose `pr_input` passes up,
//!   then [`Bsd::stack`] on the lower with the foreign protocol's node as `selector`: its number
//!   counts. Send by the lower's `pr_output`.
//! - *A foreign user above a protocol with sockets*: [`socreate_on`] the lower's entry,
//!   [`Socket::set_upcall`] in the place of a user that waits; send with [`sosend`] and
//!   [`Uio::Top`], take with [`soreceive`] and [`Sink::Chain`].
//! - Functions are called at splnet and do not wait. Where the other subsystem may wait, the call
//!   goes inside [`Bsd::spl0`], and no borrow is held over it.
//! - Buffers: [`Mbufs::m_lend`] and [`Mbuf::into_message`] for the x-kernel's messages, without a
//!   copy of what lies in clusters; [`Mbufs::m_extattach`] for storage of others.
//!
//! ## What differs from BSD
//! - Clusters lie in the kernel's message pool, so that they can be lent to the x-kernel too; in
//!   use are counted the mbufs that refer to one.
//! - A packet header is kept in 4.3 as well (there the interface's pointer is put in front).
//! - Only a sender's allocation waits (`M_WAIT`), for 5 s at most: the protocols are drained, and
//!   what others free is taken. All others are `M_DONTWAIT`; one that is denied has the protocols
//!   drained.
//! - The local domain (family 1) is in every block: streams and datagrams between sockets of the
//!   kernel, by names of up to 14 octets with no file behind them. No rights are passed.
//! - Where BSD panics (`m_copym` beyond the end), it is an error.
//! - A protocol's neighbours are those of the graph, and no number is known in the code.
//!
//! # Control
//! Answers `report`: mbufs and clusters in use, requests denied, sockets, interfaces, queues. Each
//! line answers `report` with its own counters.
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem bsd release="4.3" mbufs=4096 {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!         atp ddp
//!     }
//! }
//! ```
//!
//! # Standard
//! S. Leffler, M. McKusick, M. Karels and J. Quarterman, The Design and Implementation of the
//! 4.3BSD UNIX Operating System, 1989, chapters 11 and 12; the headers of 4.4BSD-Lite2.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod bsd;
mod device;
pub mod errno;
pub mod ether;
pub mod ifnet;
pub mod mbuf;
mod node;
mod protosw;
pub mod sockaddr;
mod sockbuf;
mod socket;
pub mod sockets;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tests;
mod transfer;
mod unp;

pub use bsd::*;
pub use device::WireDevice;
pub use errno::Errno;
pub use ifnet::{Driver, IfAddr, IfQueue, Ifnet};
pub use mbuf::{ExtBuf, MbStat, Mbuf, Mbufs, Mt, Release};
pub use node::{add_line, build, environment, of};
pub use protosw::*;
pub use sockaddr::Sockaddr;
pub use sockbuf::{SB_MAX, SockBuf};
pub use socket::*;
pub use transfer::*;

use xk_core::Entry;
use xk_core::control::question;
use xk_core::graph::{int, octets, word};

/// The catalog entry.
#[rustfmt::skip]
pub static ENTRY: Entry = Entry::framework("bsd", include_str!("lib.rs"), node::build)
    .summary("the 4.3BSD network subsystem: mbufs, protocol switch, interfaces, sockets")
    .parameters(&[
        word("release", &["4.3", "4.4"], "4.3", "whose sizes and rules mbufs and addresses have"),
        int("mbufs", 16..=1_048_576, 4096, "mbufs at most"),
        int("clusters", 1..=1_048_576, 1024, "mbufs with a cluster or lent storage at most"),
        int("sockets", 1..=65_536, 1024, "sockets at most"),
        octets("sb_max", SB_MAX as u64, "octets that a socket keeps each way at most"),
    ])
    .questions(&[question("report", "mbufs, clusters, sockets, interfaces and queues")]);
