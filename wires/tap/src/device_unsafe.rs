//! The system calls that rustix lacks: `TUNSETIFF`, and reading and setting an interface's
//! properties.
//!
//! Source: Linux `include/uapi/linux/if_tun.h`, netdevice(7).

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use libc::ifreq;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, Updater, ioctl};
use xk_kit::wire::virtio::NOTE_OCTETS;

/// Attaches an opened `/dev/net/tun` to the TAP device `name`, which is made if there is none. An
/// empty name lets the system choose. With `headers` each frame has a [`NOTE_OCTETS`] header in
/// front. Gives the device's name.
pub(crate) fn attach(tun: BorrowedFd<'_>, name: &str, headers: bool) -> io::Result<String> {
    let mut request = request(name)?;
    let noted = if headers { libc::IFF_VNET_HDR } else { 0 };
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | noted) as libc::c_short;
    // SAFETY: TUNSETIFF takes and gives one `ifreq`.
    unsafe { ioctl(tun, Updater::<{ libc::TUNSETIFF as Opcode }, ifreq>::new(&mut request)) }?;
    let octets: Vec<u8> = request
        .ifr_name
        .iter()
        .take_while(|octet| **octet != 0)
        .map(|octet| *octet as u8)
        .collect();
    Ok(String::from_utf8_lossy(&octets).into_owned())
}

/// Sets the length of the headers in front of frames.
pub(crate) fn set_header_octets(tun: BorrowedFd<'_>) -> io::Result<()> {
    let octets = NOTE_OCTETS as libc::c_int;
    // SAFETY: TUNSETVNETHDRSZ reads one `int`.
    unsafe { ioctl(tun, Setter::<{ libc::TUNSETVNETHDRSZ as Opcode }, libc::c_int>::new(octets)) }?;
    Ok(())
}

/// Whether the host may give frames whose transport checksum was not computed, and such that
/// stand for runs of TCP segments.
pub(crate) fn set_offloads(tun: BorrowedFd<'_>, checksums: bool, runs: bool) -> io::Result<()> {
    let mut offloads = if checksums { libc::TUN_F_CSUM } else { 0 };
    if checksums && runs {
        offloads |= libc::TUN_F_TSO4 | libc::TUN_F_TSO_ECN;
    }
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    unsafe {
        ioctl(tun, IntegerSetter::<{ libc::TUNSETOFFLOAD as Opcode }>::new_usize(offloads as usize))
    }?;
    Ok(())
}

/// Whether the device outlives the process that opened it.
pub(crate) fn set_persistent(tun: BorrowedFd<'_>, persistent: bool) -> io::Result<()> {
    // SAFETY: TUNSETPERSIST takes its argument by value.
    unsafe {
        ioctl(
            tun,
            IntegerSetter::<{ libc::TUNSETPERSIST as Opcode }>::new_usize(usize::from(persistent)),
        )
    }?;
    Ok(())
}

/// The MTU in octets.
pub(crate) fn mtu(socket: impl AsFd, name: &str) -> io::Result<usize> {
    let answer = ask::<{ libc::SIOCGIFMTU as Opcode }>(socket, request(name)?)?;
    // SAFETY: SIOCGIFMTU fills `ifru_mtu`.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sets the MTU in octets.
pub(crate) fn set_mtu(socket: impl AsFd, name: &str, mtu: usize) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu =
        libc::c_int::try_from(mtu).map_err(|_| io::ErrorKind::InvalidInput)?;
    ask::<{ libc::SIOCSIFMTU as Opcode }>(socket, request).map(drop)
}

/// The hardware address.
pub(crate) fn hardware_address(socket: impl AsFd, name: &str) -> io::Result<[u8; 6]> {
    let answer = ask::<{ libc::SIOCGIFHWADDR as Opcode }>(socket, request(name)?)?;
    // SAFETY: SIOCGIFHWADDR fills `ifru_hwaddr`.
    let [a, b, c, d, e, f, ..] =
        unsafe { answer.ifr_ifru.ifru_hwaddr }.sa_data.map(|octet| octet as u8);
    Ok([a, b, c, d, e, f])
}

