//! The protocol object: opens, listens, and serves the sockets that are ready.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrAny, SocketFlags, SocketType, acceptfrom_with, bind, connect,
    getsockname, listen, socket_with, sockopt,
};
use xk_core::control::ListSessions;
use xk_core::graph::{Build, BuildError, Look, Params};
use xk_core::object::{Enable, OpenError};
use xk_core::participant::{AddressError, Wild};
use xk_core::wire::Wire;
use xk_core::{
    Answer, Ask, Kernel, Part, Participant, Participants, Protocol, ProtocolRef, SessionRef, Time,
    Upper,
};
use xk_kit::net::addr::ipv4;
use xk_kit::net::ports;
use xk_kit::net::stream::StreamRoom;

use super::session::Stream;
use crate::error::environment;

/// Sockets that one look learns of.
const EVENTS: usize = 64;
/// Largest number of enabled ports.
const OFFERS_MAX: usize = 4096;
/// Time after which it looks again at sessions that had no room, in the pool or above.
const AGAIN: Duration = Duration::from_millis(10);

/// The bounds of each connection.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) send_max: usize,
    pub(crate) receive_max: usize,
    pub(crate) no_delay: bool,
}

/// Shared state of protocol and sessions.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    host: Ipv4Addr,
    sessions_max: usize,
    backlog: i32,
    pub(crate) epoll: OwnedFd,
    next: Cell<u64>,
    pub(crate) streams: RefCell<BTreeMap<u64, SessionRef>>,
    listeners: RefCell<BTreeMap<u64, Rc<Listener>>>,
    /// Sessions that have something to do, by number.
    ready: RefCell<VecDeque<u64>>,
    /// Sessions that had no room, and the time when they are looked at again.
    again: RefCell<Vec<u64>>,
    again_at: Cell<Option<Time>>,
}

/// An enabled port.
struct Listener {
    socket: OwnedFd,
    upper: ProtocolRef,
    local: SocketAddrV4,
}

impl Shared {
    /// Has the next look serve this one.
    pub(crate) fn is_ready(&self, number: u64) {
        let mut ready = self.ready.borrow_mut();
        if !ready.contains(&number) {
            ready.push_back(number);
        }
    }

    /// Has a later look serve it.
    pub(crate) fn later(&self, cx: &Kernel, number: u64) {
        let mut again = self.again.borrow_mut();
        if !again.contains(&number) {
            again.push(number);
        }
        if self.again_at.get().is_none() {
            self.again_at.set(Some(cx.now().after(AGAIN)));
        }
    }

    fn watch(&self, socket: &OwnedFd, events: EventFlags) -> Result<u64, Errno> {
        let number = self.next.get();
        self.next.set(number + 1);
        let data = EventData::new_u64(number);
        epoll::add(&self.epoll, socket, data, events | EventFlags::ET)?;
        Ok(number)
    }
}

/// One instance.
struct HostTcp {
    shared: Rc<Shared>,
    events: RefCell<Vec<Event>>,
}

fn host(params: &Params) -> Result<Ipv4Addr, BuildError> {
    let wanted = "an IPv4 address of this machine, or 0.0.0.0 for all";
    Ok(params.parse("local", wanted)?.unwrap_or(Ipv4Addr::UNSPECIFIED))
}

fn open_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)
}

fn own(socket: &OwnedFd) -> Option<SocketAddrV4> {
    getsockname(socket).ok().and_then(|local| SocketAddrV4::try_from(local).ok())
}

/// Looks whether sockets can be opened at our host.
pub(crate) fn probe(params: &Params, look: Look) -> Result<(), BuildError> {
    let host = host(params)?;
    if look == Look::Parameters {
        return Ok(());
    }
    let opened = open_socket().and_then(|socket| bind(&socket, &SocketAddrV4::new(host, 0)));
    opened.map_err(|error| environment("local", &host.to_string(), &error.into()))
}

/// Builds it from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    probe(build.params, Look::Machine)?;
    let host = host(build.params)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC)
        .map_err(|error| environment("local", &host.to_string(), &error.into()))?;
    let limits = Limits {
        send_max: build.params.octets("send_max", 256 << 10),
        receive_max: build.params.octets("receive_max", 256 << 10),
        no_delay: build.params.flag("no_delay"),
    };
    let shared = Shared {
        limits,
        host,
        sessions_max: build.params.number("sessions_max", 1024),
        backlog: build.params.number("backlog", 128),
        epoll,
        next: Cell::new(1),
        streams: RefCell::default(),
        listeners: RefCell::default(),
        ready: RefCell::default(),
        again: RefCell::default(),
        again_at: Cell::new(None),
    };
    let events = RefCell::new(Vec::with_capacity(EVENTS));
    build.add(HostTcp { shared: Rc::new(shared), events })
}

