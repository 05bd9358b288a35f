//! The functions of the C library that programs call in place of its own: options.
//!
//! Each is as safe as the C library's: the program keeps to the manual page that is named.

use crate::ask::ask;
use crate::carried::not_here;
use crate::socket_unsafe::{may_be_ours, option, option_octets, ours};
use crate::stream_unsafe::{TCP_INQ, bound_unsent, set_tells_unread, tells_unread};
use crate::symbols_unsafe::{answer, plain};
use crate::zerocopy_unsafe;
use libc::{c_int, c_void, socklen_t};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use xk_request::{Family, Kind, Name, Reply, Request, Setting, VALUE_OCTETS_MAX};

/// Levels whose options the relay knows.
fn is_of_the_internet(level: c_int) -> bool {
    matches!(level, libc::IPPROTO_TCP | libc::IPPROTO_UDP | libc::IPPROTO_IP | libc::IPPROTO_IPV6)
}

/// The option by which sockets share the peers at one port.
const SHARES_PEERS: (c_int, c_int) = (libc::SOL_SOCKET, libc::SO_REUSEPORT);

/// Options of the system's sockets that would have no effect on one of the graph, and whose absence
/// would be noticed.
const NOT_OF_THE_GRAPH: &[c_int] = &[
    libc::SO_ATTACH_BPF,
    libc::SO_ATTACH_FILTER,
    libc::SO_ATTACH_REUSEPORT_CBPF,
    libc::SO_ATTACH_REUSEPORT_EBPF,
    libc::SO_TIMESTAMPING,
    libc::SO_TXTIME,
];

/// getsockopt(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let special = level == libc::SOL_SOCKET
        && matches!(
            name,
            libc::SO_ERROR
                | libc::SO_DOMAIN
                | libc::SO_PROTOCOL
                | libc::SO_REUSEPORT
                | libc::SO_ZEROCOPY
        );
    if (special || is_of_the_internet(level))
        && let Some(socket) = ours(fd)
    {
        return match known(fd, &socket, level, name) {
            Ok(mut octets) => {
                if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
                    octets.resize(information_octets().max(octets.len()), 0);
                }
                // SAFETY: the program says that there is room.
                unsafe { give_octets(&octets, value, length) }
            }
            Err(number) => answer(number),
        };
    }
    // SAFETY: what the program has handed over is handed on.
    plain(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value, length) })
}

/// An option of a socket of ours that the system would answer otherwise.
fn known(fd: c_int, socket: &Name, level: c_int, name: c_int) -> Result<Vec<u8>, c_int> {
    let number = match (level, name) {
        (libc::SOL_SOCKET, libc::SO_ERROR) => error_of(fd, socket),
        (libc::SOL_SOCKET, libc::SO_ZEROCOPY) => zerocopy_unsafe::is_on(fd).into(),
        (libc::IPPROTO_TCP, TCP_INQ) if socket.kind == Kind::Stream => tells_unread(fd).into(),
        (libc::SOL_SOCKET, libc::SO_DOMAIN) => match socket.family {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        },
        (libc::SOL_SOCKET, libc::SO_PROTOCOL) => match socket.kind {
            Kind::Stream => libc::IPPROTO_TCP,
            Kind::Datagrams => libc::IPPROTO_UDP,
        },
        _ => {
            return match ask(&Request::Get(socket.id, level, name)) {
                Reply::Value(octets) => Ok(octets),
                Reply::Errno(number) => Err(number),
                Reply::Outside | Reply::Made(_) => Err(libc::EPROTO),
            };
        }
    };
    Ok(number.to_ne_bytes().into())
}

/// The error that waits, told once. The system's own only says that there is one.
fn error_of(fd: c_int, socket: &Name) -> c_int {
    let own = option(fd, libc::SOL_SOCKET, libc::SO_ERROR).unwrap_or(0);
    if socket.peer.is_none() {
        return own;
    }
    why(socket.id).unwrap_or(own)
}

/// Why a stream is over, or what was reported to a socket for datagrams, if the relay has not told
/// it yet.
pub(crate) fn why(id: u64) -> Option<c_int> {
    match ask(&Request::Status(id)) {
        Reply::Errno(0 | libc::EINPROGRESS | libc::ENOTCONN) => None,
        Reply::Errno(number) => Some(number),
        Reply::Outside | Reply::Made(_) | Reply::Value(_) => None,
    }
}

/// # Safety
/// `value` points to as many writable octets as `length` says.
unsafe fn give_octets(octets: &[u8], value: *mut c_void, length: *mut socklen_t) -> c_int {
    if value.is_null() || length.is_null() {
        return answer(libc::EFAULT);
    }
    // SAFETY: the caller says so; no more than there are are copied.
    unsafe {
        let room = (*length as usize).min(octets.len());
        std::ptr::copy_nonoverlapping(octets.as_ptr(), value.cast::<u8>(), room);
        *length = room as socklen_t;
    }
    0
}

/// Returns the length of the running system's `tcp_info`: programs built for it may ask for no
/// less.
fn information_octets() -> usize {
    static OCTETS: AtomicUsize = AtomicUsize::new(0);
    let known = OCTETS.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let (kind, flags) = (SocketType::STREAM, SocketFlags::CLOEXEC);
    let asked = rustix::net::socket_with(AddressFamily::INET, kind, flags, None)
        .ok()
        .and_then(|fresh| option_octets(fresh.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO));
    let octets = asked.map_or(0, |octets| octets.len());
    OCTETS.store(octets, Ordering::Relaxed);
    octets
}

