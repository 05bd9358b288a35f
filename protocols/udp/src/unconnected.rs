//! An unconnected session: receives from many on one port, sends to the peer that each message
//! names, or else to all that it was opened to.

use crate::protocol::{Connected, Ports, covers_hosts, key_of, open_below, tell_served};
use crate::wire::{HEADER_LEN, PAYLOAD_LEN_MAX};
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::object::{Closing, OpenError, PushError, Refused, WeakSession};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participants, ProtocolRef, Session, SessionRef,
    reason,
};
use xk_kit::Cache;
use xk_kit::control;
use xk_kit::layer::Receiver;
use xk_kit::net::{attribute::Peer, groups::Joins, ports, template::Headers};

/// Number of peers for which an unconnected session keeps what it needs for sending.
pub const PEERS_MAX: usize = 64;

/// Sessions below of which an unconnected session knows that a message came through them.
const HEARD_MAX: usize = 16;

/// No lower session with this peer could be opened.
pub(crate) static NO_ROUTE: reason::Reason = reason::Reason::new("no route", reason::Class::Bad);

type Found = Result<Rc<Connected>, OpenError>;

/// Hosts that a session receives from, and to which it sends what names no peer.
#[derive(PartialEq, Eq)]
pub(crate) enum To {
    /// Receives from all hosts, and sends to none.
    Everybody,
    /// Receives from all hosts, and sends to a broadcast or a group.
    Group(Peer),
    /// Receives from these peers alone, and sends to each of them.
    Peers(Vec<Peer>),
}

impl To {
    fn all(&self) -> &[Peer] {
        match self {
            Self::Everybody => &[],
            Self::Group(to) => core::slice::from_ref(to),
            Self::Peers(peers) => peers,
        }
    }

    /// The only peer, if there is one.
    fn one(&self) -> Option<Peer> {
        match self.all() {
            [peer] => Some(*peer),
            _ => None,
        }
    }

    /// Whether datagrams of a peer are taken. The peer is asked for only where that depends on it.
    fn hears(&self, peer: impl FnOnce() -> Option<Peer>) -> bool {
        let Self::Peers(peers) = self else { return true };
        peer().is_some_and(|peer| peers.contains(&peer))
    }
}

pub(crate) struct Unconnected {
    all: Ports,
    /// The layer itself, on whose behalf lower sessions are opened.
    udp: ProtocolRef,
    upper: ProtocolRef,
    /// Our port and host, [`ports::ANY_HOST`] for any.
    port: u16,
    host: HostAddr,
    to: To,
    /// Conversations that only send, by our host, the peer's and its port.
    peers: Cache<(HostAddr, HostAddr, u16), Rc<Connected>>,
    /// The sessions below through which messages came last, each at a place of its number.
    heard: RefCell<[Option<WeakSession>; HEARD_MAX]>,
    /// Memberships in groups.
    pub(crate) joins: Joins,
}

impl Unconnected {
    /// The session of `upper` on this port, 0 for any that is free, and host: the one there is,
    /// once more held, or a new one.
    pub(crate) fn open(
        all: &Ports,
        cx: &Kernel,
        (this, upper): (&ProtocolRef, &ProtocolRef),
        (local, host): (u16, HostAddr),
        to: To,
    ) -> Result<SessionRef, OpenError> {
        let is_free = |port| ports::is_free(&all.offers, (port, host), |_| false);
        let port = match local {
            0 => all.layer.choices.choose(ports::ephemerals(cx), is_free)?.number,
            port => port,
        };
        let offer = ports::offer(port, host);
        if let Some(Receiver::Session(session)) = all.offers.get(&offer) {
            let is_same = |own: &Self| own.to == to && own.upper == *upper;
            if !session.body().is_some_and(is_same) {
                return Err(OpenError::InUse);
            }
            session.hold();
            return Ok(session);
        }
        let body = Self {
            all: all.clone(),
            udp: this.clone(),
            upper: upper.clone(),
            port,
            host,
            to,
            peers: Cache::new(cx.secret(), PEERS_MAX),
            heard: RefCell::default(),
            joins: Joins::default(),
        };
        let session = cx.new_session(this, upper, body);
        let receiver = Receiver::Session(session.clone());
        let bound = all.offers.enable(offer, receiver, ports::is_of_port(port));
        bound.inspect_err(|_| session.retire(cx))?;
        all.layer.forget_reached();
        Ok(session)
    }

