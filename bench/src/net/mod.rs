//! Benchmarks between two processes, and what they need: namespaces with a veth pair between them,
//! and this program started twice more as the two ends.
//!
//! A round of a case starts both ends, lets them exchange messages for a bounded time and ends
//! them; so nothing of one system runs while another is measured.

mod between;
mod call_user;
pub(crate) mod child;
mod course;
pub(crate) mod endpoint;
mod exchange;
pub(crate) mod frame_rate;
mod frames;
pub(crate) mod group;
mod memory;
mod memory_unsafe;
mod pattern;
mod peer;
pub(crate) mod round_trip;
pub(crate) mod rows;
mod smoltcp_raw;
mod sockets;
mod sockets_unsafe;
mod space;
mod space_unsafe;
mod stack;
pub(crate) mod stream;
mod stream_sockets;
mod stream_user;
pub(crate) mod tcp;
pub(crate) mod testbed;
mod user;
