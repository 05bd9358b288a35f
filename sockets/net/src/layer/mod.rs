//! The socket layer: a protocol on top of a graph whose sessions' other end is a program.
//!
//! Nothing here waits and nothing here turns the loop: whatever cannot be done now answers
//! `EAGAIN`, and the socket's [`Status`] says when to come again. What drives the stack and what
//! waits is the drivers' business.

mod datagram;
mod groups;
mod listener;
mod ports;
mod segments;
mod socket;
mod stream;
mod talk;

pub(crate) use datagram::{DATAGRAM_OCTETS_MAX, Datagrams, Received, To};
pub use groups::GroupChange;
pub(crate) use listener::Listener;
pub use ports::Sharing;
pub(crate) use segments::{Octets, Segments};
pub(crate) use socket::{Body, Socket};
pub(crate) use stream::{CHUNK_OCTETS, Phase, Stream};
pub use talk::Joining;
pub(crate) use talk::{Front, LEFT, MESSAGE, Members, ORDERED, PARTIAL, STATE, STATE_MAX, WANTED};

use crate::address::Endpoint;
use crate::ready::Ready;
use datagram::Group;
use listener::Listeners;
use ports::Ports;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use xk_core::control::{ListSessions, Report};
use xk_core::object::Refused;
use xk_core::wire::Wire;
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    Reason, Secret, SessionRef, reason,
};
use xk_kit::control::{IsLocalHost, MyHost, MyPort, NetworkError, PeerHost, PeerPort};
use xk_kit::net::stream::{StreamInfo, StreamNotice, StreamRoom, StreamState};

/// Room for the headers of the layers below, in octets.
pub(crate) const HEADROOM: usize = 128;

/// Bounds of sockets: their number, and what each may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) sockets_max: u32,
    /// Octets of datagrams that wait for their reader, each counted with its overhead.
    pub(crate) datagram_octets: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { sockets_max: 1 << 20, datagram_octets: 212_992 }
    }
}

/// Protocols below the sockets.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) tcp: Option<ProtocolRef>,
    pub(crate) udp: Option<ProtocolRef>,
    /// Layers of conversations, in which all hear one order, and in which causes come first.
    pub(crate) ordered: Option<ProtocolRef>,
    pub(crate) partial: Option<ProtocolRef>,
}

/// Loss of what lies below the sockets in other processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loss {
    #[default]
    None,
    /// The part that sets up conversations is lost; existing ones go on.
    #[cfg(feature = "attach")]
    Beginning,
    /// The whole stack is lost.
    All,
}

/// Function that moves the conversations of a program that ends, and returns how many have not
/// moved yet.
type Leaving = dyn Fn(&Kernel) -> usize;

/// The sockets of one stack.
#[derive(Default)]
pub(crate) struct Layer {
    limits: Limits,
    places: RefCell<Places>,
    this: RefCell<Option<ProtocolRef>>,
    table: RefCell<Vec<Option<Rc<Socket>>>>,
    free: RefCell<Vec<u32>>,
    ports: Ports,
    listeners: RefCell<HashMap<Endpoint, Listeners>>,
    groups: RefCell<HashMap<Endpoint, Rc<Group>>>,
    /// For what spreads peers over sockets that share a port.
    secret: Cell<Option<Secret>>,
    /// Says what has gone, and what the sockets have heard of it.
    losses: RefCell<Option<Box<dyn Fn() -> Loss>>>,
    /// Has conversations that were closed end elsewhere, and says how many are not there yet.
    leaving: RefCell<Option<Box<Leaving>>>,
    lost: Cell<Loss>,
}

/// The protocol object.
pub(crate) struct Sockets {
    layer: Rc<Layer>,
    /// Queue of the commands of other threads.
    commands: Option<Box<dyn Wire>>,
}

impl Sockets {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { layer: Rc::new(Layer { limits, ..Layer::default() }), commands: None }
    }

    /// Makes the sockets of a stack to which other threads send commands, by a queue that the loop
    /// polls like any wire.
    pub(crate) fn with_commands(
        limits: Limits,
        commands: impl FnOnce(Rc<Layer>) -> Box<dyn Wire>,
    ) -> Self {
        let layer = Rc::new(Layer { limits, ..Layer::default() });
        Self { commands: Some(commands(Rc::clone(&layer))), layer }
    }

    pub(crate) fn layer(&self) -> Rc<Layer> {
        Rc::clone(&self.layer)
    }
}

