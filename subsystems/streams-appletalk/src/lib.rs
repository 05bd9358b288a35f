//! AppleTalk for STREAMS, written as an author of STREAMS drivers would over the machines of
//! `xk-appletalk`: [`ddp`], a multiplexor over `ether` with address resolution, and over it
//! [`aep`], [`atp`], [`nbp`] and [`rtmp`].
#![no_std]

extern crate alloc;

pub mod aep;
pub mod atp;
mod common;
pub mod ddp;
pub mod nbp;
pub mod rtmp;
