//! The protocol object: opens, enables, demultiplexes what the sockets have.

use core::cell::{Cell, RefCell};
use std::any::Any;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;
use std::time::Duration;

use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError, Look, Params};
use xk_core::map::Map;
use xk_core::object::{Enable, OpenError, SessionTable};
use xk_core::participant::{AddressError, Wild};
use xk_core::reason;
use xk_core::wire::{Sleeper, Wire};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    SessionRef, Time, Upper,
};
use xk_kit::control::{IsGroup, MaxPacket, MyHost, NetworkError, NetworkErrorKind};
use xk_kit::layer::Receiver;
use xk_kit::net::addr::ipv4;
use xk_kit::net::attribute::{LinkCast, Peer};
use xk_kit::net::ports;

use super::ports::{Port, Ports};
use super::session::{Connected, PAYLOAD_MAX, Unconnected};
use crate::address::Notes;
use crate::batch_unsafe::{self, Arrival};
use crate::error::environment;
use crate::inbox::{self, Take};
use crate::socket::{Complaint, Setup, Socket, meaning, way_to};

/// Largest number of enables and unconnected sessions.
const OFFERS_MAX: usize = 16_384;
/// The MTU that is taken for granted until the way is known: Ethernet's.
const MTU: usize = 1500;
/// The port of a host that it is asked about, where any will do: that of discard (RFC 863).
const PORT_ASKED: u16 = 9;

/// Key by which a message is demultiplexed: our host and port, the peer's.
pub(crate) type Key = u128;

pub(crate) fn key(port: u16, local: Ipv4Addr, peer: SocketAddrV4) -> Key {
    let hosts = u64::from(u32::from(local)) << 32 | u64::from(u32::from(*peer.ip()));
    let ports = u32::from(port) << 16 | u32::from(peer.port());
    u128::from(hosts) << 32 | u128::from(ports)
}

/// Shared state of protocol and sessions.
pub(crate) struct Table {
    pub(crate) sessions: SessionTable<Key>,
    /// Receivers of messages from new peers, by [`ports::offer`], each with its socket.
    pub(crate) offers: Map<u64, (Receiver, Rc<Port>)>,
    pub(crate) ports: Ports,
    /// Whether the system may fragment.
    pub(crate) fragment: bool,
}

/// A datagram taken and not delivered yet.
struct Taken {
    port: Rc<Port>,
    message: Message,
    from: SocketAddrV4,
    notes: Notes,
}

/// One instance.
struct HostUdp {
    table: Rc<Table>,
    receiver: RefCell<batch_unsafe::Receiver>,
    /// Shared by all shepherds: if one blocks in a delivery, the next goes on.
    arrivals: RefCell<VecDeque<Taken>>,
    complaints: RefCell<Vec<(u16, Complaint)>>,
    /// The last look took what it was asked for, and the next is put off: what follows from the
    /// arrivals goes first, and a sleep ends at once if there is more.
    rests: Cell<bool>,
}

const LOCAL: &str = "an IPv4 address of this machine, or 0.0.0.0 for all";

fn setup(params: &Params) -> Result<(Ipv4Addr, Setup), BuildError> {
    let host: Option<Ipv4Addr> = params.parse("local", LOCAL)?;
    let setup = Setup {
        fragment: params.get("fragment").is_none() || params.flag("fragment"),
        buffer_octets: params.octets("buffer", 0),
        join: true,
        tunnel: false,
    };
    Ok((host.unwrap_or(Ipv4Addr::UNSPECIFIED), setup))
}

/// Looks whether sockets can be opened.
pub(crate) fn probe(params: &Params, look: Look) -> Result<(), BuildError> {
    let (host, setup) = setup(params)?;
    if look == Look::Parameters {
        return Ok(());
    }
    Socket::bind(SocketAddr::new(host.into(), 0), setup)
        .map(drop)
        .map_err(|error| environment("local", &host.to_string(), &error))
}

/// Builds it from its place in a graph.
pub(crate) fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    probe(build.params, Look::Machine)?;
    let (host, setup) = setup(build.params)?;
    let ports = Ports::new(host, setup, build.params.number("ports_max", 256))
        .map_err(|error| environment("local", &host.to_string(), &error))?;
    let secret = build.cx.secret();
    let table = Table {
        sessions: SessionTable::new(secret, build.params.number("sessions_max", 65_536)),
        offers: Map::new(secret, OFFERS_MAX),
        ports,
        fragment: setup.fragment,
    };
    build.add(HostUdp {
        table: Rc::new(table),
        receiver: RefCell::new(batch_unsafe::Receiver::new()),
        arrivals: RefCell::default(),
        complaints: RefCell::default(),
        rests: Cell::new(false),
    })
}

