//! All tests of this crate that need no process of their own: one program, linked once.

mod common;
mod errors;
mod laws;
mod openings;
mod with_ip;
