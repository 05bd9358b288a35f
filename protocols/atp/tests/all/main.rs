//! ATP between a lower and an upper of the test kit.

mod behaviour;
mod laws;