impl Protocol for HostUdp {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let (port, peer_port) = ports::pop_ports(&mut participants)?;
        let host = self.ours(ipv4(Wild::Is(ports::local_host(participants.local_mut()?)?))?)?;
        if peer_port == 0 {
            return self.open_unconnected(cx, this, upper, (port, host), None);
        }
        let peer = ipv4(Wild::Is(participants.peer_mut()?.pop_host()?.definite()?))?;
        let peer = SocketAddrV4::new(peer, peer_port);
        self.open_connected(cx, this, upper, (port, host), peer)
    }

    fn open_enable(
        &self,
        _: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let (number, host) = ports::pop_offer(&mut participants)?;
        let offer = ports::offer(number, self.ours(ipv4(Wild::Is(host))?)?.into());
        let port = self.table.ports.hold(number)?;
        let receiver = Receiver::Protocol(upper.receiver.clone());
        let bound = self.table.offers.bind(offer, (receiver, Rc::clone(&port)));
        bound.inspect_err(|_| self.table.ports.release(&port, Some(this)))?;
        Ok(Enable(offer))
    }

    fn open_disable(&self, _: &Kernel, this: &ProtocolRef, Enable(offer): Enable) {
        if let Some((Receiver::Protocol(_), port)) = self.table.offers.get(&offer) {
            self.table.offers.unbind(&offer);
            self.table.ports.release(&port, Some(this));
        }
    }

    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let table = &self.table;
        if let Some(question) = ask.get::<ListSessions>() {
            self.list_sessions(question);
        } else if let Some(question) = ask.get::<ListMaps>() {
            question.add("active", table.sessions.stats());
            question.add("passive", table.offers.stats());
        } else if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = PAYLOAD_MAX as u32;
        } else if let Some(q) = ask.get::<IsGroup>() {
            let to = SocketAddr::new(q.host.into(), PORT_ASKED);
            let way = way_to(table.ports.host.into(), to);
            q.many = way.is_ok_and(|way| way.is_to_many);
        } else if let Some(q) = ask.get::<MyHost>().filter(|_| !table.ports.host.is_unspecified()) {
            q.host = table.ports.host.into();
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    fn stop(&self, _: &Kernel, this: &ProtocolRef) {
        // Last messages, such as a notice to peers, still go out.
        self.table.ports.flush(this);
        self.table.sessions.clear();
        self.table.offers.clear();
        self.table.ports.clear();
        self.receiver.borrow_mut().release();
        drop((self.arrivals.take(), self.complaints.take()));
    }

    fn wire(&self) -> Option<&dyn Wire> {
        Some(self)
    }
}

impl Wire for HostUdp {
    fn poll(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) -> usize {
        if self.arrivals.borrow().is_empty() && !self.rests.take() {
            self.receive(cx, this, budget);
        }
        let mut count = 0;
        while count < budget && !cx.must_leave() {
            let next = self.arrivals.borrow_mut().pop_front();
            let Some(taken) = next else { break };
            count += 1;
            self.deliver(cx, this, taken);
        }
        count
    }

    fn flush(&self, _: &Kernel, this: &ProtocolRef) {
        self.table.ports.flush(this);
    }

    fn descriptor(&self, see: &mut dyn FnMut(&dyn Any)) {
        see(self.table.ports.descriptor());
    }

    fn rest(&self, _: &Kernel, _: &ProtocolRef, sleeper: &dyn Sleeper) -> bool {
        self.table.ports.rest(sleeper);
        true
    }

    fn sleep(&self, cx: &Kernel, this: &ProtocolRef, limit: Duration) -> bool {
        let port = self.table.ports.waits(limit);
        let Some(port) = port.filter(|_| self.arrivals.borrow().is_empty()) else {
            return false;
        };
        let drained = self.receive_at(cx, this, &port, Take::Wait);
        self.put_off(drained);
        // Without a buffer for an arrival it did not wait.
        drained || !self.complaints.borrow().is_empty()
    }

    fn next_poll(&self) -> Option<Time> {
        // Joined datagrams may be more than one turn's.
        (!self.arrivals.borrow().is_empty()).then_some(Time::ZERO)
    }
}

