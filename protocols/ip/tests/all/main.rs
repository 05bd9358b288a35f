//! All tests of this crate that need no process of their own: one program, linked once.

mod common;
mod ecn;
mod fragments;
mod groups;
mod headers;
mod host;
mod laws;
mod router;
