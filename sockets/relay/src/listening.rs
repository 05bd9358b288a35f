//! A listener of the stack joined to a listening socket of the system, which a program has.

use crate::options::Options;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use xk_net::{Source, TcpListener, TcpStream, Thread, WatchId};
use xk_request::{Family, Kind, Name};

/// How long a program may take to bind the name that it was given.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// A listener of the stack joined to one of the system.
pub(crate) struct Listening {
    pub(crate) listener: TcpListener<Thread>,
    pub(crate) local: SocketAddrV4,
    family: Family,
    name: String,
    watch: WatchId,
    born: Instant,
    /// The program has said that it has the name.
    taken: bool,
    /// Who could not be handed over yet.
    pub(crate) waiting: Option<(TcpStream<Thread>, SocketAddr)>,
    /// Those of the streams to come.
    pub(crate) options: Options,
}

/// What became of handing over.
pub(crate) enum Handed {
    /// A stream, joined to a socket of the system, and its number.
    Over(TcpStream<Thread>, OwnedFd),
    /// Nobody waits.
    Nobody,
    /// The program does not take any now.
    Later,
    /// The program listens no longer.
    Closed,
}

/// A socket of the system under this name.
pub(crate) fn named(name: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    Ok(socket)
}

impl Listening {
    pub(crate) fn new(
        listener: TcpListener<Thread>,
        local: SocketAddrV4,
        family: Family,
        name: String,
        watch: WatchId,
    ) -> Self {
        Self {
            listener,
            local,
            family,
            name,
            watch,
            born: Instant::now(),
            taken: false,
            waiting: None,
            options: Options::default(),
        }
    }

    /// The program has taken the name.
    pub(crate) fn take(&mut self) {
        self.taken = true;
    }

    /// True if the program still has the name, or may not have taken it yet.
    pub(crate) fn is_alive(&self) -> bool {
        // A name that can be taken is nobody's.
        let may_not_have_it = !self.taken && self.born.elapsed() < GRACE;
        may_not_have_it || named(&self.name).is_err()
    }

    /// Hands the next stream over to the program, under the number `id`.
    pub(crate) fn hand_over(&mut self, token: &str, id: u64) -> Handed {
        let next = match self.waiting.take() {
            Some(next) => next,
            None => match self.listener.accept() {
                Ok(next) => next,
                Err(_) => return Handed::Nobody,
            },
        };
        match self.join(token, id, &next) {
            Ok(unix) => Handed::Over(next.0, unix),
            Err(error) => {
                let refused = error.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error());
                if refused && !self.is_alive() {
                    return Handed::Closed;
                }
                self.waiting = Some(next);
                Handed::Later
            }
        }
    }

    fn join(
        &self,
        token: &str,
        id: u64,
        (stream, peer): &(TcpStream<Thread>, SocketAddr),
    ) -> io::Result<OwnedFd> {
        let (SocketAddr::V4(local), SocketAddr::V4(peer)) = (stream.local_addr()?, peer) else {
            return Err(Errno::AFNOSUPPORT.into());
        };
        let name = Name {
            token: token.into(),
            id,
            kind: Kind::Stream,
            family: self.family,
            local,
            peer: Some(*peer),
        };
        let unix = named(&name.to_string())?;
        let program = SocketAddrUnix::new_abstract_name(self.name.as_bytes())?;
        rustix::net::connect(&unix, &program)?;
        stream.set_nonblocking(true)?;
        self.options.apply_all(stream);
        Ok(unix)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.listener.unwatch(self.watch);
    }
}
