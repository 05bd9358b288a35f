//! Putting a socket of the system in the place of another, and making those sockets.

use crate::ask::{Conversation, ask, ask_for_socket, ticket};
use crate::carried::{self, carry, set_on};
use crate::registrations_unsafe::renew;
use crate::socket_unsafe::{borrow, may_send_as_ours};
use crate::stream_unsafe::{self, TCP_INQ};
use crate::zerocopy_unsafe;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::OFlags;
use rustix::io::{DupFlags, Errno, FdFlags};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use xk_request::{Family, Kind, LOOPBACK_6, Manner, Name, Reply, Request, Setting, is_of_linux};

/// Result of a call that may be Linux's.
pub(crate) enum Done {
    /// Linux is to be asked.
    Outside,
    /// The call is done.
    Ok,
    /// The call failed with this number.
    Errno(i32),
}

impl Done {
    /// Result of an answer that brings no socket along.
    pub(crate) fn of(reply: Reply) -> Self {
        match reply {
            Reply::Errno(0) => Self::Ok,
            Reply::Errno(number) => Self::Errno(number),
            Reply::Outside => Self::Outside,
            Reply::Made(_) | Reply::Value(_) => Self::Errno(libc::EPROTO),
        }
    }
}

/// Destination of datagrams for no particular host from a socket of the graph: its own host, as on
/// Linux.
pub(crate) fn definite(ours: &Name, peer: SocketAddrV4) -> SocketAddrV4 {
    let host = match (peer.ip().is_unspecified(), ours.family) {
        (false, _) => *peer.ip(),
        (true, _) if !ours.local.ip().is_unspecified() => *ours.local.ip(),
        (true, Family::V4) => Ipv4Addr::LOCALHOST,
        (true, Family::V6) => LOOPBACK_6,
    };
    SocketAddrV4::new(host, peer.port())
}

/// Socket of the relay to which a datagram socket sends datagrams for a peer.
pub(crate) fn stand_in(id: u64, peer: SocketAddrV4, manner: Manner) -> Result<String, Errno> {
    Ok(ticket().ok_or(Errno::NETDOWN)?.stand_in(id, peer, manner))
}

fn of(result: io::Result<Done>) -> Done {
    result.unwrap_or_else(|error| {
        Done::Errno(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()))
    })
}

/// Binds an Internet socket to an address that may be the graph's.
pub(crate) fn bind(fd: BorrowedFd<'_>, kind: Kind, family: Family, local: SocketAddrV4) -> Done {
    let is_on = |option| number(fd, option) != Some(0);
    let (address, port) = (is_on(libc::SO_REUSEADDR), is_on(libc::SO_REUSEPORT));
    match ask_for_socket(&Request::Bind(kind, family, local, address, port)) {
        (Reply::Made(id), Some(socket)) => of(replace(fd, &socket, id).map(|()| Done::Ok)),
        (reply, _) => Done::of(reply),
    }
}

/// Has a socket listen that is the graph's, or is not bound yet: then at a free port of any host,
/// as on Linux. The system's own listens behind that.
pub(crate) fn listen(fd: BorrowedFd<'_>, ours: Option<&Name>, backlog: i32) -> Done {
    let Some(name) = ours else {
        let family = match number(fd, libc::SO_DOMAIN) {
            Some(libc::AF_INET6) => Family::V6,
            _ => Family::V4,
        };
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        return match bind(fd, Kind::Stream, family, any) {
            Done::Ok => listen(fd, crate::socket_unsafe::ours(fd.as_raw_fd()).as_ref(), backlog),
            other => other,
        };
    };
    if name.kind == Kind::Datagrams || name.peer.is_some() {
        return Done::Errno(match name.kind {
            Kind::Datagrams => libc::EOPNOTSUPP,
            Kind::Stream => libc::EINVAL,
        });
    }
    match ask_for_socket(&Request::Listen(name.id, Some(backlog))) {
        (Reply::Made(_), Some(socket)) => of(put(fd, &socket).map(|()| Done::Ok)),
        (reply, _) => Done::of(reply),
    }
}

/// Whether a listener was shut down, of which the system's says only that no peer waits.
pub(crate) fn is_shut(fd: i32) -> bool {
    polled(fd, PollFlags::empty()).contains(PollFlags::HUP)
}

/// Returns the events that the system tells of a socket at once.
fn polled(fd: i32, events: PollFlags) -> PollFlags {
    let Some(place) = borrow(fd) else {
        return PollFlags::empty();
    };
    let mut polled = [PollFd::from_borrowed_fd(place, events)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut polled, Some(&now)) {
        Ok(1) => polled[0].revents(),
        _ => PollFlags::empty(),
    }
}

