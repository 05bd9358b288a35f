//! A listener of the stack joined to a listening socket of the system, which a program has.

use crate::folder::{Folder, SocketFile};
use crate::model_unsafe;
use crate::options::{Options, errno};
use crate::outside;
use crate::requests::answer;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;
use std::net::{
    Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener as TcpOutside, TcpStream as TcpStreamOutside,
};
use std::os::fd::OwnedFd;
use std::time::Duration;
use xk_net::{Sharing, Source, TcpListener, TcpStream, Thread, WatchId};
use xk_request::{Family, Kind, Name, Reply, Setting, backlogs};

/// A listener of the stack joined to one of the system.
pub(crate) struct Listening {
    pub(crate) listener: TcpListener<Thread>,
    pub(crate) local: SocketAddrV4,
    family: Family,
    place: SocketFile,
    pub(crate) state: BoundState,
    watch: WatchId,
    /// Linux's listeners, if it is bound for any host, and their numbers in the relay.
    outside: Vec<TcpOutside>,
    numbers: Vec<u64>,
    waiting_outside: Option<(TcpStreamOutside, SocketAddr)>,
    /// The peer that could not be handed over yet.
    pub(crate) waiting: Option<(TcpStream<Thread>, SocketAddr)>,
    /// Options of the streams to come.
    pub(crate) options: Options,
    /// Bounds the peers that wait in the stack, and those with the program's socket.
    rooms: (u32, i32),
    /// Peers that the program has been handed and may not have accepted yet.
    handed: i32,
}

/// State of a bound socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundState {
    /// Only bound: it may listen or connect.
    Bound,
    /// The socket listens.
    Listens,
    /// The socket was shut down: the system's socket cannot listen again, another in its place can.
    Shut,
}

