//! Datagrams: ports that the registry's transport has, and whose messages go by the program's own.
//!
//! Nothing moves: the session at the registry keeps the ends, a port with everybody or with one
//! peer, and takes what the program's channel does not carry. That is what comes in fragments or
//! for many hosts, what is sent to hosts whose station is not known or in more than a frame holds,
//! and what the network reports.
//!
//! A port that is enabled is open to everybody, too, on behalf of the layer: what comes for it from
//! a new peer makes a session above its own. What is sent to other hosts of ours, or to many, makes
//! one at the registry, where the port is enabled.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::time::Duration;
use xk_core::control::{Describe, ListSessions};
use xk_core::object::{Closing, Enable, OpenError, PushError, Refused, SessionSlot, SessionTable};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    Reason, Session, SessionRef, Time, Upper, reason,
};
use xk_kit::control::{MyPort, NetworkError, OptPacket, ServesPort};
use xk_kit::net::attribute::Peer;
use xk_kit::net::ports::{ANY_HOST, local_host, offer, pop_offer, pop_ports};
use xk_kit::{Cache, Marks};

use crate::library::{end_right_soon, follow, stand};
use crate::membership::Membership;
use crate::registry::RIGHTS_MAX;

/// Sessions with one peer at most: of those that messages made an idle one makes room.
const PEERS_MAX: usize = RIGHTS_MAX;
/// Number of hosts to which the session below is kept at one time.
const WAYS_MAX: usize = 1024;
/// Time for which the station that leads to a host is taken to be the one that the registry has
/// told.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// Time for which a host without a known station is not asked for again.
const UNKNOWN_FOR: Duration = Duration::from_millis(100);

/// The way to a host, as far as it is known.
#[derive(Clone, Copy)]
struct Way {
    until: Time,
    /// A station leads there.
    leads: bool,
}

/// A port that was enabled, and that a session has here.
struct Offered {
    enable: Enable,
    /// The registry's protocol has it, too: for other hosts of ours, and for many.
    is_beyond: bool,
    session: SessionRef,
}

/// Shared state of the protocol and its sessions.
pub(crate) struct Parts {
    /// Proxy of the registry's protocol.
    far: ProtocolRef,
    /// The program's own, and this host.
    own: OnceCell<(ProtocolRef, HostAddr)>,
    member: Rc<Membership>,
    /// The registry knows this as the receiver of all of the program's sessions.
    library: RefCell<Option<ProtocolRef>>,
    sessions: Marks,
    /// The marks of sessions that receive from everybody, by port.
    open: RefCell<BTreeMap<u16, u32>>,
    /// Sessions with one peer, by port and peer.
    connected: SessionTable<(u16, HostAddr, u16)>,
    /// Ports that were enabled, and that sessions have here.
    offers: RefCell<Vec<Offered>>,
    ways: Cache<HostAddr, Way>,
}

/// The protocol object.
pub(crate) struct Datagrams(pub(crate) Rc<Parts>);

impl Parts {
    pub(crate) fn new(
        cx: &Kernel,
        far: ProtocolRef,
        member: &Rc<Membership>,
        library: &ProtocolRef,
    ) -> Rc<Self> {
        Rc::new(Self {
            far,
            own: OnceCell::new(),
            member: Rc::clone(member),
            library: RefCell::new(Some(library.clone())),
            sessions: Marks::default(),
            open: RefCell::default(),
            connected: SessionTable::new(cx.secret(), PEERS_MAX),
            offers: RefCell::default(),
            ways: Cache::new(cx.secret(), WAYS_MAX),
        })
    }

    pub(crate) fn far(&self) -> &ProtocolRef {
        &self.far
    }

    /// Ports that are opened from now on have their datagrams go by this protocol of this host.
    pub(crate) fn stand_on(&self, own: (ProtocolRef, HostAddr)) {
        let _ = self.own.set(own);
    }

    /// The session that stands on `lower`.
    fn find(&self, lower: &SessionRef) -> Option<SessionRef> {
        let session = self.sessions.get(lower.head().tag())?;
        session.body::<Port>()?.stands_on(lower).then_some(session)
    }