impl Layer {
    /// Puts the protocol on top of the kernel's graph.
    pub(crate) fn stand(&self, cx: &Kernel, sockets: Sockets, places: Places) {
        *self.places.borrow_mut() = places;
        self.secret.set(Some(cx.secret()));
        *self.this.borrow_mut() = Some(cx.add_protocol("sockets", "sockets", sockets));
    }

    pub(crate) fn this(&self) -> Result<ProtocolRef, Errno> {
        self.this.borrow().clone().ok_or(Errno::NETDOWN)
    }

    /// Asks `losses` from now on what has been lost.
    #[cfg(feature = "attach")]
    pub(crate) fn watch_losses(&self, losses: impl Fn() -> Loss + 'static) {
        *self.losses.borrow_mut() = Some(Box::new(losses));
    }

    /// Sets how conversations leave that are closed and have not ended when the stack ends.
    #[cfg(feature = "attach")]
    pub(crate) fn leave_by(&self, leaving: impl Fn(&Kernel) -> usize + 'static) {
        *self.leaving.borrow_mut() = Some(Box::new(leaving));
    }

    /// Has what was closed end elsewhere, where that can be: true once all of it is there.
    pub(crate) fn has_left(&self, cx: &Kernel) -> bool {
        self.leaving.borrow().as_ref().is_none_or(|leaving| leaving(cx) == 0)
    }

