//! Putting a socket of the system in the place of another, and making those sockets.

use crate::ask::{Conversation, ask, ask_for_socket, ticket};
use crate::registrations_unsafe::renew;
use crate::socket_unsafe::{copy_option, option_octets};
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use xk_request::{Family, Kind, Name, Reply, Request, Setting};

/// What came of a call that may be Linux's.
pub(crate) enum Done {
    /// Linux is to be asked.
    Outside,
    /// It is done.
    Ok,
    /// It failed with this number.
    Errno(i32),
}

/// Options that go with a socket into its new life, and what Linux has them at from the beginning. The relay has the same.
const CARRIED: [(i32, i32, i32); 11] = [
    (libc::IPPROTO_TCP, libc::TCP_NODELAY, 0),
    (libc::IPPROTO_TCP, libc::TCP_CORK, 0),
    (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 7200),
    (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 75),
    (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 9),
    (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 0),
    (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, 0),
    (libc::IPPROTO_IP, libc::IP_TOS, 0),
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0),
    (libc::SOL_SOCKET, libc::SO_LINGER, 0),
    (libc::SOL_SOCKET, libc::SO_BROADCAST, 0),
];
/// Options that the system's socket has, too.
const COPIED: [i32; 9] = [
    libc::SO_KEEPALIVE,
    libc::SO_LINGER,
    libc::SO_BROADCAST,
    libc::SO_REUSEADDR,
    libc::SO_REUSEPORT,
    libc::SO_RCVLOWAT,
    libc::SO_PRIORITY,
    libc::SO_OOBINLINE,
    libc::SO_TIMESTAMP,
];

/// Which buffers' sizes the program has set (Linux 5.14): 1 for sending, 2 for receiving.
const SO_BUF_LOCK: i32 = 72;

/// Where a socket for datagrams sends what is for a peer.
pub(crate) fn stand_in(id: u64, peer: SocketAddrV4) -> Result<String, Errno> {
    Ok(ticket().ok_or(Errno::NETDOWN)?.stand_in(id, peer))
}

fn of(result: io::Result<Done>) -> Done {
    result.unwrap_or_else(|error| {
        Done::Errno(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()))
    })
}

/// Binds an Internet socket to an address that may be the graph's.
pub(crate) fn bind(fd: BorrowedFd<'_>, kind: Kind, family: Family, local: SocketAddrV4) -> Done {
    let shares = kind == Kind::Datagrams
        && [libc::SO_REUSEADDR, libc::SO_REUSEPORT]
            .iter()
            .any(|option| number(fd, libc::SOL_SOCKET, *option) != Some(0));
    match ask_for_socket(&Request::Bind(kind, family, local, shares)) {
        (Reply::Made(id), Some(socket)) => of(replace(fd, &socket, id).map(|()| Done::Ok)),
        (Reply::Outside, _) => Done::Outside,
        (Reply::Errno(number), _) => Done::Errno(number),
        (Reply::Made(_) | Reply::Value(_), _) => Done::Errno(libc::EPROTO),
    }
}

/// Connects an Internet socket, or one that was bound to the graph.
pub(crate) fn connect(
    fd: BorrowedFd<'_>,
    family: Family,
    bound: Option<&Name>,
    peer: SocketAddrV4,
) -> Done {
    match connected(fd, family, bound.map(|name| name.id), peer) {
        Ok(Done::Outside) => of(outside(fd, bound)),
        result => of(result),
    }
}

/// What is bound in the graph for any host becomes Linux's again when it turns to an address of Linux.
fn outside(fd: BorrowedFd<'_>, bound: Option<&Name>) -> io::Result<Done> {
    let Some(name) = bound else {
        return Ok(Done::Outside);
    };
    if !name.local.ip().is_unspecified() || name.peer.is_some() {
        return Ok(Done::Errno(libc::ENETUNREACH));
    }
    let _ = ask(&Request::Forget(name.id));
    let (family, port) = (name.family, name.local.port());
    let kind = match name.kind {
        Kind::Stream => SocketType::STREAM,
        Kind::Datagrams => SocketType::DGRAM,
    };
    let flags = SocketFlags::CLOEXEC;
    let socket = match family {
        Family::V4 => rustix::net::socket_with(AddressFamily::INET, kind, flags, None)?,
        Family::V6 => rustix::net::socket_with(AddressFamily::INET6, kind, flags, None)?,
    };
    match family {
        Family::V4 => {
            rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))?;
        }
        Family::V6 => {
            let any = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
            rustix::net::bind(&socket, &any)?;
        }
    }
    put(fd, &socket)?;
    Ok(Done::Outside)
}