    /// The session that receives from everybody at a port.
    fn open_at(&self, port: u16) -> Option<SessionRef> {
        let mark = self.open.borrow().get(&port).copied()?;
        self.sessions.get(mark)
    }

    /// The sessions with one peer at a port.
    fn connected_at(&self, port: u16) -> Vec<SessionRef> {
        let mut all = self.connected.sessions(usize::MAX);
        all.retain(|session| session.body::<Port>().is_some_and(|own| own.port == port));
        all
    }

    /// Releases a port that is enabled no more, once no session of its peers is held.
    fn end_withdrawn(&self, cx: &Kernel, port: u16) {
        let is_withdrawn = |port: &SessionRef| {
            port.body::<Port>().is_some_and(|p| p.role.get() == Role::Withdrawn)
        };
        let Some(session) = self.open_at(port).filter(is_withdrawn) else {
            return;
        };
        if !self.connected_at(port).iter().any(|one| one.head().opens() > 0) {
            session.close(cx);
        }
    }

    /// The session of a peer of an enabled port.
    fn taken(&self, key: &(u16, HostAddr, u16)) -> Option<SessionRef> {
        let is_taken = |one: &SessionRef| one.body::<Port>().is_some_and(Port::is_taken);
        self.connected.get(key).filter(is_taken)
    }

    /// Whether the program's own protocol reaches a host. The registry is asked if that is not
    /// known, or has been for a while; `port` is what the program has there.
    fn leads_to(&self, cx: &Kernel, port: Option<&SessionRef>, host: HostAddr) -> bool {
        let fresh = |way: &Way| way.until > cx.now();
        if let Some(way) = self.ways.touch(&host).filter(fresh) {
            return way.leads;
        }
        let found = port.and_then(|port| self.member.find_station(cx, port, host));
        let own = self.own.get().map(|(_, own)| *own);
        let station = found.filter(|(local, _)| Some(*local) == own).map(|(_, address)| address);
        let known = &self.member.known;
        let led = self.ways.get(&host).is_some_and(|way| way.leads);
        let leads = match station {
            Some(address) if led => {
                known.change(cx, host, address);
                true
            }
            Some(address) => {
                known.learn(cx, host, address);
                true
            }
            // While the registry is gone all is as it was.
            None if led && self.member.is_lost() => true,
            None => {
                if led {
                    known.forget(cx, host);
                }
                false
            }
        };
        let until = cx.now() + if leads { KNOWN_FOR } else { UNKNOWN_FOR };
        let gone = self.ways.put(host, Way { until, leads });
        if let Some((gone, _)) = gone.filter(|(gone, way)| *gone != host && way.leads) {
            known.forget(cx, gone);
        }
        leads
    }

    /// Returns the body of a session between a port of a host and a peer, or everybody.
    fn port(
        self: &Rc<Self>,
        upper: &ProtocolRef,
        (port, host): (u16, HostAddr),
        to: Option<Peer>,
    ) -> Port {
        Port {
            parts: Rc::clone(self),
            upper: upper.clone(),
            port,
            host,
            to,
            role: Cell::new(Role::Opened),
            mark: Cell::new(0),
            far: SessionSlot::default(),
            own: SessionSlot::default(),
            octets_max: Cell::new(0),
            right: Cell::new(None),
            again_at: Cell::new(Time::MAX),
        }
    }

    /// A session above `far`, with a peer or everybody; `None` if there is no room.
    fn wrap(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        (far, host, to): (&SessionRef, HostAddr, Option<Peer>),
    ) -> Option<SessionRef> {
        let port = far.ask(cx, MyPort::default()).map_or(0, |asked| asked.port);
        let session = cx.new_session(this, upper, self.port(upper, (port, host), to));
        let mark = stand(cx, &self.sessions, &session, far)?;
        let port = session.body::<Port>()?;
        port.mark.set(mark);
        drop(port.far.replace(Some(far.clone())));
        if let Some(key) = port.key()
            && self.connected.get(&key).is_none()
            && self.connected.bind(cx, key, session.clone()).is_err()
        {
            drop(port.far.take());
            self.sessions.leave(mark);
            session.retire(cx);
            return None;
        }
        Some(session)
    }

