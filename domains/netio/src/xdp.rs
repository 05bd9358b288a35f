//! Channels of the network I/O module ([the crate](crate)) that the system itself checks and
//! demultiplexes, by programs at interfaces (eBPF, RFC 9669; `AF_XDP`).
//!
//! A program's channel is an XDP socket on one end of a pair of virtual interfaces (veth(4)), with
//! memory of its own. What it sends has been copied by the system, out of its reach, once it comes
//! out of the other end. There a program compares it with the templates of the channel's rights and
//! gives it to the uplink, or drops and counts it. A program at the uplink's entrance gives what
//! arrives and fits a right to that right's channel, and all else to the host's own stack. So no
//! frame of a channel goes through the module's process, which only changes maps: see [`Steering`].
//!
//! | | module in its process (this crate) | the system ([`Steering`]) |
//! | --- | --- | --- |
//! | a frame sent | copied once by the module, compared by it | copied once by the system, compared by it |
//! | beyond the rate | waits in the ring | dropped |
//! | not as granted | dropped; 100 end the channel | dropped; after 100 nothing passes |
//! | as one of the last 256 rights that have ended | dropped and counted, no more | likewise |
//! | wires | all | Linux interfaces |
//! | if the module dies | channels end | they end: nothing passes |
//! | needs | the wire's rights | `CAP_NET_ADMIN`, `CAP_NET_RAW`, `CAP_BPF`; to begin, `CAP_SYS_ADMIN` |
//!
//! A socket of a queue of the uplink itself would not do: all sockets of a queue share one memory,
//! and what is sent there goes out unseen.

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
