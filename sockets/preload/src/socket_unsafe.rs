//! Raw sockets and addresses of the C library, made safe to look at.

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, sockaddr_un, socklen_t};
use std::mem::{offset_of, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use xk_request::{Family, Name};

/// The descriptor that a program has handed over; none if it cannot be one.
pub(crate) fn borrow(fd: c_int) -> Option<BorrowedFd<'static>> {
    if fd < 0 {
        return None;
    }
    // SAFETY: it is not -1; whether it is open the system says at each use, and the program keeps it open during its own call.
    Some(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// The place of a descriptor, to put another file there. The caller must not close it.
pub(crate) fn place_of(fd: c_int) -> OwnedFd {
    // SAFETY: the caller gives it up again by `into_raw_fd`, so that the program still owns it alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Sets the program's `errno`.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the C library answers a valid pointer to this thread's own number.
    unsafe { *libc::__errno_location() = number };
}

/// Reads an Internet address that the program gives: which family it is of, and its value as one of version 4. None for all else.
///
/// # Safety
/// `address` is null or points to `length` readable octets.
pub(crate) unsafe fn internet(
    address: *const sockaddr,
    length: socklen_t,
) -> Option<(Family, SocketAddrV4)> {
    let length = length as usize;
    if address.is_null() || length < size_of::<sockaddr_in>() {
        return None;
    }
    // SAFETY: at least as many octets as `sockaddr_in` has are readable, as the caller says; any octets make one.
    let four = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
    match c_int::from(four.sin_family) {
        libc::AF_INET => {
            let host = Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr));
            Some((
                Family::V4,
                SocketAddrV4::new(host, u16::from_be(four.sin_port)),
            ))
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above, with the length of the larger form.
            let six = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let host = Ipv6Addr::from(six.sin6_addr.s6_addr);
            let host = match host.is_unspecified() {
                true => Ipv4Addr::UNSPECIFIED,
                false => host.to_ipv4_mapped()?,
            };
            Some((
                Family::V6,
                SocketAddrV4::new(host, u16::from_be(six.sin6_port)),
            ))
        }
        _ => None,
    }
}

/// Gives the program an address of its family, cut to the room it has, with the full length.
///
/// # Safety
/// `to` is null or points to as many writable octets as `length` says, and `length` is valid then.
pub(crate) unsafe fn give(
    family: Family,
    address: SocketAddrV4,
    to: *mut sockaddr,
    length: *mut socklen_t,
) {
    if to.is_null() || length.is_null() {
        return;
    }
    let address = match family {
        Family::V4 => SocketAddr::V4(address),
        Family::V6 => {
            let host = address.ip().to_ipv6_mapped();
            SocketAddr::V6(SocketAddrV6::new(host, address.port(), 0, 0))
        }
    };
    // SAFETY: all octets zero make a valid address of any form.
    let mut octets: sockaddr_storage = unsafe { std::mem::zeroed() };
    let octets = &raw mut octets;
    let size = match address {
        SocketAddr::V4(four) => {
            let form = octets.cast::<sockaddr_in>();
            // SAFETY: the storage is large enough and aligned for every form of address.
            unsafe {
                (*form).sin_family = libc::AF_INET as libc::sa_family_t;
                (*form).sin_port = four.port().to_be();
                (*form).sin_addr.s_addr = u32::from(*four.ip()).to_be();
            }
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(six) => {
            let form = octets.cast::<sockaddr_in6>();
            // SAFETY: as above.
            unsafe {
                (*form).sin6_family = libc::AF_INET6 as libc::sa_family_t;
                (*form).sin6_port = six.port().to_be();
                (*form).sin6_addr.s6_addr = six.ip().octets();
            }
            size_of::<sockaddr_in6>()
        }
    };
    // SAFETY: the caller says that `length` is valid, and that so many octets may be written at `to`; no more than the storage
    // has are copied, and the two do not overlap, since one is on this stack.
    unsafe {
        let room = (*length as usize).min(size);
        std::ptr::copy_nonoverlapping(octets.cast::<u8>(), to.cast::<u8>(), room);
        *length = size as socklen_t;
    }
}

/// Which end's name is asked for.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Own,
    Peer,
}

/// The name of a socket of ours; none for all others.
fn name(fd: c_int, end: End) -> Option<Name> {
    // SAFETY: all octets zero make a valid address.
    let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
    let mut length = size_of::<sockaddr_un>() as socklen_t;
    let call = match end {
        End::Own => libc::SYS_getsockname,
        End::Peer => libc::SYS_getpeername,
    };
    // SAFETY: both pointers are to this stack, and the length is that of the address.
    let result = unsafe { libc::syscall(call, fd, &raw mut address, &raw mut length) };
    if result != 0 || c_int::from(address.sun_family) != libc::AF_UNIX {
        return None;
    }
    // Behind the family, and behind the zero octet of an abstract name.
    let count = (length as usize).checked_sub(offset_of!(sockaddr_un, sun_path))?;
    let path = address.sun_path.get(..count)?;
    let octets: Vec<u8> = path.iter().map(|octet| *octet as u8).collect();
    let name = octets.strip_prefix(&[0])?;
    let name: Name = std::str::from_utf8(name).ok()?.parse().ok()?;
    (Some(name.token.as_str()) == crate::ask::token()).then_some(name)
}

/// What is known of a socket of ours: by the other end's name if it is connected, by its own if it is bound.
pub(crate) fn ours(fd: c_int) -> Option<Name> {
    crate::ask::token()?;
    name(fd, End::Peer).or_else(|| name(fd, End::Own))
}

/// What the system says about an option that is a number.
pub(crate) fn option(fd: c_int, level: c_int, option: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: both pointers are to this stack, and the length is that of the value.
    let result = unsafe {
        libc::syscall(
            libc::SYS_getsockopt,
            fd,
            level,
            option,
            &raw mut value,
            &raw mut length,
        )
    };
    (result == 0).then_some(value)
}
