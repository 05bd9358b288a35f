//! Raw sockets and addresses of the C library, made safe to look at.

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_un, socklen_t};
use rustix::net::addr::SocketAddrArg;
use rustix::net::{SocketType, ipproto, sockopt};
use std::mem::{offset_of, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use xk_request::{Family, Kind, LOOPBACK_6, Name};

/// The descriptor that a program has handed over; none if it cannot be one.
pub(crate) fn borrow(fd: c_int) -> Option<BorrowedFd<'static>> {
    if fd < 0 {
        return None;
    }
    // SAFETY: it is not -1; whether it is open the system says at each use, and the program keeps
    // it open during its own call.
    Some(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// The place of a descriptor, to put another file there. The caller must not close it.
pub(crate) fn place_of(fd: c_int) -> OwnedFd {
    // SAFETY: the caller gives it up again by `into_raw_fd`, so that the program still owns it
    // alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Sets the program's `errno`.
pub(crate) fn set_errno(number: c_int) {
    // SAFETY: the C library answers a valid pointer to this thread's own number.
    unsafe { *libc::__errno_location() = number };
}

/// Keeps the program's `errno` as it is while this library asks the system something for itself: a
/// call that succeeds leaves it alone.
pub(crate) struct KeptErrno(c_int);

impl KeptErrno {
    pub(crate) fn new() -> Self {
        Self(errno())
    }
}

impl Drop for KeptErrno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

/// Reads an Internet address that the program gives: which family it is of, and its value as one of
/// version 4. None for all else.
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
    // SAFETY: at least as many octets as `sockaddr_in` has are readable, as the caller says; any
    // octets make one.
    let four = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
    match c_int::from(four.sin_family) {
        libc::AF_INET => {
            let host = Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr));
            Some((Family::V4, SocketAddrV4::new(host, u16::from_be(four.sin_port))))
        }
        libc::AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: as above, with the length of the larger form.
            let six = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let host = Ipv6Addr::from(six.sin6_addr.s6_addr);
            let host = match host.is_unspecified() {
                true => Ipv4Addr::UNSPECIFIED,
                false if host.is_loopback() => LOOPBACK_6,
                false => host.to_ipv4_mapped()?,
            };
            Some((Family::V6, SocketAddrV4::new(host, u16::from_be(six.sin6_port))))
        }
        _ => None,
    }
}

/// True for the address of no family, by which a socket is connected to no peer again (connect(2)).
///
/// # Safety
/// As for [`internet`].
pub(crate) unsafe fn is_unspecified(address: *const sockaddr, length: socklen_t) -> bool {
    if address.is_null() || (length as usize) < size_of::<libc::sa_family_t>() {
        return false;
    }
    // SAFETY: as many octets as the family has are readable, as the caller says.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    c_int::from(family) == libc::AF_UNSPEC
}

/// True for an address of version 6.
///
/// # Safety
/// As for [`internet`].
pub(crate) unsafe fn is_version_6(address: *const sockaddr, length: socklen_t) -> bool {
    if address.is_null() || (length as usize) < size_of::<sockaddr_in6>() {
        return false;
    }
    // SAFETY: as many octets as the family has are readable, as the caller says.
    let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
    c_int::from(family) == libc::AF_INET6
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
            let host = match *address.ip() {
                LOOPBACK_6 => Ipv6Addr::LOCALHOST,
                Ipv4Addr::UNSPECIFIED => Ipv6Addr::UNSPECIFIED,
                host => host.to_ipv6_mapped(),
            };
            SocketAddr::V6(SocketAddrV6::new(host, address.port(), 0, 0))
        }
    };
    // SAFETY: the caller says that `length` is valid, and that so many octets may be written at
    // `to`; no more than the address has are copied, and the two do not overlap, since one is on
    // this stack.
    unsafe {
        address.with_sockaddr(|from, size| {
            let room = (*length).min(size) as usize;
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), room);
            *length = size;
        });
    }
}

/// End whose name is asked for.
#[derive(Clone, Copy)]
pub(crate) enum NamedEnd {
    Own,
    Peer,
}

