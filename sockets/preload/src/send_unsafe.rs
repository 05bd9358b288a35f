//! The functions of the C library that programs call in place of its own: sending.
//!
//! What is sent is the system's business. What is done here: addresses become names, and a broken
//! stream says why.
//!
//! Each is as safe as the C library's: the program keeps to the manual page that is named.

use crate::ask::is_under_exec;
use crate::controls_unsafe::{Asked, asked};
use crate::next_unsafe;
use crate::options_unsafe::{self, why};
use crate::replace::{self, Done};
use crate::socket_unsafe::{
    address_of, borrow, errno, internet, is_version_6, may_be_ours, may_send_as_ours, ours,
    set_errno,
};
use crate::stream_unsafe::send_record;
use crate::symbols_unsafe::{self, answer};
use crate::zerocopy_unsafe;
use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, sockaddr, socklen_t, ssize_t};
use std::net::SocketAddrV4;
use xk_request::{Family, Kind, Manner, Name};

/// The largest datagram's payload, in octets (RFC 768 on RFC 791).
const DATAGRAM_OCTETS_MAX: usize = 65_507;

/// Revises the result that a program gets which can write no more, or of whose datagrams the
/// network has reported an error.
fn revised(fd: c_int, result: ssize_t) -> ssize_t {
    if result >= 0 {
        return result;
    }
    let number = errno();
    let is_known = matches!(number, libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN);
    if !is_known || !is_under_exec() {
        return result;
    }
    let told = match (ours(fd), number) {
        (Some(name), libc::ENOTCONN) => Some(match name.kind {
            Kind::Stream => libc::EPIPE,
            Kind::Datagrams => libc::EDESTADDRREQ,
        }),
        (Some(name), _) => why(name.id),
        (None, _) => None,
    };
    set_errno(told.unwrap_or(number));
    result
}

/// [`revised`] for calls that may have been told to keep still: the signal of a broken stream comes
/// only if it is not the first that the program hears of it.
fn revised_with_signal(fd: c_int, result: ssize_t, flags: c_int) -> ssize_t {
    zerocopy_unsafe::sent(fd, result, flags);
    let result = revised(fd, result);
    if result < 0 && errno() == libc::EPIPE && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: a signal to this thread itself.
        unsafe { libc::raise(libc::SIGPIPE) };
        set_errno(libc::EPIPE);
    }
    result
}

/// Whether so many octets are too many for a datagram of the graph, though not for one of the
/// system's.
fn is_too_long(fd: c_int, octets: usize) -> bool {
    let ours = || ours(fd).is_some_and(|name| name.kind == Kind::Datagrams);
    octets > DATAGRAM_OCTETS_MAX && is_under_exec() && ours()
}

/// Octets of several slices together.
///
/// # Safety
/// `slices` is null or points to `count` of them.
unsafe fn octets_of(slices: *const iovec, count: usize) -> usize {
    if slices.is_null() {
        return 0;
    }
    // SAFETY: the caller says so.
    let slices = unsafe { std::slice::from_raw_parts(slices, count) };
    slices.iter().fold(0, |octets, slice| octets.saturating_add(slice.iov_len))
}

/// write(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, from: *const c_void, count: usize) -> ssize_t {
    if is_too_long(fd, count) {
        return answer(libc::EMSGSIZE) as ssize_t;
    }
    // SAFETY: what the program has handed over is handed on.
    revised(fd, unsafe { next_unsafe::write(fd, from, count) })
}

/// writev(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the program says that there are so many.
    if is_too_long(fd, unsafe { octets_of(from, usize::try_from(count).unwrap_or(0)) }) {
        return answer(libc::EMSGSIZE) as ssize_t;
    }
    // SAFETY: what the program has handed over is handed on.
    revised(fd, unsafe { next_unsafe::writev(fd, from, count) })
}

/// send(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn send(fd: c_int, from: *const c_void, count: usize, flags: c_int) -> ssize_t {
    // SAFETY: as for this function; no address is given.
    unsafe { sendto(fd, from, count, flags, std::ptr::null(), 0) }
}

