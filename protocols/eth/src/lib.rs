//! Ethernet II and IEEE 802.3 framing.
#![no_std]

#[cfg(test)]
extern crate std;

#[doc(hidden)]
pub mod fuzz;
pub mod wire;
