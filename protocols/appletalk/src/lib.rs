//! AppleTalk phase 2 without a framework: its octets, and its state machines, which know no clock
//! and no I/O.
//!
//! Points in time are [`Duration`](core::time::Duration)s since any moment that a caller holds to;
//! random numbers come in as arguments.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod aarp;
pub mod addr;
pub mod aep;
pub mod asp;
pub mod atp;
pub mod ddp;
pub mod llap;
pub mod name;
pub mod nbp;
pub mod pap;
pub mod rtmp;
pub mod zip;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
