//! Options of sockets, and packet sockets.
//!
//! Source: socket(7), packet(7).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use libc::c_int;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

fn outcome(answer: c_int) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets an option.
///
/// # Safety
/// `T` is what the option takes; what it points to is valid during the call.
pub unsafe fn set<T>(socket: impl AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let octets = size_of::<T>() as libc::socklen_t;
    let (fd, value) = (socket.as_fd().as_raw_fd(), std::ptr::from_ref(value).cast());
    // SAFETY: the pointer and the length are those of one `T`, which outlives the call; the system
    // only reads it, and what it points to, which is valid as the caller says.
    outcome(unsafe { libc::setsockopt(fd, level, option, value, octets) })
}

/// Asks for an option.
///
/// # Safety
/// `T` is plain data in which any octets are valid.
pub unsafe fn get<T>(
    socket: impl AsFd,
    level: c_int,
    option: c_int,
    value: &mut T,
) -> io::Result<()> {
    let mut octets = size_of::<T>() as libc::socklen_t;
    let (fd, value) = (socket.as_fd().as_raw_fd(), std::ptr::from_mut(value).cast());
    // SAFETY: the pointer and the length are those of one `T`, which outlives the call; the system
    // writes no more, and any octets are valid there, as the caller says.
    outcome(unsafe { libc::getsockopt(fd, level, option, value, &raw mut octets) })
}

/// Sets an option whose value is a number.
pub fn set_number(socket: impl AsFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: a number points to nothing; where the option takes something longer the system
    // refuses it by its length.
    unsafe { set(socket, level, option, &value) }
}

/// Asks for an option whose value is a number.
pub fn number(socket: impl AsFd, level: c_int, option: c_int) -> io::Result<c_int> {
    let mut value = 0;
    // SAFETY: any octets are a valid number.
    unsafe { get(socket, level, option, &mut value) }?;
    Ok(value)
}

/// Opens a packet socket that receives nothing before it is [bound](bind).
pub fn packet_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?)
}

/// Takes part in what interface `index` receives of the EtherType `kind`, or nothing if that is 0,
/// and sends through it.
pub fn bind(socket: impl AsFd, index: c_int, kind: u16) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain data in which all zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = kind.to_be();
    address.sll_ifindex = index;
    let (fd, octets) = (socket.as_fd().as_raw_fd(), size_of_val(&address) as libc::socklen_t);
    // SAFETY: the pointer and the length are those of one `sockaddr_ll`, which outlives the call.
    outcome(unsafe { libc::bind(fd, (&raw const address).cast(), octets) })
}

/// Lets the interface take in frames for every hardware address, as long as the packet socket is
/// open.
pub fn set_promiscuous(socket: impl AsFd, index: c_int) -> io::Result<()> {
    set_membership(socket, index, (libc::PACKET_MR_PROMISC, &[]), true)
}

/// Lets the interface take in frames for this group as long as the packet socket is open, or takes
/// one such wish back: the system counts them.
pub fn set_group(
    socket: impl AsFd,
    index: c_int,
    group: [u8; 6],
    is_joined: bool,
) -> io::Result<()> {
    set_membership(socket, index, (libc::PACKET_MR_MULTICAST, &group), is_joined)
}

fn set_membership(
    socket: impl AsFd,
    index: c_int,
    (kind, address): (c_int, &[u8]),
    is_on: bool,
) -> io::Result<()> {
    let mut mr_address = [0; 8];
    mr_address.iter_mut().zip(address).for_each(|(to, from)| *to = *from);
    let (mr_type, mr_alen) = (kind as libc::c_ushort, address.len() as libc::c_ushort);
    let request = libc::packet_mreq { mr_ifindex: index, mr_type, mr_alen, mr_address };
    let option = match is_on {
        true => libc::PACKET_ADD_MEMBERSHIP,
        false => libc::PACKET_DROP_MEMBERSHIP,
    };
    // SAFETY: both options take one `packet_mreq`, which points to nothing.
    unsafe { set(socket, libc::SOL_PACKET, option, &request) }
}
