//! Runs a kernel on a host: supplies everything that the core asks for from outside.
//!
//! - [`switch`]: stacks for shepherds
//! - [`Runner`]: the poll loop of a real host, which spins for a bounded time and then sleeps
//! - [`Bell`]: how other threads wake that loop, and [`CommandQueue`]: what they have done there
//! - [`HostClock`]: the host's monotonic clock
//! - [`Recorder`]: every crossing of a message, with nanoseconds per layer
//! - [`interrupt_unsafe`]: Ctrl-C as a flag
//! - [`MemfdArena`](memfd_unsafe::MemfdArena): message memory that another process can map

mod bell;
mod clock;
mod commands;
mod epoll;
pub mod interrupt_unsafe;
pub mod memfd_unsafe;
mod recorder;
mod runner;
mod spin;
pub mod switch;

pub use bell::Bell;
pub use clock::HostClock;
pub use commands::{CALLS_QUEUED_MAX, CommandQueue, CommandWire, Executor, Posted, lock};
pub use recorder::{Dropped, Recorder, Span};
pub use runner::{Idle, Runner, RunnerStats, lending_kernel, real_kernel};
