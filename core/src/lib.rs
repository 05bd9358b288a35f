//! The x-kernel architecture: protocol and session objects with one uniform
//! interface, the messages that move through them, and the tools they share.
//!
//! This crate names no protocol and holds no clock, no I/O, no thread and no
//! source of randomness: time and random bits come in through [`Kernel`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod message;