impl HostUdp {
    /// A host that sockets here can have, or any.
    fn ours(&self, host: Ipv4Addr) -> Result<Ipv4Addr, AddressError> {
        let own = self.table.ports.host;
        if host.is_unspecified() || own.is_unspecified() || host == own {
            Ok(host)
        } else {
            Err(AddressError::OutOfRange)
        }
    }

    fn open_connected(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        (number, host): (u16, Ipv4Addr),
        peer: SocketAddrV4,
    ) -> Result<SessionRef, OpenError> {
        let table = &self.table;
        let from = if host.is_unspecified() { table.ports.host } else { host };
        let way = way_to(from.into(), peer.into()).map_err(|_| OpenError::NoRoute)?;
        let (IpAddr::V4(local), mtu) = (way.local, way.mtu) else {
            return Err(OpenError::NoRoute);
        };
        if number != 0 {
            let found = table.sessions.found(&key(number, local, peer), upper.receiver)?;
            if let Some(session) = found {
                return Ok(session);
            }
        }
        let is_own = |taken: &(Receiver, _)| taken.0.is_of(upper.receiver);
        if !ports::is_free(&table.offers, (number, local.into()), is_own) {
            return Err(OpenError::InUse);
        }
        if way.is_to_many {
            return self.open_unconnected(cx, this, upper, (number, local), Some(peer));
        }
        let port = table.ports.hold(number)?;
        let key = key(port.number, local, peer);
        let body = self.session(upper.receiver, port, (local, peer), mtu);
        table.sessions.open(cx, this, upper.receiver, key, body)
    }

    fn session(
        &self,
        upper: &ProtocolRef,
        port: Rc<Port>,
        (local, peer): (Ipv4Addr, SocketAddrV4),
        mtu: usize,
    ) -> Connected {
        Connected {
            table: Rc::clone(&self.table),
            port,
            upper: upper.clone(),
            local,
            peer,
            mtu,
            unreachable: Cell::new(false),
        }
    }

    /// A session that receives from all peers; it sends `to` many hosts, or where it is told.
    fn open_unconnected(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        (number, host): (u16, Ipv4Addr),
        to: Option<SocketAddrV4>,
    ) -> Result<SessionRef, OpenError> {
        let offer = |port| ports::offer(port, host.into());
        if let Some((Receiver::Session(session), _)) = self.table.offers.get(&offer(number)) {
            let is_same = |own: &Unconnected| own.to == to && own.upper == *upper.receiver;
            if !session.body().is_some_and(is_same) {
                return Err(OpenError::InUse);
            }
            session.hold();
            return Ok(session);
        }
        let port = self.table.ports.hold(number)?;
        let body = Unconnected {
            table: Rc::clone(&self.table),
            port: Rc::clone(&port),
            upper: upper.receiver.clone(),
            local: host,
            to,
        };
        let session = cx.new_session(this, upper.receiver, body);
        let receiver = Receiver::Session(session.clone());
        let bound = self.table.offers.bind(offer(port.number), (receiver, port));
        bound.inspect_err(|_| session.abort(cx))?;
        Ok(session)
    }

    /// Takes what the sockets have, and passes on what they complain about.
    fn receive(&self, cx: &Kernel, this: &ProtocolRef, budget: usize) {
        let mut drained = true;
        self.table.ports.look(|port| {
            drained &= self.receive_at(cx, this, port, Take::Now(budget));
        });
        self.put_off(drained);
        if !self.complaints.borrow().is_empty() {
            for (port, complaint) in self.complaints.take() {
                self.network_error(cx, port, &complaint);
            }
        }
    }

    /// Puts the next look off if this one took something, and all that was there.
    fn put_off(&self, drained: bool) {
        let rests = drained && !self.arrivals.borrow().is_empty();
        self.rests.set(rests);
    }

    /// Takes what one socket has. True if that was all, as far as it is known.
    fn receive_at(&self, cx: &Kernel, this: &ProtocolRef, port: &Rc<Port>, take: Take) -> bool {
        let receiver = &mut *self.receiver.borrow_mut();
        let taken = port.with_socket(|socket| {
            let from = (socket, receiver);
            let taken = inbox::receive(from, cx.pool(), this, take, |arrival| {
                self.accept(this, port, arrival);
            });
            taken.unwrap_or_else(|error| {
                inbox::complaints(socket, this, &error, |complaint| {
                    let complaints = &mut *self.complaints.borrow_mut();
                    complaints.push((port.number, complaint));
                });
                false
            })
        });
        taken.unwrap_or(true)
    }