/// Breaks off the streams that wait in a listener that was shut down.
pub(crate) fn turn_away(fd: i32) {
    let Some(place) = borrow(fd) else { return };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    while let Ok(stream) = rustix::net::accept_with(place, flags) {
        let Some(name) = crate::socket_unsafe::ours(stream.as_raw_fd()) else {
            continue;
        };
        let stream = match name.peer.is_some_and(|peer| peer.ip().is_loopback()) {
            true => crate::ask::received(stream.as_fd()).ok().flatten(),
            false => Some(stream),
        };
        let value = [1, 0].map(i32::to_ne_bytes).concat();
        let linger = Setting { level: libc::SOL_SOCKET, option: libc::SO_LINGER, value };
        let _ = ask(&Request::Set(name.id, vec![linger]));
        if let Some(stream) = stream {
            let _ = sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
        }
    }
}

/// Whether a stream is still being connected: it is not ready to be written then.
pub(crate) fn connects(fd: i32, id: u64) -> bool {
    polled(fd, PollFlags::OUT).is_empty()
        && ask(&Request::Status(id)) == Reply::Errno(libc::EINPROGRESS)
}

/// Whether a stream has ended both ways and the stack knows it no more.
pub(crate) fn is_over(fd: i32, id: u64) -> bool {
    /// Linux's number of the state of a stream that is none (`TCP_CLOSE`).
    const CLOSE: u8 = 7;
    let asks = Request::Get(id, libc::IPPROTO_TCP, libc::TCP_INFO);
    polled(fd, PollFlags::empty()).contains(PollFlags::HUP)
        && matches!(ask(&asks), Reply::Value(info) if info.first() == Some(&CLOSE))
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

/// Lets a socket go to Linux that connects to an address that only Linux has.
pub(crate) fn connect_outside(fd: BorrowedFd<'_>, bound: &Name) -> Done {
    of(outside(fd, Some(bound)))
}

/// Puts a stream of Linux's own, which came packed in one of ours, in its place, with the flags of
/// accept4(2).
pub(crate) fn unpacked(fd: i32, flags: i32) -> bool {
    let Some(place) = borrow(fd) else {
        return false;
    };
    let unpack = || -> io::Result<()> {
        let Some(stream) = crate::ask::received(place)? else {
            return Err(Errno::PROTO.into());
        };
        let nonblocking = flags & libc::SOCK_NONBLOCK != 0;
        rustix::io::ioctl_fionbio(&stream, nonblocking)?;
        exchange(fd, &stream, flags & libc::SOCK_CLOEXEC != 0)
    };
    unpack().is_ok()
}

/// Makes a socket that is bound in the graph for any host Linux's again when it turns to an address
/// of Linux.
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
    let (domain, any) = match family {
        Family::V4 => (AddressFamily::INET, SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))),
        Family::V6 => (AddressFamily::INET6, SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))),
    };
    let socket = rustix::net::socket_with(domain, kind, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &any)?;
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
    let asked = Conversation::begin(&Request::Connect(family, bound, peer, waits, set_on(fd)))?;
    let socket = match asked.hear()? {
        (Reply::Made(_), Some(socket)) => socket,
        (reply, _) => return Ok(Done::of(reply)),
    };
    if !waits {
        put(fd, &socket)?;
        return Ok(Done::Errno(Errno::INPROGRESS.raw_os_error()));
    }
    let limit = sockopt::socket_timeout(fd, Timeout::Send).unwrap_or(None);
    match asked.wait(limit) {
        Ok(Reply::Errno(0)) => {
            put(fd, &socket)?;
            Ok(Done::Ok)
        }
        Ok(reply) => Ok(Done::of(reply)),
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
        return match Done::of(ask(&Request::Peer(name.id, peer, Manner::USUAL, true))) {
            Done::Ok => {
                let to = SocketAddrUnix::new(stand_in(name.id, peer, Manner::USUAL)?)?;
                rustix::net::connect(fd, &to)?;
                Ok(Done::Ok)
            }
            Done::Outside => outside(fd, Some(name)),
            failed => Ok(failed),
        };
    }
    let (socket, id) = match to_be_sent_from(fd, family, peer, Manner::USUAL, true) {
        Ok(found) => found,
        Err(done) => return Ok(done),
    };
    rustix::net::connect(&socket, &SocketAddrUnix::new(stand_in(id, peer, Manner::USUAL)?)?)?;
    replace(fd, &socket, id)?;
    Ok(Done::Ok)
}

/// A socket for datagrams at a free port, and its number.
type Sender = (OwnedFd, u64);

