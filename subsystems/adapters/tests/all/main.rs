//! The laws of adapters, for all six: protocols of the tests' own in each subsystem, a loop below
//! and a recorder above.

mod configurations;
mod laws;
mod lines;
mod loops;
mod rig;
