//! The header: that of the crate that all of AppleTalk's frameworks share.

pub use xk_appletalk::aep::{DATA_LEN_MAX, Error, Function, HEADER_LEN};
