//! # Synopsis
//! `tcp LOWER` — Transmission Control Protocol: streams of octets between ports, complete, in order and once.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod congestion;
pub mod loss;
pub mod seq;

pub use seq::Seq;
