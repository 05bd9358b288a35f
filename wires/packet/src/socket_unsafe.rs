//! The system calls on packet sockets that rustix lacks: binding, options, and questions about an
//! interface.
//!
//! Source: packet(7), netdevice(7).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::ioctl::{Opcode, Updater, ioctl};

/// What is asked of an interface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interface {
    /// Its number.
    pub(crate) index: libc::c_int,
    /// Its MTU in octets.
    pub(crate) mtu: usize,
    /// Its hardware type (`ARPHRD_ETHER` and so on).
    pub(crate) hardware_type: u16,
    /// Its hardware address.
    pub(crate) hardware_address: [u8; 6],
}

/// Asks all about the interface `name`.
pub(crate) fn interface(socket: BorrowedFd<'_>, name: &str) -> io::Result<Interface> {
    let index = ask::<{ libc::SIOCGIFINDEX as Opcode }>(socket, name)?;
    let mtu = ask::<{ libc::SIOCGIFMTU as Opcode }>(socket, name)?;
    let hardware = ask::<{ libc::SIOCGIFHWADDR as Opcode }>(socket, name)?;
    // SAFETY: each of the three questions fills the member read here, in the order of the
    // questions.
    let (index, mtu, hardware) = unsafe {
        (index.ifr_ifru.ifru_ifindex, mtu.ifr_ifru.ifru_mtu, hardware.ifr_ifru.ifru_hwaddr)
    };
    let [a, b, c, d, e, f, ..] = hardware.sa_data.map(|octet| octet as u8);
    Ok(Interface {
        index,
        mtu: usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData)?,
        hardware_type: hardware.sa_family,
        hardware_address: [a, b, c, d, e, f],
    })
}

/// Asks one question about an interface.
fn ask<const OPCODE: Opcode>(socket: BorrowedFd<'_>, name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data in which all zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One octet is left for the zero at the end.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::NotFound.into());
    }
    for (slot, octet) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = octet as libc::c_char;
    }
    // SAFETY: the callers' codes are questions of netdevice(7), which take and give one `ifreq`
    // without pointers.
    unsafe { ioctl(socket, Updater::<OPCODE, libc::ifreq>::new(&mut request)) }?;
    Ok(request)
}

/// Takes part in what interface `index` receives of the EtherType `kind`, or nothing if that is 0,
/// and sends through it.
pub(crate) fn bind(socket: BorrowedFd<'_>, index: libc::c_int, kind: u16) -> io::Result<()> {
    // SAFETY: `sockaddr_ll` is plain data in which all zeroes are valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = kind.to_be();
    address.sll_ifindex = index;
    let octets = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and the length are those of one `sockaddr_ll`, which outlives the call.
    let answer = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), octets) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Lets the interface take in frames for every hardware address, as long as the socket is open.
pub(crate) fn set_promiscuous(socket: BorrowedFd<'_>, index: libc::c_int) -> io::Result<()> {
    let kind = libc::PACKET_MR_PROMISC as libc::c_ushort;
    let request =
        libc::packet_mreq { mr_ifindex: index, mr_type: kind, mr_alen: 0, mr_address: [0; 8] };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Sets an option whose value is a number.
pub(crate) fn set_number(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set(socket, option, &value)
}

/// Asks for a ring: `PACKET_RX_RING` or `PACKET_TX_RING`.
pub(crate) fn set_ring(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    ring: &libc::tpacket_req,
) -> io::Result<()> {
    set(socket, option, ring)
}

/// Sets an option. `T` is plain data: the callers above give integers and structures of integers.
fn set<T: Copy>(socket: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    let octets = size_of::<T>() as libc::socklen_t;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the pointer and the length are those of one `T`, which outlives the call; the system
    // only reads it.
    let answer =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, octets) };
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Frames seen and frames dropped since the last question (`PACKET_STATISTICS`); the first number
/// holds the second.
pub(crate) fn statistics(socket: impl AsFd) -> io::Result<(u32, u32)> {
    let mut answer = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut octets = size_of_val(&answer) as libc::socklen_t;
    let (fd, option) = (socket.as_fd().as_raw_fd(), libc::PACKET_STATISTICS);
    // SAFETY: the pointer and the length are those of one `tpacket_stats`, which outlives the call;
    // any octets are valid there.
    let outcome = unsafe {
        libc::getsockopt(fd, libc::SOL_PACKET, option, (&raw mut answer).cast(), &raw mut octets)
    };
    if outcome == 0 {
        Ok((answer.tp_packets, answer.tp_drops))
    } else {
        Err(io::Error::last_os_error())
    }
}
