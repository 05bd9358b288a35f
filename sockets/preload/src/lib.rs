//! The library that `xk exec` loads into unmodified programs (`LD_PRELOAD`).
//!
//! It stands in front of a few functions of the C library and holds no state that a fork, an exec or a second thread could
//! hurt. A TCP socket stays Linux's own until it is bound or connected to an address of the graph; then a stream socket of the
//! system takes its place under the same descriptor, whose other end the relay (`xk-relay`) joins to the stack. Everything else
//! (read, write, send, recv, poll, select, epoll, fcntl, dup, close, shutdown, sendfile, fork) is the system's work as before. The
//! names of those sockets carry the addresses of both ends.
//!
//! | function | what is done here |
//! | --- | --- |
//! | `bind`, `connect` | addresses of the graph go to the relay, all others to Linux |
//! | `accept`, `accept4`, `getsockname`, `getpeername` | names become addresses |
//! | `getsockopt`, `setsockopt` | `SO_ERROR`, `SO_DOMAIN`, `SO_PROTOCOL`, options of TCP and IP |
//! | `epoll_ctl` | notes registrations, so that they outlive the change of a socket |
//!
//! # What it cannot do
//! Datagrams go to Linux. Loopback addresses (127/8) are Linux's. A reset by the peer is seen as the end of the stream, unless
//! octets of the program were still on their way. Programs that make system calls by themselves (statically linked ones, Go) are
//! not reached. A program that wants to see the sender of a stream's octets in `recvfrom` sees the socket's name.

mod ask;
mod registrations_unsafe;
mod replace;
mod socket_unsafe;
pub mod symbols_unsafe;
