//! AppleTalk over STREAMS: hosts on one link, each a kernel.

mod ddp;
mod rig;