    /// Enables a port for datagrams to this host without the registry. Returns the session that
    /// stands for the port here, if the registry gives the right to it.
    fn offer(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        (port, host): (u16, HostAddr),
    ) -> Option<SessionRef> {
        let (_, own) = self.own.get()?;
        if ![ANY_HOST, *own].contains(&host) {
            return None;
        }
        if let Some(there) = self.open_at(port) {
            let back = there.body::<Port>()?;
            let is_back = back.role.get() == Role::Withdrawn && back.upper == *upper.receiver;
            return is_back.then(|| back.role.set(Role::Offer)).map(|()| there.clone());
        }
        let library = self.library.borrow().clone()?;
        let ends = Participants::pair(Peer { host: *own, port }, Part::Any);
        let far = self.far.open(cx, upper.through(&library), ends).ok()?;
        let is_new = self.find(&far).is_none();
        let all = (&far, *own, None);
        let session = is_new.then(|| self.wrap(cx, this, upper.receiver, all)).flatten();
        let Some(session) = session else {
            far.close(cx);
            return None;
        };
        let port = session.body::<Port>()?;
        port.role.set(Role::Offer);
        let _ = self.begin(cx, this, &session);
        if port.right.get().is_none() {
            session.close(cx);
            return None;
        }
        Some(session)
    }

    /// The session of a peer that is new at an enabled port. It has one of the program's own
    /// protocol, whose station is told once something is sent there.
    fn accept(
        self: &Rc<Self>,
        cx: &Kernel,
        offer: &SessionRef,
        to: Peer,
    ) -> Result<SessionRef, &'static Reason> {
        let closed = || &reason::CLOSED;
        let (this, base) = offer.protocol(cx).zip(offer.body::<Port>()).ok_or_else(closed)?;
        let port = self.port(&base.upper, (base.port, base.host), Some(to));
        let session = cx.new_passive_session(&this, &base.upper, to.host.source(), port);
        let port = session.body::<Port>().ok_or_else(closed)?;
        port.role.set(Role::Taken);
        let mark = self.sessions.mark(&session);
        port.mark.set(mark.unwrap_or_default());
        self.member.known.expect(to.host);
        let here = mark.and_then(|_| port.open_here(cx, &this));
        let key = (port.port, to.host, to.port);
        let bound = here.and_then(|_| self.connected.bind(cx, key, session.clone()).ok());
        let ends = Participants::pair(port.local(), port.peer());
        let told = match bound {
            Some(()) => session.announce(cx, &base.upper, ends),
            None => Err(&reason::TABLE_FULL),
        };
        told.inspect_err(|_| session.abort(cx)).map(|()| session.clone())
    }

    /// Has the datagrams of a session come and go by the program's own protocol, if the registry
    /// gives the right to them. Those of one peer at a port that is open to everybody go by that.
    fn begin(&self, cx: &Kernel, this: &ProtocolRef, session: &SessionRef) -> Option<()> {
        let port = session.body::<Port>()?;
        let far = port.far.get()?;
        match (port.to, self.open_at(port.port)) {
            (Some(_), Some(_)) => return None,
            (Some(to), None) if !self.leads_to(cx, Some(&far), to.host) => {
                port.again_at.set(cx.now() + UNKNOWN_FOR);
                return None;
            }
            (Some(_), None) => {}
            (None, Some(other)) => {
                // One for a host and one for any: which of both an arrival is for, the registry's
                // transport tells.
                other.body::<Port>()?.leave_own(cx);
                return None;
            }
            (None, None) => {
                self.open.borrow_mut().insert(port.port, port.mark.get());
                let connected = self.connected_at(port.port);
                let all = connected.iter().filter_map(|one| one.body::<Port>());
                all.for_each(|one| one.leave_own(cx));
            }
        }
        // First, so that what arrives by the right finds it.
        let here = port.open_here(cx, this)?;
        let right = self.member.share(cx, &far, false).and_then(|taken| taken.right);
        port.right.set(right);
        // Another may have come for this port meanwhile, or the session have been closed.
        let is_own = port.own.has(&here) && !session.head().is_closed();
        if right.is_none() || !is_own {
            port.again_at.set(cx.now() + KNOWN_FOR);
            port.leave_own(cx);
        }
        Some(())
    }

    /// Acts on the end of a session's lower, at the registry or here.
    pub(crate) fn lower_is_gone(&self, cx: &Kernel, lower: &SessionRef) {
        let Some(session) = self.find(lower) else {
            return;
        };
        let Some(port) = session.body::<Port>() else {
            return;
        };
        if port.own.has(lower) {
            port.leave_own(cx);
        } else if self.member.is_lost() && port.way().is_some() {
            drop(port.far.take());
        } else {
            port.leave(cx);
            session.retire(cx);
        }
    }

    /// A datagram has come through `lower`.
    #[inline]
    pub(crate) fn arrive(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let Some(session) = self.find(lower) else {
            return Err(this.refuse(message, &reason::CLOSED));
        };
        let port = session.body::<Port>();
        let port = port.filter(|p| p.role.get() == Role::Offer || !self.connected.is_empty());
        if let (Some(port), Some(peer)) = (port, message.attribute::<Peer>()) {
            let found = self.connected.get(&(port.port, peer.host, peer.port));
            let one = match port.role.get() == Role::Offer && found.is_none() {
                true => self.accept(cx, &session, peer).map(Some),
                false => Ok(found),
            };
            match one {
                Ok(None) => {}
                Ok(Some(one)) => {
                    message.remove_attribute::<Peer>();
                    return one.pop(cx, message);
                }
                Err(why) => return Err(this.refuse(message, why)),
            }
        }
        session.pop(cx, message)
    }

    /// The protocol that hears of an error, which is put to its session; `None` if it concerns none
    /// here.
    pub(crate) fn receiver(&self, error: &mut NetworkError) -> Option<ProtocolRef> {
        let session = self.find(error.session.as_ref()?)?;
        // Which peer of an enabled port it is about is not said.
        let port = session.body::<Port>().filter(|port| !port.role.get().is_offer())?;
        let upper = port.upper.clone();
        error.session = Some(session);
        Some(upper)
    }
}

