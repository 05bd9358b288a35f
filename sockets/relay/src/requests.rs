//! Requests of programs, and the answers.

use crate::datagrams::{Aim, Datagrams};
use crate::listening::{BoundState, Listening};
use crate::options::{MISSED, Options};
use crate::relay::{Inner, Thing};
use crate::splice::{Connecting, stuff};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType, socketpair,
};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;
use xk_net::{Sharing, Source, TcpListener, TcpStream, Thread, UdpSocket};
use xk_request::{
    Family, Kind, LOOPBACK_6, Name, Reply, Request, Setting, TEXT_OCTETS_MAX, is_of_linux, read,
    write,
};

/// Answer, with the descriptor that comes along.
type Answer = (Reply, Option<OwnedFd>);

impl Inner {
    /// Hears what an asker asks.
    pub(crate) fn hear(&mut self, id: u64) {
        let mut text = [0; TEXT_OCTETS_MAX];
        let Some(Thing::Asker(asker)) = self.things.get(&id) else {
            return;
        };
        let octets = match rustix::net::recv(&asker.socket, &mut text, RecvFlags::DONTWAIT) {
            Ok((octets, _)) => octets,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => 0,
        };
        let Some(asker) = self.take_asker(id) else {
            return;
        };
        if let Ok(request) = read(text.get(..octets).unwrap_or_default()) {
            self.serve(asker, request);
        }
    }

    fn serve(&mut self, asker: OwnedFd, request: Request) {
        let reply = match request {
            Request::Bind(kind, family, local, address, port) => {
                let sharing = Sharing { address, port };
                let (reply, socket) = self.bind(kind, family, local, sharing);
                return answer(&asker, &reply, socket.as_ref());
            }
            Request::Connect(family, bound, peer, waits, settings) => {
                return self.connect(asker, family, bound, &settings, peer, waits);
            }
            Request::Listen(id, backlog) => {
                let (reply, socket) = self.listen(id, backlog);
                return answer(&asker, &reply, socket.as_ref());
            }
            Request::Status(id) => Reply::Errno(self.status(id)),
            Request::Again(id) => Reply::Errno(self.again(id)),
            Request::Peer(id, peer, manner, only) => self.peer(id, (peer, manner), only),
            Request::Alone(id) => {
                let done =
                    self.with_datagrams(id, |_, datagrams, scratch| datagrams.alone(scratch));
                of(done.unwrap_or(Err(Errno::NOTCONN.into())).map(|()| Reply::Errno(0)))
            }
            Request::Forget(id) => {
                self.close_datagrams(id);
                self.close_listening(id);
                Reply::Errno(0)
            }
            Request::Widen(id) => {
                self.has_outside(id, true);
                Reply::Errno(0)
            }
            Request::Look(id) => {
                self.look_at(id);
                Reply::Errno(0)
            }
            Request::Set(id, settings) => match self.set(id, &settings) {
                Err(MISSED) => Reply::Outside,
                set => Reply::Errno(set.err().map_or(0, Errno::raw_os_error)),
            },
            Request::Get(id, level, option) => self.get(id, level, option),
            Request::Unacknowledged(id) => self.unacknowledged(id),
        };
        answer(&asker, &reply, None);
    }

    fn name(&self, id: u64, kind: Kind, family: Family, local: SocketAddrV4) -> Name {
        Name { token: self.token.clone(), id, kind, family, local, peer: None }
    }

    fn bind(
        &mut self,
        kind: Kind,
        family: Family,
        local: SocketAddrV4,
        sharing: Sharing,
    ) -> Answer {
        if is_of_linux(*local.ip()) {
            return (Reply::Outside, None);
        }
        let mut bound = self.try_bind(kind, family, local, sharing);
        let is_in_use = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
        // Those of programs that have ended meanwhile are not in the way.
        if bound.as_ref().is_err_and(is_in_use) && self.look_at_port(local.port()) {
            bound = self.try_bind(kind, family, local, sharing);
        }
        match bound {
            Ok((id, socket)) => (Reply::Made(id), Some(socket)),
            Err(error) => (of_bind(error), None),
        }
    }

