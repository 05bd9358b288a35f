//! Asking the relay.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use xk_request::{Reply, Request, VARIABLE, WORDS_MAX, control_name};

/// The token of the stack, if this process belongs to one.
pub(crate) fn token() -> Option<&'static str> {
    static TOKEN: OnceLock<Option<String>> = OnceLock::new();
    TOKEN
        .get_or_init(|| std::env::var(VARIABLE).ok())
        .as_deref()
}

fn reach() -> io::Result<OwnedFd> {
    let token = token().ok_or(Errno::NETDOWN)?;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let name = SocketAddrUnix::new_abstract_name(control_name(token).as_bytes())?;
    rustix::net::connect(&socket, &name)?;
    Ok(socket)
}

/// Tells the relay something that it does not answer.
pub(crate) fn tell(request: &Request) -> io::Result<OwnedFd> {
    let socket = reach()?;
    let words = request.to_string();
    rustix::net::send(&socket, words.as_bytes(), SendFlags::NOSIGNAL)?;
    Ok(socket)
}

/// Asks the relay. Without one everything fails with `ENETDOWN`.
pub(crate) fn ask(request: &Request) -> Reply {
    asked(request).unwrap_or(Reply::Errno(Errno::NETDOWN.raw_os_error()))
}

fn asked(request: &Request) -> io::Result<Reply> {
    let socket = tell(request)?;
    let mut words = [0; WORDS_MAX];
    let octets = loop {
        match rustix::net::recv(&socket, &mut words, RecvFlags::empty()) {
            Ok((octets, _)) => break octets,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let reply = std::str::from_utf8(&words[..octets]).map_err(io::Error::other)?;
    reply.parse().map_err(io::Error::other)
}
