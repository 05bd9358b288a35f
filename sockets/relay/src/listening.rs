//! A listener of the stack joined to a listening socket of the system, which a program has.

use crate::folder::{Folder, Place};
use crate::options::Options;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use xk_net::{Source, TcpListener, TcpStream, Thread, WatchId};
use xk_request::{Family, Kind, Name};

/// A listener of the stack joined to one of the system.
pub(crate) struct Listening {
    pub(crate) listener: TcpListener<Thread>,
    pub(crate) local: SocketAddrV4,
    family: Family,
    place: Place,
    watch: WatchId,
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

impl Listening {
    pub(crate) fn new(
        listener: TcpListener<Thread>,
        local: SocketAddrV4,
        family: Family,
        place: Place,
        watch: WatchId,
    ) -> Self {
        Self {
            listener,
            local,
            family,
            place,
            watch,
            waiting: None,
            options: Options::default(),
        }
    }

    /// True if the program still has its socket.
    pub(crate) fn is_alive(&self) -> bool {
        self.place.is_alive()
    }

    /// Hands the next stream over to the program, under the number `id`.
    pub(crate) fn hand_over(&mut self, folder: &Folder, token: &str, id: u64) -> Handed {
        let next = match self.waiting.take() {
            Some(next) => next,
            None => match self.listener.accept() {
                Ok(next) => next,
                Err(_) => return Handed::Nobody,
            },
        };
        match self.join(folder, token, id, &next) {
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
        folder: &Folder,
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
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let unix = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        folder.name(&unix, &name)?;
        rustix::net::connect(&unix, &self.place.way()?)?;
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