/// The name that an address of the system's stands for, if it is one of ours.
fn name_of(address: &sockaddr_un, length: usize) -> Option<Name> {
    if c_int::from(address.sun_family) != libc::AF_UNIX {
        return None;
    }
    let count = length.checked_sub(offset_of!(sockaddr_un, sun_path))?;
    let path = address.sun_path.get(..count)?;
    let mut octets = [0; size_of::<sockaddr_un>()];
    for (to, from) in octets.iter_mut().zip(path) {
        *to = *from as u8;
    }
    let path = octets.get(..count)?.split(|octet| *octet == 0).next()?;
    let name: Name = std::str::from_utf8(path).ok()?.parse().ok()?;
    (name.token == crate::ask::ticket()?.token).then_some(name)
}

/// The address of the system's for a path, and its length.
pub(crate) fn address_of(path: &str) -> (sockaddr_un, socklen_t) {
    // SAFETY: all octets zero make a valid address.
    let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
        *to = from as libc::c_char;
    }
    let octets = (path.len() + 1).min(address.sun_path.len());
    let length = offset_of!(sockaddr_un, sun_path) + octets;
    (address, length as socklen_t)
}

/// The name of a socket of ours; none for all others.
fn name(fd: c_int, end: NamedEnd) -> Option<Name> {
    let _kept = KeptErrno::new();
    // SAFETY: all octets zero make a valid address.
    let mut address: sockaddr_un = unsafe { std::mem::zeroed() };
    let mut length = size_of::<sockaddr_un>() as socklen_t;
    let call = match end {
        NamedEnd::Own => libc::SYS_getsockname,
        NamedEnd::Peer => libc::SYS_getpeername,
    };
    // SAFETY: both pointers are to this stack, and the length is that of the address.
    let result = unsafe { libc::syscall(call, fd, &raw mut address, &raw mut length) };
    if result != 0 {
        return None;
    }
    name_of(&address, length as usize)
}

/// Name of a socket of ours. Its own name says whether it is one, for the relay or the program
/// itself has given it; only then is the other end the relay's, whose name tells more.
pub(crate) fn ours(fd: c_int) -> Option<Name> {
    crate::ask::ticket()?;
    let own = name(fd, NamedEnd::Own)?;
    match own.peer {
        Some(_) => Some(own),
        None => Some(name(fd, NamedEnd::Peer).unwrap_or(own)),
    }
}

/// Returns the kind of an Internet socket that may become one of ours: one that Linux has not bound
/// yet, and that is to have to do with version 4.
pub(crate) fn may_be_ours(fd: c_int) -> Option<Kind> {
    unbound(fd).map(|(kind, _)| kind)
}

/// Returns the kind of such a socket, and the family of its addresses.
pub(crate) fn unbound(fd: c_int) -> Option<(Kind, Family)> {
    let (kind, family, local) = internet_socket(fd)?;
    (local.port() == 0).then_some((kind, family))
}

/// The port of a socket for datagrams that may become one of ours to be sent from; zero if Linux
/// has not bound it yet, others only if it is for any host and has no peer.
pub(crate) fn may_send_as_ours(fd: c_int) -> Option<u16> {
    let (kind, _, local) = internet_socket(fd)?;
    let is_free = local.port() == 0 || local.ip().is_unspecified();
    (kind == Kind::Datagrams && is_free).then_some(local.port())
}

/// Returns the kind of an Internet socket of Linux's, its family, and where it is bound; none if it
/// cannot be the graph's: for version 6 alone, or bound to a device that the graph has not.
fn internet_socket(fd: c_int) -> Option<(Kind, Family, SocketAddrV4)> {
    let ticket = crate::ask::ticket()?;
    let socket = borrow(fd)?;
    let kind = match (sockopt::socket_type(socket), sockopt::socket_protocol(socket)) {
        (Ok(SocketType::STREAM), Ok(Some(ipproto::TCP))) => Kind::Stream,
        (Ok(SocketType::DGRAM), Ok(Some(ipproto::UDP))) => Kind::Datagrams,
        _ => return None,
    };
    let bound = rustix::net::getsockname(socket).ok()?;
    // SAFETY: it is as long as it says.
    let (family, local) = unsafe { internet(bound.as_ptr().cast(), bound.addr_len()) }?;
    if family == Family::V6
        && option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY).is_none_or(|alone| alone != 0)
    {
        return None;
    }
    let device = option_octets(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE).unwrap_or_default();
    let device = device.split(|octet| *octet == 0).next().unwrap_or_default();
    let is_the_graphs = ticket.devices.iter().any(|name| name.as_bytes() == device);
    (device.is_empty() || is_the_graphs).then_some((kind, family, local))
}

