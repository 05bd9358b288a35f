//! # Synopsis
//! `subsystem streams { ... }` — System V STREAMS: message blocks, queues, modules, stream head,
//! TPI and TLI.
//!
//! # Participants
//! None of its own: the lines of the block use addresses of the transport interface.
//!
//! # Behaviour
//! Programs use it by streams ([`Streams::open`]) and the transport interface ([`tli`]), which has
//! a line `tli` for protocols that are not of STREAMS; protocols of other subsystems use it by
//! adapters. Its `report` has streams, blocks, service procedures, writers that found a queue full,
//! back-enables, messages lost and flushed, links, the modules of each stream, and the present and
//! largest contents of each queue in which a message has waited.
//!
//! ## Parts
//! | part | contents |
//! | --- | --- |
//! | [`block`] | message and data blocks, which become x-kernel messages, and back |
//! | [`queue`] | queue pairs: order, bands, flow control, enabling |
//! | [`module`] | what a [`Module`] is, and a driver or multiplexor ([`Streamtab`]) |
//! | [`Streams`] | the subsystem of a kernel: drivers, modules, streams, links |
//! | [`head`] | the stream head: `read`, `getmsg`, `poll`, the ioctls |
//! | [`tpi`] | primitives between transport users and providers, states, endpoints of datagrams |
//! | [`tli`] | the transport interface of users |
//! | [`add`], [`line`](fn@line) | the subsystem in a graph: its node, and lines that are drivers |
//!
//! Put procedures run on the shepherd that brought the message, called by those of their
//! neighbours. One scheduler runs service procedures in the order in which they were enabled: by an
//! event of the kernel at the same instant, or before a user waits. There is no process, thread or
//! clock of its own. Only the stream head waits.
//!
//! ## A line of a graph
//! A driver or multiplexor within `subsystem streams { ... }` is also a node of the kernel. Its
//! entry's build is one call of [`line`](fn@line) with its [`Streamtab`], which registers it under
//! the node's number. At the start the lines below it are linked by `I_PLINK`, in the order of the
//! graph. The multiplexor is told of each by an M_IOCTL ([`head::Command::PLINK`]), in which
//! [`Linkblk::of`] finds the queue for messages down (`bottom`) and the number of the protocol
//! below (`line`), by which it asks the kernel for its type number there. It answers by
//! [`head::acked`] or [`head::naked`].
//!
//! ## For the author of an adapter
//! - *A foreign lower below STREAMS*: the adapter is a [`Streamtab`], registered for its node by
//!   [`add_line`] or [`Streams::register`] while it is built. The upper line opens a stream on it
//!   by itself and links it; the adapter's [`Module::wput`] gets what it sends, and answers by
//!   [`Q::qreply`].
//! - *A foreign upper above STREAMS*: [`Streams::attach_line`] opens a stream on the lower's line
//!   with the adapter's [`Module`] in the place of the head. Its [`rput`](Module::rput) gets
//!   messages that come up. It sends by [`Q::putnext`] on the returned queue, and checks
//!   [`Q::canputnext`] before, because a message is never refused. With [`Services::write`] its
//!   [`wsrv`](Module::wsrv) runs when there is room again.
//! - *Addresses and options*: as [`tpi`] says; a stream bound to no particular address receives all
//!   messages for its number, and their options begin with the address of this end.
//! - *Frames*: a driver of a device sends and takes frames as M_DATA; the line on it asks its node
//!   for the station's address (`my-ether`) and the largest frame (`max-packet`).
//! - *Buffers*: [`Blocks::lend_message`] and [`Mblk::into_message`] convert x-kernel messages
//!   without a copy in either direction; [`Blocks::esballoc`] with a [`block::Lent`] is for storage
//!   with a free function of its own, such as a cluster of mbufs.
//! - *Waiting*: put and service procedures may not wait. If a push below into the x-kernel waits,
//!   it suspends only its shepherd, and the scheduler goes on with another.
//!
//! ## A driver
//! ```
//! use xk_streams::{Bounds, Module, ModuleInfo, Mblk, Opening, Q, Streamtab, Errno, head};
//! use xk_core::Kernel;
//! # extern crate alloc;
//! use alloc::rc::Rc;
//!
//! /// A driver that sends every message back.
//! struct Echo;
//!
//! impl Module for Echo {
//!     fn info(&self) -> ModuleInfo {
//!         ModuleInfo::new(7, "echo")
//!     }
//!
//!     fn wput(&self, cx: &Kernel, q: &Q, mp: Mblk) {
//!         match mp.kind() {
//!             xk_streams::Kind::Flush => q.flush_at_driver(cx, mp),
//!             xk_streams::Kind::Ioctl => q.qreply(cx, head::naked(mp, Errno::EINVAL)),
//!             _ => q.qreply(cx, mp),
//!         }
//!     }
//! }
//!
//! impl Streamtab for Echo {
//!     fn info(&self) -> ModuleInfo {
//!         Module::info(self)
//!     }
//!
//!     fn open(&self, _: &Kernel, _: &Q, _: Opening) -> Result<Rc<dyn Module>, Errno> {
//!         Ok(Rc::new(Echo))
//!     }
//! }
//!
//! # fn main() -> Result<(), Errno> {
//! # let cx = xk_testkit::kernel::TestKernel::new(1);
//! let (streams, _) = xk_streams::add(&cx, "streams", Bounds::default());
//! streams.add_driver("echo", Rc::new(Echo));
//! let stream = streams.open(&cx, "echo")?;
//! stream.write(&cx, b"hello")?;
//! let mut octets = [0; 16];
//! assert_eq!(stream.read(&cx, &mut octets), Ok(5));
//! stream.close(&cx);
//! # Ok(())
//! # }
//! ```
//!
//! # Example
//! ```kdl
//! host a {
//!     sim link=lan
//!     subsystem streams blocks_max=4096 {
//!         ether sim
//!         ddp ether net="10-19" node=17
//!         atp ddp
//!     }
//! }
//! ```
//!
//! # Standard
//! The System V Release 4 STREAMS interface as its guides describe it. Where releases differ: a
//! queue is full when its octets reach the high-water mark; the queue behind is enabled when they
//! fall below the low one, or to any number if that is 0. Words in control parts are of the host's
//! order, here always least octet first. There is no user space: the memory of a transparent ioctl
//! is a slice that its call lends ([`Stream::transparent`]), and signals are calls
//! ([`Stream::set_signals`]). Tests compare the states of providers and users with published tables
//! cell by cell, and the behaviours of the stream head case by case.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate self as xk_streams;

pub mod block;
mod errno;
pub mod head;
mod host;
mod link;
pub mod module;
mod modules;
pub mod pack;
mod packers;
mod pipe;
pub mod queue;
mod scheduler;
mod streams;
#[cfg(test)]
#[path = "../tests/all/tic.rs"]
mod tic;
pub mod tli;
pub mod tpi;

pub use block::{Blocks, Kind, Mblk, Priority};
pub use errno::Errno;
pub use head::Stream;
pub use host::{ENTRY, add, add_line, line};
pub use link::Linkblk;
pub use module::{Module, ModuleInfo, Opening, Services, Streamtab};
pub use modules::{AutopushError, StreamModules};
pub use queue::{Figures, Q, Side, WeakQ, What};
pub use scheduler::{Counts, TimerId};
pub use streams::{Bounds, Streams};
