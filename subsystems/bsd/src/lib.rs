//! # Synopsis
//! `subsystem bsd { ... }` — the 4.3BSD network subsystem: mbufs, protocol switch, interfaces,
//! sockets.
//!
//! # Participants
//! None of its own: the lines of the block use socket addresses ([`Sockaddr`]).
//!
//! # Behaviour
//! Programs use it by sockets ([`socreate`] and the others), on protocols of other frameworks by
//! the line [`sockets`]; protocols of other frameworks use it by adapters. Its `report` has mbufs
//! and clusters in use, requests denied, sockets, interfaces and queues. Each line answers `report`
//! with its own counters.
//!
//! ## What it is
//! A framework like BSD's: sockets on top, a table of protocols ([`Protosw`], functions
//! [`ProtoFns`]), interfaces below ([`Ifnet`], [`Driver`]), software interrupts between them
//! ([`Bsd::schednetisr`]), two timeouts of 200 and 500 ms. It has no process, thread, clock or I/O
//! of its own: time and events are the kernel's, and shepherds wait.
//!
//! There is one lock. Every caller enters by [`Bsd::splnet`]. When the last caller leaves, the
//! software interrupts scheduled meanwhile are served, one after the other. No protocol waits; only
//! the socket layer does, and releases the lock while it waits.
//!
//! Buffers are freed as in BSD: a function that is handed an [`Mbuf`] consumes it, even if it
//! fails. A dropped packet is counted at the line's node ([`Protosw::m_drop`]).
//!
//! Bounds: mbufs and clusters (`mbufs`, `clusters`), clusters also by the kernel's message pool;
//! sockets (`sockets`); octets of a socket in each direction (`sb_max`); 50 packets in an
//! interface's queue; [`CALLOUTS_MAX`] pending timeouts. More is refused with `ENOBUFS`, or
//! dropped, and counted. If the pool denies a request, the protocols are drained (`pr_drain`).
//!
//! ## For the author of a line
//! An `ENTRY` of `.subsystem("bsd")` whose `build` makes the protocol's functions, an `Rc<dyn
//! ProtoFns>`, and ends with [`add_line`]: the node in the kernel, for name, counters and drops,
//! and the entry in the protocol switch. The lower neighbour, a line or an adapter, is
//! `bsd.protocol(build.lower(0)?.id())`, an `Rc<Protosw>`. Send by its [`Protosw::pr_output`], and
//! ask it questions by `pr_usrreq` with [`Pru::Control`]. Upwards a protocol finds the one above by
//! the number in its header ([`Protosw::upper`]) and calls [`Protosw::pr_input`].
//!
//! ## For the author of an adapter
//! - *A foreign protocol below BSD's*: at build, [`Bsd::register`] the adapter's node with
//!   functions whose `pr_output` sends into the other subsystem, and whose `pr_usrreq` answers
//!   [`SIOCGIFMTU`] and [`SIOCGIFSRCADDR`]. The line above finds it as its lower neighbour and
//!   stacks itself on it with its own number ([`Bsd::stack`]). Arriving packets go to
//!   [`Protosw::upper`], which exists from the start on, by `pr_input` with
//!   [`InputArg::Addressed`], within [`Bsd::splnet`]. A protocol refuses a packet by `pr_unreach`.
//! - *A wire below an interface*: [`WireDevice`] does the work, for any protocol with a session
//!   that takes whole frames.
//! - *A foreign layer with hosts below IP or DDP*: an interface of its own, [`Bsd::if_attach`] with
//!   a [`Driver`] whose `if_output` resolves addresses by itself, and [`Bsd::set_interface`] for
//!   the adapter's node; arrivals go to [`Bsd::netisr_input`].
//! - *A foreign protocol above BSD's*: [`Bsd::register`] with functions whose `pr_input` passes up,
//!   then [`Bsd::stack`] on the lower one with the foreign protocol's node as `selector`, whose
//!   number counts. Send by the lower one's `pr_output`.
//! - *A foreign user above a protocol with sockets*: [`socreate_on`] the lower one's entry, and
//!   [`Socket::set_upcall`] in place of a user that waits; send with [`sosend`] and [`Uio::Top`],
//!   receive with [`soreceive`] and [`Sink::Chain`].
//! - Functions are called at splnet and do not wait. If the other subsystem may wait, call it
//!   inside [`Bsd::spl0`], and hold no borrow over the call.
//! - Buffers: [`Mbufs::m_lend`] and [`Mbuf::into_message`] convert the x-kernel's messages, without
//!   a copy of octets in clusters; [`Mbufs::m_extattach`] is for storage of others.
//!
//! ## Differences from BSD
//! - Clusters lie in the kernel's message pool, so that they can be lent to the x-kernel too. The
//!   count of clusters in use is that of mbufs that refer to one.
//! - Packets have a packet header, also where 4.3 has none (and puts the interface's pointer in
//!   front).
//! - Only a sender's allocation waits (`M_WAIT`), for 5 s at most: the protocols are drained, and
//!   freed buffers are used. All other allocations are `M_DONTWAIT`; if one is denied, the
//!   protocols are drained.
//! - The local domain (family 1) is in every block: streams and datagrams between sockets of the
//!   kernel, by names of up to 14 octets, without files. Descriptors cannot be passed.
//! - Where BSD panics (`m_copym` beyond the end), an error is returned.
//! - A protocol's neighbours are those of the graph; the code has no protocol numbers.
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
