//! The functions of the C library that programs call in place of its own: addresses.
//!
//! Each is as safe as the C library's: the program keeps to the manual page that is named.

use crate::ask::{ask, is_under_exec};
use crate::next_unsafe;
use crate::registrations_unsafe::note;
use crate::replace::{self, Done};
use crate::socket_unsafe::{
    KeptErrno, borrow, errno, give, internet, is_unspecified, may_be_ours, option, ours, set_errno,
};
use crate::stream_unsafe::{set_tells_unread, tells_unread};
use crate::zerocopy_unsafe;
use libc::{c_int, c_void, epoll_event, sockaddr, socklen_t};
use xk_request::{Family, Kind, Name, Reply, Request, backlogs};

/// Reads the ticket, and finds what is called in place of, as soon as the library is there.
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = {
    extern "C" fn begin() {
        let _kept = KeptErrno::new();
        let _ = is_under_exec();
        next_unsafe::find_all();
    }
    begin
};

/// The answer of a call: -1 with the number, or what it is.
pub(crate) fn answer(number: c_int) -> c_int {
    if number == 0 {
        return 0;
    }
    set_errno(number);
    -1
}

/// What a system call has answered; `errno` is set already.
pub(crate) fn plain(result: libc::c_long) -> c_int {
    result as c_int
}

/// bind(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the program says so.
    let wanted = unsafe { internet(address, length) };
    if let (Some((family, local)), Some(place), Some(kind)) = (wanted, borrow(fd), may_be_ours(fd))
        && !is_version_6_alone(fd)
    {
        match replace::bind(place, kind, family, local) {
            Done::Outside => {}
            Done::Ok => return 0,
            Done::Errno(number) => return answer(number),
        }
    }
    // SAFETY: what the program has handed over is handed on.
    plain(unsafe { libc::syscall(libc::SYS_bind, fd, address, length) })
}

/// A socket that is to have nothing to do with version 4 is Linux's.
pub(crate) fn is_version_6_alone(fd: c_int) -> bool {
    option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) == Some(libc::AF_INET6)
        && option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY) == Some(1)
}

/// listen(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let is_unbound = || may_be_ours(fd) == Some(Kind::Stream) && !is_version_6_alone(fd);
    let mut own = backlog;
    if let Some(place) = borrow(fd)
        && (ours(fd).is_some() || is_unbound())
    {
        match replace::listen(place, ours(fd).as_ref(), backlog) {
            Done::Errno(number) => return answer(number),
            Done::Ok => own = backlogs(backlog).1,
            Done::Outside => {}
        }
    }
    // SAFETY: these are numbers alone.
    plain(unsafe { libc::syscall(libc::SYS_listen, fd, own) })
}

/// connect(2).
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn connect(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    // SAFETY: the program says so.
    let wanted = unsafe { internet(address, length) };
    // SAFETY: as above.
    let dissolves = unsafe { is_unspecified(address, length) };
    let Some(place) = borrow(fd).filter(|_| is_under_exec()) else {
        // SAFETY: what the program has handed over is handed on.
        return plain(unsafe { libc::syscall(libc::SYS_connect, fd, address, length) });
    };
    let done = match (ours(fd), wanted) {
        (Some(name), None) if dissolves && name.kind == Kind::Datagrams => {
            replace::alone(place, &name)
        }
        (Some(Name { id, kind: Kind::Stream, peer: Some(_), .. }), Some((family, peer))) => {
            match ask(&Request::Again(id)) {
                Reply::Errno(libc::ENOTCONN) => replace::connect(place, family, None, peer),
                reply => Done::of(reply),
            }
        }
        // An address of version 6.
        (Some(name), None) if !dissolves && name.family == Family::V6 => {
            replace::connect_outside(place, &name)
        }
        (Some(name), Some((family, peer))) => match name.kind {
            Kind::Stream => replace::connect(place, family, Some(&name), peer),
            Kind::Datagrams => {
                let peer = replace::definite(&name, peer);
                replace::connect_datagrams(place, family, Some(&name), peer)
            }
        },
        (None, Some((family, peer))) => match may_be_ours(fd) {
            Some(Kind::Stream) => replace::connect(place, family, None, peer),
            // Linux's own host.
            Some(Kind::Datagrams) if peer.ip().is_unspecified() => Done::Outside,
            Some(Kind::Datagrams) => replace::connect_datagrams(place, family, None, peer),
            None => Done::Outside,
        },
        _ => Done::Outside,
    };
    match done {
        Done::Ok => 0,
        Done::Errno(number) => answer(number),
        // SAFETY: what the program has handed over is handed on.
        Done::Outside => plain(unsafe { libc::syscall(libc::SYS_connect, fd, address, length) }),
    }
}