    /// As [`open`](Self::open), for a list of peers. Each is opened below at once, so that one that
    /// cannot be had is known now.
    pub(crate) fn open_to_peers(
        all: &Ports,
        cx: &Kernel,
        from: (&ProtocolRef, &ProtocolRef),
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let (own, peers) = ports::pop_peers(&mut ends)?;
        let session = Self::open(all, cx, from, own, To::Peers(peers.clone()))?;
        let opened = session.body::<Self>().map_or(Ok(()), |this| {
            peers.into_iter().try_for_each(|peer| this.conversation(cx, own.1, peer).map(drop))
        });
        opened.inspect_err(|_| session.close(cx))?;
        if session.head().is_closed() {
            // While a layer below waited.
            session.body().into_iter().for_each(|this: &Self| this.forget(cx));
            return Err(OpenError::NoLower);
        }
        Ok(session)
    }

    /// Notes that a message of this peer came through this session below, if it is for this one.
    pub(crate) fn heard(&self, lower: &SessionRef, peer: Peer) {
        if self.to.hears(|| Some(peer)) {
            let place = lower.id().0 as usize % HEARD_MAX;
            self.heard.borrow_mut()[place] = Some(lower.downgrade());
        }
    }

    /// The open session below with this host through which a message came, or goes. It is not
    /// opened: to tell a stranger that it is refused, nothing is.
    fn way_back(&self, cx: &Kernel, peer: Peer) -> Option<SessionRef> {
        let heard = self.heard.borrow().clone();
        let heard = heard.iter().flatten().filter_map(WeakSession::upgrade);
        let sent = self.peers.get(&(self.host, peer.host, peer.port));
        let mut ways = heard.chain(sent.map(|known| known.lower().clone()));
        let origins = &self.all.layer.origins;
        ways.find(|way| !way.head().is_closed() && origins.of(cx, way).peer == Some(peer.host))
    }

    /// The conversation with a peer from one of our hosts: the one kept, or a new one.
    fn conversation(&self, cx: &Kernel, from: HostAddr, peer: Peer) -> Found {
        let place = (from, peer.host, peer.port);
        let is_open = |known: &Rc<Connected>| !known.lower().head().is_closed();
        let known = || self.peers.touch(&place).filter(is_open);
        if let Some(known) = known() {
            return Ok(known);
        }
        let ends = Participants::pair(Part::host_or_any(from), Part::Host(peer.host));
        let lower = open_below(&self.all, cx, &self.udp, ends)?;
        let key = key_of(self.port, peer.port);
        let fresh = Rc::new(self.all.conversation(cx, &self.upper, &lower, key));
        // What was asked below may have blocked, and another message have been quicker.
        if let Some(known) = known() {
            lower.close(cx);
            return Ok(known);
        }
        if let Some((_, gone)) = self.peers.put(place, Rc::clone(&fresh)) {
            gone.lower().close(cx);
        }
        Ok(fresh)
    }

    fn send(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
        peer: Peer,
    ) -> Result<(), PushError> {
        let from = ports::source_of(&message, self.host);
        match self.conversation(cx, from, peer) {
            Ok(_) if this.head().is_closed() => {
                self.forget(cx);
                this.discard(cx, message, &reason::CLOSED);
                Err(PushError::Closed)
            }
            Ok(conversation) => conversation.push(cx, this, message),
            Err(error) => {
                this.discard(cx, message, &NO_ROUTE);
                Err(error.into())
            }
        }
    }

