//! The protocols of the Internet for STREAMS, written as an author of STREAMS drivers would:
//! [`ether`], a multiplexor over one device of frames; [`udp`], a multiplexor over a layer that
//! carries packets between hosts; and [`wire`], a device over a wire of the x-kernel, for programs
//! without a graph file.
#![no_std]

extern crate alloc;

pub mod ether;
pub mod udp;
pub mod wire;
