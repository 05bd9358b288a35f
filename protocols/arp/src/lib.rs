//! Address Resolution Protocol.
#![no_std]

#[cfg(test)]
extern crate std;

#[doc(hidden)]
pub mod fuzz;
pub mod wire;
