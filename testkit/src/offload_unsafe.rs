//! Switching a device's offloads off through `SIOCETHTOOL`, without the program `ethtool`.
//!
//! Source: Linux `include/uapi/linux/ethtool.h` (`struct ethtool_value` and the command numbers).

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, ioctl};

/// `ETHTOOL_STXCSUM`, `ETHTOOL_STSO`, `ETHTOOL_SGSO`, `ETHTOOL_SGRO`, in the order to switch them
/// off: segmentation hangs on checksums.
const SWITCHES: [(u32, &str); 4] = [
    (0x1f, "tcp segmentation"),
    (0x24, "segmentation"),
    (0x17, "transmit checksums"),
    (0x2c, "receive merging"),
];

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Switches checksum, segmentation and merging offloads of `device` off, so that every frame on it
/// is whole and within its MTU. Needs root. The error names the switch that failed.
pub(crate) fn offload_off(device: &str) -> io::Result<()> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    SWITCHES.into_iter().try_for_each(|(command, name)| {
        switch_off(&socket, device, command).map_err(|error| {
            io::Error::new(error.kind(), format!("{device}: cannot switch off {name}: {error}"))
        })
    })
}

fn switch_off(socket: impl AsFd, device: &str, command: u32) -> io::Result<()> {
    // SAFETY: `ifreq` is plain data in which all zeroes are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.is_empty() || device.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (slot, octet) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *slot = octet as libc::c_char;
    }
    let mut value = Value { command, data: 0 };
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut value).cast();
    // SAFETY: SIOCETHTOOL with these commands reads one `ethtool_value` behind `ifru_data`, which
    // outlives the call.
    unsafe {
        let request = Updater::<{ libc::SIOCETHTOOL as Opcode }, libc::ifreq>::new(&mut request);
        ioctl(socket, request)?;
    }
    Ok(())
}
