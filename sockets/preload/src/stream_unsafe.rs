//! Features of streams that the system's sockets in their place have not: how many octets are
//! unread is told with what is read (`TCP_INQ`), how many the peer has not acknowledged
//! (`SIOCOUTQ`), and where records end (`MSG_EOR`).

use crate::ask::{ask, is_under_exec};
use crate::next_unsafe;
use crate::socket_unsafe::{KeptErrno, errno, option, ours, set_errno};
use crate::symbols_unsafe::{answer, plain};
use libc::{c_int, c_ulong, c_void, iovec, msghdr, ssize_t};
use std::mem::size_of;
use std::ptr::null_mut;
use xk_request::{Kind, Name, Reply, Request};

/// An option of all of Linux's sockets that means nothing but to radios: on a stream of ours it
/// says that `TCP_INQ` is on, to all processes that have the socket.
const MARK: c_int = 41;
/// The control message that tells how many octets are unread, and the option that asks for it.
pub(crate) const TCP_INQ: c_int = 36;
/// Asks how many octets were not sent yet.
const SIOCOUTQNSD: c_ulong = 0x894b;

/// Whether `fd` is one of our streams that has or had a peer.
fn is_stream(fd: c_int) -> Option<u64> {
    match ours(fd) {
        Some(Name { id, kind: Kind::Stream, peer: Some(_), .. }) => Some(id),
        _ => None,
    }
}

/// Whether `TCP_INQ` is on.
pub(crate) fn tells_unread(fd: c_int) -> bool {
    option(fd, libc::SOL_SOCKET, MARK).is_some_and(|on| on != 0)
}

/// Turns `TCP_INQ` on or off; false if the system has not the like.
pub(crate) fn set_tells_unread(fd: c_int, on: bool) -> bool {
    let (_kept, on) = (KeptErrno::new(), c_int::from(on));
    let length = size_of::<c_int>() as libc::socklen_t;
    let call = libc::SYS_setsockopt;
    // SAFETY: the number is on this stack, and the length is its.
    let set = unsafe { libc::syscall(call, fd, libc::SOL_SOCKET, MARK, &raw const on, length) };
    set == 0
}

/// Lets no more than a part of what may wait to be sent (`TCP_NOTSENT_LOWAT`; 0 is no bound) wait
/// with the program's own socket: the rest waits in the relay and the stack.
pub(crate) fn bound_unsent(fd: c_int, unsent_max: c_int) {
    let bound = (unsent_max as u32 / 8) as c_int;
    let is_larger = |octets: c_int| octets / 2 > bound;
    if unsent_max == 0 || !option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF).is_some_and(is_larger) {
        return;
    }
    let _kept = KeptErrno::new();
    let (name, length) = (libc::SO_SNDBUF, size_of::<c_int>() as libc::socklen_t);
    let call = libc::SYS_setsockopt;
    // SAFETY: the number is on this stack, and the length is its. Linux takes any.
    unsafe { libc::syscall(call, fd, libc::SOL_SOCKET, name, &raw const bound, length) };
}

/// The place for control messages that a program gives with a call, which the call changes.
pub(crate) struct Controls {
    at: *mut c_void,
    room: usize,
}

impl Controls {
    /// Returns the control messages' place in a message.
    pub(crate) fn of(message: &msghdr) -> Self {
        Self { at: message.msg_control, room: message.msg_controllen }
    }

    /// Puts how many octets are unread behind the control messages that have come, if the program
    /// wants that.
    ///
    /// # Safety
    /// The program has given this place with `message`, which was received through `fd`.
    pub(crate) unsafe fn tell_unread(&self, fd: c_int, message: &mut msghdr) {
        if !is_under_exec() || !tells_unread(fd) || is_stream(fd).is_none() {
            return;
        }
        let unread = unread(fd);
        // SAFETY: it is but reckoned.
        let (space, length) = unsafe { (libc::CMSG_SPACE(4), libc::CMSG_LEN(4)) };
        let used = message.msg_controllen.next_multiple_of(size_of::<usize>());
        if self.at.is_null() || self.room < used + space as usize {
            message.msg_flags |= libc::MSG_CTRUNC;
            return;
        }
        message.msg_control = self.at;
        message.msg_controllen = used + space as usize;
        // SAFETY: there is room for one behind those that are used, as was looked.
        unsafe {
            let header = self.at.cast::<u8>().add(used).cast::<libc::cmsghdr>();
            let told = libc::cmsghdr {
                cmsg_len: length as usize,
                cmsg_level: libc::IPPROTO_TCP,
                cmsg_type: TCP_INQ,
            };
            header.write_unaligned(told);
            libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(unread);
        }
    }
}