fn connected(
    fd: BorrowedFd<'_>,
    family: Family,
    bound: Option<u64>,
    peer: SocketAddrV4,
) -> io::Result<Done> {
    let waits = !rustix::fs::fcntl_getfl(fd)?.contains(OFlags::NONBLOCK);
    let asked = Conversation::begin(&Request::Connect(family, bound, peer, waits))?;
    let (id, socket) = match asked.hear()? {
        (Reply::Made(id), Some(socket)) => (id, socket),
        (Reply::Outside, _) => return Ok(Done::Outside),
        (Reply::Errno(number), _) => return Ok(Done::Errno(number)),
        (Reply::Made(_) | Reply::Value(_), _) => return Err(Errno::PROTO.into()),
    };
    if !waits {
        replace(fd, &socket, id)?;
        return Ok(Done::Errno(Errno::INPROGRESS.raw_os_error()));
    }
    carry(fd, id);
    let limit = sockopt::socket_timeout(fd, Timeout::Send).unwrap_or(None);
    match asked.wait(limit) {
        Ok(Reply::Errno(0)) => {
            put(fd, &socket)?;
            Ok(Done::Ok)
        }
        Ok(Reply::Errno(number)) => Ok(Done::Errno(number)),
        Ok(_) => Err(Errno::PROTO.into()),
        // It goes on by itself (connect(2)).
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            put(fd, &socket)?;
            Err(Errno::INPROGRESS.into())
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            put(fd, &socket)?;
            Err(error)
        }
        Err(_) => Err(Errno::NETDOWN.into()),
    }
}

/// Connects a socket for datagrams: an Internet socket, or one that is the graph's already.
pub(crate) fn connect_datagrams(
    fd: BorrowedFd<'_>,
    family: Family,
    ours: Option<&Name>,
    peer: SocketAddrV4,
) -> Done {
    of(connected_datagrams(fd, family, ours, peer))
}

fn connected_datagrams(
    fd: BorrowedFd<'_>,
    family: Family,
    ours: Option<&Name>,
    peer: SocketAddrV4,
) -> io::Result<Done> {
    if let Some(name) = ours {
        if name.peer.is_some() {
            // Until then only the old peer's stand-in may turn to it.
            rustix::net::connect_unspec(fd)?;
        }
        return match ask(&Request::Peer(name.id, peer, true)) {
            Reply::Errno(0) => {
                let to = SocketAddrUnix::new(stand_in(name.id, peer)?)?;
                rustix::net::connect(fd, &to)?;
                Ok(Done::Ok)
            }
            Reply::Outside => outside(fd, Some(name)),
            Reply::Errno(number) => Ok(Done::Errno(number)),
            Reply::Made(_) | Reply::Value(_) => Err(Errno::PROTO.into()),
        };
    }
    let found = to_be_sent_from(fd, family, peer, true)?;
    let (socket, id) = match found {
        Ok(found) => found,
        Err(done) => return Ok(done),
    };
    rustix::net::connect(&socket, &SocketAddrUnix::new(stand_in(id, peer)?)?)?;
    replace(fd, &socket, id)?;
    Ok(Done::Ok)
}

/// A socket for datagrams at a free port, and its number.
type Sender = (OwnedFd, u64);

fn to_be_sent_from(
    fd: BorrowedFd<'_>,
    family: Family,
    peer: SocketAddrV4,
    only: bool,
) -> io::Result<Result<Sender, Done>> {
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
    let (id, socket) = match ask_for_socket(&Request::Bind(Kind::Datagrams, family, any, false)) {
        (Reply::Made(id), Some(socket)) => (id, socket),
        (Reply::Outside, _) => return Ok(Err(Done::Outside)),
        (Reply::Errno(number), _) => return Ok(Err(Done::Errno(number))),
        (Reply::Made(_) | Reply::Value(_), _) => return Err(Errno::PROTO.into()),
    };
    carry(fd, id);
    match ask(&Request::Peer(id, peer, only)) {
        Reply::Errno(0) => return Ok(Ok((socket, id))),
        Reply::Outside => {}
        Reply::Errno(number) => {
            let _ = ask(&Request::Forget(id));
            return Ok(Err(Done::Errno(number)));
        }
        Reply::Made(_) | Reply::Value(_) => return Err(Errno::PROTO.into()),
    }
    let _ = ask(&Request::Forget(id));
    Ok(Err(Done::Outside))
}

