//! Questions about interfaces, and changes of them. Each is asked through a socket of any kind. The
//! hardware address is also told by an attached TAP descriptor (Linux, `__tun_chr_ioctl`).
//!
//! Source: netdevice(7).

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};

use libc::ifreq;
use rustix::ioctl::{Opcode, Setter, Updater, ioctl};

/// An interface.
#[derive(Debug, Clone)]
pub struct Interface {
    /// Name of the interface.
    pub name: String,
    /// Number of the interface.
    pub index: libc::c_int,
    /// MTU in octets.
    pub mtu: usize,
    /// Hardware type (`ARPHRD_ETHER` and so on).
    pub hardware_type: u16,
    /// Hardware address.
    pub hardware_address: [u8; 6],
    /// Whether it is up.
    pub is_up: bool,
}

/// Why an interface is none for Ethernet frames.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is no such interface.
    #[error("no interface {name:?}; there are: {}", .existing.join(", "))]
    Missing {
        /// The name given.
        name: String,
        /// The interfaces there are.
        existing: Vec<String>,
    },
    /// The interface carries something else.
    #[error(
        "{name} carries no Ethernet frames (hardware type {hardware_type}); take another interface, or the wire `host`"
    )]
    NotEthernet {
        /// The interface.
        name: String,
        /// Hardware type, a number of `include/uapi/linux/if_arp.h`.
        hardware_type: u16,
    },
}

impl Interface {
    /// Asks all about the interface `name`, which is to carry Ethernet frames (loopback does).
    pub fn ethernet(socket: impl AsFd, name: &str) -> io::Result<Result<Self, InterfaceError>> {
        let socket = socket.as_fd();
        let answer = match ask_name::<{ libc::SIOCGIFINDEX as Opcode }>(socket, name) {
            Err(error) if error.raw_os_error().is_none_or(|number| number == libc::ENODEV) => {
                let (name, existing) = (name.to_owned(), existing());
                return Ok(Err(InterfaceError::Missing { name, existing }));
            }
            answer => answer?,
        };
        // SAFETY: SIOCGIFINDEX fills `ifru_ifindex`.
        let index = unsafe { answer.ifr_ifru.ifru_ifindex };
        let (hardware_type, hardware_address) = hardware(socket, name)?;
        let name = name.to_owned();
        if !matches!(hardware_type, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
            return Ok(Err(InterfaceError::NotEthernet { name, hardware_type }));
        }
        Ok(Ok(Self {
            index,
            mtu: mtu(socket, &name)?,
            hardware_type,
            hardware_address,
            is_up: libc::c_int::from(flags(socket, &name)?) & libc::IFF_UP != 0,
            name,
        }))
    }
}

/// The names of the interfaces there are, in this thread's network namespace.
#[must_use]
pub fn existing() -> Vec<String> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let names = table.lines().skip(2).filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// The MTU in octets.
pub fn mtu(socket: impl AsFd, name: &str) -> io::Result<usize> {
    let answer = ask_name::<{ libc::SIOCGIFMTU as Opcode }>(socket, name)?;
    // SAFETY: SIOCGIFMTU fills `ifru_mtu`.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Sets the MTU in octets.
pub fn set_mtu(socket: impl AsFd, name: &str, mtu: usize) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_mtu =
        libc::c_int::try_from(mtu).map_err(|_| io::ErrorKind::InvalidInput)?;
    ask::<{ libc::SIOCSIFMTU as Opcode }>(socket, request).map(drop)
}

/// The hardware address.
pub fn hardware_address(socket: impl AsFd, name: &str) -> io::Result<[u8; 6]> {
    hardware(socket.as_fd(), name).map(|(_, address)| address)
}

/// Hardware type and address.
fn hardware(socket: BorrowedFd<'_>, name: &str) -> io::Result<(u16, [u8; 6])> {
    let answer = ask_name::<{ libc::SIOCGIFHWADDR as Opcode }>(socket, name)?;
    // SAFETY: SIOCGIFHWADDR fills `ifru_hwaddr`.
    let hardware = unsafe { answer.ifr_ifru.ifru_hwaddr };
    let [a, b, c, d, e, f, ..] = hardware.sa_data.map(|octet| octet as u8);
    Ok((hardware.sa_family, [a, b, c, d, e, f]))
}

/// The flags, such as `IFF_UP`.
pub fn flags(socket: impl AsFd, name: &str) -> io::Result<libc::c_short> {
    let answer = ask_name::<{ libc::SIOCGIFFLAGS as Opcode }>(socket, name)?;
    // SAFETY: SIOCGIFFLAGS fills `ifru_flags`.
    Ok(unsafe { answer.ifr_ifru.ifru_flags })
}

