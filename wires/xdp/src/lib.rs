//! AF_XDP sockets: frames between an interface and rings in shared memory.
//!
//! [`XdpSocket`] is one queue of an interface with memory of its own, for programs that want frames and no graph.

mod bare;
mod bpf_unsafe;
mod error;
mod frames_unsafe;
mod interface_unsafe;
mod program;
mod queue;
mod ring_unsafe;

pub use bare::{Fate, Mode, Options, Statistics, XdpSocket};
pub use bpf_unsafe::{Object, objects};
pub use error::XdpError;
pub use program::{MATCHES_MAX, Share};
pub use queue::Losses;