    /// Releases what is kept for sending.
    fn forget(&self, cx: &Kernel) {
        for (place, known) in self.peers.snapshot() {
            self.peers.remove(&place);
            known.lower().close(cx);
        }
    }
}

impl Session for Unconnected {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let named = message.remove_attribute::<Peer>();
        let to = named.as_ref().map_or(self.to.all(), core::slice::from_ref);
        let Some((last, others)) = to.split_last().filter(|(last, _)| last.port != 0) else {
            this.discard(cx, message, &ports::NO_PEER);
            return Err(PushError::NotSupported);
        };
        let mut result = Ok(());
        for peer in others {
            let copy = ports::copy_of(cx, this, &message);
            result = result.and(copy.and_then(|copy| self.send(cx, this, copy, *peer)));
        }
        result.and(self.send(cx, this, message, *last))
    }

    /// The protocol has checked length and checksum; the header is still in front.
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        if !self.to.hears(|| message.attribute()) {
            return Err(this.refuse(cx, message, &reason::NO_PORT));
        }
        let Some(header) = message.pop_array::<HEADER_LEN>().copied() else {
            return Err(this.refuse(cx, message, &reason::TRUNCATED));
        };
        let taken = self.upper.demux(cx, this, message);
        taken.map_err(|refused| refused.quoting(&header))
    }

    fn refused(&self, cx: &Kernel, _: &SessionRef, mut refused: Refused) {
        let from = refused.message.attribute::<Peer>();
        let from = from.filter(|_| refused.message.uncover(HEADER_LEN));
        if let Some(way) = from.and_then(|peer| self.way_back(cx, peer)) {
            way.refused(cx, refused);
        }
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let (port, host) = (self.port, self.host);
        Some(match self.to.all() {
            [] => alloc::format!("port {port} of {host} with everybody"),
            [to] => alloc::format!("port {port} of {host} with {}:{}", to.host, to.port),
            many => alloc::format!("port {port} of {host} with {} peers", many.len()),
        })
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(answer) = self.joins.answer(cx, &self.all.lower, ask) {
            return answer;
        }
        let host = Some(self.host).filter(|host| *host != ports::ANY_HOST);
        let to = self.to.one().map(|to| (to.port, Some(to.host)));
        if ports::answer(ask, (self.port, host), to) {
            return Answer::Answered;
        }
        if covers_hosts(ask) {
            return Answer::Unknown;
        }
        if tell_served(&self.all, ask, host) {
            return Answer::Answered;
        }
        // Those of a conversation with all hosts of the link, of which nothing need be asked.
        if ask.get::<Headers>().is_some() {
            if matches!(self.to, To::Peers(_)) {
                // Their headers have no form that fits them and no others.
                return Answer::Unknown;
            }
            let all = Peer { host: HostAddr::BROADCAST, port: 0 };
            let peer = self.to.all().first().copied().unwrap_or(all);
            let answer = self.conversation(cx, self.host, peer).map(|known| known.answer(cx, ask));
            let _ = ask.answer::<Headers>(|found| *found = core::mem::take(found).for_any_peer());
            return answer.unwrap_or(Answer::Unknown);
        }
        // What a layer says of itself may depend on the peer; the format's own limit does not.
        let octets_max = |q: &mut control::MaxPacket| q.octets = PAYLOAD_LEN_MAX as u32;
        match self.all.answer(cx, ask) {
            Answer::Unknown => ask.answer(octets_max),
            answered => answered,
        }
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let offer = ports::offer(self.port, self.host);
        if self.all.offers.get(&offer).and_then(Receiver::session).as_ref() == Some(this) {
            self.all.offers.unbind(&offer);
        }
        self.all.layer.forget_reached();
        self.forget(cx);
        self.joins.clear(cx, &self.all.lower);
        Closing::Done
    }
}
