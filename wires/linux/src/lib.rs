//! Calls of Linux about interfaces and sockets that wires need and rustix lacks.

mod inherited_unsafe;
mod interface_unsafe;
mod socket_unsafe;

pub use inherited_unsafe::{claim, inherited};
pub use interface_unsafe::{
    Interface, InterfaceError, add_route, address, existing, flags, hardware_address, mtu, request,
    set_address, set_mtu, set_up,
};
pub use socket_unsafe::{
    bind, get, number, packet_socket, set, set_group, set_number, set_promiscuous,
};

use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt;

/// Octets of the longest name of an interface (`IFNAMSIZ` less the end mark).
pub const NAME_OCTETS_MAX: usize = 15;

/// Makes room for so many octets of arrivals in a socket, or, without the privilege to have more,
/// as much as everybody may have (`net.core.rmem_max`).
pub fn set_receive_room(socket: impl AsFd, octets: usize) -> io::Result<()> {
    let forced = sockopt::set_socket_recv_buffer_size_force(&socket, octets);
    Ok(forced.or_else(|_| sockopt::set_socket_recv_buffer_size(&socket, octets))?)
}

/// As [`set_receive_room`], for what is sent.
pub fn set_send_room(socket: impl AsFd, octets: usize) -> io::Result<()> {
    let forced = sockopt::set_socket_send_buffer_size_force(&socket, octets);
    Ok(forced.or_else(|_| sockopt::set_socket_send_buffer_size(&socket, octets))?)
}