impl Protocol for Datagrams {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let parts = &self.0;
        let mut ends = participants.clone();
        let (own, port) = pop_ports(&mut ends)?;
        let to = match port {
            0 => None,
            port => {
                let host = ends.peer_mut()?.clone().pop_host()?.definite()?;
                Some(Peer { host, port })
            }
        };
        // A peer of an enabled port.
        if let Some(key) = to.map(|to| (own, to.host, to.port))
            && parts.taken(&key).is_some()
            && let Some(found) = parts.connected.found(&key, upper.receiver)?
        {
            return Ok(found);
        }
        let host = local_host(ends.local_mut()?)?;
        let library = parts.library.borrow().clone().ok_or(OpenError::NoLower)?;
        let far = parts.far.open(cx, upper.through(&library), participants)?;
        if let Some(session) = parts.find(&far) {
            let is_same =
                |port: &Port| port.upper == *upper.receiver && !port.role.get().is_offer();
            let is_own = session.body::<Port>().is_some_and(is_same);
            far.close(cx);
            if !is_own {
                return Err(OpenError::InUse);
            }
            session.hold();
            return Ok(session);
        }
        let Some(session) = parts.wrap(cx, this, upper.receiver, (&far, host, to)) else {
            far.close(cx);
            return Err(OpenError::Full);
        };
        if let Some(port) = session.body::<Port>() {
            // Once the opener has the session: until then nothing is to come by it.
            let mark = u64::from(port.mark.get());
            if cx.schedule_protocol(this, Duration::ZERO, mark).is_err() {
                this.head().drops().count(&reason::TABLE_FULL);
            }
        }
        Ok(session)
    }

    /// Takes datagrams to this host here, if the registry gives the right to them.
    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let (port, host) = pop_offer(&mut participants.clone())?;
        let Some(session) = self.0.offer(cx, this, upper, (port, host)) else {
            return self.0.far.open_enable(cx, upper, participants);
        };
        let is_beyond = host == ANY_HOST;
        let enabled = match is_beyond {
            true => self.0.far.open_enable(cx, upper, participants),
            false => Ok(Enable(offer(port, host))),
        };
        let enable = enabled.inspect_err(|_| session.close(cx))?;
        self.0.offers.borrow_mut().push(Offered { enable, is_beyond, session });
        Ok(enable)
    }

    /// Sessions of its peers that are held go on, and the port's with them.
    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        let parts = &self.0;
        let at = parts.offers.borrow().iter().position(|offered| offered.enable == enable);
        let offered = at.map(|at| parts.offers.borrow_mut().swap_remove(at));
        if offered.as_ref().is_none_or(|offered| offered.is_beyond) {
            parts.far.open_disable(cx, enable);
        }
        if let Some(port) = offered.as_ref().and_then(|offered| offered.session.body::<Port>()) {
            port.role.set(Role::Withdrawn);
            parts.end_withdrawn(cx, port.port);
        }
    }

    fn gone(&self, cx: &Kernel, _: &ProtocolRef, lower: &SessionRef) {
        self.0.lower_is_gone(cx, lower);
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        self.0.arrive(cx, this, lower, message)
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(list) = ask.get::<ListSessions>() {
            self.0.sessions.list(list);
            return Answer::Answered;
        }
        if ask.is_upward() {
            return Answer::Unknown;
        }
        self.0.far.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.0.far)
    }

    fn passes_numbers(&self) -> bool {
        true
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, mark: u64) {
        if let Some(session) = self.0.sessions.get(mark as u32) {
            let _ = self.0.begin(cx, this, &session);
        }
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        drop(self.0.sessions.take_all());
        self.0.connected.clear();
        drop((self.0.open.take(), self.0.offers.take(), self.0.library.take()));
    }
}

