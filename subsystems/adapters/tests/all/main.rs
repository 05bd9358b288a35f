//! The laws of adapters, for all six: protocols of the tests' own in each subsystem, a loop below
//! and a recorder above.

mod asp;
mod bounds;
mod calls;
mod configurations;
mod edges;
mod flow;
mod internet;
mod laws;
mod lines;
mod links;
mod loops;
mod mixtures;
mod open_sums;
mod programs;
mod rig;
mod shortage;
