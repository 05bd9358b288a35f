//! Objects as participants, with a module for each protocol: found wherever they are ([`objloc`]),
//! invoked ([`objinv`]) and moved ([`objmove`]), as in the run-time support of Emerald that Figure
//! 3 of "The x-Kernel" shows on UDP. Objects without a kernel are the tables and searches,
//! [`places`], and the moves in two phases, [`moves`].
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
