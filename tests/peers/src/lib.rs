//! Graphs against programs that none of us wrote: the Linux kernel and its tools, in network namespaces.
//!
//! The tests are in `tests/peers`; here is what they stand on.
//!
//! | module | what it gives |
//! | --- | --- |
//! | [`stack`] | a graph running on a thread of its own inside a namespace |
//! | [`scene`] | namespaces, a link to Linux (TAP, or veth with `packet`), and captures that `tshark` judges |
//!
//! Run them with `cargo xtask test --only peers`, or, as root, `cargo test -p xk-peers`. Captures stay in `target/tmp/peers` until
//! the next run.

pub mod scene;
pub mod stack;