/// The purpose of a session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A session of the protocol that has opened it.
    Opened,
    /// An enabled port: peers that are new have sessions made.
    Offer,
    /// One that was enabled, for those of its peers whose sessions are held.
    Withdrawn,
    /// A peer of an enabled port.
    Taken,
}

impl Role {
    /// The protocol above knows of no such session.
    fn is_offer(self) -> bool {
        matches!(self, Self::Offer | Self::Withdrawn)
    }
}

/// A port, with one peer or everybody.
struct Port {
    parts: Rc<Parts>,
    upper: ProtocolRef,
    port: u16,
    /// [`ANY_HOST`] for any of this one's.
    host: HostAddr,
    to: Option<Peer>,
    role: Cell<Role>,
    /// Mark by which the conversation is found.
    mark: Cell<u32>,
    /// The session at the registry; empty once the registry has died, and where another session has
    /// the port.
    far: SessionSlot,
    /// Session of the program's own protocol.
    own: SessionSlot,
    /// Octets of the largest datagram that goes by that in one frame.
    octets_max: Cell<usize>,
    right: Cell<Option<u32>>,
    /// Time from which on the registry is asked again for the right to datagrams of one peer.
    again_at: Cell<Time>,
}

impl Port {
    fn stands_on(&self, lower: &SessionRef) -> bool {
        self.far.has(lower) || self.own.has(lower)
    }

    fn is_taken(&self) -> bool {
        self.role.get() == Role::Taken
    }

    /// The key by which it is found among those with one peer.
    fn key(&self) -> Option<(u16, HostAddr, u16)> {
        self.to.map(|to| (self.port, to.host, to.port))
    }

    /// Returns its own end, as for `open`.
    fn local(&self) -> Participant {
        match self.host {
            ANY_HOST => Participant::of(Part::port(self.port)),
            host => Peer { host, port: self.port }.into(),
        }
    }

    /// The peer's.
    fn peer(&self) -> Participant {
        self.to.map_or_else(|| Part::Any.into(), Participant::from)
    }

    /// Opens the session of the program's own protocol.
    fn open_here(&self, cx: &Kernel, this: &ProtocolRef) -> Option<SessionRef> {
        let (own, _) = self.parts.own.get()?;
        let ends = Participants::pair(self.local(), self.peer());
        let here = own.open(cx, Upper::new(this), ends).ok()?;
        follow(self.mark.get(), &here);
        let most = here.ask(cx, OptPacket::default()).map_or(0, |asked| asked.octets);
        self.octets_max.set(most as usize);
        drop(self.own.replace(Some(here.clone())));
        Some(here)
    }