/// Where a socket for datagrams is to send what is for `peer`; an Internet socket is made the graph's by it.
///
/// # Errors
/// What came of it instead.
pub(crate) fn way(
    fd: BorrowedFd<'_>,
    family: Family,
    ours: Option<&Name>,
    peer: SocketAddrV4,
) -> Result<String, Done> {
    if let Some(name) = ours {
        return match ask(&Request::Peer(name.id, peer, false)) {
            Reply::Errno(0) => stand_in(name.id, peer).map_err(|error| of(Err(error.into()))),
            Reply::Outside => Err(of(outside(fd, Some(name)))),
            Reply::Errno(number) => Err(Done::Errno(number)),
            Reply::Made(_) | Reply::Value(_) => Err(Done::Errno(libc::EPROTO)),
        };
    }
    match to_be_sent_from(fd, family, peer, false) {
        Ok(Ok((socket, id))) => {
            let replaced = replace(fd, &socket, id).and_then(|()| Ok(stand_in(id, peer)?));
            replaced.map_err(|error| of(Err(error)))
        }
        Ok(Err(done)) => Err(done),
        Err(error) => Err(of(Err(error))),
    }
}

/// Hears everybody's datagrams again.
pub(crate) fn alone(fd: BorrowedFd<'_>, name: &Name) -> Done {
    match ask(&Request::Alone(name.id)) {
        Reply::Errno(0) => of(rustix::net::connect_unspec(fd)
            .map(|()| Done::Ok)
            .map_err(io::Error::from)),
        Reply::Errno(number) => Done::Errno(number),
        Reply::Outside | Reply::Made(_) | Reply::Value(_) => Done::Errno(libc::EPROTO),
    }
}

fn number(fd: BorrowedFd<'_>, level: i32, option: i32) -> Option<i32> {
    let octets = option_octets(fd.as_raw_fd(), level, option)?;
    let octets = octets.get(..4)?.try_into().ok()?;
    Some(i32::from_ne_bytes(octets))
}

/// Tells the relay what the program has set on an Internet socket that differs from the usual.
fn carry(fd: BorrowedFd<'_>, id: u64) {
    let differs = |&(level, option, usual): &(i32, i32, i32)| {
        let value = option_octets(fd.as_raw_fd(), level, option)?;
        let is_usual = value.get(..4)? == i32::to_ne_bytes(usual);
        (!is_usual).then_some(Setting {
            level,
            option,
            value,
        })
    };
    let settings: Vec<Setting> = CARRIED.iter().filter_map(differs).collect();
    if !settings.is_empty() {
        // Whatever the stack has not the like of, Linux had taken.
        let _ = ask(&Request::Set(id, settings));
    }
}

/// Puts `new` in the place of `fd`, with what was set on it.
fn replace(fd: BorrowedFd<'_>, new: &OwnedFd, id: u64) -> io::Result<()> {
    carry(fd, id);
    put(fd, new)
}

/// Puts `new` in the place of `fd`, with its flags and those options that both have.
fn put(fd: BorrowedFd<'_>, new: &OwnedFd) -> io::Result<()> {
    let status = rustix::fs::fcntl_getfl(fd)?;
    let descriptor = rustix::io::fcntl_getfd(fd)?;
    rustix::fs::fcntl_setfl(new, status)?;
    for way in [Timeout::Recv, Timeout::Send] {
        if let Ok(Some(time)) = sockopt::socket_timeout(fd, way) {
            sockopt::set_socket_timeout(new, way, Some(time))?;
        }
    }
    for option in COPIED {
        copy_option(fd.as_raw_fd(), new.as_raw_fd(), option);
    }
    let set = number(fd, libc::SOL_SOCKET, SO_BUF_LOCK).unwrap_or(0);
    for (bit, option) in [(1, libc::SO_SNDBUF), (2, libc::SO_RCVBUF)] {
        if set & bit != 0 {
            copy_option(fd.as_raw_fd(), new.as_raw_fd(), option);
        }
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
