//! The protocol object: opens, enables, demultiplexes.

use crate::origin::is_intact;
use crate::session::UdpSession;
use crate::table::{Limits, Table, Taker, port_of};
use crate::unconnected::{Unconnected, peer_of};
use crate::wire::{HEADER_LEN, Header};
use alloc::rc::Rc;
use core::net::Ipv4Addr;
use core::num::NonZeroU16;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::message::PullUpError;
use xk_core::object::{Burst, Enable, Glance, OpenError, Refused};
use xk_core::participant::{AddressError, Wild};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    SessionRef, Upper, reason,
};
use xk_kit::attribute::Peer;
use xk_kit::control::{IsMany, NetworkError, max_packet};
use xk_kit::offload::Offloads;
use xk_kit::ports::{
    self, ANY_HOST, Origin, Origins, definite, enable_of, is_everybody, key_of, less_header,
    local_host,
};

/// The key that a message is demultiplexed by: the lower session, and the peer's port (the upper half) with the local port.
pub(crate) type Key = (u64, u32);

#[inline]
pub(crate) fn key(lower: &SessionRef, local: u16, peer: u16) -> Key {
    key_of_ports(lower, u32::from(peer) << 16 | u32::from(local))
}

/// The same, with both ports as they lie in an arriving header.
#[inline]
fn key_of_ports(lower: &SessionRef, ports: u32) -> Key {
    (lower.id().0, ports)
}

/// Both ports and the length in octets, as a header has them.
#[inline]
fn ports_and_length(octets: &[u8; HEADER_LEN]) -> (u32, usize) {
    // Source, destination, length, checksum.
    let word = u64::from_be_bytes(*octets);
    ((word >> 32) as u32, usize::from((word >> 16) as u16))
}

/// Both ports of a datagram, if its length is right.
#[inline(always)]
fn ports_of(glance: &Glance<HEADER_LEN>) -> Option<u32> {
    let (ports, length) = ports_and_length(&glance.octets);
    (length == glance.len).then_some(ports)
}

/// One instance of the layer.
pub struct Udp {
    lower: ProtocolRef,
    pub(crate) table: Rc<Table>,
    pub(crate) origins: Origins,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let limits = Limits::read(build.params);
    let checksum = build.params.get("checksum").is_none() || build.params.flag("checksum");
    let lower = build.lower(0)?;
    Ok(add_limited(build.cx, build.name, lower, limits, checksum))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(
    cx: &Kernel,
    name: &str,
    lower: ProtocolRef,
    sessions_max: usize,
    checksum: bool,
) -> ProtocolRef {
    let limits = Limits {
        sessions_max,
        ..Limits::default()
    };
    add_limited(cx, name, lower, limits, checksum)
}

fn add_limited(
    cx: &Kernel,
    name: &str,
    lower: ProtocolRef,
    limits: Limits,
    checksum: bool,
) -> ProtocolRef {
    let key = cx.secret();
    let table = Rc::new(Table::new(key, limits, checksum));
    let origins = Origins::new(key);
    cx.add_protocol(
        crate::ENTRY.kind,
        name,
        Udp {
            lower,
            table,
            origins,
        },
    )
}

impl Protocol for Udp {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let any = Participants::local(Part::Any);
        self.lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let local = participants.local_mut()?.pop_port()?;
        if local == Wild::Is(0) {
            return Err(AddressError::OutOfRange.into());
        }
        if is_everybody(participants.peer_mut()?) {
            let host = local_host(participants.local_mut()?)?;
            return self.open_unconnected(cx, this, upper, (local, host), None);
        }
        let peer = definite(participants.peer_mut()?.pop_port()?)?;
        let host = participants.local_mut()?;
        if host.is_empty() {
            host.push(Part::Any);
        } else if let Some(Part::Host(many)) = host.top()
            && IsMany::ask(cx, &self.lower, Some(*many))
        {
            // Nothing is sent from there (RFC 1122, section 3.2.1.3).
            *host = Participant::of(Part::Any);
        }
        let lower = self.lower.open(cx, Upper::new(this), participants)?;
        let opened = match self.many(cx, &lower, peer) {
            Some(to) => self.open_many(cx, this, upper, &lower, (local, to)),
            None => self.open_on(cx, this, upper, &lower, local, peer),
        };
        if opened.is_err() {
            lower.close(cx);
        }
        opened
    }