    /// The session that has its port open to everybody, if it is not that itself.
    fn base(&self) -> Option<SessionRef> {
        self.to.and_then(|_| self.parts.open_at(self.port))
    }

    /// The session of the program's own protocol by which datagrams go, and the octets of the
    /// largest one: its own, or that of the port with everybody.
    fn way(&self) -> Option<(SessionRef, usize)> {
        let here = || self.own.get().map(|own| (own, self.octets_max.get()));
        if self.right.get().is_some() {
            return here();
        }
        let of_all = self.base()?.body::<Self>()?.way()?;
        if self.is_taken() { here().or(Some(of_all)) } else { Some(of_all) }
    }

    /// Nothing comes and goes by the program's own protocol any more.
    fn leave_own(&self, cx: &Kernel) {
        let library = self.parts.library.borrow().clone();
        if let (Some(right), Some(library)) = (self.right.take(), library) {
            end_right_soon(cx, &library, right);
        }
        self.own.close(cx);
    }

    /// The session is over.
    fn leave(&self, cx: &Kernel) {
        let (parts, mark) = (&self.parts, self.mark.get());
        let is_marked = mark != 0;
        if is_marked && parts.sessions.leave(mark).is_none() {
            return;
        }
        let is_this = |session: SessionRef| {
            session.body::<Self>().is_some_and(|port| port.mark.get() == mark)
        };
        match self.key() {
            Some(key) if parts.connected.get(&key).is_some_and(is_this) => {
                drop(parts.connected.unbind(&key));
            }
            Some(_) => {}
            None => parts.open.borrow_mut().retain(|_, open| *open != mark),
        }
        self.leave_own(cx);
        self.far.close(cx);
        if let Some(to) = self.to.filter(|_| self.is_taken()) {
            self.parts.member.known.forget(cx, to.host);
            self.parts.end_withdrawn(cx, self.port);
        }
        if self.role.get().is_offer() {
            let mut all = parts.connected_at(self.port);
            all.retain(|one| one.body::<Self>().is_some_and(Self::is_taken));
            all.iter().for_each(|one| one.abort(cx));
        }
    }
}

impl Session for Port {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let peer = self.to.or_else(|| message.attribute::<Peer>());
        let way = self.way().zip(peer).filter(|((_, most), _)| message.len() <= *most);
        let far = self.far.get();
        let of_all = || self.base()?.body::<Self>()?.far.get();
        let through = far.clone().or_else(of_all);
        let leads = |peer: Peer| self.parts.leads_to(cx, through.as_ref(), peer.host);
        let here = way.filter(|(_, peer)| leads(*peer)).map(|((own, _), _)| own);
        // What has but this peer needs no name of it.
        let has_peer = match &here {
            Some(here) => self.own.has(here),
            None => far.is_some(),
        };
        if !has_peer
            && let Some(to) = self.to
            && message.set_attribute(to).is_err()
        {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        if let Some(here) = here {
            return here.push(cx, message);
        }
        if self.again_at.get() <= cx.now()
            && let Some(protocol) = this.protocol(cx)
        {
            self.again_at.set(Time::MAX);
            let _ = cx.schedule_protocol(&protocol, Duration::ZERO, self.mark.get().into());
        }
        match through {
            Some(through) => through.push(cx, message),
            None => {
                this.discard(cx, message, &reason::CLOSED);
                Err(PushError::Closed)
            }
        }
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Describe>() {
            let by = self.way().map_or_else(|| self.far.get(), |(own, _)| Some(own));
            question.text = alloc::format!("port {} by {by:?}", self.port);
            return Answer::Answered;
        }
        let here = || self.own.get();
        let lower = match ask.get::<ServesPort>() {
            // Of this the program's own protocol knows nothing.
            Some(_) if self.far.get().is_none() => self.base(),
            _ => self.far.get().or_else(here),
        };
        lower.map_or(Answer::Unknown, |lower| lower.control(cx, ask))
    }

    fn close(&self, cx: &Kernel, _: &SessionRef) -> Closing {
        self.leave(cx);
        Closing::Done
    }
}
