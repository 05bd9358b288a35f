//! Datagrams: ports that the registry's transport has, and whose messages go by the program's own.
//!
//! Nothing moves: the session at the registry keeps the ends, a port with everybody or with one
//! peer, and takes what the program's channel does not carry. That is what comes in fragments or
//! for many hosts, what is sent to hosts whose station is not known or in more than a frame holds,
//! and what the network reports.

use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use core::time::Duration;
use xk_core::control::{Describe, ListSessions};
use xk_core::object::{Closing, Enable, OpenError, PushError, Refused, SessionSlot};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    Session, SessionRef, Time, Upper, reason,
};
use xk_kit::Cache;
use xk_kit::control::{MyPort, NetworkError, OptPacket};
use xk_kit::net::attribute::Peer;
use xk_kit::net::ports::{ANY_HOST, local_host, pop_ports};
use xk_kit::net::receivers::Marks;

use crate::library::{end_right_soon, follow, stand};
use crate::membership::Membership;

/// To how many hosts the way is kept at one time.
const WAYS_MAX: usize = 1024;
/// How long the station that leads to a host is taken to be the one that the registry has told.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// How long a host without a known station is not asked for again.
const UNKNOWN_FOR: Duration = Duration::from_millis(100);

/// What is known of the way to a host.
#[derive(Clone, Copy)]
struct Way {
    until: Time,
    /// A station leads there.
    leads: bool,
}

/// What the protocol and its sessions share.
pub(crate) struct Parts {
    /// What stands for the registry's protocol.
    far: ProtocolRef,
    /// The program's own, and this host.
    own: OnceCell<(ProtocolRef, HostAddr)>,
    member: Rc<Membership>,
    /// The registry knows this as the receiver of all of the program's sessions.
    library: RefCell<Option<ProtocolRef>>,
    sessions: Marks,
    /// The marks of sessions that receive from everybody, by port.
    open: RefCell<BTreeMap<u16, u32>>,
    /// Those of sessions with one peer, by port and peer.
    connected: RefCell<BTreeMap<(u16, HostAddr, u16), u32>>,
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
            connected: RefCell::default(),
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
        let connected = self.connected.borrow();
        let of_port = connected
            .range((port, HostAddr::UNSPECIFIED, 0)..)
            .take_while(|(key, _)| key.0 == port);
        of_port.filter_map(|(_, mark)| self.sessions.get(*mark)).collect()
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

    /// A session above `far`, between a port of a host and a peer, or everybody; `None` if there is
    /// no room.
    fn wrap(
        self: &Rc<Self>,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        (far, host, to): (&SessionRef, HostAddr, Option<Peer>),
    ) -> Option<SessionRef> {
        let port = far.ask(cx, MyPort::default()).map_or(0, |asked| asked.port);
        let body = Port {
            parts: Rc::clone(self),
            upper: upper.clone(),
            port,
            host,
            to,
            mark: Cell::new(0),
            far: SessionSlot::new(Some(far.clone())),
            own: SessionSlot::default(),
            octets_max: Cell::new(0),
            right: Cell::new(None),
            again_at: Cell::new(Time::MAX),
        };
        let session = cx.new_session(this, upper, body);
        let mark = stand(cx, &self.sessions, &session, far)?;
        session.body::<Port>()?.mark.set(mark);
        Some(session)
    }

    /// Has the datagrams of a session come and go by the program's own protocol, if the registry
    /// gives the right to them. Those of one peer at a port that is open to everybody go by that.
    fn begin(&self, cx: &Kernel, this: &ProtocolRef, session: &SessionRef) -> Option<()> {
        let (own, _) = self.own.get()?;
        let port = session.body::<Port>()?;
        let far = port.far.get()?;
        let other = self.open_at(port.port);
        let peer = match port.to {
            Some(_) if other.is_some() => return None,
            Some(to) if !self.leads_to(cx, Some(&far), to.host) => {
                port.again_at.set(cx.now() + UNKNOWN_FOR);
                return None;
            }
            Some(to) => Participant::of(Part::Host(to.host)).with(Part::port(to.port)),
            None => Participant::of(Part::Any),
        };
        if let Some(other) = other {
            // One for a host and one for any: which of both an arrival is for, the registry's
            // transport tells.
            other.body::<Port>()?.leave_own(cx);
            return None;
        }
        if port.to.is_none() {
            self.open.borrow_mut().insert(port.port, port.mark.get());
            self.connected_at(port.port)
                .iter()
                .filter_map(|one| one.body::<Port>())
                .for_each(|one| one.leave_own(cx));
        }
        let local = match port.host {
            ANY_HOST => Participant::of(Part::port(port.port)),
            host => Participant::of(Part::Host(host)).with(Part::port(port.port)),
        };
        let ends = Participants::pair(local, peer);
        // First, so that what arrives by the right finds it.
        let here = own.open(cx, Upper::new(this), ends).ok()?;
        follow(port.mark.get(), &here);
        let most = here.ask(cx, OptPacket::default()).map_or(0, |asked| asked.octets);
        port.octets_max.set(most as usize);
        drop(port.own.replace(Some(here.clone())));
        let right = self.member.share(cx, &far, false).and_then(|taken| taken.right);
        port.right.set(right);
        // Another may have come for this port meanwhile, or the session have been closed.
        let is_own = port.own.get().as_ref() == Some(&here) && !session.head().is_closed();
        if right.is_none() || !is_own {
            port.again_at.set(cx.now() + KNOWN_FOR);
            port.leave_own(cx);
        }
        Some(())
    }

