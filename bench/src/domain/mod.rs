//! The cost of a cut: each operation across it, by thread and by process, beside the bare exchange
//! over the same memory.

pub(crate) mod lending;
mod mirror;
pub(crate) mod notify;
pub(crate) mod operations;
pub(crate) mod round_trip;
