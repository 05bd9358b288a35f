//! All tests of this crate that need no process of their own: one program, linked once.

mod behaviour;
mod laws;
mod net;
mod simulation;