    /// Takes a datagram, or a run of them, apart.
    fn accept(&self, this: &ProtocolRef, port: &Rc<Port>, arrival: Arrival) {
        let SocketAddr::V4(from) = arrival.from else {
            return this.discard(arrival.message, &reason::BAD_SOURCE);
        };
        let notes = arrival.notes;
        inbox::split(this, arrival.message, notes.segment, |message| {
            self.arrivals.borrow_mut().push_back(Taken {
                port: Rc::clone(port),
                message,
                from,
                notes,
            });
        });
    }

    /// Passes a datagram up. A refusal ends here: the refuser has counted it.
    fn deliver(&self, cx: &Kernel, this: &ProtocolRef, taken: Taken) {
        let Taken { port, mut message, from, notes } = taken;
        let own = self.table.ports.host;
        let local = if own.is_unspecified() { notes.local.unwrap_or(own) } else { own };
        if let Some(to) = notes.destination.filter(|to| *to != local) {
            let cast = if to.is_multicast() { LinkCast::Multicast } else { LinkCast::Broadcast };
            if message.set_attribute(cast).is_err() {
                return this.discard(message, &ports::ATTRIBUTES_FULL);
            }
        }
        if let Some(session) = self.table.sessions.get(&key(port.number, local, from)) {
            return drop(session.pop(cx, message));
        }
        match ports::receiver(&self.table.offers, port.number, Some(local.into())) {
            Some((Receiver::Session(session), _)) => {
                let peer = Peer { host: (*from.ip()).into(), port: from.port() };
                match message.set_attribute(peer) {
                    Ok(()) => drop(session.pop(cx, message)),
                    Err(_) => this.discard(message, &ports::ATTRIBUTES_FULL),
                }
            }
            Some((Receiver::Protocol(upper), _)) => {
                self.deliver_first(cx, this, &upper, port.number, (local, from), message);
            }
            None => this.discard(message, &reason::NO_PORT),
        }
    }

    /// The first message of a conversation: makes the session that a protocol has enabled.
    #[cold]
    fn deliver_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        number: u16,
        (local, peer): (Ipv4Addr, SocketAddrV4),
        message: Message,
    ) {
        let Ok(port) = self.table.ports.hold(number) else {
            return this.discard(message, &reason::NO_PORT);
        };
        let participant =
            |host: Ipv4Addr, port| Participant::of(Part::host(host)).with(Part::port(port));
        let make = || {
            let ends = (participant(local, number), participant(*peer.ip(), peer.port()));
            (self.session(upper, port, (local, peer), MTU), Participants::pair(ends.0, ends.1))
        };
        let (key, source) = (key(number, local, peer), peer.ip().to_bits().into());
        match self.table.sessions.accept(cx, this, upper, key, source, make) {
            Ok(session) => drop(session.pop(cx, message)),
            Err(why) => this.discard(message, why),
        }
    }

    fn list_sessions(&self, question: &mut ListSessions) {
        question.add(&self.table.sessions);
        self.table.offers.for_each(|_, (receiver, _)| {
            if let Receiver::Session(session) = receiver {
                question.push(session);
            }
        });
    }

    /// A report about a datagram sent from here: finds its session and passes the report on.
    fn network_error(&self, cx: &Kernel, port: u16, complaint: &Complaint) {
        let (Some(kind), Some(SocketAddr::V4(to))) = (meaning(&complaint.reported), complaint.to)
        else {
            return;
        };
        let own = self.table.ports.host;
        let local = complaint.local.unwrap_or(own);
        let connected = self.table.sessions.get(&key(port, local, to));
        let unconnected =
            || ports::receiver(&self.table.offers, port, Some(local.into()))?.0.session();
        let Some(session) = connected.or_else(unconnected) else { return };
        // A session that has no holder has no one to tell: it would only lose a message.
        if kind == NetworkErrorKind::PortUnreachable
            && session.head().opens() > 0
            && let Some(own) = session.body::<Connected>()
        {
            own.unreachable.set(true);
        }
        let reporter = match complaint.reported.offender {
            Some(IpAddr::V4(host)) if host != *to.ip() => Some(host.into()),
            _ => None,
        };
        let error = NetworkError { reporter, start: complaint.start, ..NetworkError::new(kind) };
        // A protocol that does not understand it has no use for it.
        let _ = error.tell(cx, &session, 0);
    }
}
