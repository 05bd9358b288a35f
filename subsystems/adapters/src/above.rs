//! The upper halves: what the protocol above stands on, in each subsystem.

pub(crate) mod bsd;
pub(crate) mod streams;
pub(crate) mod xk;
