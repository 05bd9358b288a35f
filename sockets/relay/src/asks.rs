//! What programs ask, and what they are answered.

use crate::datagrams::Datagrams;
use crate::listening::{Listening, named};
use crate::options::Options;
use crate::relay::{Inner, Thing};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrUnix};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use xk_net::{Source, TcpListener, TcpStream, Thread, UdpSocket};
use xk_request::{Family, Kind, Name, Reply, Request, Setting, WORDS_MAX};

/// How many peers wait to be handed over.
const BACKLOG: usize = 128;

impl Inner {
    /// Hears what somebody asks.
    pub(crate) fn hear(&mut self, id: u64) {
        let mut words = [0; WORDS_MAX];
        let Some(Thing::Asker(asker)) = self.things.get(&id) else {
            return;
        };
        let octets = match rustix::net::recv(asker, &mut words, RecvFlags::DONTWAIT) {
            Ok((octets, _)) => octets,
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(_) => 0,
        };
        let Some(Thing::Asker(asker)) = self.things.remove(&id) else {
            return;
        };
        let words = std::str::from_utf8(words.get(..octets).unwrap_or_default());
        let Some((key, request)) = words.unwrap_or_default().split_once(' ') else {
            return;
        };
        // Whoever has not the key is not answered.
        if key != self.ticket.key {
            return;
        }
        if let Ok(request) = request.parse() {
            self.serve(asker, request);
        }
    }

    fn serve(&mut self, asker: OwnedFd, request: Request) {
        let reply = match request {
            Request::Bind(Kind::Stream, family, local, _) => self.bind(family, local),
            Request::Bind(Kind::Datagrams, family, local, shares) => {
                self.bind_datagrams(family, local, shares)
            }
            Request::Connect(family, bound, peer, name) => self.connect(family, bound, peer, &name),
            Request::Stuffed(id, octets) => {
                if let Some(Thing::Joined(joined)) = self.things.get_mut(&id) {
                    joined.stuffed(octets);
                    self.tend(id);
                }
                return;
            }
            Request::Status(id, waits) => return self.status(asker, id, waits),
            Request::Again(id) => Reply::Errno(self.again(id)),
            Request::Peer(id, peer, only) => self.peer(id, peer, only),
            Request::Alone(id) => {
                let done =
                    self.with_datagrams(id, |_, datagrams, scratch| datagrams.alone(scratch));
                of(done
                    .unwrap_or(Err(Errno::NOTCONN.into()))
                    .map(|()| Reply::Errno(0)))
            }
            Request::Forget(id) => {
                if let Some(Thing::Datagrams(datagrams)) = self.things.remove(&id) {
                    self.forget(&datagrams.numbers());
                }
                Reply::Errno(0)
            }
            Request::Look(id) => {
                self.look_at(id);
                Reply::Errno(0)
            }
            Request::Set(id, settings) => Reply::Errno(self.set(id, &settings)),
            Request::Get(id, level, option) => self.get(id, level, option),
        };
        answer(&asker, &reply);
    }

    fn name(&self, id: u64, kind: Kind, family: Family, local: SocketAddrV4) -> Name {
        Name {
            token: self.ticket.token.clone(),
            id,
            kind,
            family,
            local,
            peer: None,
        }
    }

    fn bind(&mut self, family: Family, local: SocketAddrV4) -> Reply {
        if local.ip().is_loopback() {
            return Reply::Outside;
        }
        // Those of programs that have ended meanwhile are not in the way.
        self.look();
        match TcpListener::listen(&self.stack, local.into(), BACKLOG) {
            Ok(listener) => of(self.bound(family, listener)),
            Err(error) => of_bind(error),
        }
    }

    fn bound(&mut self, family: Family, listener: TcpListener<Thread>) -> io::Result<Reply> {
        listener.set_nonblocking(true)?;
        let local = v4(listener.local_addr()?)?;
        let id = self.number();
        let name = self.name(id, Kind::Stream, family, local).to_string();
        let watch = listener.watch(self.bell.teller(id));
        let listening = Listening::new(listener, local, family, name.clone(), watch);
        self.things
            .insert(id, Thing::Listening(Box::new(listening)));
        Ok(Reply::Named(name))
    }

    fn bind_datagrams(&mut self, family: Family, local: SocketAddrV4, shares: bool) -> Reply {
        if local.ip().is_loopback() {
            return Reply::Outside;
        }
        self.look();
        let made = match shares {
            true => UdpSocket::bind_shared(&self.stack, local),
            false => UdpSocket::bind(&self.stack, local),
        };
        match made {
            Ok(socket) => of(self.bound_datagrams(family, socket)),
            Err(error) => of_bind(error),
        }
    }

    fn bound_datagrams(&mut self, family: Family, socket: UdpSocket<Thread>) -> io::Result<Reply> {
        socket.set_nonblocking(true)?;
        let local = v4(socket.local_addr()?)?;
        let id = self.number();
        let name = self.name(id, Kind::Datagrams, family, local);
        let reply = Reply::Named(name.to_string());
        let watch = socket.watch(self.bell.teller(id));
        let datagrams = Datagrams::new(socket, name, watch, Arc::clone(&self.lost));
        self.things
            .insert(id, Thing::Datagrams(Box::new(datagrams)));
        Ok(reply)
    }

