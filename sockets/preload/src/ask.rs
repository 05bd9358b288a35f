//! Asking the relay.

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Duration;
use xk_request::{Reply, Request, Ticket, VARIABLE, WORDS_MAX, control_name};

static TICKET: OnceLock<Option<Ticket>> = OnceLock::new();

/// The ticket to the stack, if this process belongs to one. It is read when the library is loaded: later a program may have
/// changed its environment, or be in a signal's handler.
pub(crate) fn ticket() -> Option<&'static Ticket> {
    TICKET
        .get_or_init(|| std::env::var(VARIABLE).ok()?.parse().ok())
        .as_ref()
}

/// True under `xk exec`.
pub(crate) fn is_under_exec() -> bool {
    ticket().is_some()
}

fn reach() -> io::Result<(OwnedFd, &'static Ticket)> {
    let ticket = ticket().ok_or(Errno::NETDOWN)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let name = SocketAddrUnix::new_abstract_name(control_name(&ticket.token).as_bytes())?;
    rustix::net::connect(&socket, &name)?;
    Ok((socket, ticket))
}

/// Tells the relay something that it does not answer.
pub(crate) fn tell(request: &Request) -> io::Result<OwnedFd> {
    let (socket, ticket) = reach()?;
    let words = format!("{} {request}", ticket.key);
    rustix::net::send(&socket, words.as_bytes(), SendFlags::NOSIGNAL)?;
    Ok(socket)
}

/// Asks the relay. Without one everything fails with `ENETDOWN`.
pub(crate) fn ask(request: &Request) -> Reply {
    loop {
        match asked(request, None) {
            Ok(reply) => return reply,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Reply::Errno(Errno::NETDOWN.raw_os_error()),
        }
    }
}

/// The same, which may take its time.
///
/// # Errors
/// `EINTR` if a signal comes, `EAGAIN` behind the limit.
pub(crate) fn ask_and_wait(request: &Request, limit: Option<Duration>) -> io::Result<Reply> {
    asked(request, limit)
}

fn asked(request: &Request, limit: Option<Duration>) -> io::Result<Reply> {
    let socket = tell(request)?;
    if limit.is_some() {
        sockopt::set_socket_timeout(&socket, Timeout::Recv, limit)?;
    }
    let mut words = [0; WORDS_MAX];
    let (octets, _) = rustix::net::recv(&socket, &mut words, RecvFlags::empty())?;
    let reply = words.get(..octets).unwrap_or_default();
    let reply = std::str::from_utf8(reply).map_err(io::Error::other)?;
    reply.parse().map_err(io::Error::other)
}
