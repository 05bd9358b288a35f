//! AppleTalk over STREAMS: hosts on one link, each a kernel.

mod atp;
mod ddp;
mod echo;
mod names;
mod rig;
mod router;
mod xkernel;