/// A place for an address that the system gives, of whatever form.
pub(crate) struct RawAddress {
    address: sockaddr_un,
    length: socklen_t,
}

impl RawAddress {
    pub(crate) fn new() -> Self {
        Self {
            // SAFETY: all octets zero make a valid address.
            address: unsafe { std::mem::zeroed() },
            length: size_of::<sockaddr_un>() as socklen_t,
        }
    }

    /// Address for the system to write to.
    pub(crate) fn pointer(&mut self) -> *mut sockaddr {
        (&raw mut self.address).cast()
    }

    pub(crate) fn length(&mut self) -> &mut socklen_t {
        &mut self.length
    }

    /// Gives it to the program, as an Internet address if it is the name of a socket of ours and
    /// has come through one of ours, `fd`: elsewhere such a name could be any process's. Streams
    /// name no sender, as TCP does not.
    ///
    /// # Safety
    /// As for [`give`].
    pub(crate) unsafe fn hand_over(&self, fd: c_int, to: *mut sockaddr, length: *mut socklen_t) {
        if to.is_null() || length.is_null() {
            return;
        }
        let named = name_of(&self.address, self.length as usize);
        match named.filter(|_| name(fd, NamedEnd::Own).is_some()) {
            Some(Name { kind: Kind::Datagrams, family, peer: Some(peer), .. }) => {
                // SAFETY: the caller says so.
                unsafe { give(family, peer, to, length) };
            }
            // SAFETY: the caller says that `length` is valid.
            Some(_) => unsafe { *length = 0 },
            None => {
                let from = (&raw const self.address).cast::<u8>();
                let count = self.length as usize;
                // SAFETY: the caller says that so many octets may be written; no more than the
                // address has are copied.
                unsafe {
                    let room = (*length as usize).min(count).min(size_of::<sockaddr_un>());
                    std::ptr::copy_nonoverlapping(from, to.cast::<u8>(), room);
                    *length = self.length;
                }
            }
        }
    }
}

/// The octets that the system answers for an option, 512 at most.
pub(crate) fn option_octets(fd: c_int, level: c_int, option: c_int) -> Option<Vec<u8>> {
    let _kept = KeptErrno::new();
    let mut value = [0u8; 512];
    let mut length = value.len() as socklen_t;
    // SAFETY: both pointers are to this stack, and the length is that of the value.
    let result = unsafe {
        libc::syscall(libc::SYS_getsockopt, fd, level, option, value.as_mut_ptr(), &raw mut length)
    };
    (result == 0).then(|| value.get(..length as usize).map(<[u8]>::to_vec))?
}

/// Value of an option that is a number.
pub(crate) fn option(fd: c_int, level: c_int, option: c_int) -> Option<c_int> {
    let octets = option_octets(fd, level, option)?;
    octets.get(..4)?.try_into().ok().map(c_int::from_ne_bytes)
}

/// Sets an option of one socket on another, of those that are the socket's and not its protocol's.
/// It is the same number that is answered and set, but for buffers, which Linux doubles.
pub(crate) fn copy_option(from: c_int, to: c_int, option: c_int) {
    let level = libc::SOL_SOCKET;
    let Some(mut value) = option_octets(from, level, option) else {
        return;
    };
    if let (libc::SO_RCVBUF | libc::SO_SNDBUF, Ok(octets)) = (option, value[..].try_into()) {
        value = (c_int::from_ne_bytes(octets) / 2).to_ne_bytes().into();
    }
    let _kept = KeptErrno::new();
    // SAFETY: as many octets as the length says are readable. If the other socket does not take it,
    // it goes without.
    unsafe {
        libc::syscall(
            libc::SYS_setsockopt,
            to,
            level,
            option,
            value.as_ptr(),
            value.len() as socklen_t,
        );
    }
}

/// The program's `errno`.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library answers a valid pointer to this thread's own number.
    unsafe { *libc::__errno_location() }
}
