//! Benchmarks between two processes, and what they need: namespaces with a veth pair between them, and this program started
//! twice more as the two ends.
//!
//! A round of a case starts both ends, lets them exchange messages for a bounded time and ends them; so nothing of one system
//! runs while another is measured.

mod child;
mod end;
mod exchange;
mod frame_rate;
mod frames;
mod memory;
mod memory_unsafe;
mod peer;
mod round_trip;
mod scene;
mod smoltcp_raw;
mod sockets;
mod space;
mod space_unsafe;
mod stack;
mod stream;
mod user;

use crate::case::Benchmark;

pub(crate) use child::run_if_asked;

/// The benchmarks between two processes.
pub(crate) fn benchmarks() -> [Benchmark; 3] {
    [round_trip::benchmark(), stream::benchmark(), frame_rate::benchmark()]
}
