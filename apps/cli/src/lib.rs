//! Sockets over protocol graphs, for programs.
//!
//! `xk::net` has the names of `std::net`: see [`net`]. Authors of protocols use the crates
//! `xk-core` and `xk-kit`.

pub use xk_net as net;