fn to_be_sent_from(
    fd: BorrowedFd<'_>,
    family: Family,
    peer: SocketAddrV4,
    manner: Manner,
    only: bool,
) -> Result<Sender, Done> {
    // What Linux has bound already keeps its port.
    let port = may_send_as_ours(fd.as_raw_fd()).unwrap_or(0);
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port);
    let bind = Request::Bind(Kind::Datagrams, family, any, false, false);
    let (id, socket) = match ask_for_socket(&bind) {
        (Reply::Made(id), Some(socket)) => (id, socket),
        (reply, _) => return Err(Done::of(reply)),
    };
    carry(fd, id);
    match Done::of(ask(&Request::Peer(id, peer, manner, only))) {
        Done::Ok => Ok((socket, id)),
        failed => {
            let _ = ask(&Request::Forget(id));
            Err(failed)
        }
    }
}

/// Hosts to which the stack had no way when it was asked last, so that not every datagram to them
/// costs a question.
static KNOWN_OUTSIDE: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

fn place_of_host(host: u32) -> usize {
    (host.wrapping_mul(0x9e37_79b1) >> 26) as usize
}

/// Whether datagrams to a host are Linux's, unless they are sent through a socket of ours.
pub(crate) fn is_known_outside(host: Ipv4Addr) -> bool {
    let host = host.to_bits();
    let known = KNOWN_OUTSIDE[place_of_host(host)].load(Ordering::Relaxed) == host;
    known && host != 0 || is_of_linux(Ipv4Addr::from_bits(host))
}

/// Name of the socket to which a socket for datagrams must send those for `peer`; an Internet
/// socket becomes one of the graph by it.
pub(crate) fn way(
    fd: BorrowedFd<'_>,
    family: Family,
    ours: Option<&Name>,
    (peer, manner): (SocketAddrV4, Manner),
) -> Result<String, Done> {
    if let Some(name) = ours {
        return match Done::of(ask(&Request::Peer(name.id, peer, manner, false))) {
            Done::Ok => stand_in(name.id, peer, manner).map_err(|error| of(Err(error.into()))),
            Done::Outside => Err(of(outside(fd, Some(name)))),
            failed => Err(failed),
        };
    }
    match to_be_sent_from(fd, family, peer, manner, false) {
        Ok((socket, id)) => {
            let was_linux = may_send_as_ours(fd.as_raw_fd()).is_some_and(|port| port != 0);
            let replaced = replace(fd, &socket, id).and_then(|()| Ok(stand_in(id, peer, manner)?));
            if was_linux {
                let _ = ask(&Request::Widen(id));
            }
            replaced.map_err(|error| of(Err(error)))
        }
        Err(done) => {
            if matches!(done, Done::Outside) {
                let host = peer.ip().to_bits();
                KNOWN_OUTSIDE[place_of_host(host)].store(host, Ordering::Relaxed);
            }
            Err(done)
        }
    }
}

/// Hears everybody's datagrams again.
pub(crate) fn alone(fd: BorrowedFd<'_>, name: &Name) -> Done {
    match Done::of(ask(&Request::Alone(name.id))) {
        Done::Ok => of(rustix::net::connect_unspec(fd).map(|()| Done::Ok).map_err(io::Error::from)),
        failed => failed,
    }
}

fn number(fd: BorrowedFd<'_>, option: i32) -> Option<i32> {
    crate::socket_unsafe::option(fd.as_raw_fd(), libc::SOL_SOCKET, option)
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
    carried::copy(fd, new.as_fd())?;
    let (from, to) = (fd.as_raw_fd(), new.as_raw_fd());
    let tells_unread = crate::socket_unsafe::option(from, libc::IPPROTO_TCP, TCP_INQ) == Some(1);
    if tells_unread || stream_unsafe::tells_unread(from) {
        stream_unsafe::set_tells_unread(to, true);
    }
    if zerocopy_unsafe::is_on(from) {
        zerocopy_unsafe::set(to, true);
    }
    let lowat = (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT);
    if let Some(octets) = crate::socket_unsafe::option(from, lowat.0, lowat.1) {
        stream_unsafe::bound_unsent(to, octets);
    }
    let number = fd.as_raw_fd();
    exchange(number, new, descriptor.contains(FdFlags::CLOEXEC))?;
    renew(number);
    Ok(())
}

/// Puts `new` in the place of a descriptor, closed on exec if `cloexec`.
fn exchange(number: i32, new: &OwnedFd, cloexec: bool) -> io::Result<()> {
    let flags = if cloexec { DupFlags::CLOEXEC } else { DupFlags::empty() };
    let mut place = crate::socket_unsafe::place_of(number);
    let result = rustix::io::dup3(new.as_fd(), &mut place, flags);
    // The place stays the program's.
    let _ = place.into_raw_fd();
    Ok(result?)
}
