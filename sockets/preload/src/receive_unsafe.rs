//! The functions of the C library that programs call in place of its own: receiving.
//!
//! What arrives is the system's business. What is done here: the names of senders become addresses,
//! and the end of a stream that broke becomes the error it was.
//!
//! Each is as safe as the C library's: the program keeps to the manual page that is named.

use crate::ask::is_under_exec;
use crate::controls_unsafe::tell;
use crate::next_unsafe;
use crate::options_unsafe::why;
use crate::socket_unsafe::{RawAddress, errno, ours, set_errno};
use crate::stream_unsafe::Controls;
use crate::zerocopy_unsafe;
use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, sockaddr, socklen_t, ssize_t, timespec};
use xk_request::{Kind, Name};

/// Revises the result that a program gets at the end of a stream, or for an error, which the system
/// cannot know in full.
fn revised(fd: c_int, result: ssize_t) -> ssize_t {
    if result > 0 {
        return result;
    }
    let number = match result {
        0 => 0,
        _ => errno(),
    };
    if !matches!(number, 0 | libc::ECONNRESET | libc::EINVAL) || !is_under_exec() {
        return result;
    }
    let before = errno();
    let told = match (ours(fd), number) {
        (Some(Name { kind: Kind::Stream, peer: None, .. }), libc::EINVAL) => Some(libc::ENOTCONN),
        (Some(Name { id, kind: Kind::Stream, peer: Some(_), .. }), 0 | libc::ECONNRESET)
        | (Some(Name { id, .. }), libc::ECONNRESET) => why(id),
        _ => None,
    };
    match told {
        Some(number) => {
            set_errno(number);
            -1
        }
        None => {
            set_errno(before);
            result
        }
    }
}

/// read(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, to: *mut c_void, count: usize) -> ssize_t {
    // SAFETY: what the program has handed over is handed on.
    let result = unsafe { next_unsafe::read(fd, to, count) };
    match count {
        0 => result,
        _ => revised(fd, result),
    }
}

/// readv(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: what the program has handed over is handed on.
    revised(fd, unsafe { next_unsafe::readv(fd, to, count) })
}

/// recv(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn recv(fd: c_int, to: *mut c_void, count: usize, flags: c_int) -> ssize_t {
    let none = std::ptr::null_mut();
    // SAFETY: as for this function; no address is asked for.
    unsafe { recvfrom(fd, to, count, flags, none, std::ptr::null_mut()) }
}

/// recvfrom(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    to: *mut c_void,
    count: usize,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    if from.is_null() || length.is_null() || !is_under_exec() {
        // SAFETY: what the program has handed over is handed on.
        let result = unsafe { next_unsafe::recvfrom(fd, to, count, flags, from, length) };
        return match count {
            0 => result,
            _ => revised(fd, result),
        };
    }
    let mut place = RawAddress::new();
    let room = &raw mut *place.length();
    // SAFETY: the place for the address is on this stack, and its length is right.
    let result = unsafe { next_unsafe::recvfrom(fd, to, count, flags, place.pointer(), room) };
    let result = match count {
        0 => result,
        _ => revised(fd, result),
    };
    if result >= 0 {
        // SAFETY: the program says that there is room.
        unsafe { place.hand_over(fd, from, length) };
    }
    result
}

/// recvmsg(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as for this function.
    if let Some(result) = unsafe { zerocopy_unsafe::receive(fd, message, flags) } {
        return result;
    }
    // SAFETY: the program says that it is one, if it is not null.
    let controls = unsafe { message.as_ref() }.map(Controls::of);
    // SAFETY: what the program has handed over is handed on.
    let result = unsafe { receive_message(fd, message, flags) };
    if result >= 0
        && let Some(controls) = controls
    {
        // SAFETY: the program has given the place with the message.
        unsafe { controls.tell_unread(fd, &mut *message) };
    }
    result
}

