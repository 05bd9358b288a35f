//! All tests of this crate that need no process of their own: one program, linked once.

mod language;
mod mistakes;
