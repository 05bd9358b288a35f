//! Sockets over a graph, with the names, the semantics and the errors of `std::net`.
//!
//! A [`Stack`] is one host of a graph file, running. [`TcpListener`], [`TcpStream`] and
//! [`UdpSocket`] are made on it and are then used as those of the standard library are; errors
//! carry the numbers that Linux would give.
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
//! A graph names protocols by their kinds; the program says which it knows, by their entries. Here
//! it is the list of all, and links all. A program of one stack names the six or so of its graph,
//! `&[&xk_tap::ENTRY, &xk_eth::ENTRY, ...]`, and links no other: `docs/embed` is one.
//!
//! # What drives the stack
//! A graph runs only while a thread turns its loop. There are these ways, and everything is the
//! same in all of them but for this:
//!
//! - [`Here`], made by [`Stack::from_file`], [`Stack::from_text`] or [`Setup::here`]: the calling
//!   thread. A call that has to wait turns the loop meanwhile, so a message goes from the wire into
//!   the caller's buffer without a switch of threads. All handles stay on that thread, and while
//!   the program does something else nothing is answered or repeated: for clients and servers whose
//!   work is the network. [`Stack::run_for`] lends it a moment.
//! - [`Thread`], made by [`Setup::thread`]: a thread of the stack's own. The handles are `Send` and
//!   `Sync`; octets go through bounded buffers, and a thread that waits sleeps.
//!
//! - [`Sim`], made by [`SimHost::new`]: a simulation, in virtual time. A call that has to wait
//!   suspends the shepherd that the program runs on. The handles are `Send` and `Sync`, as tasks of
//!   asynchronous runtimes must be, and work on the simulation's thread alone; on another one they
//!   answer `ENETDOWN`. The crate `xk-world` makes worlds of such hosts.
//!
//! # Where the transports run
//! In the program, as a graph of its own; in another process, whose domain is open to this user
//! (`Setup::attached`, with the feature `attach`); or both: a registry begins connections, and the
//! program's own transport carries them on (`Setup::library`). Once that process has gone, all that
//! needs it fails with `ENETDOWN`, and what waits for it does; streams and ports that a library
//! carries on outlive the registry.
//!
//! # Readiness
//! [`Poller`] waits for many sockets at once, by level or by edge; beside a stack with a thread of
//! its own it has a descriptor for poll(2), select(2) and epoll(7), wherever the transports run.
//! [`Source::watch`] is what it is made of, for programs with a loop of their own.
//!
//! # What is not there
//! IPv6 addresses answer `EAFNOSUPPORT`. Names are not looked up by the stack: what `ToSocketAddrs`
//! needs a resolver for goes to the system's. Groups cannot be joined, and the time to live is the
//! graph's.

mod address;
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

pub use driver::{Crashed, Driver, Here, JoinHandle, Parked, Sim, SimHost, Thread, have_spawned};
pub use layer::Sharing;
pub use poller::{Event, Mode, Poller};
pub use ready::{Ready, Watch, WatchId, stir, take_stirred};
pub use setup::Setup;
pub use stack::{Source, Stack};
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use xk_core::Entry;
pub use xk_kit::net::attribute::{Arrived, Sending};
pub use xk_kit::net::stream::{
    KeepAlive, StreamEcn, StreamInfo, StreamMarks, StreamSetting, StreamState,
};
pub use xk_run::Idle;