    fn try_bind(
        &mut self,
        kind: Kind,
        family: Family,
        local: SocketAddrV4,
        sharing: Sharing,
    ) -> io::Result<(u64, OwnedFd)> {
        match kind {
            Kind::Stream => TcpListener::reserve(&self.stack, local.into(), sharing)
                .and_then(|listener| self.bound(family, listener, sharing)),
            Kind::Datagrams => UdpSocket::bind_shared(&self.stack, local, sharing)
                .and_then(|socket| self.bound_datagrams(family, socket, sharing)),
        }
    }

    fn listen(&mut self, id: u64, backlog: Option<i32>) -> Answer {
        let Some(Thing::Listening(mut listening)) = self.things.remove(&id) else {
            return (failed(Errno::INVAL), None);
        };
        let listens = listening.listen(&self.folder, &self.token, id, backlog);
        if listening.numbers().is_empty() {
            listening.watch_outside(|listener| self.listens_outside(id, listener));
        }
        self.things.insert(id, Thing::Listening(listening));
        self.again.push_back(id);
        match listens {
            Ok(None) => (Reply::Errno(0), None),
            Ok(socket) => (Reply::Made(id), socket),
            Err(error) => (of(Err(error)), None),
        }
    }

    fn bound(
        &mut self,
        family: Family,
        listener: TcpListener<Thread>,
        sharing: Sharing,
    ) -> io::Result<(u64, OwnedFd)> {
        listener.set_nonblocking(true)?;
        let local = v4(listener.local_addr()?)?;
        let id = self.number();
        let name = self.name(id, Kind::Stream, family, local);
        let (socket, place) = self.folder.place(SocketType::STREAM, &name)?;
        let watch = listener.watch(self.bell.teller(id));
        let mut listening = Listening::new(listener, local, family, place, watch);
        listening.options = Options::new(Kind::Stream, family, sharing);
        self.bound.push_back(id);
        self.things.insert(id, Thing::Listening(Box::new(listening)));
        Ok((id, socket))
    }

    fn bound_datagrams(
        &mut self,
        family: Family,
        socket: UdpSocket<Thread>,
        sharing: Sharing,
    ) -> io::Result<(u64, OwnedFd)> {
        socket.set_nonblocking(true)?;
        let local = v4(socket.local_addr()?)?;
        let id = self.number();
        let name = self.name(id, Kind::Datagrams, family, local);
        let (theirs, place) = self.folder.place(SocketType::DGRAM, &name)?;
        let watch = socket.watch(self.bell.teller(id));
        let (folder, lost) = (Arc::clone(&self.folder), Arc::clone(&self.lost));
        let datagrams = Datagrams::new(socket, name, place, folder, watch, lost, sharing);
        self.bound.push_back(id);
        self.things.insert(id, Thing::Datagrams(Box::new(datagrams)));
        self.has_outside(id, false);
        Ok((id, theirs))
    }

