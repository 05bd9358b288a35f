//! Putting a socket of the system in the place of another, and making those sockets.

use crate::ask::{ask, tell};
use crate::registrations_unsafe::renew;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use xk_request::{Family, Name, Reply, Request, STUFFING_MAX};

/// What came of a call that may be Linux's.
pub(crate) enum Done {
    /// Linux is to be asked.
    Outside,
    /// It is done.
    Ok,
    /// It failed with this number.
    Errno(i32),
}

fn system_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

fn of(result: io::Result<Done>) -> Done {
    result.unwrap_or_else(|error| {
        Done::Errno(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()))
    })
}

/// Binds an Internet socket to an address that may be the graph's.
pub(crate) fn bind(fd: BorrowedFd<'_>, family: Family, local: SocketAddrV4) -> Done {
    match ask(&Request::Bind(family, local)) {
        Reply::Outside => Done::Outside,
        Reply::Errno(number) => Done::Errno(number),
        Reply::Named(name) => of(bound(fd, &name)),
    }
}

fn bound(fd: BorrowedFd<'_>, name: &str) -> io::Result<Done> {
    let socket = system_socket()?;
    rustix::net::bind(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    // So that the relay knows from now on what it means if the name is nobody's.
    if let Ok(Name { id, .. }) = name.parse::<Name>() {
        let _ = ask(&Request::Status(id, false));
    }
    replace(fd, &socket, None)?;
    Ok(Done::Ok)
}

/// Connects an Internet socket, or one that was bound to the graph under the number `bound`.
pub(crate) fn connect(
    fd: BorrowedFd<'_>,
    family: Family,
    bound: Option<u64>,
    peer: SocketAddrV4,
) -> Done {
    of(connected(fd, family, bound, peer))
}

fn connected(
    fd: BorrowedFd<'_>,
    family: Family,
    bound: Option<u64>,
    peer: SocketAddrV4,
) -> io::Result<Done> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let door = format!("xk.{:016x}", u64::from_ne_bytes(random));
    let listener = system_socket()?;
    rustix::net::bind(
        &listener,
        &SocketAddrUnix::new_abstract_name(door.as_bytes())?,
    )?;
    rustix::net::listen(&listener, 1)?;
    let name = match ask(&Request::Connect(family, bound, peer, door)) {
        Reply::Outside => return Ok(Done::Outside),
        Reply::Errno(number) => return Ok(Done::Errno(number)),
        Reply::Named(name) => name,
    };
    let id = name.parse::<Name>().map_err(io::Error::other)?.id;
    let socket = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC)?;
    if rustix::fs::fcntl_getfl(fd)?.contains(OFlags::NONBLOCK) {
        let octets = stuff(&socket)?;
        tell(&Request::Stuffed(id, octets))?;
        replace(fd, &socket, Some(id))?;
        return Ok(Done::Errno(Errno::INPROGRESS.raw_os_error()));
    }
    tell(&Request::Stuffed(id, 0))?;
    match ask(&Request::Status(id, true)) {
        Reply::Errno(0) => {
            replace(fd, &socket, Some(id))?;
            Ok(Done::Ok)
        }
        Reply::Errno(number) => Ok(Done::Errno(number)),
        Reply::Outside | Reply::Named(_) => Err(Errno::PROTO.into()),
    }
}

/// Fills a socket until it is not ready to be written any more; answers with how many octets.
fn stuff(socket: &OwnedFd) -> io::Result<usize> {
    let stuffing = [0; 32 << 10];
    let mut octets = 0;
    while octets < STUFFING_MAX {
        let mut polled = [PollFd::new(socket, PollFlags::OUT)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        if rustix::event::poll(&mut polled, Some(&now))? == 0 {
            break;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        match rustix::net::send(socket, &stuffing, flags) {
            Ok(sent) => octets += sent,
            Err(Errno::AGAIN) => break,
            // It has failed already, which the relay knows.
            Err(_) => return Ok(octets),
        }
    }
    Ok(octets)
}

/// Puts `new` in the place of `fd`, with its flags and what was set on it that matters still.
fn replace(fd: BorrowedFd<'_>, new: &OwnedFd, id: Option<u64>) -> io::Result<()> {
    let status = rustix::fs::fcntl_getfl(fd)?;
    let descriptor = rustix::io::fcntl_getfd(fd)?;
    rustix::fs::fcntl_setfl(new, status)?;
    for way in [Timeout::Recv, Timeout::Send] {
        if let Ok(Some(time)) = sockopt::socket_timeout(fd, way) {
            sockopt::set_socket_timeout(new, way, Some(time))?;
        }
    }
    if let (Ok(true), Some(id)) = (sockopt::tcp_nodelay(fd), id) {
        let _ = ask(&Request::NoDelay(id, true));
    }
    let number = fd.as_raw_fd();
    let mut place = crate::socket_unsafe::place_of(number);
    let flags = if descriptor.contains(FdFlags::CLOEXEC) {
        rustix::io::DupFlags::CLOEXEC
    } else {
        rustix::io::DupFlags::empty()
    };
    let result = rustix::io::dup3(new.as_fd(), &mut place, flags);
    // The place stays the program's.
    let _ = place.into_raw_fd();
    result?;
    renew(number);
    Ok(())
}