/// Destination of a transmission.
enum To {
    /// The address that the program gives.
    Said,
    /// The peer to which the socket is connected.
    Connected,
    /// To the socket at this path; what is known of the program's own, and what the program has
    /// said.
    Path(String, Option<Name>, Family, (SocketAddrV4, Manner)),
    /// Nowhere, with this number.
    Nowhere(c_int),
}

/// # Safety
/// `address` is null or points to `length` readable octets.
unsafe fn destination(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
    manner: Manner,
) -> To {
    if address.is_null() && manner == Manner::USUAL || !is_under_exec() {
        return To::Said;
    }
    let named = ours(fd);
    if address.is_null() {
        return match named {
            Some(name) => match (name.family, name.peer) {
                (family, Some(peer)) => path(Some(name), family, peer, manner),
                _ => To::Said,
            },
            None => To::Said,
        };
    }
    // SAFETY: the caller says so.
    let Some((family, peer)) = (unsafe { internet(address, length) }) else {
        // SAFETY: the caller says so.
        let is_6 = unsafe { is_version_6(address, length) };
        return match named {
            // It is of both, and this address of neither.
            Some(Name { kind: Kind::Datagrams, .. }) if is_6 => To::Nowhere(libc::ENETUNREACH),
            _ => To::Said,
        };
    };
    match named {
        // TCP does not look at it.
        Some(Name { kind: Kind::Stream, .. }) => To::Connected,
        Some(name) if peer.port() == 0 => {
            drop(name);
            To::Nowhere(libc::EINVAL)
        }
        Some(name) => {
            let peer = replace::definite(&name, peer);
            path(Some(name), family, peer, manner)
        }
        // Linux's own host.
        None if peer.ip().is_unspecified() => To::Said,
        None if replace::is_known_outside(*peer.ip()) => To::Said,
        None => match may_send_as_ours(fd) {
            Some(_) => way(fd, family, None, (peer, manner)),
            None => To::Said,
        },
    }
}

/// Destination by the socket that stands for a peer, if there is one already.
fn path(ours: Option<Name>, family: Family, peer: SocketAddrV4, manner: Manner) -> To {
    let id = ours.as_ref().map_or(0, |name| name.id);
    match replace::stand_in(id, peer, manner) {
        Ok(path) => To::Path(path, ours, family, (peer, manner)),
        Err(error) => To::Nowhere(error.raw_os_error()),
    }
}

/// Asks the relay where to send to.
fn way(fd: c_int, family: Family, ours: Option<&Name>, peer: (SocketAddrV4, Manner)) -> To {
    let Some(place) = borrow(fd) else {
        return To::Nowhere(libc::EBADF);
    };
    match replace::way(place, family, ours, peer) {
        Ok(path) => To::Path(path, None, family, peer),
        Err(Done::Errno(number)) => To::Nowhere(number),
        Err(Done::Outside | Done::Ok) => To::Said,
    }
}

/// Has the first octets of a stream go with its SYN: what `MSG_FASTOPEN` asks for (tcp(7)), done as
/// `TCP_FASTOPEN_CONNECT` has it. Answers with whether there is something to send now, and the
/// flags that are left.
///
/// # Safety
/// `address` is null or points to `length` readable octets.
unsafe fn connect_fast(
    fd: c_int,
    (address, length): (*const sockaddr, socklen_t),
    flags: c_int,
) -> Option<c_int> {
    if flags & libc::MSG_FASTOPEN == 0 || address.is_null() || !is_under_exec() {
        return Some(flags);
    }
    let on: c_int = 1;
    let octets = size_of::<c_int>() as socklen_t;
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT);
    let before = errno();
    // SAFETY: the number is on this stack.
    if unsafe { options_unsafe::setsockopt(fd, level, name, (&raw const on).cast(), octets) } != 0 {
        // The connection goes without.
        set_errno(before);
    }
    // SAFETY: the caller says so.
    let connected = unsafe { symbols_unsafe::connect(fd, address, length) } == 0;
    connected.then_some(flags & !libc::MSG_FASTOPEN)
}

