//! The system calls on a TAP device that rustix lacks.
//!
//! Source: Linux `include/uapi/linux/if_tun.h`.

use std::io;
use std::os::fd::BorrowedFd;

use libc::ifreq;
use rustix::ioctl::{IntegerSetter, Opcode, Setter, Updater, ioctl};
use xk_kit::wire::virtio::NOTE_OCTETS;

/// Attaches an opened `/dev/net/tun` to the TAP device `name`, which is made if there is none. An
/// empty name lets the system choose. With `headers` each frame has a [`NOTE_OCTETS`] header in
/// front. Gives the device's name.
pub(crate) fn attach(tun: BorrowedFd<'_>, name: &str, headers: bool) -> io::Result<String> {
    let mut request = xk_linux::request(name)?;
    let noted = if headers { libc::IFF_VNET_HDR } else { 0 };
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | noted) as libc::c_short;
    // SAFETY: TUNSETIFF takes and gives one `ifreq`.
    unsafe { ioctl(tun, Updater::<{ libc::TUNSETIFF as Opcode }, ifreq>::new(&mut request)) }?;
    Ok(name_in(&request))
}

fn name_in(request: &ifreq) -> String {
    let octets = request.ifr_name.iter().take_while(|octet| **octet != 0);
    let octets: Vec<u8> = octets.map(|octet| *octet as u8).collect();
    String::from_utf8_lossy(&octets).into_owned()
}

/// The name of the TAP device that a descriptor is attached to, and whether frames have a header in
/// front.
///
/// # Errors
/// If it is attached to none, or frames have packet information in front.
pub(crate) fn attached(tun: BorrowedFd<'_>) -> io::Result<(String, bool)> {
    let mut request = xk_linux::request("")?;
    // SAFETY: TUNGETIFF fills one `ifreq`.
    unsafe { ioctl(tun, Updater::<{ libc::TUNGETIFF as Opcode }, ifreq>::new(&mut request)) }?;
    // SAFETY: TUNGETIFF fills `ifru_flags`; before it, all octets are initialised.
    let flags = libc::c_int::from(unsafe { request.ifr_ifru.ifru_flags });
    match flags & (libc::IFF_TAP | libc::IFF_TUN | libc::IFF_NO_PI) {
        kind if kind == libc::IFF_TAP | libc::IFF_NO_PI => {
            Ok((name_in(&request), flags & libc::IFF_VNET_HDR != 0))
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
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
