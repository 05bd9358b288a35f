//! Internet Control Message Protocol.
#![no_std]

#[cfg(test)]
extern crate std;

extern crate alloc;

#[doc(hidden)]
pub mod fuzz;
pub mod wire;