fn refused(error: Errno) -> OpenError {
    match error {
        Errno::ADDRINUSE => OpenError::InUse,
        Errno::ADDRNOTAVAIL => OpenError::Address(AddressError::OutOfRange),
        Errno::NETUNREACH | Errno::HOSTUNREACH => OpenError::NoRoute,
        Errno::ACCESS | Errno::PERM => OpenError::NotPermitted,
        Errno::NOBUFS | Errno::NOMEM => OpenError::NoBuffers,
        _ => OpenError::Full,
    }
}

impl HostTcp {
    /// Our host: the one named, or that of all.
    fn ours(&self, named: Ipv4Addr) -> Ipv4Addr {
        if named.is_unspecified() { self.shared.host } else { named }
    }

    fn stream(
        &self,
        upper: &ProtocolRef,
        socket: OwnedFd,
        (local, peer): (SocketAddrV4, SocketAddrV4),
        is_open: bool,
    ) -> Result<Stream, Errno> {
        if self.shared.limits.no_delay {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        let wanted = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP;
        let number = self.shared.watch(&socket, wanted)?;
        Ok(Stream::new(&self.shared, upper, (number, socket), (local, peer), is_open))
    }

    /// A session of ours between these ends for this protocol above.
    fn known(&self, upper: &ProtocolRef, ends: (SocketAddrV4, SocketAddrV4)) -> Option<SessionRef> {
        let streams = self.shared.streams.borrow();
        let fits = |session: &&SessionRef| {
            let stream = session.body::<Stream>();
            stream.is_some_and(|stream| stream.ends.get() == ends && stream.upper == *upper)
        };
        streams.values().find(fits).cloned()
    }

    /// Serves one that is ready; answers how many messages went up, or peers were taken.
    fn serve(&self, cx: &Kernel, this: &ProtocolRef, number: u64, budget: usize) -> usize {
        let stream = self.shared.streams.borrow().get(&number).cloned();
        if let Some(session) = stream {
            return session.body::<Stream>().map_or(0, |stream| stream.work(cx, &session, budget));
        }
        let listener = self.shared.listeners.borrow().get(&number).cloned();
        let Some(listener) = listener else {
            return 0;
        };
        let mut count = 0;
        while count < budget {
            match self.accept(cx, this, &listener) {
                Ok(true) => count += 1,
                Ok(false) => return count,
                Err(()) => {
                    self.shared.later(cx, number);
                    return count;
                }
            }
        }
        self.shared.is_ready(number);
        count
    }

    /// Takes the next peer; false if there is none, `Err` if there is no room for one.
    fn accept(&self, cx: &Kernel, this: &ProtocolRef, listener: &Listener) -> Result<bool, ()> {
        let local = listener.local;
        let host = (!local.ip().is_unspecified()).then(|| (*local.ip()).into());
        let asked = StreamRoom::at(host, local.port());
        let room = listener.upper.ask(cx, asked).unwrap_or(asked);
        if room.full || self.shared.streams.borrow().len() >= self.shared.sessions_max {
            return Err(());
        }
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let (socket, peer) = match acceptfrom_with(&listener.socket, flags) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN) => return Ok(false),
            // One that went away meanwhile (accept(2)).
            Err(Errno::CONNABORTED | Errno::INTR | Errno::PROTO) => return Ok(true),
            Err(_) => return Err(()),
        };
        let peer = peer.and_then(|peer: SocketAddrAny| SocketAddrV4::try_from(peer).ok());
        let (Some(peer), Some(local)) = (peer, own(&socket)) else {
            return Ok(true);
        };
        let Ok(stream) = self.stream(&listener.upper, socket, (local, peer), true) else {
            return Ok(true);
        };
        let (number, source) = (stream.number, peer.ip().to_bits().into());
        let session = cx.new_passive_session(this, &listener.upper, source, stream);
        self.shared.streams.borrow_mut().insert(number, session.clone());
        let end =
            |end: SocketAddrV4| Participant::of(Part::host(*end.ip())).with(Part::port(end.port()));
        let ends = Participants::pair(end(local), end(peer));
        if let Err(why) = session.announce(cx, &listener.upper, ends) {
            this.head().drops().count(why);
            session.abort(cx);
        }
        Ok(true)
    }
}

