//! All tests of this crate: one program, linked once.

mod laws;
mod router;
