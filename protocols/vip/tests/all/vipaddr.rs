//! Tests of `vipaddr`.

mod laws;
mod sessions;
