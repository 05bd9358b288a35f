//! Settings of UDP sockets that only the system's own call has.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Has the system cut what is sent into datagrams of so many octets, and join arrivals of one
/// length (udp(7)).
pub(super) fn set_segments(socket: &UdpSocket, octets: usize) -> io::Result<()> {
    set(socket, libc::UDP_SEGMENT, octets)?;
    set(socket, libc::UDP_GRO, 1)
}

fn set(socket: &UdpSocket, option: libc::c_int, value: usize) -> io::Result<()> {
    let value = libc::c_int::try_from(value).unwrap_or(0);
    let octets = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and `value` is read for its
    // own size.
    let outcome = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            option,
            (&raw const value).cast(),
            octets,
        )
    };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