/// # Safety
/// As for recvmsg(2).
unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    if message.is_null() || !is_under_exec() {
        // SAFETY: what the program has handed over is handed on.
        return unsafe { next_unsafe::recvmsg(fd, message, flags) };
    }
    // SAFETY: it is the program's, and not null.
    let theirs = unsafe { &mut *message };
    let for_control = theirs.msg_controllen;
    if theirs.msg_name.is_null() {
        // SAFETY: what the program has handed over is handed on.
        let result = revised(fd, unsafe { next_unsafe::recvmsg(fd, message, flags) });
        if result >= 0 {
            // SAFETY: it is as the system has left it.
            unsafe { tell(fd, theirs, for_control) };
        }
        return result;
    }
    let mut place = RawAddress::new();
    let (name, room) = (theirs.msg_name, theirs.msg_namelen);
    theirs.msg_name = place.pointer().cast();
    theirs.msg_namelen = *place.length();
    // SAFETY: the place for the address is on this stack, and its length is right.
    let result = unsafe { next_unsafe::recvmsg(fd, message, flags) };
    *place.length() = theirs.msg_namelen;
    (theirs.msg_name, theirs.msg_namelen) = (name, room);
    let result = revised(fd, result);
    if result >= 0 {
        // SAFETY: the program says that there is room; the message is as the system has left it.
        unsafe {
            place.hand_over(fd, name.cast(), &raw mut theirs.msg_namelen);
            tell(fd, theirs, for_control);
        }
    }
    result
}

/// recvmmsg(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    /// As many as the system takes at once.
    const COUNT_MAX: usize = 1024;
    let count = (count as usize).min(COUNT_MAX);
    if messages.is_null() || !is_under_exec() {
        // SAFETY: what the program has handed over is handed on.
        return unsafe { next_unsafe::recvmmsg(fd, messages, count as c_uint, flags, limit) };
    }
    // SAFETY: the program says that there are so many.
    let list = unsafe { std::slice::from_raw_parts_mut(messages, count) };
    let mut places: Vec<RawAddress> = (0..count).map(|_| RawAddress::new()).collect();
    let mut names = Vec::with_capacity(count);
    for (message, place) in list.iter_mut().zip(&mut places) {
        let theirs = &mut message.msg_hdr;
        names.push((theirs.msg_name, theirs.msg_namelen, theirs.msg_controllen));
        if !theirs.msg_name.is_null() {
            theirs.msg_name = place.pointer().cast();
            theirs.msg_namelen = *place.length();
        }
    }
    // SAFETY: the places for the addresses are on this stack, and their lengths are right.
    let result = unsafe { next_unsafe::recvmmsg(fd, messages, count as c_uint, flags, limit) };
    let came = usize::try_from(result).unwrap_or(0);
    for (at, (message, (name, room, for_control))) in list.iter_mut().zip(names).enumerate() {
        let theirs = &mut message.msg_hdr;
        let length = theirs.msg_namelen;
        (theirs.msg_name, theirs.msg_namelen) = (name, room);
        if let Some(place) = places.get_mut(at).filter(|_| at < came && !name.is_null()) {
            *place.length() = length;
            // SAFETY: the program says that there is room.
            unsafe { place.hand_over(fd, name.cast(), &raw mut theirs.msg_namelen) };
        }
        if at < came {
            // SAFETY: it is as the system has left it.
            unsafe { tell(fd, theirs, for_control) };
        }
    }
    revised(fd, result as ssize_t) as c_int
}

/// read(2), as programs call it that were built to check their buffers.
#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, to: *mut c_void, count: usize, room: usize) -> ssize_t {
    check(count, room);
    // SAFETY: as for this function.
    unsafe { read(fd, to, count) }
}

/// recv(2), as programs call it that were built to check their buffers.
#[unsafe(no_mangle)]
unsafe extern "C" fn __recv_chk(
    fd: c_int,
    to: *mut c_void,
    count: usize,
    room: usize,
    flags: c_int,
) -> ssize_t {
    check(count, room);
    // SAFETY: as for this function.
    unsafe { recv(fd, to, count, flags) }
}

/// recvfrom(2), as programs call it that were built to check their buffers.
#[unsafe(no_mangle)]
unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    to: *mut c_void,
    count: usize,
    room: usize,
    flags: c_int,
    from: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    check(count, room);
    // SAFETY: as for this function.
    unsafe { recvfrom(fd, to, count, flags, from, length) }
}

/// Ends the program if it asks for more than it has room for, as the C library does.
fn check(count: usize, room: usize) {
    if count > room {
        std::process::abort();
    }
}