/// Whether the interface is up.
pub(crate) fn is_up(socket: impl AsFd, name: &str) -> io::Result<bool> {
    Ok(flags(socket, name)? & libc::IFF_UP as libc::c_short != 0)
}

/// Brings the interface up, its other flags unchanged.
pub(crate) fn set_up(socket: impl AsFd, name: &str) -> io::Result<()> {
    let socket = socket.as_fd();
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = flags(socket, name)? | libc::IFF_UP as libc::c_short;
    ask::<{ libc::SIOCSIFFLAGS as Opcode }>(socket, request).map(drop)
}

fn flags(socket: impl AsFd, name: &str) -> io::Result<libc::c_short> {
    let answer = ask::<{ libc::SIOCGIFFLAGS as Opcode }>(socket, request(name)?)?;
    // SAFETY: SIOCGIFFLAGS fills `ifru_flags`.
    Ok(unsafe { answer.ifr_ifru.ifru_flags })
}

/// The interface's first IPv4 address and its network mask, if it has one.
pub(crate) fn address(socket: impl AsFd, name: &str) -> io::Result<Option<(Ipv4Addr, Ipv4Addr)>> {
    let socket = socket.as_fd();
    let answer = match ask::<{ libc::SIOCGIFADDR as Opcode }>(socket, request(name)?) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => return Ok(None),
        answer => answer?,
    };
    let mask = ask::<{ libc::SIOCGIFNETMASK as Opcode }>(socket, request(name)?)?;
    Ok(Some((ipv4(&answer), ipv4(&mask))))
}

/// Sets the interface's first IPv4 address and its network mask.
pub(crate) fn set_address(
    socket: impl AsFd,
    name: &str,
    address: Ipv4Addr,
    mask: Ipv4Addr,
) -> io::Result<()> {
    let socket = socket.as_fd();
    ask::<{ libc::SIOCSIFADDR as Opcode }>(socket, with_ipv4(name, address)?)?;
    ask::<{ libc::SIOCSIFNETMASK as Opcode }>(socket, with_ipv4(name, mask)?).map(drop)
}

/// Asks a question about, or a change of, the interface named in `request`.
fn ask<const OPCODE: Opcode>(socket: impl AsFd, mut request: ifreq) -> io::Result<ifreq> {
    // SAFETY: every caller's code is one of netdevice(7), and all of these take and give one
    // `ifreq` without pointers.
    unsafe { ioctl(socket, Updater::<OPCODE, ifreq>::new(&mut request)) }?;
    Ok(request)
}

/// A request for this interface, otherwise zero.
fn request(name: &str) -> io::Result<ifreq> {
    // SAFETY: `ifreq` is plain data in which all zeroes are valid.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    // One octet is left for the zero at the end.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, octet) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = octet as libc::c_char;
    }
    Ok(request)
}

/// A request that holds an IPv4 address in a `sockaddr_in`: family, port, address.
fn with_ipv4(name: &str, address: Ipv4Addr) -> io::Result<ifreq> {
    let mut request = request(name)?;
    let mut data = [0; 14];
    for (slot, octet) in data.iter_mut().skip(2).zip(address.octets()) {
        *slot = octet as libc::c_char;
    }
    request.ifr_ifru.ifru_addr =
        libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data };
    Ok(request)
}

/// The IPv4 address in an answer that holds a `sockaddr_in`.
fn ipv4(answer: &ifreq) -> Ipv4Addr {
    // SAFETY: the callers' questions are answered in `ifru_addr`, and any octets are a valid
    // `sockaddr`.
    let [_, _, a, b, c, d, ..] =
        unsafe { answer.ifr_ifru.ifru_addr }.sa_data.map(|octet| octet as u8);
    Ipv4Addr::new(a, b, c, d)
}