impl Protocol for HostTcp {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let (port, peer_port) = ports::pop_ports(&mut participants)?;
        let host = ipv4(Wild::Is(ports::local_host(participants.local_mut()?)?))?;
        let peer = ipv4(Wild::Is(participants.peer_mut()?.pop_host()?.definite()?))?;
        if peer_port == 0 {
            return Err(OpenError::NotSupported);
        }
        let (local, peer) =
            (SocketAddrV4::new(self.ours(host), port), SocketAddrV4::new(peer, peer_port));
        if let Some(session) = self.known(upper.receiver, (local, peer)) {
            session.hold();
            return Ok(session);
        }
        if self.shared.streams.borrow().len() >= self.shared.sessions_max {
            return Err(OpenError::Full);
        }
        let begin = || {
            let socket = open_socket()?;
            if port != 0 || !local.ip().is_unspecified() {
                sockopt::set_socket_reuseaddr(&socket, true)?;
                bind(&socket, &local)?;
            }
            match connect(&socket, &peer) {
                Ok(()) | Err(Errno::INPROGRESS) => {}
                // It is told above, as of one that is far away.
                Err(Errno::CONNREFUSED | Errno::TIMEDOUT) => {}
                Err(error) => return Err(error),
            }
            let local = own(&socket).unwrap_or(local);
            self.stream(upper.receiver, socket, (local, peer), false)
        };
        let stream = begin().map_err(refused)?;
        let number = stream.number;
        let session = cx.new_session(this, upper.receiver, stream);
        self.shared.streams.borrow_mut().insert(number, session.clone());
        Ok(session)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let (port, host) = ports::pop_offer(&mut participants)?;
        let local = SocketAddrV4::new(self.ours(ipv4(Wild::Is(host))?), port);
        let shared = &self.shared;
        if shared.listeners.borrow().len() >= OFFERS_MAX {
            return Err(OpenError::Full);
        }
        let begin = || {
            let socket = open_socket()?;
            sockopt::set_socket_reuseaddr(&socket, true)?;
            bind(&socket, &local)?;
            listen(&socket, shared.backlog)?;
            let number = shared.watch(&socket, EventFlags::IN)?;
            Ok((number, socket))
        };
        let (number, socket) = begin().map_err(refused)?;
        let listener = Listener { socket, upper: upper.receiver.clone(), local };
        shared.listeners.borrow_mut().insert(number, Rc::new(listener));
        Ok(Enable(number))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, Enable(number): Enable) {
        let gone = self.shared.listeners.borrow_mut().remove(&number);
        drop(gone);
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let Some(question) = ask.get::<ListSessions>() else {
            return Answer::Unknown;
        };
        self.shared.streams.borrow().values().for_each(|session| question.push(session));
        Answer::Answered
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        drop(self.shared.listeners.take());
        for (_, session) in self.shared.streams.take() {
            session.abort(cx);
        }
        self.shared.ready.borrow_mut().clear();
        self.shared.again.borrow_mut().clear();
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Wire for HostTcp {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        let shared = &self.shared;
        if shared.again_at.get().is_some_and(|at| at <= cx.now()) {
            shared.again_at.set(None);
            shared.again.take().into_iter().for_each(|number| shared.is_ready(number));
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = self.events.take();
        events.clear();
        let room = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&shared.epoll, room, Some(&now)).is_ok() {
            for event in &events {
                let number = event.data.u64();
                if let Some(session) = shared.streams.borrow().get(&number)
                    && let Some(stream) = session.body::<Stream>()
                {
                    stream.learn(event.flags);
                }
                shared.is_ready(number);
            }
        }
        *self.events.borrow_mut() = events;
        let mut count = 0;
        let turns = shared.ready.borrow().len();
        for _ in 0..turns {
            if count >= budget || cx.must_leave() {
                break;
            }
            let Some(number) = shared.ready.borrow_mut().pop_front() else {
                break;
            };
            count += self.serve(cx, this, number, budget - count);
        }
        count
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(&self.shared.epoll);
    }

    fn next_poll(&self) -> Option<Time> {
        match self.shared.ready.borrow().is_empty() {
            true => self.shared.again_at.get(),
            false => Some(Time::ZERO),
        }
    }
}