    fn open_enable(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let local = participants.local_mut()?;
        let port = definite(local.pop_port()?)?;
        let key = (port, local_host(local)?);
        let taker = Taker::Enabled(upper.receiver.clone());
        self.table.takers.bind(key, taker)?;
        Ok(enable_of(key))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        let key = key_of(enable);
        if let Some(Taker::Enabled(_)) = self.table.takers.get(&key) {
            self.table.takers.unbind(&key);
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
        if let Some(octets) = message.peek_in_place::<HEADER_LEN>()
            && let (ports, length) = ports_and_length(octets)
            && length == message.len()
            && let Some(session) = self.table.sessions.latest(&key_of_ports(lower, ports))
        {
            return session.pop(cx, message);
        }
        self.demux_other(cx, this, lower, message)
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        while burst.goes_on(lower) {
            if let Some(ports) = burst.peek(0).and_then(|first| ports_of(&first))
                && let Some(session) = self.table.sessions.get(&key_of_ports(lower, ports))
            {
                let run = burst.count_while(|_, glance| ports_of(&glance) == Some(ports));
                session.pop_burst(cx, burst.first(run))?;
            } else if let Some(message) = burst.next() {
                self.demux_other(cx, this, lower, message)?;
            }
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<ListSessions>() {
            self.list_sessions(question);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            let maps = &mut question.maps;
            maps.push(("active", self.table.sessions.stats()));
            maps.push(("passive", self.table.takers.stats()));
            maps.push(("origins", self.origins.stats()));
            return Answer::Answered;
        }
        if self.table.talkers.answer(this, ask) {
            return Answer::Answered;
        }
        if ask.get::<NetworkError>().is_some() {
            return self.network_error(cx, this, ask);
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, HEADER_LEN);
        }
        answer
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.table.sessions.clear();
        self.table.takers.clear();
        self.table.talkers.clear();
        self.origins.clear();
    }
}

impl Udp {
    /// True if nobody but `upper` takes what comes to this port.
    fn may_use(&self, port: u16, host: Option<Ipv4Addr>, upper: &ProtocolRef) -> bool {
        let hosts = [ANY_HOST, host.map_or(ANY_HOST, u32::from)];
        hosts
            .iter()
            .all(|host| match self.table.takers.get(&(port, *host)) {
                None => true,
                Some(Taker::Enabled(other)) => other == *upper,
                Some(Taker::Unconnected(session)) => session.head().upper() == upper.id(),
            })
    }

    /// A connected session on a lower one, whose hold it takes over.
    fn open_on(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        lower: &SessionRef,
        local: Wild<u16>,
        peer: u16,
    ) -> Result<SessionRef, OpenError> {
        let sessions = &self.table.sessions;
        let origin = self.origins.of(cx, lower);
        let local = match local {
            Wild::Is(port) => port,
            Wild::Any => ports::ephemeral(cx, |port| {
                let host = origin.local.map_or(ANY_HOST, u32::from);
                ports::is_free(&self.table.takers, port, host)
                    && sessions.get(&key(lower, port, peer)).is_none()
            })?,
        };
        let key = key(lower, local, peer);
        if let Some(session) = sessions.get(&key) {
            if session.head().upper() != upper.receiver.id() {
                return Err(OpenError::InUse);
            }
            // Held, the session holds the lower one itself.
            session.hold();
            lower.close(cx);
            return Ok(session);
        }
        if !self.may_use(local, origin.local, upper.receiver) {
            return Err(OpenError::InUse);
        }
        let body = self.session(cx, upper.receiver, lower, origin, (local, peer));
        let session = cx.new_session(this, upper.receiver, body);
        match sessions.bind(cx, key, session.clone()) {
            Ok(()) => Ok(session),
            // Marked closed without closing the lower one: that is the caller's again.
            Err(_) => {
                session.retire(cx);
                Err(OpenError::Full)
            }
        }
    }

    fn session(
        &self,
        cx: &Kernel,
        upper: &ProtocolRef,
        lower: &SessionRef,
        origin: Origin,
        (local, peer): (u16, u16),
    ) -> UdpSession {
        let below = max_packet(cx, lower, u32::from(u16::MAX)).min(u32::from(u16::MAX));
        UdpSession::new(
            &self.table,
            lower.clone(),
            upper.clone(),
            origin.pseudo,
            (local, peer),
            (
                (below as usize).saturating_sub(HEADER_LEN),
                Offloads::of_session(cx, lower).tx_checksum,
            ),
        )
    }

    /// The peer behind a lower session, if that is many hosts.
    fn many(&self, cx: &Kernel, lower: &SessionRef, port: u16) -> Option<Peer> {
        let host = self.origins.of(cx, lower).peer;
        let is_many = IsMany::ask(cx, &self.lower, host);
        host.filter(|_| is_many).map(|host| Peer { host, port })
    }

    /// A session to many hosts on a lower one, whose hold it gives back: it opens what it needs itself, to hosts that it is told of, too.
    fn open_many(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        lower: &SessionRef,
        (local, to): (Wild<u16>, Peer),
    ) -> Result<SessionRef, OpenError> {
        let host = self.origins.of(cx, lower).local;
        if let Wild::Is(port) = local
            && !self.may_use(port, host, upper.receiver)
        {
            return Err(OpenError::InUse);
        }
        let local = (local, host.map_or(ANY_HOST, u32::from));
        let session = self.open_unconnected(cx, this, upper, local, Some(to))?;
        lower.close(cx);
        Ok(session)
    }

