//! Graphs against programs that none of us wrote: the Linux kernel and its tools, in network
//! namespaces.
//!
//! The tests are in `tests/peers`; here is what they stand on.
//!
//! | module | what it gives |
//! | --- | --- |
//! | [`appletalk`] | a cable with a guest that has Linux's AppleTalk and netatalk |
//! | [`organisation`] | the graph of a test cut into domains, in other ways than its text says |
//! | [`program`] | programs with a library of protocols, where the organisation has them |
//! | [`stack`] | a graph running on a thread of its own inside a namespace |
//! | [`testbed`] | namespaces, a link to Linux (TAP, or veth with `packet`), and captures that `tshark` judges |
//!
//! Besides, `tests/smoltcp.rs` has smoltcp as the peer in virtual time, and `tests/carriers.rs` TCP
//! over the system's UDP, bare links and layers that pass things on; neither needs privilege.
//!
//! The long forms of the tests of streams, up to a gigabyte each way and a hundred thousand
//! connections, as root: `XK_LONG=1 cargo test -p xk-peers --test peers -- streams:: paths::
//! many::`; of the flood of SYNs, a million at full speed: `XK_SYN_FRAMES=1000000
//! XK_SYN_RATE=10000000 cargo test -p xk-peers --test peers -- flood_of_syns`.
//!
//! Run them with `cargo xtask test --only peers`, or, as root, `cargo test -p xk-peers`. Captures
//! stay in `target/tmp/peers` until the next run.

pub mod appletalk;
pub mod organisation;
pub mod program;
pub mod stack;
pub mod testbed;
