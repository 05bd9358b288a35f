//! The functions of the C library that programs call in place of its own.

use crate::ask::{ask, token};
use crate::registrations_unsafe::note;
use crate::replace::{self, Done};
use crate::socket_unsafe::{borrow, give, internet, option, ours, set_errno};
use libc::{c_int, c_void, epoll_event, sockaddr, socklen_t};
use std::mem::size_of;
use xk_request::{Family, Name, Reply, Request};

/// The answer of a call: -1 with the number, or what it is.
fn answer(number: c_int) -> c_int {
    if number == 0 {
        return 0;
    }
    set_errno(number);
    -1
}

/// What a system call has answered; `errno` is set already.
fn plain(result: libc::c_long) -> c_int {
    result as c_int
}

/// True for an Internet stream socket under `xk exec`.
fn may_be_ours(fd: c_int) -> bool {
    let domain = || option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN);
    let kind = || option(fd, libc::SOL_SOCKET, libc::SO_TYPE);
    token().is_some()
        && matches!(domain(), Some(libc::AF_INET | libc::AF_INET6))
        && kind() == Some(libc::SOCK_STREAM)
}

/// bind(2).
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the program says so.
    let wanted = unsafe { internet(address, length) };
    if let (Some((family, local)), Some(place), true) = (wanted, borrow(fd), may_be_ours(fd)) {
        match replace::bind(place, family, local) {
            Done::Outside => {}
            Done::Ok => return 0,
            Done::Errno(number) => return answer(number),
        }
    }
    // SAFETY: what the program has handed over is handed on.
    plain(unsafe { libc::syscall(libc::SYS_bind, fd, address, length) })
}

/// connect(2).
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the program says so.
    let wanted = unsafe { internet(address, length) };
    if let (Some((family, peer)), Some(place)) = (wanted, borrow(fd)) {
        let bound = match ours(fd) {
            Some(Name {
                id, peer: Some(_), ..
            }) => return again(id),
            Some(Name { id, .. }) => Some(id),
            None => None,
        };
        if bound.is_some() || may_be_ours(fd) {
            match replace::connect(place, family, bound, peer) {
                Done::Outside => {}
                Done::Ok => return 0,
                Done::Errno(number) => return answer(number),
            }
        }
    }
    // SAFETY: what the program has handed over is handed on.
    plain(unsafe { libc::syscall(libc::SYS_connect, fd, address, length) })
}

/// A second connect(2) of the same socket.
fn again(id: u64) -> c_int {
    match ask(&Request::Status(id, false)) {
        Reply::Errno(0) => answer(libc::EISCONN),
        Reply::Errno(libc::EINPROGRESS) => answer(libc::EALREADY),
        Reply::Errno(number) => answer(number),
        Reply::Outside | Reply::Named(_) => answer(libc::EPROTO),
    }
}

/// accept(2).
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: as for this function.
    unsafe { accept4(fd, address, length, 0) }
}

/// accept4(2).
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if ours(fd).is_none() {
        // SAFETY: what the program has handed over is handed on.
        return plain(unsafe { libc::syscall(libc::SYS_accept4, fd, address, length, flags) });
    }
    let none = std::ptr::null_mut::<c_void>();
    // SAFETY: no address is asked for.
    let accepted = plain(unsafe { libc::syscall(libc::SYS_accept4, fd, none, none, flags) });
    if accepted >= 0
        && let Some(Name {
            family,
            peer: Some(peer),
            ..
        }) = ours(accepted)
    {
        // SAFETY: the program says that there is room.
        unsafe { give(family, peer, address, length) };
    }
    accepted
}

/// getsockname(2).
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if let Some(Name { family, local, .. }) = ours(fd) {
        // SAFETY: the program says that there is room.
        unsafe { give(family, local, address, length) };
        return 0;
    }
    // SAFETY: what the program has handed over is handed on.
    plain(unsafe { libc::syscall(libc::SYS_getsockname, fd, address, length) })
}

/// getpeername(2).
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    match ours(fd) {
        Some(Name {
            family,
            peer: Some(peer),
            ..
        }) => {
            // SAFETY: the program says that there is room.
            unsafe { give(family, peer, address, length) };
            0
        }
        Some(_) => answer(libc::ENOTCONN),
        // SAFETY: what the program has handed over is handed on.
        None => plain(unsafe { libc::syscall(libc::SYS_getpeername, fd, address, length) }),
    }
}

