//! The packet: that of the crate that all of AppleTalk's frameworks share.

pub use xk_appletalk::aarp::{ALL_NODES, Error, Function, Hw, PACKET_LEN, Packet};
