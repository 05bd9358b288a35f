//! Objects as participants, a module for each kind of protocol: found wherever they are
//! ([`objloc`]), invoked ([`objinv`]) and moved ([`objmove`]), as by the run-time support of
//! Emerald that Figure 3 of "The x-Kernel" has on UDP. The tables and searches are objects without
//! a kernel, [`places`]; so are moves in two phases, [`moves`].
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod moves;
pub mod objinv;
pub mod objloc;
pub mod objmove;
pub mod places;
pub mod wire;