    /// True if what the sockets stand on lies in other processes, in part or all.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.losses.borrow().is_some()
    }

    /// Returns the loss by now, and ends the sockets that it concerns.
    pub(crate) fn loss(&self) -> Loss {
        let now = self.losses.borrow().as_ref().map_or(Loss::None, |losses| losses());
        if now > self.lost.replace(now) {
            self.tell_of_loss(now);
        }
        now
    }

    #[cold]
    fn tell_of_loss(&self, loss: Loss) {
        let sockets: Vec<_> = self.table.borrow().iter().flatten().cloned().collect();
        for socket in sockets {
            match &socket.body {
                Body::Listener(listener) => listener.end(&socket),
                Body::Stream(stream) if loss == Loss::All => stream.end(&socket, Errno::NETDOWN),
                Body::Datagrams(_) | Body::Talk(_) if loss == Loss::All => {
                    socket.fail(Errno::NETDOWN);
                }
                // Those whose sessions go hear of it by themselves.
                Body::Stream(_) | Body::Datagrams(_) | Body::Talk(_) => {}
            }
        }
    }

    fn tcp(&self) -> Result<ProtocolRef, Errno> {
        self.stands()?;
        let places = self.places.borrow();
        places.tcp.clone().ok_or(Errno::PROTONOSUPPORT)
    }

    fn udp(&self) -> Result<ProtocolRef, Errno> {
        self.stands()?;
        let places = self.places.borrow();
        places.udp.clone().ok_or(Errno::PROTONOSUPPORT)
    }

    /// The host's address, if what the sockets stand on has one.
    pub(crate) fn host(&self, cx: &Kernel) -> Option<HostAddr> {
        let below = self.tcp().or_else(|_| self.udp()).ok()?;
        let host = below.ask(cx, MyHost::default())?.host;
        (!host.is_unspecified()).then_some(host)
    }

    /// # Errors
    /// `ENETDOWN` if nothing begins any more.
    fn stands(&self) -> Result<(), Errno> {
        match self.loss() {
            Loss::None => Ok(()),
            _ => Err(Errno::NETDOWN),
        }
    }

    /// Whether the table takes one socket more.
    fn has_place(&self) -> bool {
        !self.free.borrow().is_empty()
            || self.table.borrow().len() < self.limits.sockets_max as usize
    }

    /// Takes a socket into the table.
    ///
    /// # Errors
    /// `EMFILE` at the bound.
    fn add(&self, body: Body) -> Result<Rc<Socket>, Errno> {
        let mut table = self.table.borrow_mut();
        let place = match self.free.borrow_mut().pop() {
            Some(place) => place,
            None => {
                let place = u32::try_from(table.len()).unwrap_or(u32::MAX);
                if place >= self.limits.sockets_max {
                    return Err(Errno::MFILE);
                }
                table.push(None);
                place
            }
        };
        let socket = Rc::new(Socket::new(place, body));
        table[place as usize] = Some(Rc::clone(&socket));
        Ok(socket)
    }

    /// Takes a socket out of the table.
    fn remove(&self, socket: &Rc<Socket>) {
        let mut table = self.table.borrow_mut();
        if let Some(place) = table.get_mut(socket.place as usize)
            && place.as_ref().is_some_and(|kept| Rc::ptr_eq(kept, socket))
        {
            *place = None;
            self.free.borrow_mut().push(socket.place);
        }
    }

    /// The socket at a place of the table. It has it until [`close`](Self::close).
    pub(crate) fn socket_at(&self, place: u32) -> Option<Rc<Socket>> {
        self.table.borrow().get(place as usize)?.clone()
    }

    /// The socket that a session belongs to.
    #[inline]
    fn socket_of(&self, session: &SessionRef) -> Option<Rc<Socket>> {
        let place = session.head().tag().checked_sub(1)?;
        let table = self.table.borrow();
        let socket = table.get(place as usize)?.as_ref()?;
        socket.has(session).then(|| Rc::clone(socket))
    }

    /// Releases a socket and all that it holds.
    pub(crate) fn close(&self, cx: &Kernel, socket: &Rc<Socket>) {
        self.remove(socket);
        match &socket.body {
            Body::Stream(stream) => stream.close(cx),
            Body::Listener(listener) => self.close_listener(cx, listener),
            Body::Datagrams(datagrams) => self.close_datagrams(cx, socket, datagrams),
            Body::Talk(talk) => self.close_talk(cx, talk),
        }
        let gone = Ready::READ_CLOSED | Ready::WRITE_CLOSED | Ready::ERROR;
        socket.status.raise(gone | Ready::READABLE | Ready::WRITABLE | Ready::SETTLED);
    }

    /// Breaks off the streams that stand with a host; how many.
    pub(crate) fn reset(&self, cx: &Kernel, peer: HostAddr) -> usize {
        let sockets: Vec<_> = self.table.borrow().iter().flatten().cloned().collect();
        let is_reset = |socket: &&Rc<Socket>| match &socket.body {
            Body::Stream(stream) => stream.reset(cx, socket, peer),
            Body::Listener(_) | Body::Datagrams(_) | Body::Talk(_) => false,
        };
        sockets.iter().filter(is_reset).count()
    }

    /// True once no stream has anything left to send or to hear: what was closed has ended in
    /// order, or failed.
    pub(crate) fn is_quiet(&self, cx: &Kernel) -> bool {
        self.all_are(cx, |state| matches!(state, StreamState::TimeWait | StreamState::Closed))
    }

    /// True once no stream has anything left to send, and its peer knows so.
    pub(crate) fn has_sent(&self, cx: &Kernel) -> bool {
        self.all_are(cx, |state| {
            matches!(state, StreamState::TimeWait | StreamState::Closed | StreamState::FinWait2)
        })
    }

    fn all_are(&self, cx: &Kernel, fits: impl Fn(StreamState) -> bool) -> bool {
        let Ok(tcp) = self.tcp() else {
            return true;
        };
        let Some(found) = tcp.ask(cx, ListSessions::first(usize::MAX)) else {
            return true;
        };
        let rests = |session: &SessionRef| {
            let info = session.ask(cx, StreamInfo::default());
            info.is_none_or(|info| fits(info.state))
        };
        found.here().all(rests)
    }

    /// Whether an address may be bound.
    fn check_local(&self, cx: &Kernel, below: &ProtocolRef, host: HostAddr) -> Result<(), Errno> {
        if host.is_unspecified() {
            return Ok(());
        }
        match below.ask(cx, IsLocalHost { host, local: false }) {
            Some(answer) if !answer.local => {
                let mine = below.ask(cx, MyHost::default()).map_or(host, |found| found.host);
                let is_of_another_family = mine.is_v4() != host.is_v4();
                Err(if is_of_another_family { Errno::AFNOSUPPORT } else { Errno::ADDRNOTAVAIL })
            }
            _ => Ok(()),
        }
    }

    /// Selects one of so many sockets for a peer.
    fn place_among(&self, count: usize, peer: Endpoint) -> usize {
        let [a, b, c] = peer.host.words();
        let words = [a, b, c, peer.port.into()];
        let hash = self.secret.get().map_or(0, |secret| secret.hash(&words));
        (((hash >> 32) * count as u64) >> 32) as usize
    }

    /// The peer, with this host in place of an unspecified address, as on Linux.
    fn definite(cx: &Kernel, below: &ProtocolRef, peer: Endpoint) -> Endpoint {
        match peer.host.is_unspecified() {
            true => {
                Endpoint { host: below.ask(cx, MyHost::default()).unwrap_or_default().host, ..peer }
            }
            false => peer,
        }
    }
}