/// Sends a message to where it is to go.
///
/// # Safety
/// `message` can be sent.
unsafe fn send_to(fd: c_int, message: &msghdr, flags: c_int, to: To) -> ssize_t {
    let mut message = *message;
    if matches!(to, To::Said | To::Connected)
        // SAFETY: the caller says so.
        && let Some(sent) = unsafe { send_record(fd, &message, flags) }
    {
        return sent;
    }
    match to {
        To::Nowhere(number) => answer(number) as ssize_t,
        // SAFETY: the caller says so.
        To::Said => unsafe { next_unsafe::sendmsg(fd, &raw const message, flags) },
        To::Connected => {
            message.msg_name = std::ptr::null_mut();
            message.msg_namelen = 0;
            // SAFETY: the caller says so.
            unsafe { next_unsafe::sendmsg(fd, &raw const message, flags) }
        }
        To::Path(path, ours, family, peer) => {
            let before = errno();
            let (mut address, length) = address_of(&path);
            let said = (message.msg_name, message.msg_namelen);
            message.msg_name = (&raw mut address).cast();
            message.msg_namelen = length;
            // They have been heeded, and mean nothing to the system's socket.
            (message.msg_control, message.msg_controllen) = (std::ptr::null_mut(), 0);
            // SAFETY: the caller says so; the address is on this stack.
            let sent = unsafe { next_unsafe::sendmsg(fd, &raw const message, flags) };
            let is_new = sent < 0 && matches!(errno(), libc::ECONNREFUSED | libc::ENOENT);
            let Some(ours) = ours.filter(|_| is_new) else {
                return sent;
            };
            // This peer has no stand-in yet.
            set_errno(before);
            (message.msg_name, message.msg_namelen) = said;
            let to = way(fd, family, Some(&ours), peer);
            // SAFETY: the caller says so.
            unsafe { send_to(fd, &message, flags, to) }
        }
    }
}

/// sendto(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    from: *const c_void,
    count: usize,
    flags: c_int,
    to: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    if !is_under_exec() {
        // SAFETY: what the program has handed over is handed on.
        return unsafe { next_unsafe::sendto(fd, from, count, flags, to, length) };
    }
    if is_too_long(fd, count) {
        return answer(libc::EMSGSIZE) as ssize_t;
    }
    // SAFETY: the program says that so many octets are readable.
    let Some(flags) = (unsafe { connect_fast(fd, (to, length), flags) }) else {
        return -1;
    };
    // The signal comes below, if it is to.
    let quiet = flags | libc::MSG_NOSIGNAL;
    // SAFETY: the program says that so many octets are readable.
    let to_whom = unsafe { destination(fd, to, length, Manner::USUAL) };
    let result = match to_whom {
        // SAFETY: what the program has handed over is handed on.
        To::Said if flags & libc::MSG_EOR == 0 => unsafe {
            next_unsafe::sendto(fd, from, count, quiet, to, length)
        },
        to_whom => {
            let mut slice = iovec { iov_base: from.cast_mut(), iov_len: count };
            // SAFETY: all octets zero make a message of nothing.
            let mut message: msghdr = unsafe { std::mem::zeroed() };
            message.msg_name = to.cast_mut().cast();
            message.msg_namelen = length;
            message.msg_iov = &raw mut slice;
            message.msg_iovlen = 1;
            // SAFETY: the slice is on this stack, and what it points to is readable, as the program
            // says.
            unsafe { send_to(fd, &message, quiet, to_whom) }
        }
    };
    revised_with_signal(fd, result, flags)
}

