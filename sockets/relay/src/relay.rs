//! The relay's loop.

use crate::bell::Bell;
use crate::joined::{Joined, Next, SCRATCH};
use crate::listening::{Handed, Listening, named};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xk_net::{Source, Stack, TcpListener, TcpStream, Thread};
use xk_request::{Family, Name, Reply, Request, WORDS_MAX, control_name};

/// Numbers of what is no socket of a program.
const CONTROL: u64 = 0;
const BELL: u64 = 1;
const FIRST: u64 = 2;
/// How many askers and programs' sockets there may be.
const THINGS_MAX: usize = 1 << 16;
/// Of how many streams that are over it is remembered why.
const EPITAPHS_MAX: usize = 1024;
/// From one look whether programs still have their listeners to the next.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When a stream that a program had no room for is offered again.
const OFFER_EVERY: Duration = Duration::from_millis(5);
/// How long it goes on behind the end for streams that are still about to be sent.
const FAREWELL: Duration = Duration::from_secs(5);
/// How many peers wait to be handed over.
const BACKLOG: usize = 128;

/// What a number stands for.
enum Thing {
    Asker(OwnedFd),
    Listening(Listening),
    Joined(Box<Joined>),
}

/// The relay's loop and all that it holds.
pub(crate) struct Inner {
    stack: Stack<Thread>,
    token: String,
    bell: Arc<Bell>,
    epoll: OwnedFd,
    control: OwnedFd,
    things: HashMap<u64, Thing>,
    last: u64,
    /// To be looked after at once.
    again: VecDeque<u64>,
    /// Listeners whose programs had no room.
    later: Vec<u64>,
    /// Why streams are over, for those who ask later.
    epitaphs: VecDeque<(u64, i32)>,
    looked: Instant,
    scratch: Vec<u8>,
}

