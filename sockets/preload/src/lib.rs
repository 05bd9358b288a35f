//! The library that `xk exec` loads into unmodified programs (`LD_PRELOAD`).
//!
//! It replaces a few functions of the C library, and has no state that a fork, an exec or a second
//! thread could damage. A socket is Linux's own until it is bound or connected to an address of the
//! graph, or sends to one. Then a socket of the system takes its place under the same descriptor,
//! and the relay (`xk-relay`) joins its other end to the stack. The system does everything else as
//! before (poll, select, epoll, fcntl, dup, close, shutdown, sendfile, fork). The names of those
//! sockets have the addresses of both ends.
//!
//! | function | what is done here |
//! | --- | --- |
//! | `bind`, `connect` | addresses of the graph go to the relay, all others to Linux |
//! | `listen` | the relay is told; before it a bound socket answers no peer |
//! | `accept`, `accept4`, `getsockname`, `getpeername` | names become addresses |
//! | `getsockopt`, `setsockopt` | options of TCP, UDP and IP, and those of the socket that concern the stack |
//! | `send`, `sendto`, `sendmsg`, `sendmmsg`, `write`, `writev` | addresses become names; a broken stream says why |
//! | `recv`, `recvfrom`, `recvmsg`, `recvmmsg`, `read`, `readv` | names become addresses; a stream that broke says why |
//! | `close`, `shutdown` | a listener that is closed or shut down is told to the relay; what has no peer is not shut |
//! | `ioctl` | what the peer of a stream has not acknowledged (`SIOCOUTQ`, `SIOCOUTQNSD`) |
//! | `getaddrinfo` | numbers are addresses whether Linux has any address or not |
//! | `chroot`, `execve`, `execvp`, `posix_spawn`, `posix_spawnp` | says what the graph's sockets do not outlive |
//! | `epoll_ctl` | notes registrations, so that they outlive the change of a socket |
//! | `poll`, `ppoll`, `epoll_wait`, `epoll_pwait` | completions of `MSG_ZEROCOPY` that wait |
//!
//! # What it cannot do
//! Loopback addresses (127/8) and IPv6 addresses are Linux's; a socket bound to any host serves
//! both. The library does not reach programs that make system calls directly (statically linked
//! ones, Go). A close never waits (`SO_LINGER`), and there are no urgent data (`MSG_OOB`).

mod ask;
mod carried;
mod controls_unsafe;
mod heap_unsafe;
mod names_unsafe;
mod next_unsafe;
mod options_unsafe;
mod programs_unsafe;
mod receive_unsafe;
mod registrations_unsafe;
mod replace;
mod said;
mod send_unsafe;
mod socket_unsafe;
mod stream_unsafe;
mod symbols_unsafe;
mod zerocopy_unsafe;
