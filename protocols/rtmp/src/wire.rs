//! The packets: those of the crate that all of AppleTalk's frameworks share.

pub use xk_appletalk::rtmp::{Data, Error, Request, Route};