impl Inner {
    pub(crate) fn new(stack: Stack<Thread>, token: String, bell: Arc<Bell>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let control =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let name = control_name(&token);
        rustix::net::bind(
            &control,
            &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        )?;
        rustix::net::listen(&control, 1024)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &control,
            EventData::new_u64(CONTROL),
            EventFlags::IN,
        )?;
        let number = EventData::new_u64(BELL);
        epoll::add(&epoll, bell.descriptor(), number, EventFlags::IN)?;
        Ok(Self {
            stack,
            token,
            bell,
            epoll,
            control,
            things: HashMap::new(),
            last: FIRST,
            again: VecDeque::new(),
            later: Vec::new(),
            epitaphs: VecDeque::new(),
            looked: Instant::now(),
            scratch: vec![0; SCRATCH],
        })
    }

    /// Serves until the bell says that it is over, and then until what programs have written is sent.
    pub(crate) fn run(&mut self) {
        let mut events: Vec<Event> = Vec::with_capacity(256);
        let mut until = None;
        loop {
            if self.bell.has_ended() {
                let until = *until.get_or_insert_with(|| Instant::now() + FAREWELL);
                self.things
                    .retain(|_, thing| matches!(thing, Thing::Joined(_)));
                if self.things.is_empty() || Instant::now() > until {
                    return;
                }
            }
            let timeout = match (self.again.is_empty(), self.later.is_empty()) {
                (false, _) => Duration::ZERO,
                (_, false) => OFFER_EVERY,
                _ if until.is_some() => FAREWELL / 10,
                _ => LOOK_EVERY,
            };
            let timeout = Timespec {
                tv_sec: timeout.as_secs() as i64,
                tv_nsec: i64::from(timeout.subsec_nanos()),
            };
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            // An interrupted sleep reports nothing.
            let _ = epoll::wait(&self.epoll, room, Some(&timeout));
            for event in &events {
                self.happened(event.data.u64(), event.flags);
            }
            for _ in 0..self.again.len() {
                if let Some(id) = self.again.pop_front() {
                    self.tend(id);
                }
            }
            for id in std::mem::take(&mut self.later) {
                self.tend(id);
            }
            if self.looked.elapsed() >= LOOK_EVERY {
                self.looked = Instant::now();
                self.look();
            }
        }
    }

    fn happened(&mut self, id: u64, flags: EventFlags) {
        match id {
            CONTROL => self.welcome(),
            BELL => {
                self.bell.silence();
                while let Some(id) = self.bell.next() {
                    self.tend(id);
                }
            }
            id => {
                if let Some(Thing::Joined(joined)) = self.things.get_mut(&id) {
                    joined.gone |= flags.contains(EventFlags::HUP);
                }
                self.tend(id);
            }
        }
    }

    /// Whoever asks is let in, if he is of the same user.
    fn welcome(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(asker) = rustix::net::accept_with(&self.control, flags) {
            let ours = sockopt::socket_peercred(&asker)
                .is_ok_and(|peer| peer.uid == rustix::process::geteuid());
            if ours && self.things.len() < THINGS_MAX {
                let id = self.number();
                if self.listen_to(&asker, id).is_ok() {
                    self.things.insert(id, Thing::Asker(asker));
                }
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn listen_to(&self, fd: &OwnedFd, id: u64) -> io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(id), flags)?)
    }

    /// Looks after whatever has this number.
    fn tend(&mut self, id: u64) {
        match self.things.get_mut(&id) {
            None => {}
            Some(Thing::Asker(_)) => self.hear(id),
            Some(Thing::Listening(_)) => self.hand_over(id),
            Some(Thing::Joined(joined)) => {
                let next = joined.tend(&mut self.scratch);
                if joined.connected {
                    for asker in joined.waiting.drain(..) {
                        answer(&asker, &Reply::Errno(0));
                    }
                }
                match next {
                    Next::Wait => {}
                    Next::Again => self.again.push_back(id),
                    Next::Over(why) => self.bury(id, why),
                }
            }
        }
    }

    /// A stream is over.
    fn bury(&mut self, id: u64, why: Option<i32>) {
        let Some(Thing::Joined(mut joined)) = self.things.remove(&id) else {
            return;
        };
        let Some(why) = why else {
            return;
        };
        if joined.waiting.is_empty() {
            if self.epitaphs.len() >= EPITAPHS_MAX {
                self.epitaphs.pop_front();
            }
            self.epitaphs.push_back((id, why));
        }
        for asker in joined.waiting.drain(..) {
            answer(&asker, &Reply::Errno(why));
        }
    }

    /// Hears what somebody asks.
    fn hear(&mut self, id: u64) {
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
        let request = std::str::from_utf8(&words[..octets]);
        let Ok(request) = request.unwrap_or_default().parse::<Request>() else {
            return;
        };
        match request {
            Request::Bind(family, local) => answer(&asker, &self.bind(family, local)),
            Request::Connect(family, bound, peer, name) => {
                let reply = self.connect(family, bound, peer, &name);
                answer(&asker, &reply);
            }
            Request::Stuffed(id, octets) => {
                if let Some(Thing::Joined(joined)) = self.things.get_mut(&id) {
                    joined.stuffed(octets);
                    self.tend(id);
                }
            }
            Request::Status(id, waits) => self.status(asker, id, waits),
            Request::NoDelay(id, on) => {
                let set = match self.things.get(&id) {
                    Some(Thing::Joined(joined)) => joined.stream.set_nodelay(on),
                    _ => Ok(()),
                };
                answer(&asker, &of(set.map(|()| Reply::Errno(0))));
            }
        }
    }

    fn bind(&mut self, family: Family, local: SocketAddrV4) -> Reply {
        if local.ip().is_loopback() {
            return Reply::Outside;
        }
        // Those of programs that have ended meanwhile are not in the way.
        self.look();
        let listener = match TcpListener::listen(&self.stack, local.into(), BACKLOG) {
            Ok(listener) => listener,
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => return Reply::Outside,
            Err(error) => return of(Err(error)),
        };
        of(self.bound(family, listener))
    }

    fn bound(&mut self, family: Family, listener: TcpListener<Thread>) -> io::Result<Reply> {
        listener.set_nonblocking(true)?;
        let SocketAddr::V4(local) = listener.local_addr()? else {
            return Err(Errno::AFNOSUPPORT.into());
        };
        let id = self.number();
        let name = Name {
            token: self.token.clone(),
            id,
            family,
            local,
            peer: None,
        };
        let name = name.to_string();
        let watch = listener.watch(self.bell.teller(id));
        let listening = Listening::new(listener, local, family, name.clone(), watch);
        self.things.insert(id, Thing::Listening(listening));
        Ok(Reply::Named(name))
    }

    fn connect(
        &mut self,
        family: Family,
        bound: Option<u64>,
        peer: SocketAddrV4,
        name: &str,
    ) -> Reply {
        if peer.ip().is_loopback() {
            return Reply::Outside;
        }
        let local = bound.and_then(|id| match self.things.remove(&id) {
            Some(Thing::Listening(listening)) => Some(listening.local.into()),
            _ => None,
        });
        match TcpStream::begin_connect(&self.stack, local, peer.into()) {
            Ok(stream) => of(self.joined(stream, family, peer, name)),
            Err(error) if error.kind() == io::ErrorKind::NetworkUnreachable && local.is_none() => {
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
    ) -> io::Result<Reply> {
        stream.set_nonblocking(true)?;
        let SocketAddr::V4(local) = stream.local_addr()? else {
            return Err(Errno::AFNOSUPPORT.into());
        };
        let id = self.number();
        let name = Name {
            token: self.token.clone(),
            id,
            family,
            local,
            peer: Some(peer),
        };
        let name = name.to_string();
        let unix = named(&name)?;
        let program = SocketAddrUnix::new_abstract_name(program.as_bytes())?;
        rustix::net::connect(&unix, &program)?;
        self.keep(id, stream, unix, false)?;
        Ok(Reply::Named(name))
    }

    fn keep(
        &mut self,
        id: u64,
        stream: TcpStream<Thread>,
        unix: OwnedFd,
        connected: bool,
    ) -> io::Result<()> {
        self.listen_to(&unix, id)?;
        let watch = stream.watch(self.bell.teller(id));
        let joined = Joined::new(stream, unix, watch, connected);
        self.things.insert(id, Thing::Joined(Box::new(joined)));
        self.again.push_back(id);
        Ok(())
    }

    fn status(&mut self, asker: OwnedFd, id: u64, waits: bool) {
        if let Some(Thing::Listening(listening)) = self.things.get_mut(&id) {
            listening.take();
            answer(&asker, &Reply::Errno(0));
            return;
        }
        if let Some(Thing::Joined(joined)) = self.things.get_mut(&id) {
            match (joined.connected, waits) {
                (true, _) => answer(&asker, &Reply::Errno(0)),
                (false, true) => joined.waiting.push(asker),
                (false, false) => answer(&asker, &Reply::Errno(Errno::INPROGRESS.raw_os_error())),
            }
            return;
        }
        let place = self.epitaphs.iter().position(|(other, _)| *other == id);
        let why = place.and_then(|place| self.epitaphs.remove(place));
        answer(&asker, &Reply::Errno(why.map_or(0, |(_, why)| why)));
    }

    fn hand_over(&mut self, id: u64) {
        loop {
            let number = self.number();
            let Some(Thing::Listening(listening)) = self.things.get_mut(&id) else {
                return;
            };
            match listening.hand_over(&self.token, number) {
                Handed::Over(stream, unix) => {
                    // If it cannot be watched it is dropped, and both ends hear of it.
                    let _ = self.keep(number, stream, unix, true);
                }
                Handed::Nobody => return,
                Handed::Later => {
                    self.later.push(id);
                    return;
                }
                Handed::Closed => {
                    self.things.remove(&id);
                    return;
                }
            }
        }
    }

    /// Lets go of listeners whose programs have.
    fn look(&mut self) {
        self.things.retain(|_, thing| match thing {
            Thing::Listening(listening) => listening.is_alive(),
            Thing::Asker(_) | Thing::Joined(_) => true,
        });
    }
}

fn of(result: io::Result<Reply>) -> Reply {
    result.unwrap_or_else(|error| {
        let number = error.raw_os_error();
        Reply::Errno(number.unwrap_or(Errno::IO.raw_os_error()))
    })
}

/// Whoever asked may be gone.
fn answer(asker: &OwnedFd, reply: &Reply) {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(asker.as_fd(), reply.to_string().as_bytes(), flags);
}