    /// What a session stands on, at the registry or here, has ended.
    pub(crate) fn lower_is_gone(&self, cx: &Kernel, lower: &SessionRef) {
        let Some(session) = self.find(lower) else {
            return;
        };
        let Some(port) = session.body::<Port>() else {
            return;
        };
        if port.own.get().as_ref() == Some(lower) {
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
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let Some(session) = self.find(lower) else {
            return Err(this.refuse(message, &reason::CLOSED));
        };
        if !self.connected.borrow().is_empty()
            && let (Some(port), Some(peer)) = (session.body::<Port>(), message.attribute::<Peer>())
        {
            let key = (port.port, peer.host, peer.port);
            let mark = self.connected.borrow().get(&key).copied();
            if let Some(one) = mark.and_then(|mark| self.sessions.get(mark)) {
                message.remove_attribute::<Peer>();
                return one.pop(cx, message);
            }
        }
        session.pop(cx, message)
    }

    /// What hears of an error, which is of its session then; `None` if it is of none here.
    pub(crate) fn receiver(&self, error: &mut NetworkError) -> Option<ProtocolRef> {
        let session = self.find(error.session.as_ref()?)?;
        let upper = session.body::<Port>()?.upper.clone();
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
        let (_, port) = pop_ports(&mut ends)?;
        let to = match port {
            0 => None,
            port => {
                let host = ends.peer_mut()?.clone().pop_host()?.definite()?;
                Some(Peer { host, port })
            }
        };
        let host = local_host(ends.local_mut()?)?;
        let library = parts.library.borrow().clone().ok_or(OpenError::NoLower)?;
        let far = parts.far.open(cx, upper.through(&library), participants)?;
        if let Some(session) = parts.find(&far) {
            let is_own = session.body::<Port>().is_some_and(|port| port.upper == *upper.receiver);
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
            if let Some(to) = to {
                let key = (port.port, to.host, to.port);
                parts.connected.borrow_mut().insert(key, port.mark.get());
            }
            // Once the opener has the session: until then nothing is to come by it.
            let mark = u64::from(port.mark.get());
            if cx.schedule_protocol(this, Duration::ZERO, mark).is_err() {
                this.head().drops().count(&reason::TABLE_FULL);
            }
        }
        Ok(session)
    }

    /// What is enabled has its sessions at the registry: a stranger's datagram takes no right.
    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        self.0.far.open_enable(cx, upper, participants)
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.0.far.open_disable(cx, enable);
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
        self.0.sessions.clear();
        drop((self.0.open.take(), self.0.connected.take(), self.0.library.take()));
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
    /// By what it is found.
    mark: Cell<u32>,
    /// At the registry; empty once that has died.
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
        [&self.far, &self.own].iter().any(|slot| slot.get().as_ref() == Some(lower))
    }

    /// The session of the program's own protocol by which datagrams go, and the octets of the
    /// largest one: its own, or that of the port with everybody.
    fn way(&self) -> Option<(SessionRef, usize)> {
        if let Some(own) = self.own.get().filter(|_| self.right.get().is_some()) {
            return Some((own, self.octets_max.get()));
        }
        self.to.and_then(|_| self.parts.open_at(self.port)?.body::<Self>()?.way())
    }

    /// Nothing comes and goes by the program's own protocol any more.
    fn leave_own(&self, cx: &Kernel) {
        let library = self.parts.library.borrow().clone();
        if let (Some(right), Some(library)) = (self.right.take(), library) {
            end_right_soon(cx, &library, right);
        }
        if let Some(own) = self.own.take() {
            own.close(cx);
        }
    }

    /// The session is over.
    fn leave(&self, cx: &Kernel) {
        let (parts, mark) = (&self.parts, self.mark.get());
        if !parts.sessions.leave(mark) {
            return;
        }
        match self.to {
            Some(to) => drop(parts.connected.borrow_mut().remove(&(self.port, to.host, to.port))),
            None => parts.open.borrow_mut().retain(|_, open| *open != mark),
        }
        self.leave_own(cx);
        if let Some(far) = self.far.take() {
            far.close(cx);
        }
    }
}

impl Session for Port {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let peer = self.to.or_else(|| message.attribute::<Peer>());
        let way = self.way().zip(peer).filter(|((_, most), _)| message.len() <= *most);
        let far = self.far.get();
        if let Some(((own, _), peer)) = way
            && self.parts.leads_to(cx, far.as_ref(), peer.host)
        {
            let has_peer = self.to.is_some() && self.own.get().as_ref() == Some(&own);
            if !has_peer && message.set_attribute(peer).is_err() {
                this.discard(cx, message, &reason::NO_BUFFERS);
                return Err(PushError::NoBuffers);
            }
            return own.push(cx, message);
        }
        if self.again_at.get() <= cx.now()
            && let Some(protocol) = this.protocol(cx)
        {
            self.again_at.set(Time::MAX);
            let _ = cx.schedule_protocol(&protocol, Duration::ZERO, self.mark.get().into());
        }
        match far {
            Some(far) => far.push(cx, message),
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
        let lower = self.far.get().or_else(|| self.own.get());
        lower.map_or(Answer::Unknown, |lower| lower.control(cx, ask))
    }

    fn close(&self, cx: &Kernel, _: &SessionRef) -> Closing {
        self.leave(cx);
        Closing::Done
    }
}