/// getsockopt(2).
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let special = level == libc::SOL_SOCKET
        && matches!(name, libc::SO_ERROR | libc::SO_DOMAIN | libc::SO_PROTOCOL);
    let internet = matches!(
        level,
        libc::IPPROTO_TCP | libc::IPPROTO_IP | libc::IPPROTO_IPV6
    );
    if (special || internet)
        && let Some(socket) = ours(fd)
    {
        return match known(&socket, level, name) {
            // SAFETY: the program says that there is room.
            Some(number) => unsafe { give_number(number, value, length) },
            None => answer(libc::ENOPROTOOPT),
        };
    }
    // SAFETY: what the program has handed over is handed on.
    plain(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, length) })
}

/// An option of a socket of ours that the system would answer otherwise.
fn known(socket: &Name, level: c_int, name: c_int) -> Option<c_int> {
    Some(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => match ask(&Request::Status(socket.id, false)) {
            Reply::Errno(libc::EINPROGRESS) => 0,
            Reply::Errno(number) if socket.peer.is_some() => number,
            _ => 0,
        },
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => match socket.family {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        },
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::IPPROTO_TCP,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => 1460,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY | libc::TCP_CORK) => 0,
        (libc::IPPROTO_IP, libc::IP_TTL) => 64,
        (libc::IPPROTO_IP, libc::IP_TOS) => 0,
        (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) => 0,
        _ => return None,
    })
}

/// # Safety
/// `value` points to as many writable octets as `length` says.
unsafe fn give_number(number: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int {
    if value.is_null() || length.is_null() {
        return answer(libc::EFAULT);
    }
    let octets = number.to_ne_bytes();
    // SAFETY: the caller says so; no more than the number has are copied.
    unsafe {
        let room = (*length as usize).min(size_of::<c_int>());
        std::ptr::copy_nonoverlapping(octets.as_ptr(), value.cast::<u8>(), room);
        *length = room as socklen_t;
    }
    0
}

/// setsockopt(2).
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let internet = matches!(
        level,
        libc::IPPROTO_TCP | libc::IPPROTO_IP | libc::IPPROTO_IPV6
    );
    if internet && let Some(socket) = ours(fd) {
        if (level, name) != (libc::IPPROTO_TCP, libc::TCP_NODELAY) {
            return answer(if is_harmless(level, name) {
                0
            } else {
                libc::ENOPROTOOPT
            });
        }
        if value.is_null() || (length as usize) < size_of::<c_int>() {
            return answer(libc::EINVAL);
        }
        // SAFETY: the program says that so many octets can be read.
        let on = unsafe { value.cast::<c_int>().read_unaligned() } != 0;
        return match ask(&Request::NoDelay(socket.id, on)) {
            Reply::Errno(number) => answer(number),
            Reply::Outside | Reply::Named(_) => answer(libc::EPROTO),
        };
    }
    // SAFETY: what the program has handed over is handed on.
    plain(unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, value, length) })
}

/// Options that only advise: a stack that does not follow them still does what is asked.
fn is_harmless(level: c_int, name: c_int) -> bool {
    match level {
        libc::IPPROTO_TCP => matches!(
            name,
            libc::TCP_CORK
                | libc::TCP_KEEPIDLE
                | libc::TCP_KEEPINTVL
                | libc::TCP_KEEPCNT
                | libc::TCP_QUICKACK
                | libc::TCP_USER_TIMEOUT
                | libc::TCP_DEFER_ACCEPT
                | libc::TCP_NOTSENT_LOWAT
        ),
        libc::IPPROTO_IP => matches!(name, libc::IP_TOS),
        libc::IPPROTO_IPV6 => matches!(name, libc::IPV6_V6ONLY | libc::IPV6_TCLASS),
        _ => false,
    }
}

/// epoll_ctl(2).
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: what the program has handed over is handed on.
    let result = plain(unsafe { libc::syscall(libc::SYS_epoll_ctl, set, operation, fd, event) });
    if result == 0 && token().is_some() {
        // SAFETY: the system has just read it.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        if operation != libc::EPOLL_CTL_ADD || may_be_ours(fd) {
            note(set, operation, fd, event);
        }
    }
    result
}
