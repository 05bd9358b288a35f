//! The sockets of `xk-net` for tokio: the same names and errors, but a task waits instead of a
//! thread.
//!
//! They need a stack with a thread of its own ([`xk_net::Setup::thread`]), which wakes the tasks,
//! or one that a simulation drives ([`xk_net::Sim`]). tokio's own reactor takes no part, so any
//! runtime will do. Further methods are reached through [`TcpStream::get_ref`] and its
//! counterparts.
//!
//! ```
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//! use xk_tokio::{Stack, UdpSocket};
//!
//! # async fn run() -> std::io::Result<()> {
//! let graph = r#"host alone {
//!     loopback; ip loopback { address "10.0.0.1/24"; }; icmp ip; udp ip
//! }"#;
//! let stack: Stack = xk_net::Setup::from_text(graph, xk_catalog::PROTOCOLS).thread()?;
//! let one = UdpSocket::bind(&stack, "10.0.0.1:0")?;
//! let other = UdpSocket::bind(&stack, "10.0.0.1:0")?;
//! one.send_to(b"hello", other.local_addr()?).await?;
//! let (octets, _) = other.recv_from(&mut [0; 16]).await?;
//! assert_eq!(octets, 5);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run()).unwrap();
//! ```

mod conversation;
#[cfg(feature = "frames")]
mod datagrams;
#[cfg(feature = "frames")]
pub mod frames;
#[cfg(feature = "tonic")]
mod incoming;
#[cfg(feature = "quinn")]
mod quic;
mod task;
mod tcp;
mod udp;

pub use conversation::Conversation;
#[cfg(feature = "frames")]
pub use datagrams::Datagrams;
#[cfg(feature = "frames")]
pub use frames::Frames;
#[cfg(feature = "tonic")]
pub use incoming::Incoming;
#[cfg(feature = "quinn")]
pub use quic::QuicSocket;
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;

/// A stack, with a thread of its own unless another driver is named.
pub type Stack<D = xk_net::Thread> = xk_net::Stack<D>;