/// A host and a port as a participant; zero stands for any.
fn participant(address: Endpoint) -> Participant {
    let host = match address.host.is_unspecified() {
        true => Part::Any,
        false => Part::Host(address.host),
    };
    let port = match address.port {
        0 => Part::Any,
        port => Part::port(port),
    };
    Participant::of(host).with(port)
}

/// Both ends of a session, as far as it knows them.
fn ends(cx: &Kernel, session: &SessionRef) -> (Endpoint, Endpoint) {
    let mine = session.ask(cx, MyHost::default()).unwrap_or_default().host;
    let theirs = session.ask(cx, PeerHost::default()).unwrap_or_default().host;
    let port = session.ask(cx, MyPort::default()).map_or(0, |q| q.port);
    let peer = session.ask(cx, PeerPort::default()).map_or(0, |q| q.port);
    (Endpoint { host: mine, port }, Endpoint { host: theirs, port: peer })
}

impl Protocol for Sockets {
    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        let places = self.layer.places.borrow();
        let is_of = |place: &Option<ProtocolRef>| {
            place.as_ref().is_some_and(|place| place.id() == lower.head().protocol())
        };
        let is_talk = is_of(&places.ordered) || is_of(&places.partial);
        drop(places);
        match is_talk {
            true => self.layer.begun(cx, lower),
            false => self.layer.arrive(cx, lower),
        }
    }

    /// A session has gone without a word of its protocol: with the process that it was in, or, if
    /// that is there, on its way from a registry to this program, where its peer broke off.
    fn gone(&self, _: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        if let Some(socket) = self.layer.socket_of(lower) {
            match &socket.body {
                Body::Stream(stream) => {
                    let is_there = self.layer.loss() == Loss::None;
                    stream.end(&socket, if is_there { Errno::CONNRESET } else { Errno::NETDOWN });
                }
                Body::Datagrams(datagrams) => self.layer.end_datagrams(datagrams),
                Body::Talk(_) => socket.fail(Errno::NETDOWN),
                Body::Listener(_) => {}
            }
        }
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let Some(socket) = self.layer.socket_of(lower) else {
            return Err(this.refuse(message, &reason::CLOSED));
        };
        match &socket.body {
            Body::Stream(stream) => stream.take(&socket.status, message),
            Body::Datagrams(datagrams) if datagrams.is_spread() => {
                self.layer.spread(this, lower, &socket, message)?;
            }
            Body::Datagrams(datagrams) => datagrams.take(this, lower, &socket.status, message)?,
            Body::Talk(talk) => talk.take(cx, this, &socket, message),
            Body::Listener(_) => return Err(this.refuse(message, &reason::CLOSED)),
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(notice) = ask.get::<StreamNotice>() {
            let (session, event) = (notice.session.clone(), notice.event);
            let Some(socket) = self.layer.socket_of(&session) else {
                return Answer::Unknown;
            };
            if let Body::Stream(stream) = &socket.body {
                stream.hear(cx, &socket, event);
            }
            return Answer::Answered;
        }
        if let Some(room) = ask.get::<StreamRoom>() {
            self.layer.answer_room(room);
            return Answer::Answered;
        }
        if let Some(error) = ask.get::<NetworkError>() {
            let session = error.session.clone();
            let socket = session.and_then(|session| self.layer.socket_of(&session));
            if let Some(socket) = socket {
                match &socket.body {
                    Body::Stream(stream) => stream.hear_of_network(cx, &socket, error.kind),
                    Body::Datagrams(_) | Body::Listener(_) | Body::Talk(_) => {
                        datagram::report(&socket, error.kind);
                    }
                }
            }
            return Answer::Answered;
        }
        ask.answer::<Report>(|report| {
            let count = self.layer.table.borrow().iter().flatten().count();
            report.lines.push(("sockets".into(), count.to_string()));
            report.finished = true;
        })
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let layer = &self.layer;
        let table = layer.table.take();
        for socket in table.iter().flatten() {
            socket.forget();
            socket.fail(Errno::NETDOWN);
        }
        drop((table, layer.losses.take()));
        drop(layer.places.take());
        drop(layer.listeners.take());
        drop(layer.groups.take());
        drop(layer.this.take());
    }

    /// A socket for which a queue below had no room is to be tried again.
    fn timeout(&self, cx: &Kernel, _: &ProtocolRef, tag: u64) {
        let place = tag.checked_sub(1).and_then(|place| u32::try_from(place).ok());
        if let Some(socket) = place.and_then(|place| self.layer.socket_at(place)) {
            self.layer.look(cx, &socket);
        }
    }

    fn wire(&self) -> Option<&dyn Wire> {
        self.commands.as_deref()
    }
}
