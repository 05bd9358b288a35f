//! AppleTalk for STREAMS, written as an author of STREAMS drivers would over the machines of
//! `xk-appletalk`: [`ddp`], a multiplexor over `ether` with address resolution.
#![no_std]

extern crate alloc;

mod common;
pub mod ddp;
