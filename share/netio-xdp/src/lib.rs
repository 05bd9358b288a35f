//! Channels of the network I/O module that the system itself checks and demultiplexes, by programs
//! at interfaces.

mod carrier;
mod handing;
mod programs;
mod space_unsafe;
mod steering;
mod table;
mod veth;

pub use carrier::XdpCarrier;
pub use handing::{hand_over, take_over};
pub use programs::Counts;
pub use steering::{Steering, SteeringError};
