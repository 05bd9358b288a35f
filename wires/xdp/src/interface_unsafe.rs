//! Questions about an interface that rustix lacks.
//!
//! Source: netdevice(7); Linux `include/uapi/linux/ethtool.h`.

use std::ffi::{c_char, c_int};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketType};

/// What is asked of an interface.
#[derive(Debug, Clone)]
pub(crate) struct Interface {
    /// Its name.
    pub(crate) name: String,
    /// Its number.
    pub(crate) index: u32,
    /// Its MTU in octets.
    pub(crate) mtu: usize,
    /// Its hardware type (`ARPHRD_ETHER` and so on).
    pub(crate) hardware_type: u16,
    /// Its hardware address.
    pub(crate) hardware_address: [u8; 6],
    /// Whether it is up.
    pub(crate) is_up: bool,
    /// Its driver's name; empty if it does not say.
    pub(crate) driver: String,
}

impl Interface {
    /// Asks all about the interface `name`.
    pub(crate) fn find(name: &str) -> io::Result<Self> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
        let socket = socket.as_fd();
        let index = ask::<{ libc::SIOCGIFINDEX as Opcode }>(socket, name)?;
        let mtu = ask::<{ libc::SIOCGIFMTU as Opcode }>(socket, name)?;
        let hardware = ask::<{ libc::SIOCGIFHWADDR as Opcode }>(socket, name)?;
        let flags = ask::<{ libc::SIOCGIFFLAGS as Opcode }>(socket, name)?;
        // SAFETY: each of the four questions fills the member read here, in the order of the
        // questions.
        let (index, mtu, hardware, flags) = unsafe {
            (
                index.ifr_ifru.ifru_ifindex,
                mtu.ifr_ifru.ifru_mtu,
                hardware.ifr_ifru.ifru_hwaddr,
                flags.ifr_ifru.ifru_flags,
            )
        };
        let [a, b, c, d, e, f, ..] = hardware.sa_data.map(|octet| octet as u8);
        Ok(Self {
            name: name.to_owned(),
            index: u32::try_from(index).map_err(|_| io::ErrorKind::InvalidData)?,
            mtu: usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData)?,
            hardware_type: hardware.sa_family,
            hardware_address: [a, b, c, d, e, f],
            is_up: c_int::from(flags) & libc::IFF_UP != 0,
            driver: driver(socket, name).unwrap_or_default(),
        })
    }
}

/// A question about the interface `name`, of which the rest is zero.
fn question(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` is plain data in which all zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One octet is left for the zero at the end.
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::NotFound.into());
    }
    for (slot, octet) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = octet as c_char;
    }
    Ok(request)
}

/// Asks one question about an interface.
fn ask<const OPCODE: Opcode>(socket: BorrowedFd<'_>, name: &str) -> io::Result<libc::ifreq> {
    let mut request = question(name)?;
    // SAFETY: the callers' codes are questions of netdevice(7), which take and give one `ifreq`
    // without pointers.
    unsafe { ioctl(socket, Updater::<OPCODE, libc::ifreq>::new(&mut request)) }?;
    Ok(request)
}

/// `struct ethtool_drvinfo`: a command, the driver's name, and what is of no interest here.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const GET_DRIVER_INFO: u32 = 3;

/// The name of an interface's driver.
fn driver(socket: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let mut info = DriverInfo { command: GET_DRIVER_INFO, driver: [0; 32], rest: [0; 160] };
    let mut request = question(name)?;
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    const ETHTOOL: Opcode = libc::SIOCETHTOOL as Opcode;
    // SAFETY: the question takes an `ifreq` that points to a `struct ethtool_drvinfo` of 196
    // octets, which it fills.
    unsafe { ioctl(socket, Updater::<ETHTOOL, libc::ifreq>::new(&mut request)) }?;
    let name = info.driver.iter().take_while(|octet| **octet != 0);
    Ok(name.map(|octet| char::from(*octet)).collect())
}
