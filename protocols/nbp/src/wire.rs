//! The packets: those of the crate that all of AppleTalk's frameworks share.

pub use xk_appletalk::nbp::{Entity, Error, Function, Packet, Tuple};
