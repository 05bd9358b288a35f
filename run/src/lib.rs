//! What runs a kernel on a host: everything the core asks for from outside.

pub mod memfd_unsafe;
pub mod switch;
