//! Tests of `vipsize`.

mod laws;
mod sessions;