/// accept(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: as for this function.
    unsafe { accept4(fd, address, length, 0) }
}

/// accept4(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
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
        && let Some(Name { family, peer: Some(peer), .. }) = ours(accepted)
    {
        if peer.ip().is_loopback() && replace::unpacked(accepted, flags) {
            let call = libc::SYS_getpeername;
            let _kept = KeptErrno::new();
            if !address.is_null() {
                // SAFETY: what the program has handed over is handed on.
                unsafe { libc::syscall(call, accepted, address, length) };
            }
            return accepted;
        }
        if tells_unread(fd) {
            set_tells_unread(accepted, true);
        }
        if zerocopy_unsafe::is_on(fd) {
            zerocopy_unsafe::set(accepted, true);
        }
        // SAFETY: the program says that there is room.
        unsafe { give(family, peer, address, length) };
    }
    if accepted < 0 && errno() == libc::EAGAIN && replace::is_shut(fd) {
        return answer(libc::EINVAL);
    }
    accepted
}

/// getsockname(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn getsockname(
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
#[unsafe(no_mangle)]
unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    match ours(fd) {
        Some(Name { family, peer: Some(peer), .. }) => {
            // SAFETY: the program says that there is room.
            unsafe { give(family, peer, address, length) };
            0
        }
        Some(_) => answer(libc::ENOTCONN),
        // SAFETY: what the program has handed over is handed on.
        None => plain(unsafe { libc::syscall(libc::SYS_getpeername, fd, address, length) }),
    }
}

/// shutdown(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // The system's sockets need no peer for it.
    if let Some(name) = ours(fd).filter(|name| name.peer.is_none()) {
        if option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) != Some(1) {
            return answer(libc::ENOTCONN);
        }
        if matches!(how, libc::SHUT_RD | libc::SHUT_RDWR) {
            let _ = ask(&Request::Listen(name.id, None));
        }
    }
    // SAFETY: what the program has handed over is handed on.
    plain(unsafe { libc::syscall(libc::SYS_shutdown, fd, how) })
}

/// close(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    let name = match is_under_exec() {
        true => ours(fd),
        false => None,
    };
    // SAFETY: what the program has handed over is handed on.
    let result = unsafe { next_unsafe::close(fd) };
    // The end of a stream the relay finds by itself.
    let name = name.filter(|name| name.peer.is_none() || name.kind == Kind::Datagrams);
    if let (Some(name), 0) = (name, result) {
        let before = errno();
        let _ = ask(&Request::Look(name.id));
        set_errno(before);
    }
    result
}

/// epoll_ctl(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_ctl(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: what the program has handed over is handed on.
    let result = plain(unsafe { libc::syscall(libc::SYS_epoll_ctl, set, operation, fd, event) });
    if result == 0 && is_under_exec() {
        // SAFETY: the system has just read it.
        let event = (!event.is_null()).then(|| unsafe { event.read_unaligned() });
        zerocopy_unsafe::note(set, operation, fd, event);
        if operation != libc::EPOLL_CTL_ADD || may_be_ours(fd).is_some() || is_bound(fd) {
            note(set, operation, fd, event);
        }
    }
    result
}

/// A socket of ours that is bound may be replaced once more.
fn is_bound(fd: c_int) -> bool {
    ours(fd).is_some_and(|name| name.peer.is_none())
}
