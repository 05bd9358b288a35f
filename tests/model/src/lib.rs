//! The rings of `xk-shm`, compiled as they are over memory whose every access a model checker sees:
//! it goes through the orders in which two threads may run, and through what the memory model lets
//! each load find (<https://docs.rs/loom>).
//!
//! `ring.rs` is a link to the file of `xk-shm`; its tests are here.

mod layout;
mod memory_unsafe;
mod ring;

pub use layout::Geometry;
pub use ring::{Arrival, Broken, RingEnd, SendError};