/// Counts the octets that a read finds; the peer's end counts for one.
fn unread(fd: c_int) -> c_int {
    let _kept = KeptErrno::new();
    let mut octets: c_int = 0;
    // SAFETY: the number is on this stack.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, libc::FIONREAD, &raw mut octets) };
    let mut polled = libc::pollfd { fd, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: it is one, on this stack.
    let found = unsafe { libc::poll(&raw mut polled, 1, 0) };
    let has_ended = found > 0 && polled.revents & (libc::POLLRDHUP | libc::POLLHUP) != 0;
    octets + c_int::from(has_ended)
}

/// ioctl(2): of all requests those that ask what the peer has not acknowledged.
#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let place = match request {
        libc::TIOCOUTQ => 0,
        SIOCOUTQNSD => 1,
        // SAFETY: what the program has handed over is handed on.
        _ => return plain(unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) }),
    };
    let id = match ours(fd) {
        Some(Name { id, kind: Kind::Stream, .. }) if !argument.is_null() => id,
        // SAFETY: as above.
        _ => return plain(unsafe { libc::syscall(libc::SYS_ioctl, fd, request, argument) }),
    };
    match ask(&Request::Unacknowledged(id)) {
        Reply::Value(octets) if octets.len() == 8 => {
            // SAFETY: the program says that there is room for a number, and there are two of them.
            unsafe {
                let from = octets.as_ptr().add(4 * place);
                std::ptr::copy_nonoverlapping(from, argument.cast::<u8>(), 4);
            }
            0
        }
        Reply::Errno(number) => answer(number),
        _ => answer(libc::EPROTO),
    }
}

/// Sends what ends a record: its last octet goes with a descriptor, which the relay finds the end
/// by. `None` if it is none of our streams.
///
/// # Safety
/// `message` can be sent.
pub(crate) unsafe fn send_record(fd: c_int, message: &msghdr, flags: c_int) -> Option<ssize_t> {
    if flags & libc::MSG_EOR == 0 || message.msg_iov.is_null() {
        return None;
    }
    is_stream(fd)?;
    // SAFETY: the caller says so.
    let slices = unsafe { std::slice::from_raw_parts(message.msg_iov, message.msg_iovlen) };
    let mut before: Vec<iovec> = slices.iter().filter(|s| s.iov_len > 0).copied().collect();
    let last = before.last_mut()?;
    last.iov_len -= 1;
    let all: usize = slices.iter().map(|slice| slice.iov_len).sum();
    // SAFETY: it is the last octet of those that can be read.
    let octet = unsafe { last.iov_base.cast::<u8>().add(last.iov_len) };
    if all > 1 {
        let mut front = *message;
        (front.msg_iov, front.msg_iovlen) = (before.as_mut_ptr(), before.len());
        // SAFETY: the caller says so; one octet less goes.
        let sent = unsafe { next_unsafe::sendmsg(fd, &raw const front, flags) };
        if sent < 0 || (sent as usize) < all - 1 {
            return Some(sent);
        }
    }
    let was = errno();
    // SAFETY: the octet can be read.
    let sent = unsafe { send_last(fd, octet, flags) };
    if sent > 0 {
        return Some(all as ssize_t);
    }
    if all == 1 {
        return Some(sent);
    }
    // The rest is sent once more, as what it is.
    set_errno(was);
    Some(all as ssize_t - 1)
}

/// Sends an octet with a descriptor.
///
/// # Safety
/// The octet can be read.
unsafe fn send_last(fd: c_int, octet: *mut u8, flags: c_int) -> ssize_t {
    // SAFETY: these are numbers alone.
    let mark = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if mark < 0 {
        return -1;
    }
    let mut slice = iovec { iov_base: octet.cast(), iov_len: 1 };
    let mut controls = [0_u64; 4];
    // SAFETY: all octets zero make a message of nothing.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    (message.msg_name, message.msg_namelen) = (null_mut(), 0);
    (message.msg_iov, message.msg_iovlen) = (&raw mut slice, 1);
    message.msg_control = controls.as_mut_ptr().cast();
    // SAFETY: the control messages have room for one of a descriptor, and all is on this stack.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(4) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_len = libc::CMSG_LEN(4) as usize;
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(mark);
        let sent = next_unsafe::sendmsg(fd, &raw const message, flags);
        let _kept = KeptErrno::new();
        libc::syscall(libc::SYS_close, mark);
        sent
    }
}
