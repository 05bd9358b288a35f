//! A program's own network code in the simulator: hosts of a graph, each with the program that a
//! test says, on the stack that ships, in virtual time.
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
//! [`World::host`] and [`World::client`] take asynchronous ones, for a tokio runtime of the host's
//! own: `tokio::spawn`, timers, channels, and libraries made of them. Streams are `AsyncRead` and
//! `AsyncWrite`. [`World::blocking_host`] and [`World::blocking_client`] take blocking ones, which
//! use the sockets of [`blocking`]; `Stack::spawn` starts others beside them, as
//! `std::thread::spawn` starts threads. Each is called when its host starts, and again after each
//! restart.
//!
//! A host that crashes has no last word: its tasks are dropped, its blocking programs unwind with
//! [`Crashed`], and their sockets are gone without a segment to their peers. A blocking program
//! that catches [`Crashed`] and waits again, or waits for something of the standard library, keeps
//! its stack until the process ends; so do threads of that host, which never run again. Programs
//! cannot crash in a profile with `panic = "abort"`.
//!
//! # Threads
//! A thread that a program starts, and each of `spawn_blocking`, belongs to the world: one thread
//! runs at a time, in the order of the seed, and the world's time stands still while it does. So
//! work takes no time, `std::thread::sleep` takes virtual time, and what a program awaits from a
//! thread, a file or a lookup comes at one moment for each seed. Locks, channels and conditions of
//! the standard library, and of what is made of futexes, wait in virtual time; those of the C
//! library's `pthread_mutex_t` do between threads that never wait for one another. A thread that
//! neither waits nor ends is told of on stderr. Sockets of the world answer `ENETDOWN` on a
//! thread; blocking programs start others with `Stack::spawn` for those.
//!
//! All blocking programs of a world are one thread to the standard library: they share locks and
//! conditions, but not `thread_local!`s, and a channel of `std::sync::mpsc` or `thread::park` wakes
//! a program from another thread, and not from another program.
//!
//! An asynchronous program that itself blocks for what only time brings, as `std::thread::sleep`,
//! ends the run with an error that says so; so does one that asks for a socket of the system.
//!
//! # One seed, one run
//! [`seeds`] runs a test twice for each seed, each time in a process of its own, and fails if the
//! two differ. On the threads of a world the C library's `clock_gettime` answers virtual time,
//! `getrandom`, also as a bare `syscall`, random bits from the seed, `getaddrinfo` the addresses of
//! the world's hosts, `localhost`, and nothing else: so `Instant`, `SystemTime`, `HashMap`,
//! `ToSocketAddrs`, tokio's timers, and the keys of ring are the world's. Not so what goes another
//! way:
//!
//! - Generators that read the processor's or a device's bits by themselves. A test of such says
//!   [`World::allow_random_octets`]: then the times and lengths of all frames are compared, and not
//!   their octets.
//! - What the system says beside these functions: the number of the process, times of files.
//! - Programs of two hosts that share a channel or a lock beside the network: what one tells the
//!   other that way is seen with the next thing that happens on the other's host, if that is an
//!   asynchronous one.
//!
//! A panic of a task that a program has spawned is that task's, as tokio has it: its handle tells
//! of it, and the run goes on.
//!
//! # Faults
//! By the test between runs, or from inside of a program by [`World::faults`]: hosts crash, restart
//! and pause, do not hear each other one way or both, have clocks of their own; streams are reset;
//! links change. [`World::fired`] says how often each has had an effect, and [`seeds`] and
//! [`sweep`]
//! fail if one has had none in any seed.
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
/// A socket that listens, for asynchronous programs.
pub type TcpListener = xk_tokio::TcpListener<Sim>;
/// A socket for datagrams, for asynchronous programs.
pub type UdpSocket = xk_tokio::UdpSocket<Sim>;

/// Sockets for blocking programs, as those of `std::net`.
pub mod blocking {
    use crate::Sim;

    /// One end of a stream.
    pub type TcpStream = xk_net::TcpStream<Sim>;
    /// A socket that listens.
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
];