/// Result of handing over a stream.
pub(crate) enum Handed {
    /// A stream, joined to a socket of the system, and its number.
    Over(TcpStream<Thread>, OwnedFd),
    /// One of Linux's own streams.
    Outside,
    /// No peer waits.
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
        place: SocketFile,
        watch: WatchId,
    ) -> Self {
        Self {
            listener,
            local,
            family,
            place,
            state: BoundState::Bound,
            watch,
            outside: Vec::new(),
            numbers: Vec::new(),
            waiting_outside: None,
            waiting: None,
            options: Options::new(Kind::Stream, family, Sharing::default()),
            rooms: (1, 0),
            handed: 0,
        }
    }

    /// Listens for so many peers, no longer if that is none; gives the program a new socket if the
    /// one it has was shut down.
    ///
    /// # Errors
    /// `EADDRINUSE` if others of the graph listen there.
    pub(crate) fn listen(
        &mut self,
        folder: &Folder,
        token: &str,
        id: u64,
        backlog: Option<i32>,
    ) -> io::Result<Option<OwnedFd>> {
        let Some(backlog) = backlog else {
            if self.state == BoundState::Listens {
                self.listener.set_backlog(None)?;
                while let Some((stream, _)) = self.next() {
                    let _ = stream.set_linger(Some(Duration::ZERO));
                }
                self.outside.clear();
                self.waiting_outside = None;
                self.state = BoundState::Shut;
            }
            return Ok(None);
        };
        self.rooms = backlogs(backlog);
        self.handed = 0;
        self.make_room()?;
        let was = std::mem::replace(&mut self.state, BoundState::Listens);
        if was != BoundState::Listens && self.local.ip().is_unspecified() {
            let sharing = self.options.sharing;
            self.outside = outside::listeners(self.family, self.local.port(), sharing);
            for setting in self.options.raw() {
                self.set_outside(&setting);
            }
        }
        if was != BoundState::Shut {
            return Ok(None);
        }
        let name = Name {
            token: token.into(),
            id,
            kind: Kind::Stream,
            family: self.family,
            local: self.local,
            peer: None,
        };
        let (socket, place) = folder.place(SocketType::STREAM, &name)?;
        self.place = place;
        Ok(Some(socket))
    }

    /// Lets as many peers wait in the stack as the program has said in all, for they may come at
    /// once; once the program's own socket may hold its share, as many as that leaves.
    fn make_room(&self) -> io::Result<()> {
        let (stack, own) = self.rooms;
        // One more waits at each place.
        let all = stack as usize + own as usize + 2;
        let room = if self.handed > own { stack as usize } else { all };
        self.listener.set_backlog(Some(room))
    }

    /// The program has had time to accept what it was handed, and none waits here.
    pub(crate) fn find_room(&mut self) {
        let (_, own) = self.rooms;
        let was_full = self.handed > own;
        self.handed = 0;
        if was_full && self.state == BoundState::Listens && self.waiting.is_none() {
            // A stack that has ended has no peers either.
            let _ = self.make_room();
        }
    }

    /// Sets an option of it, and of the streams to come.
    pub(crate) fn set(&mut self, setting: &Setting) -> Result<(), Errno> {
        let before = (self.options.sharing, self.options.segment_max());
        let kept = self.options.kept_max();
        let fast = self.options.fast_open_max();
        self.options.set(None, setting)?;
        if let Some(peers) = self.options.fast_open_max().filter(|peers| fast != Some(*peers)) {
            let set = self.listener.set_fast_open_max(peers);
            set.map_err(|error| errno(&error))?;
        }
        if self.options.kept_max() != kept {
            let set = self.listener.set_receive_buffer(self.options.kept_max());
            set.map_err(|error| errno(&error))?;
        }
        self.set_outside(setting);
        if self.options.segment_max() != before.1 {
            let set = self.listener.set_segment_max(self.options.segment_max());
            set.map_err(|error| errno(&error))?;
        }
        if self.options.sharing != before.0 {
            let set = self.listener.set_sharing(self.options.sharing);
            return set.map_err(|error| errno(&error));
        }
        Ok(())
    }

    /// Sets an option of Linux's listeners, whose streams have it then. What Linux does not take of
    /// the relay it does without.
    fn set_outside(&self, setting: &Setting) {
        for listener in &self.outside {
            let _ = model_unsafe::set(listener, setting);
        }
    }

    /// The octets of an option's value.
    pub(crate) fn option(&self, level: i32, option: i32) -> Result<Vec<u8>, Errno> {
        /// `TCP_LISTEN` of Linux's `tcp_info`, whose first octet is the state.
        const LISTEN: u8 = 10;
        let mut value = self.options.get(None, level, option)?;
        if (level, option) == (libc::IPPROTO_TCP, libc::TCP_INFO)
            && self.state == BoundState::Listens
            && let Some(state) = value.first_mut()
        {
            *state = LISTEN;
        }
        Ok(value)
    }

    /// True if the program still has its socket.
    pub(crate) fn is_alive(&self) -> bool {
        self.place.is_alive()
    }

    /// Linux's listeners, which are to be watched under these numbers.
    pub(crate) fn watch_outside(&mut self, mut watch: impl FnMut(&TcpOutside) -> io::Result<u64>) {
        let numbers = self.outside.iter().filter_map(|listener| watch(listener).ok());
        self.numbers = numbers.collect();
    }

    /// The numbers of Linux's listeners.
    pub(crate) fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Hands one of Linux's streams over: the descriptor itself comes with the first message.
    fn hand_outside(&mut self, folder: &Folder, token: &str, id: u64) -> Handed {
        let accept = || {
            let mut all = self.outside.iter();
            all.find_map(|listener| listener.accept().ok())
        };
        let next = self.waiting_outside.take().or_else(accept);
        let Some(next) = next else {
            return Handed::Nobody;
        };
        let peer = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
        match self.carrier(folder, token, id, self.local, peer) {
            Ok(unix) => {
                answer(&unix, &Reply::Made(id), Some(&next.0.into()));
                Handed::Outside
            }
            Err(_) => {
                self.waiting_outside = Some(next);
                match self.is_alive() {
                    true => Handed::Later,
                    false => Handed::Closed,
                }
            }
        }
    }

    /// A stream socket under the name of a stream, connected to the program's.
    fn carrier(
        &self,
        folder: &Folder,
        token: &str,
        id: u64,
        local: SocketAddrV4,
        peer: SocketAddrV4,
    ) -> io::Result<OwnedFd> {
        let name = Name {
            token: token.into(),
            id,
            kind: Kind::Stream,
            family: self.family,
            local,
            peer: Some(peer),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let unix = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        folder.name(&unix, &name)?;
        rustix::net::connect(&unix, &self.place.way()?)?;
        Ok(unix)
    }

    /// The peer that has waited longest.
    fn next(&mut self) -> Option<(TcpStream<Thread>, SocketAddr)> {
        self.waiting.take().or_else(|| self.listener.accept().ok())
    }

    /// Hands the next stream over to the program, under the number `id`.
    pub(crate) fn hand_over(&mut self, folder: &Folder, token: &str, id: u64) -> Handed {
        let Some(next) = self.next() else {
            return self.hand_outside(folder, token, id);
        };
        match self.join(folder, token, id, &next) {
            Ok(unix) => {
                self.handed += 1;
                if self.handed == self.rooms.1 + 1 {
                    let _ = self.make_room();
                }
                Handed::Over(next.0, unix)
            }
            Err(error) => {
                let refused = error.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error());
                self.waiting = Some(next);
                match refused && !self.is_alive() {
                    true => Handed::Closed,
                    false => Handed::Later,
                }
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
        let unix = self.carrier(folder, token, id, local, *peer)?;
        stream.set_nonblocking(true)?;
        self.options.apply_all(stream);
        Ok(unix)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some((stream, _)) = &self.waiting {
            let _ = stream.set_linger(Some(Duration::ZERO));
        }
        self.listener.unwatch(self.watch);
    }
}