    fn connect(
        &mut self,
        family: Family,
        bound: Option<u64>,
        peer: SocketAddrV4,
        name: &str,
    ) -> Reply {
        let (mut local, mut options) = (None, Options::default());
        if let Some(Thing::Listening(listening)) = bound.and_then(|id| self.things.get(&id)) {
            local = Some(listening.local);
            options = listening.options.clone();
        }
        // What is bound for any host may still be Linux's.
        let for_any = local.is_none_or(|local| local.ip().is_unspecified());
        if peer.ip().is_loopback() && for_any {
            return Reply::Outside;
        }
        let listening = bound.and_then(|id| self.things.remove(&id));
        drop(listening);
        match TcpStream::begin_connect(&self.stack, local.map(SocketAddr::V4), peer.into()) {
            Ok(stream) => of(self.joined(stream, family, peer, name, options)),
            Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable && for_any => {
                Reply::Outside
            }
            Err(error) => of(Err(error)),
        }
    }

    fn joined(
        &mut self,
        stream: TcpStream<Thread>,
        family: Family,
        peer: SocketAddrV4,
        program: &str,
        options: Options,
    ) -> io::Result<Reply> {
        stream.set_nonblocking(true)?;
        options.apply_all(&stream);
        let local = v4(stream.local_addr()?)?;
        let id = self.number();
        let mut name = self.name(id, Kind::Stream, family, local);
        name.peer = Some(peer);
        let name = name.to_string();
        let unix = named(&name)?;
        let program = SocketAddrUnix::new_abstract_name(program.as_bytes())?;
        rustix::net::connect(&unix, &program)?;
        self.keep(id, stream, unix, false, options)?;
        Ok(Reply::Named(name))
    }

    fn peer(&mut self, id: u64, peer: SocketAddrV4, only: bool) -> Reply {
        if peer.ip().is_loopback() {
            return Reply::Outside;
        }
        let stack = self.stack.clone();
        let found = self.with_datagrams(id, |inner, datagrams, scratch| {
            let watch = &mut |unix: &OwnedFd, peer| inner.stands_in(id, unix, peer);
            datagrams.peer(&stack, peer, only, scratch, watch)
        });
        match found {
            Some(Ok((name, gone))) => {
                self.forget(&gone);
                self.again.push_back(id);
                Reply::Named(name)
            }
            Some(Err(error)) if error.kind() == io::ErrorKind::NetworkUnreachable => Reply::Outside,
            Some(Err(error)) => of(Err(error)),
            None => Reply::Errno(Errno::NOTCONN.raw_os_error()),
        }
    }

    fn status(&mut self, asker: OwnedFd, id: u64, waits: bool) {
        let number = match self.things.get_mut(&id) {
            Some(Thing::Listening(listening)) => {
                listening.take();
                0
            }
            Some(Thing::Datagrams(datagrams)) => {
                datagrams.take();
                datagrams.take_error().map_or(0, Errno::raw_os_error)
            }
            Some(Thing::Joined(joined)) if joined.connected => {
                joined.confirmed |= waits;
                0
            }
            Some(Thing::Joined(joined)) if waits => {
                joined.waiting.push(asker);
                return;
            }
            Some(Thing::Joined(_)) => Errno::INPROGRESS.raw_os_error(),
            _ => self.epitaph(id),
        };
        answer(&asker, &Reply::Errno(number));
    }

    /// What a further connect of a stream is answered, as Linux does: once that it stands.
    fn again(&mut self, id: u64) -> i32 {
        match self.things.get_mut(&id) {
            Some(Thing::Joined(joined)) if !joined.connected => Errno::ALREADY.raw_os_error(),
            Some(Thing::Joined(joined)) if joined.confirmed => Errno::ISCONN.raw_os_error(),
            Some(Thing::Joined(joined)) => {
                joined.confirmed = true;
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

    /// Sets options up to the first that is not taken; answers with its number.
    fn set(&mut self, id: u64, settings: &[Setting]) -> i32 {
        for setting in settings {
            let set = match self.things.get_mut(&id) {
                Some(Thing::Joined(joined)) => joined.options.set(Some(&joined.stream), setting),
                Some(Thing::Listening(listening)) => listening.options.set(None, setting),
                Some(Thing::Datagrams(datagrams)) => datagrams.set(setting),
                // Whatever it is, it has no effect any more.
                _ => Ok(()),
            };
            if let Err(error) = set {
                return error.raw_os_error();
            }
        }
        0
    }

    fn get(&self, id: u64, level: i32, option: i32) -> Reply {
        let value = match self.things.get(&id) {
            Some(Thing::Joined(joined)) => joined.options.get(Some(&joined.stream), level, option),
            Some(Thing::Listening(listening)) => listening.options.get(None, level, option),
            Some(Thing::Datagrams(datagrams)) => datagrams.get(level, option),
            _ => Options::default().get(None, level, option),
        };
        match value {
            Ok(value) => Reply::Value(value),
            Err(error) => Reply::Errno(error.raw_os_error()),
        }
    }
}

fn v4(address: SocketAddr) -> io::Result<SocketAddrV4> {
    match address {
        SocketAddr::V4(address) => Ok(address),
        SocketAddr::V6(_) => Err(Errno::AFNOSUPPORT.into()),
    }
}

/// An address that cannot be bound may be Linux's, as may be all if the stack has no such transport.
fn of_bind(error: io::Error) -> Reply {
    let foreign = error.kind() == io::ErrorKind::AddrNotAvailable
        || Errno::from_io_error(&error) == Some(Errno::PROTONOSUPPORT);
    if foreign {
        Reply::Outside
    } else {
        of(Err(error))
    }
}

fn of(result: io::Result<Reply>) -> Reply {
    result.unwrap_or_else(|error| {
        let number = error.raw_os_error();
        Reply::Errno(number.unwrap_or(Errno::IO.raw_os_error()))
    })
}

/// Whoever asked may be gone; then he does not want to know.
pub(crate) fn answer(asker: &OwnedFd, reply: &Reply) {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(asker, reply.to_string().as_bytes(), flags);
}