/// sendmsg(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if message.is_null() || !is_under_exec() {
        // SAFETY: what the program has handed over is handed on.
        return unsafe { next_unsafe::sendmsg(fd, message, flags) };
    }
    // SAFETY: the program says that it is one.
    let theirs = unsafe { &*message };
    let address = (theirs.msg_name.cast_const().cast(), theirs.msg_namelen);
    // SAFETY: the program says that so many octets are readable.
    let Some(flags) = (unsafe { connect_fast(fd, address, flags) }) else {
        return -1;
    };
    let quiet = flags | libc::MSG_NOSIGNAL;
    // SAFETY: the program says that there are so many.
    if is_too_long(fd, unsafe { octets_of(theirs.msg_iov, theirs.msg_iovlen) }) {
        return answer(libc::EMSGSIZE) as ssize_t;
    }
    let (name, length) = (theirs.msg_name.cast(), theirs.msg_namelen);
    // A socket of another family may hand over descriptors.
    if theirs.msg_controllen == 0 || internet_kind(fd) != Some(Kind::Datagrams) {
        // SAFETY: the program says that so many octets are readable.
        let to = unsafe { destination(fd, name, length, Manner::USUAL) };
        // SAFETY: what the program has handed over is handed on.
        let result = unsafe { send_to(fd, theirs, quiet, to) };
        return revised_with_signal(fd, result, flags);
    }
    // SAFETY: the program says that its control messages are readable.
    let asked = unsafe { asked(theirs) };
    let manner = asked.map_or(Manner::USUAL, |asked| asked.manner);
    // SAFETY: as above.
    let to = unsafe { destination(fd, name, length, manner) };
    let mut plain = *theirs;
    // What it does not become the graph's for, Linux looks at by itself.
    if ours(fd).is_some() {
        let asked = match asked {
            Ok(asked) => asked,
            Err(error) => return answer(error.raw_os_error()) as ssize_t,
        };
        (plain.msg_control, plain.msg_controllen) = (std::ptr::null_mut(), 0);
        if asked.segment > 0 {
            // SAFETY: as above.
            return unsafe { send_pieces(fd, &plain, quiet, asked) };
        }
    }
    // SAFETY: what the program has handed over is handed on.
    let result = unsafe { send_to(fd, &plain, quiet, to) };
    revised_with_signal(fd, result, flags)
}

/// Sends a message in pieces, each a datagram (`UDP_SEGMENT`, udp(7)).
///
/// # Safety
/// `message` can be sent.
unsafe fn send_pieces(fd: c_int, message: &msghdr, flags: c_int, asked: Asked) -> ssize_t {
    let mut whole = Vec::new();
    let slices = match message.msg_iov.is_null() {
        true => &[][..],
        // SAFETY: the caller says so.
        false => unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) },
    };
    for slice in slices.iter().filter(|slice| slice.iov_len > 0) {
        // SAFETY: the caller says so.
        whole.extend_from_slice(unsafe {
            std::slice::from_raw_parts(slice.iov_base.cast::<u8>(), slice.iov_len)
        });
    }
    let mut sent = 0;
    for piece in whole.chunks(asked.segment) {
        let (name, length) = (message.msg_name.cast(), message.msg_namelen);
        // SAFETY: the caller says so.
        let to = unsafe { destination(fd, name, length, asked.manner) };
        let mut slice = iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
        let mut one = *message;
        (one.msg_iov, one.msg_iovlen) = (&raw mut slice, 1);
        // SAFETY: the slice is on this stack, and what it points to is there.
        let result = revised(fd, unsafe { send_to(fd, &one, flags, to) });
        if result < 0 {
            return if sent == 0 { result } else { sent };
        }
        sent += result;
    }
    sent
}

/// Returns the kind of a socket that is of the graph, or may be.
fn internet_kind(fd: c_int) -> Option<Kind> {
    ours_or_may_be(fd).or_else(|| may_send_as_ours(fd).map(|_| Kind::Datagrams))
}

/// sendmmsg(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if messages.is_null() || !is_under_exec() || ours_or_may_be(fd).is_none() {
        // SAFETY: what the program has handed over is handed on.
        return unsafe { next_unsafe::sendmmsg(fd, messages, count, flags) };
    }
    // SAFETY: the program says that there are so many.
    let list = unsafe { std::slice::from_raw_parts_mut(messages, count as usize) };
    let mut sent = 0;
    for message in list {
        // SAFETY: what the program has handed over is handed on.
        let result = unsafe { sendmsg(fd, &raw const message.msg_hdr, flags) };
        if result < 0 {
            // The error is told only if it was the first.
            return if sent == 0 { -1 } else { sent };
        }
        message.msg_len = result as c_uint;
        sent += 1;
    }
    sent
}

fn ours_or_may_be(fd: c_int) -> Option<Kind> {
    ours(fd).map(|name| name.kind).or_else(|| may_be_ours(fd))
}
