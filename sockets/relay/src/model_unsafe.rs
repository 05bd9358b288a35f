//! Linux's own word on options: which there are, which values they take, and what is told of them.
//! Asked of a socket that nothing else is done with.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use xk_request::{Family, Kind, Setting, VALUE_OCTETS_MAX};

/// A fresh socket of Linux's.
///
/// # Errors
/// If the system gives none.
pub(crate) fn fresh(kind: Kind, family: Family) -> Result<OwnedFd, Errno> {
    let kind = match kind {
        Kind::Stream => SocketType::STREAM,
        Kind::Datagrams => SocketType::DGRAM,
    };
    let make = |family| rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    match family {
        Family::V4 => make(AddressFamily::INET),
        // A system without version 6 has no options of it either.
        Family::V6 => make(AddressFamily::INET6).or_else(|_| make(AddressFamily::INET)),
    }
}

/// Sets an option of a socket (setsockopt(2)).
///
/// # Errors
/// Linux's.
pub(crate) fn set(socket: impl AsFd, setting: &Setting) -> Result<(), Errno> {
    let (fd, value) = (socket.as_fd().as_raw_fd(), &setting.value);
    let length = value.len() as libc::socklen_t;
    // SAFETY: as many octets as the length says are readable; the descriptor is open.
    let set = unsafe {
        libc::setsockopt(fd, setting.level, setting.option, value.as_ptr().cast(), length)
    };
    if set == 0 { Ok(()) } else { Err(last()) }
}

/// The octets of an option's value (getsockopt(2)).
///
/// # Errors
/// Linux's.
pub(crate) fn get(socket: impl AsFd, level: i32, option: i32) -> Result<Vec<u8>, Errno> {
    let fd = socket.as_fd().as_raw_fd();
    let mut value = vec![0u8; VALUE_OCTETS_MAX];
    let mut length = VALUE_OCTETS_MAX as libc::socklen_t;
    // SAFETY: as many octets as the length says are writable; the descriptor is open.
    let got =
        unsafe { libc::getsockopt(fd, level, option, value.as_mut_ptr().cast(), &raw mut length) };
    if got != 0 {
        return Err(last());
    }
    value.truncate(length as usize);
    Ok(value)
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)
}