/// Whether an option's value is more than zeros.
///
/// # Safety
/// `value` is null or points to `length` readable octets.
unsafe fn turns_on(value: *const c_void, length: socklen_t) -> bool {
    if value.is_null() {
        return false;
    }
    // SAFETY: the caller says so.
    let octets = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length as usize) };
    octets.iter().any(|octet| *octet != 0)
}

/// Has what is read tell how many octets are unread, or not.
fn set_inq(fd: c_int, value: &[u8]) -> c_int {
    let number = value.first_chunk().map(|octets| c_int::from_ne_bytes(*octets));
    match number {
        Some(0 | 1) if set_tells_unread(fd, number == Some(1)) => 0,
        _ => answer(libc::EINVAL),
    }
}

/// Has streams tell what was sent without a copy, or not. Datagrams are always copied, and say
/// nothing.
///
/// # Safety
/// `value` is null or points to `length` readable octets.
unsafe fn set_zerocopy(fd: c_int, value: *const c_void, length: socklen_t) -> c_int {
    let kind = ours(fd).map(|socket| socket.kind).or_else(|| may_be_ours(fd));
    if kind != Some(Kind::Stream) {
        // SAFETY: the caller says so.
        return answer(if unsafe { turns_on(value, length) } { libc::ENOPROTOOPT } else { 0 });
    }
    if value.is_null() || (length as usize) < size_of::<c_int>() {
        return answer(libc::EINVAL);
    }
    // SAFETY: so many octets can be read.
    let number = unsafe { value.cast::<c_int>().read_unaligned() };
    if !matches!(number, 0 | 1) {
        return answer(libc::EINVAL);
    }
    if ours(fd).is_none() {
        // It may stay Linux's.
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ZEROCOPY);
        // SAFETY: what the program has handed over is handed on.
        let set = unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, value, length) };
        if set != 0 {
            return plain(set);
        }
    }
    zerocopy_unsafe::set(fd, number == 1);
    0
}

/// Sets an option of a socket of ours that the system knows nothing of, or not enough.
fn set_on_ours(fd: c_int, socket: &Name, option: (c_int, c_int), octets: &[u8]) -> c_int {
    if (option, socket.kind) == ((libc::IPPROTO_TCP, TCP_INQ), Kind::Stream) {
        return set_inq(fd, octets);
    }
    let setting = Setting { level: option.0, option: option.1, value: octets.into() };
    match ask(&Request::Set(socket.id, vec![setting])) {
        Reply::Errno(0) if option == (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => {
            let number = octets.first_chunk().map_or(0, |octets| c_int::from_ne_bytes(*octets));
            bound_unsent(fd, number);
            0
        }
        Reply::Errno(number) => answer(number),
        // It is one that Linux has.
        Reply::Outside => {
            not_here(option.0, option.1);
            answer(libc::ENOPROTOOPT)
        }
        Reply::Made(_) | Reply::Value(_) => answer(libc::EPROTO),
    }
}

/// setsockopt(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ZEROCOPY)
        && (ours(fd).is_some() || may_be_ours(fd).is_some())
    {
        // SAFETY: the program says that so many octets can be read.
        return unsafe { set_zerocopy(fd, value, length) };
    }
    let shared = level == libc::SOL_SOCKET
        && matches!(
            name,
            libc::SO_KEEPALIVE
                | libc::SO_LINGER
                | libc::SO_BROADCAST
                | libc::SO_RCVBUF
                | libc::SO_SNDBUF
                | libc::SO_REUSEADDR
                | libc::SO_REUSEPORT
        );
    let is_missed = level == libc::SOL_SOCKET && NOT_OF_THE_GRAPH.contains(&name);
    let ours = match shared || is_missed || is_of_the_internet(level) {
        true => ours(fd),
        false => None,
    };
    // A socket that may become the graph's is Linux's until then, which remembers what is set.
    let Some(socket) = ours else {
        // SAFETY: what the program has handed over is handed on.
        return plain(unsafe {
            libc::syscall(libc::SYS_setsockopt, fd, level, name, value, length)
        });
    };
    // SAFETY: the program says that so many octets can be read.
    if is_missed && unsafe { turns_on(value, length) } {
        not_here(level, name);
        return answer(libc::ENOPROTOOPT);
    }
    // The system's sockets in the place of ours know nothing of these.
    let is_the_relays = is_of_the_internet(level) || (level, name) == SHARES_PEERS;
    if !is_the_relays {
        // SAFETY: what the program has handed over is handed on.
        let set = unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, value, length) };
        if set != 0 || is_missed {
            return plain(set);
        }
    }
    if value.is_null() && length > 0 {
        return answer(libc::EFAULT);
    }
    if length as usize > VALUE_OCTETS_MAX {
        return answer(libc::EINVAL);
    }
    let octets = match value.is_null() {
        true => &[][..],
        // SAFETY: the program says that so many octets can be read.
        false => unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length as usize) },
    };
    set_on_ours(fd, &socket, (level, name), octets)
}
