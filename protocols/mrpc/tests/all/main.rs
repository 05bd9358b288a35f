//! All tests of this crate that need no process of their own: one program, linked once.

mod behaviour;
mod net;
mod octets;
mod simulation;
mod steady;