    /// A session that receives from everybody; it sends `to` many hosts, or to whom it is told.
    fn open_unconnected(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        (local, host): (Wild<u16>, u32),
        to: Option<Peer>,
    ) -> Result<SessionRef, OpenError> {
        let is_free = |port| ports::is_free(&self.table.takers, port, host);
        let port = match local {
            Wild::Is(port) => port,
            Wild::Any => ports::ephemeral(cx, is_free)?,
        };
        if let Some(Taker::Unconnected(session)) = self.table.takers.get(&(port, host)) {
            if session.head().upper() != upper.receiver.id() || peer_of(cx, &session) != to {
                return Err(OpenError::InUse);
            }
            session.hold();
            return Ok(session);
        }
        let body = Unconnected::new(
            cx,
            &self.table,
            (this, &self.lower, upper.receiver),
            (port, host),
            to,
        );
        let session = cx.new_session(this, upper.receiver, body);
        let taker = Taker::Unconnected(session.clone());
        let bound = self.table.takers.bind((port, host), taker);
        bound.inspect_err(|_| session.retire(cx))?;
        Ok(session)
    }

    /// Takes any message.
    #[inline(never)]
    fn demux_other(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let header = match message.pull_up(HEADER_LEN) {
            Ok(()) => message.peek::<HEADER_LEN>().copied(),
            Err(PullUpError::NoBuffers) => return Err(this.refuse(message, &reason::NO_BUFFERS)),
            Err(_) => None,
        };
        let Some(header) = header else {
            self.table.talkers.blame(cx, lower, 0, &reason::TRUNCATED);
            return Err(this.refuse(message, &reason::TRUNCATED));
        };
        let (ports, length) = ports_and_length(&header);
        if length != message.len() {
            if length < HEADER_LEN || length > message.len() {
                self.table
                    .talkers
                    .blame(cx, lower, port_of(&header), &reason::BAD_LENGTH);
                return Err(this.refuse(message, &reason::BAD_LENGTH));
            }
            message.truncate(length);
        }
        match self.table.sessions.get(&key_of_ports(lower, ports)) {
            Some(session) => session.pop(cx, message),
            None => self.demux_first(cx, this, lower, &header, message),
        }
    }

    /// A message of no session: an unconnected one takes it, or an enable makes a session.
    fn demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        octets: &[u8; HEADER_LEN],
        message: Message,
    ) -> Result<(), Refused> {
        let Ok(header) = Header::parse(octets) else {
            self.table
                .talkers
                .blame(cx, lower, port_of(octets), &reason::MALFORMED);
            return Err(this.refuse(message, &reason::MALFORMED));
        };
        let origin = self.origins.of(cx, lower);
        if !is_intact(origin, octets, &message) {
            self.table
                .talkers
                .blame(cx, lower, port_of(octets), &reason::BAD_CHECKSUM);
            return Err(this.refuse(message, &reason::BAD_CHECKSUM));
        }
        let host = origin.destination_of(&message);
        match ports::taker(&self.table.takers, header.dst.get(), host) {
            Some(Taker::Unconnected(session)) => {
                Unconnected::pop_from(cx, &session, origin.peer, &header, message)
            }
            Some(Taker::Enabled(upper)) => {
                self.demux_enabled(cx, this, (&upper, lower), origin, &header, message)
            }
            None => {
                self.table
                    .talkers
                    .blame(cx, lower, port_of(octets), &reason::NO_PORT);
                if !origin.is_for_many(&message) {
                    return Err(this.refuse(message, &reason::NO_PORT));
                }
                // Nobody is told about a broadcast (RFC 1122, section 3.2.2).
                this.discard(message, &reason::NO_PORT);
                Ok(())
            }
        }
    }

    /// The first message of a conversation: makes the session that somebody has enabled.
    #[cold]
    fn demux_enabled(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        (upper, lower): (&ProtocolRef, &SessionRef),
        origin: Origin,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        let (local, peer) = (header.dst.get(), header.src.map_or(0, NonZeroU16::get));
        let body = self.session(cx, upper, lower, origin, (local, peer));
        let session = cx.new_passive_session(this, upper, body);
        let key = key(lower, local, peer);
        if let Err(full) = self.table.sessions.bind(cx, key, session.clone()) {
            session.abort(cx);
            self.table.talkers.blame(cx, lower, peer, full);
            return Err(this.refuse(message, full));
        }
        let participants = origin.participants(local, peer);
        if let Err(unwanted) = upper.open_done(cx, &session, participants) {
            session.abort(cx);
            self.table.talkers.blame(cx, lower, peer, unwanted);
            return Err(this.refuse(message, unwanted));
        }
        session.pop(cx, message)
    }

    fn list_sessions(&self, question: &mut ListSessions) {
        question.add(&self.table.sessions);
        self.table.takers.for_each(|_, taker| {
            if let Taker::Unconnected(session) = taker {
                question.push(session);
            }
        });
    }
}
