//! Channels of the network I/O module that the system itself checks and demultiplexes, by programs
//! at interfaces.

mod programs;
mod space_unsafe;
mod steering;
mod table;
mod veth;

pub use programs::Counts;
pub use steering::{Steering, SteeringError};
