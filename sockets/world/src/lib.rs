//! A simulator for a program's own network code: hosts of a graph run the programs of a test on the
//! real stack, in virtual time.
//!
//! ```
//! use std::time::Duration;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use xk_world::{Link, Result, TcpListener, TcpStream, World};
//!
//! xk_world::seeds(0..20, |seed| {
//!     let link = Link::new().delay(Duration::from_millis(5)).loss(0.05);
//!     let mut world = World::lan(seed, &["server", "client"], link)?;
//!     world.host("server", |stack| async move {
//!         let listener = TcpListener::bind(&stack, "0.0.0.0:7")?;
//!         let (mut stream, _) = listener.accept().await?;
//!         let octet = stream.read_u8().await?;
//!         Ok(stream.write_u8(octet).await?)
//!     })?;
//!     world.client("client", |stack| async move {
//!         let mut stream = TcpStream::connect(&stack, "server:7").await?;
//!         stream.write_u8(b'h').await?;
//!         Result::Ok(assert_eq!(stream.read_u8().await?, b'h'))
//!     })?;
//!     world.run(Duration::from_secs(60))
//! });
//! ```
//!
//! # Programs
//! [`World::host`] and [`World::client`] take asynchronous programs. Each host has a tokio runtime
//! of its own, with `tokio::spawn`, timers, channels, and libraries that use them. Streams are
//! `AsyncRead` and `AsyncWrite`. [`World::blocking_host`] and [`World::blocking_client`] take
//! blocking programs, which use the sockets of [`blocking`]; `Stack::spawn` starts further ones
//! beside them, as `std::thread::spawn` starts threads. A program is called when its host starts,
//! and again after each restart.
//!
//! When a host crashes, its tasks are dropped, its blocking programs unwind with [`Crashed`], and
//! their sockets vanish without a segment to their peers. A blocking program that catches
//! [`Crashed`] and waits again, or waits for something of the standard library, keeps its stack
//! until the process ends. So do threads of that host, which never run again. Programs cannot crash
//! in a profile with `panic = "abort"`.
//!
//! # Threads
//! Threads that a program starts, including those of `spawn_blocking`, belong to the world: one
//! thread runs at a time, in an order that the seed decides, and the world's time stands still
//! while it runs. So computing takes no time, `std::thread::sleep` takes virtual time, and an event
//! that a program awaits from a thread, a file or a lookup comes at the same moment in each run of
//! a seed. Locks, channels and conditions of the standard library, and others made of futexes, wait
//! in virtual time; the C library's `pthread_mutex_t` does so only between threads that never wait
//! for one another. A thread that neither waits nor ends is reported on stderr. On a thread,
//! sockets of the world answer `ENETDOWN`; blocking programs start programs with `Stack::spawn` for
//! that.
//!
//! All blocking programs of a world run on one thread of the standard library. They share locks and
//! conditions, but not `thread_local!`s. A channel of `std::sync::mpsc` or `thread::park` can be
//! woken from another thread, but not from another program.
//!
//! An asynchronous program that blocks until time passes, for example in `std::thread::sleep`, ends
//! the run with an error. So does one that makes a socket of the system.
//!
//! # One seed, one run
//! [`seeds`] runs a test twice for each seed, each time in a process of its own, and fails if the
//! two runs differ. On the threads of a world the C library's `clock_gettime` returns virtual time;
//! `getrandom`, also as a bare `syscall`, returns random bits from the seed; `getaddrinfo` knows
//! only the world's hosts and `localhost`. So `Instant`, `SystemTime`, `HashMap`, `ToSocketAddrs`,
//! tokio's timers and the keys of ring are deterministic. These are not:
//!
//! - Generators that read random bits directly from the processor or a device. A test of such a
//!   program calls [`World::allow_random_octets`]; then the times and lengths of all frames are
//!   compared, but not their octets.
//! - Other information from the system: the number of the process, times of files.
//! - Programs of two hosts that share a channel or a lock beside the network. If the receiving host
//!   is asynchronous, it notices such a message only at its next event.
//!
//! A panic in a task that a program has spawned ends only that task, as in tokio: its handle
//! reports the panic, and the run goes on.
//!
//! # Faults
//! A test causes faults between runs, and a program by [`World::faults`]: hosts crash, restart and
//! pause, do not hear each other in one direction or both, or have wrong clocks; streams are reset;
//! links change. [`World::fired`] returns how often each fault had an effect; [`seeds`] and
//! [`sweep`] fail if one had none in any seed.
//!
//! # Many seeds and parameters
//! [`sweep`] runs a test for every combination of parameters with every seed, by a pool of
//! processes, and keeps a row for each run, as `xk sweep` does.

mod crew;
mod faults;
mod folder;
mod link;
mod outcome;
mod parts;
mod runs;
mod runtime;
mod seeds;
mod sweep;
mod system_unsafe;
mod threads_unsafe;
mod world;

pub use faults::{Faults, Skew};
pub use link::Link;
pub use outcome::Outcome;
pub use seeds::seeds;
pub use sweep::{Sweep, figure, sweep};
pub use world::World;
pub use xk_core::{Entry, Time};
pub use xk_net::{Crashed, JoinHandle, Mode, Ready, Sim};
pub use xk_sim::LinkConfig;
pub use xk_sweep::Job;

/// Result of programs and tests.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The sockets of one host, for its programs.
pub type Stack = xk_net::Stack<Sim>;
/// One end of a stream, for asynchronous programs.
pub type TcpStream = xk_tokio::TcpStream<Sim>;
/// A listening socket, for asynchronous programs.
pub type TcpListener = xk_tokio::TcpListener<Sim>;
/// A socket for datagrams, for asynchronous programs.
pub type UdpSocket = xk_tokio::UdpSocket<Sim>;

/// Sockets for blocking programs, like those of `std::net`.
pub mod blocking {
    use crate::Sim;

    /// One end of a stream.
    pub type TcpStream = xk_net::TcpStream<Sim>;
    /// A listening socket.
    pub type TcpListener = xk_net::TcpListener<Sim>;
    /// A socket for datagrams.
    pub type UdpSocket = xk_net::UdpSocket<Sim>;
    /// Waits for many sockets of one host at once.
    pub type Poller = xk_net::Poller<Sim>;
}

/// The protocols that graphs of [`World::lan`] are made of.
pub static PROTOCOLS: &[&Entry] = &[
    &xk_sim::ENTRY,
    &xk_eth::ENTRY,
    &xk_arp::ENTRY,
    &xk_ip::ENTRY,
    &xk_icmp::ENTRY,
    &xk_udp::ENTRY,
    &xk_tcp::ENTRY,
    &xk_psync::ENTRY,
    &xk_membership::ENTRY,
    &xk_order::ENTRY,
];
