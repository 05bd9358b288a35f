//! A program's own network code in the simulator: hosts of a graph, each with the program that a
//! test says, on the stack that ships, in virtual time.
//!
//! ```
//! use std::time::Duration;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use xk_world::{Result, TcpListener, TcpStream, World};
//!
//! xk_world::seeds(0..3, |seed| {
//!     let mut world = World::lan(seed, &["server", "client"], r#"delay="5ms" loss="5%""#)?;
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
//! use the sockets of [`blocking`], and [`xk_net::Stack::sleep`] to wait. Each is called when its
//! host starts, and again after each restart.
//!
//! A host that crashes has no last word: its tasks are dropped, its blocking programs unwind with
//! [`Crashed`], and their sockets are gone without a segment to their peers. A blocking program
//! that catches [`Crashed`] and waits again keeps its stack until the process ends. Programs cannot
//! crash in a profile with `panic = "abort"`.
//!
//! # One seed, one run
//! [`seeds`] runs a test twice for each seed, and fails if the two differ. On the thread of a world
//! the C library's `clock_gettime` answers virtual time, `getrandom` random bits from the seed,
//! `getaddrinfo` the addresses of the world's hosts and of nothing else, and `epoll_wait` that
//! nothing has come: so `Instant`, `SystemTime`, `HashMap`, `ToSocketAddrs` and tokio's timers are
//! the world's. Not so what goes another way:
//!
//! - Generators that make the system call themselves, as those of ring do. A test of TLS says
//!   [`World::allow_random_octets`]: then the times and lengths of all frames are compared, and not
//!   their octets. Signatures of ECDSA have several lengths, too; those of Ed25519 have one.
//! - `tokio::select!` without `biased`: tokio draws the order of its branches from a counter of the
//!   process.
//! - Threads of the program, and `spawn_blocking`: they are outside of the simulation, and sockets
//!   answer `ENETDOWN` there. `std::thread::sleep` takes real time.
//! - Programs of two hosts that share a channel or a lock beside the network: what one tells the
//!   other that way is seen with the next thing that happens on the other's host.
//!
//! A panic of a task that a program has spawned is that task's, as tokio has it: its handle tells
//! of it, and the run goes on.

mod outcome;
mod runtime;
mod seeds;
mod system_unsafe;
mod world;

pub use outcome::Outcome;
pub use seeds::seeds;
pub use world::World;
pub use xk_core::{Entry, Time};
pub use xk_net::{Crashed, Mode, Ready, Sim};
pub use xk_sim::LinkConfig;

/// What programs and tests answer.
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
