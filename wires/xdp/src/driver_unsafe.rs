//! The driver of an interface.
//!
//! Source: netdevice(7); Linux `include/uapi/linux/ethtool.h`.

use std::io;

use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketType};

/// `struct ethtool_drvinfo`: a command, the driver's name, and what is of no interest here.
#[repr(C)]
struct DriverInfo {
    command: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const GET_DRIVER_INFO: u32 = 3;

/// Drivers whose other end is on this machine.
const IN_MEMORY: [&str; 2] = ["veth", "tun"];

/// Whether the other end of an interface is on this machine, so that a sender there may leave
/// transport checksums open.
pub fn is_in_memory(name: &str) -> bool {
    IN_MEMORY.contains(&driver(name).as_str())
}

/// The name of an interface's driver; empty if it does not say.
pub(crate) fn driver(name: &str) -> String {
    ask(name).unwrap_or_default()
}

fn ask(name: &str) -> io::Result<String> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut info = DriverInfo { command: GET_DRIVER_INFO, driver: [0; 32], rest: [0; 160] };
    let mut request = xk_linux::request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    const ETHTOOL: Opcode = libc::SIOCETHTOOL as Opcode;
    // SAFETY: the question takes an `ifreq` that points to a `struct ethtool_drvinfo` of 196
    // octets, which it fills.
    unsafe { ioctl(socket, Updater::<ETHTOOL, libc::ifreq>::new(&mut request)) }?;
    let name = info.driver.iter().take_while(|octet| **octet != 0);
    Ok(name.map(|octet| char::from(*octet)).collect())
}