/// Brings the interface up, its other flags unchanged; one that is up already is left alone, which
/// needs no privilege.
pub fn set_up(socket: impl AsFd, name: &str) -> io::Result<()> {
    let up = libc::IFF_UP as libc::c_short;
    let (mut request, flags) = (request(name)?, flags(&socket, name)?);
    if flags & up != 0 {
        return Ok(());
    }
    request.ifr_ifru.ifru_flags = flags | up;
    ask::<{ libc::SIOCSIFFLAGS as Opcode }>(socket, request).map(drop)
}

/// The first IPv4 address and its network mask, if there is one.
pub fn address(socket: impl AsFd, name: &str) -> io::Result<Option<(Ipv4Addr, Ipv4Addr)>> {
    let answer = match ask_name::<{ libc::SIOCGIFADDR as Opcode }>(&socket, name) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => return Ok(None),
        answer => answer?,
    };
    let mask = ask_name::<{ libc::SIOCGIFNETMASK as Opcode }>(socket, name)?;
    Ok(Some((ipv4(&answer), ipv4(&mask))))
}

/// Sets the first IPv4 address and its network mask.
pub fn set_address(
    socket: impl AsFd,
    name: &str,
    address: Ipv4Addr,
    mask: Ipv4Addr,
) -> io::Result<()> {
    ask::<{ libc::SIOCSIFADDR as Opcode }>(&socket, with_ipv4(name, address)?)?;
    ask::<{ libc::SIOCSIFNETMASK as Opcode }>(socket, with_ipv4(name, mask)?).map(drop)
}

/// Has the system reach `network` by `via`, a host on the link of this interface; one that is there
/// already is left alone.
pub fn add_route(
    socket: impl AsFd,
    name: &str,
    (network, mask): (Ipv4Addr, Ipv4Addr),
    via: Ipv4Addr,
) -> io::Result<()> {
    let mut device = request(name)?.ifr_name;
    // SAFETY: `rtentry` is plain data in which all zeroes are valid, null pointers included.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = socket_address(network);
    route.rt_genmask = socket_address(mask);
    route.rt_gateway = socket_address(via);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    route.rt_dev = device.as_mut_ptr();
    // SAFETY: SIOCADDRT reads one `rtentry`, and of `rt_dev` a string that ends with a zero: a name
    // is shorter than the array, which is zero behind it and lives to the end of the call.
    let added = unsafe { ioctl(socket, Setter::<{ libc::SIOCADDRT as Opcode }, _>::new(route)) };
    match added {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        result => Ok(result?),
    }
}

/// Asks a question about the interface `name`.
fn ask_name<const OPCODE: Opcode>(socket: impl AsFd, name: &str) -> io::Result<ifreq> {
    ask::<OPCODE>(socket, request(name)?)
}

/// Asks a question about, or a change of, the interface named in `request`.
fn ask<const OPCODE: Opcode>(socket: impl AsFd, mut request: ifreq) -> io::Result<ifreq> {
    // SAFETY: every caller's code is one of netdevice(7), and all of these take and give one
    // `ifreq` without pointers.
    unsafe { ioctl(socket, Updater::<OPCODE, ifreq>::new(&mut request)) }?;
    Ok(request)
}

/// A request for this interface, otherwise zero.
pub fn request(name: &str) -> io::Result<ifreq> {
    // SAFETY: `ifreq` is plain data in which all zeroes are valid.
    let mut request: ifreq = unsafe { std::mem::zeroed() };
    if name.len() > crate::NAME_OCTETS_MAX {
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
    request.ifr_ifru.ifru_addr = socket_address(address);
    Ok(request)
}

/// A `sockaddr_in` with this address and no port.
fn socket_address(address: Ipv4Addr) -> libc::sockaddr {
    let mut data = [0; 14];
    for (slot, octet) in data.iter_mut().skip(2).zip(address.octets()) {
        *slot = octet as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

/// The IPv4 address in an answer that holds a `sockaddr_in`.
fn ipv4(answer: &ifreq) -> Ipv4Addr {
    // SAFETY: the callers' questions are answered in `ifru_addr`, and any octets are a valid
    // `sockaddr`.
    let [_, _, a, b, c, d, ..] =
        unsafe { answer.ifr_ifru.ifru_addr }.sa_data.map(|octet| octet as u8);
    Ipv4Addr::new(a, b, c, d)
}
