//! The header: that of the crate that all of AppleTalk's frameworks share.

pub use xk_appletalk::ddp::{
    DATA_LEN_MAX, Error, HOPS_MAX, LONG_LEN, Long, SOCKETS_DYNAMIC, Sum, is_socket,
};
