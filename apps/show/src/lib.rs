//! A graph simulated and shown on a terminal: what `xk demo` and `xk sim` have in common, and what
//! every command writes with.
//!
//! The program `xk-demo` is `xk demo` by itself, with the few protocols that its graph names: it is
//! built in a fraction of the time that `xk` takes, and shows the same.

pub mod demo;
pub mod failure;
pub mod figures;
pub mod live;
pub mod output;
pub mod simulation;
pub mod table;
