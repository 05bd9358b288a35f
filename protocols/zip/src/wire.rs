//! The packets: those of the crate that all of AppleTalk's frameworks share.

pub use xk_appletalk::zip::{
    Error, ListKind, ListReply, ListRequest, NetInfo, NetInfoRequest, Notify, Packet, Reply,
};
