//! The functions of the C library that programs call in place of its own: addresses.
//!
//! Each is as safe as the C library's: the program keeps to the manual page that is named.

use crate::ask::{ask, is_under_exec};
use crate::carried::inherit;
use crate::next_unsafe;
use crate::registrations_unsafe::note;
use crate::replace::{self, Done};
use crate::said;
use crate::socket_unsafe::{
    KeptErrno, borrow, errno, give, internet, is_unspecified, may_be_ours, option, ours, set_errno,
    unbound,
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
        said::begin();
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

/// Result of a system call; `errno` is set already.
pub(crate) fn plain(result: libc::c_long) -> c_int {
    result as c_int
}

/// bind(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: the program says so.
    let wanted = unsafe { internet(address, length) };
    if let (Some((family, local)), Some(place), Some((kind, own))) =
        (wanted, borrow(fd), unbound(fd))
        && family == own
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

/// listen(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let is_unbound = || may_be_ours(fd) == Some(Kind::Stream);
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
        (Some(name), Some((family, peer))) => {
            let peer = replace::definite(&name, peer);
            match name.kind {
                Kind::Stream => replace::connect(place, family, Some(&name), peer),
                Kind::Datagrams => replace::connect_datagrams(place, family, Some(&name), peer),
            }
        }
        // Linux's own host.
        (None, Some((_, peer))) if peer.ip().is_unspecified() => Done::Outside,
        (None, Some((family, peer))) => match unbound(fd) {
            Some((Kind::Stream, own)) if own == family => {
                replace::connect(place, family, None, peer)
            }
            Some((Kind::Datagrams, _)) => replace::connect_datagrams(place, family, None, peer),
            _ => Done::Outside,
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
        let is_unpacked = peer.ip().is_loopback() && replace::unpacked(accepted, flags);
        if let (Some(listener), Some(place)) = (borrow(fd), borrow(accepted)) {
            inherit(listener, place);
        }
        if is_unpacked {
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
        Some(Name { id, kind: Kind::Stream, .. }) if replace::connects(fd, id) => {
            answer(libc::ENOTCONN)
        }
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
    // SAFETY: these are numbers alone.
    let system = || plain(unsafe { libc::syscall(libc::SYS_shutdown, fd, how) });
    let ends_reading = matches!(how, libc::SHUT_RD | libc::SHUT_RDWR);
    match ours(fd) {
        Some(name) if name.peer.is_none() => {
            if name.kind == Kind::Datagrams {
                // Whatever waits for a datagram is woken up all the same, as on Linux.
                if ends_reading {
                    // SAFETY: these are numbers alone.
                    unsafe { libc::syscall(libc::SYS_shutdown, fd, libc::SHUT_RD) };
                }
                return answer(libc::ENOTCONN);
            }
            // The system's sockets need no peer for it.
            if option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) != Some(1) {
                return answer(libc::ENOTCONN);
            }
            if ends_reading {
                let _ = ask(&Request::Listen(name.id, None));
                let result = system();
                replace::turn_away(fd);
                return result;
            }
            // A listener sends nothing, and goes on.
            if how == libc::SHUT_WR { 0 } else { system() }
        }
        Some(name) if name.kind == Kind::Stream && replace::is_over(fd, name.id) => {
            answer(libc::ENOTCONN)
        }
        _ => system(),
    }
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
