//! The lower halves: what stands on the protocol below, in each subsystem.

pub(crate) mod bsd;
pub(crate) mod ether;
pub(crate) mod streams;
pub(crate) mod xk;