    fn connect(
        &mut self,
        asker: OwnedFd,
        family: Family,
        bound: Option<u64>,
        settings: &[Setting],
        peer: SocketAddrV4,
        waits: bool,
    ) {
        let mut options = Options::new(Kind::Stream, family, Sharing::default());
        let mut local = None;
        if let Some(Thing::Listening(listening)) = bound.and_then(|id| self.things.get(&id)) {
            if listening.state == BoundState::Listens {
                return answer(&asker, &failed(Errno::ISCONN), None);
            }
            local = Some(listening.local);
            options = listening.options.clone();
        }
        for setting in settings {
            // Whatever the stack has not the like of, Linux had taken.
            let _ = options.set(None, setting);
        }
        // What is bound for any host may still be Linux's.
        let for_any = local.is_none_or(|local| local.ip().is_unspecified());
        if is_of_linux(*peer.ip()) && for_any {
            return answer(&asker, &Reply::Outside, None);
        }
        if *peer.ip() == LOOPBACK_6 || peer.ip().is_broadcast() || peer.ip().is_multicast() {
            return answer(&asker, &failed(Errno::NETUNREACH), None);
        }
        if let Some(id) = bound {
            self.close_listening(id);
        }
        let (local, before) = (local.map(SocketAddr::V4), options.before());
        match TcpStream::begin_connect(&self.stack, local, peer.into(), &before) {
            Ok(stream) => {
                if let Err(error) = self.splice(&asker, stream, family, peer, options, waits) {
                    answer(&asker, &of(Err(error)), None);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable && for_any => {
                answer(&asker, &Reply::Outside, None);
            }
            Err(error) => answer(&asker, &of(Err(error)), None),
        }
    }

    fn splice(
        &mut self,
        asker: &OwnedFd,
        stream: TcpStream<Thread>,
        family: Family,
        peer: SocketAddrV4,
        options: Options,
        waits: bool,
    ) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        options.apply_all(&stream);
        let local = v4(stream.local_addr()?)?;
        let id = self.number();
        let mut name = self.name(id, Kind::Stream, family, local);
        name.peer = Some(peer);
        let flags = SocketFlags::CLOEXEC;
        let (unix, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        self.folder.name(&theirs, &name)?;
        if let Some(octets) = options.send_buffer() {
            // The program's end has it in any case, and is stuffed accordingly.
            let _ = rustix::net::sockopt::set_socket_send_buffer_size(&theirs, octets);
        }
        let connecting = match waits {
            true => Connecting::Awaited(asker.try_clone()?),
            false => Connecting::Stuffed(stuff(&theirs)?),
        };
        if let Some(limit) = options.connect_limit() {
            self.connecting.push((id, Instant::now() + limit));
        }
        self.keep(id, stream, unix, Some(connecting), options)?;
        answer(asker, &Reply::Made(id), Some(&theirs));
        Ok(())
    }

    fn peer(&mut self, id: u64, peer: Aim, only: bool) -> Reply {
        if is_of_linux(*peer.0.ip()) && only {
            return Reply::Outside;
        }
        let from = peer.1.from;
        if !from.is_unspecified()
            && !is_of_linux(from)
            && UdpSocket::bind(&self.stack, SocketAddrV4::new(from, 0)).is_err()
        {
            return failed(Errno::NETUNREACH);
        }
        let stack = self.stack.clone();
        let found = self.with_datagrams(id, |inner, datagrams, scratch| {
            let watch = &mut |unix: &OwnedFd, peer| inner.stands_in(id, unix, peer);
            datagrams.peer(&stack, peer, only, scratch, watch)
        });
        match found {
            Some(Ok(gone)) => {
                self.forget(&gone);
                self.again.push_back(id);
                Reply::Errno(0)
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::NetworkUnreachable && !only => {
                // Bound for any host, it is Linux's as well.
                match self.has_outside(id, true) {
                    true => self.peer(id, peer, only),
                    false => Reply::Outside,
                }
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::NetworkUnreachable => Reply::Outside,
            Some(Err(error)) => of(Err(error)),
            None => failed(Errno::NOTCONN),
        }
    }

    /// Has a socket for datagrams that is bound for any host have Linux's side, for all hosts there
    /// if it is to be wide. True if that is new.
    fn has_outside(&mut self, id: u64, is_wide: bool) -> bool {
        let made = self.with_datagrams(id, |inner, datagrams, _| {
            let gone = datagrams.outside_numbers().to_vec();
            let made = datagrams.widen(is_wide, |socket| inner.listens_outside(id, socket));
            if made {
                inner.forget(&gone);
            }
            made
        });
        self.again.push_back(id);
        made.unwrap_or(false)
    }

    fn status(&mut self, id: u64) -> i32 {
        match self.things.get_mut(&id) {
            Some(Thing::Listening(_)) => 0,
            Some(Thing::Datagrams(datagrams)) => {
                datagrams.take_error().map_or(0, Errno::raw_os_error)
            }
            Some(Thing::Splice(splice)) if splice.connected => 0,
            Some(Thing::Splice(_)) => Errno::INPROGRESS.raw_os_error(),
            _ => self.epitaph(id),
        }
    }

    /// Answer to a further connect of a stream, as Linux gives it: once that it stands.
    fn again(&mut self, id: u64) -> i32 {
        match self.things.get_mut(&id) {
            Some(Thing::Splice(splice)) if !splice.connected => Errno::ALREADY.raw_os_error(),
            Some(Thing::Splice(splice)) if splice.confirmed => Errno::ISCONN.raw_os_error(),
            Some(Thing::Splice(splice)) => {
                splice.confirmed = true;
                0
            }
            _ => self.epitaph(id),
        }
    }

    /// Why a stream is over, told once.
    fn epitaph(&mut self, id: u64) -> i32 {
        let place = self.epitaphs.iter().position(|(other, _)| *other == id);
        let why = place.and_then(|place| self.epitaphs.remove(place));
        why.map_or(Errno::NOTCONN.raw_os_error(), |(_, why)| why)
    }

    /// Sets options.
    ///
    /// # Errors
    /// Why the first was not taken of those that were not.
    fn set(&mut self, id: u64, settings: &[Setting]) -> Result<(), Errno> {
        let set = |setting| match self.things.get_mut(&id) {
            Some(Thing::Splice(splice)) => splice.set(setting),
            Some(Thing::Listening(listening)) => listening.set(setting),
            Some(Thing::Datagrams(datagrams)) => datagrams.set(setting),
            // Whatever it is, it has no effect any more.
            _ => Ok(()),
        };
        settings.iter().map(set).fold(Ok(()), Result::and)
    }

    /// See [`Request::Unacknowledged`].
    fn unacknowledged(&self, id: u64) -> Reply {
        let (all, unsent) = match self.things.get(&id) {
            Some(Thing::Splice(splice)) => splice.unacknowledged(),
            Some(Thing::Listening(_)) => return failed(Errno::INVAL),
            _ => (0, 0),
        };
        Reply::Value([all, unsent].iter().flat_map(|octets| octets.to_ne_bytes()).collect())
    }

    fn get(&self, id: u64, level: i32, option: i32) -> Reply {
        let value = match self.things.get(&id) {
            Some(Thing::Splice(splice)) => splice.options.get(Some(&splice.stream), level, option),
            Some(Thing::Listening(listening)) => listening.option(level, option),
            Some(Thing::Datagrams(datagrams)) => datagrams.get(level, option),
            _ => Options::default().get(None, level, option),
        };
        value.map_or_else(failed, Reply::Value)
    }
}

fn v4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(Errno::AFNOSUPPORT.into()),
    }
}

/// An address that cannot be bound may be Linux's, as may be all if the stack has no such
/// transport.
fn of_bind(error: io::Error) -> Reply {
    let foreign = error.kind() == io::ErrorKind::AddrNotAvailable
        || Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT);
    if foreign { Reply::Outside } else { of(Err(error)) }
}

fn of(result: io::Result<Reply>) -> Reply {
    result.unwrap_or_else(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

fn failed(why: Errno) -> Reply {
    Reply::Errno(why.raw_os_error())
}

/// Answers, and hands a descriptor over. An asker that is gone does not want to know; what it does
/// not take is closed.
pub(crate) fn answer(asker: &OwnedFd, reply: &Reply, socket: Option<&OwnedFd>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<_> = socket.into_iter().map(AsFd::as_fd).collect();
    if !descriptors.is_empty() {
        // There is room for one.
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let text = write(reply);
    let parts = [IoSlice::new(text.as_bytes())];
    let _ = rustix::net::sendmsg(asker, &parts, &mut control, flags);
}
