//! Sockets over a graph, with the names, the semantics and the errors of `std::net`.
//!
//! A [`Stack`] is a running host of a graph file. [`TcpListener`], [`TcpStream`] and [`UdpSocket`]
//! are made on a stack, and then used like those of the standard library; errors have the same
//! numbers as on Linux.
//!
//! ```
//! use xk_net::{Stack, UdpSocket};
//!
//! # fn main() -> std::io::Result<()> {
//! let stack = Stack::from_text(
//!     r#"host alone { loopback; ip loopback { address "10.0.0.1/24"; }; icmp ip; udp ip; }"#,
//!     xk_catalog::PROTOCOLS,
//! )?;
//! let one = UdpSocket::bind(&stack, "10.0.0.1:0")?;
//! let other = UdpSocket::bind(&stack, "10.0.0.1:0")?;
//! one.send_to(b"hello", other.local_addr()?)?;
//! let mut buffer = [0; 16];
//! let (octets, from) = other.recv_from(&mut buffer)?;
//! assert_eq!((&buffer[..octets], from), (&b"hello"[..], one.local_addr()?));
//! # Ok(())
//! # }
//! ```
//!
//! # Which protocols
//! A graph names protocols by their kinds, and the program gives a list of the entries that it
//! knows. The example gives the list of all protocols, and so links all of them. A program with a
//! fixed graph lists the six or so that it needs, `&[&xk_tap::ENTRY, &xk_eth::ENTRY, ...]`, and
//! links no others; `docs/embed` is an example.
//!
//! # What drives the stack
//! A graph runs only while a thread runs its loop. There are three drivers, which differ only in
//! this:
//!
//! - [`Here`], made by [`Stack::from_file`], [`Stack::from_text`] or [`Setup::here`]: the calling
//!   thread runs the loop while a call waits, so a message goes from the wire into the caller's
//!   buffer without a switch of threads. All handles stay on that thread. While the program does
//!   something else, the stack answers and retransmits nothing. So this driver is for clients and
//!   servers that mostly use the network. [`Stack::run_for`] runs the loop for a while.
//! - [`Thread`], made by [`Setup::thread`]: the stack has a thread of its own. The handles are
//!   `Send` and `Sync`, and a thread that waits sleeps. Segments that arrive are copied once, into
//!   the reader's buffer; what is sent, and datagrams, go through bounded buffers.
//!
//! - [`Sim`], made by [`SimHost::new`]: a simulation, in virtual time. A call that has to wait
//!   suspends the shepherd that the program runs on. The handles are `Send` and `Sync`, as
//!   asynchronous runtimes demand of tasks, but work only on the simulation's thread; on another
//!   one they answer `ENETDOWN`. The crate `xk-world` makes worlds of such hosts.
//!
//! # Where the transports run
//! The transports may run in three places: in the program, as a graph of its own; in another
//! process, whose domain is open to this user (`Setup::attached`, with the feature `attach`); or in
//! both, where a registry sets up connections and the program's own transport carries them on
//! (`Setup::library`). When the other process has ended, calls that need it fail with `ENETDOWN`,
//! including those that are waiting. Streams and ports of a library outlive the registry.
//!
//! # Readiness
//! [`Poller`] waits for many sockets at once, level- or edge-triggered. If the stack has a thread
//! of its own, the poller has a descriptor for poll(2), select(2) and epoll(7), wherever the
//! transports run. Programs with a loop of their own can use [`Source::watch`], on which it is
//! built.
//!
//! # Limits
//! IPv6 addresses answer `EAFNOSUPPORT`. The stack does not look up names: `ToSocketAddrs` uses the
//! system's resolver.

mod address;
mod conversation;
mod driver;
mod error;
mod handle;
mod layer;
mod poller;
mod ready;
mod setup;
mod stack;
mod tcp;
mod udp;

pub use conversation::{Conversation, Heard, Returned};
pub use driver::{Crashed, Driver, Here, JoinHandle, Parked, Sim, SimHost, Thread, have_spawned};
pub use layer::{GroupChange, Joining, Sharing};
pub use poller::{Event, Mode, Poller};
pub use ready::{Ready, Watch, WatchId, stir, take_stirred};
pub use setup::Setup;
pub use stack::{Source, Stack};
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use xk_core::{Entry, HostAddr};
pub use xk_kit::net::attribute::{Arrived, Sending};
pub use xk_kit::net::stream::{
    KeepAlive, StreamEcn, StreamInfo, StreamMarks, StreamSetting, StreamState,
};
pub use xk_run::Idle;
