//! An unconnected session: receives from everybody on one port, sends to the peer that each message names, or else to the many hosts
//! that it was opened to.

use crate::session::{base, restore, seal, template};
use crate::table::{Table, Taker};
use crate::wire::{HEADER_LEN, Header};
use alloc::rc::Rc;
use core::net::Ipv4Addr;
use core::num::NonZeroU16;
use xk_core::control::Describe;
use xk_core::map::{Lru, Map};
use xk_core::object::{Closing, OpenError, PushError, Refused};
use xk_core::reason::{self, Class, Reason};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, ProtocolRef, Session, SessionRef, Upper,
};
use xk_kit::Checksum;
use xk_kit::attribute::Peer;
use xk_kit::control::{
    IsMany, MaxPacket, MinPacket, MyHost, MyPort, PeerHost, PeerPort, max_packet,
};
use xk_kit::offload::TransportChecksum;
use xk_kit::ports::{Origin, TakerKey, less_header};

/// Of how many hosts an unconnected session keeps the lower session.
pub const PEERS_MAX: usize = 64;

/// A message to send that names no peer.
pub(crate) static NO_PEER: Reason = Reason::new("no peer", Class::Bad);
/// A message that has no room for one more attribute.
static ATTRIBUTES_FULL: Reason = Reason::new("attributes full", Class::Exhausted);
/// No lower session with this peer could be opened.
pub(crate) static NO_ROUTE: Reason = Reason::new("no route", Class::Bad);

/// The way to one host.
#[derive(Clone)]
struct Way {
    lower: SessionRef,
    /// For datagrams sent.
    pseudo: Option<Checksum>,
    payload_max: usize,
}

pub(crate) struct Unconnected {
    table: Rc<Table>,
    /// The layer itself, on whose behalf lower sessions are opened.
    udp: ProtocolRef,
    lower: ProtocolRef,
    upper: ProtocolRef,
    key: TakerKey,
    /// The port of a broadcast or a group where messages go that name no peer.
    to: Option<Peer>,
    ways: Map<u32, Way>,
    order: Lru<u32>,
}

/// Where a session sends what names no peer.
pub(crate) fn peer_of(cx: &Kernel, session: &SessionRef) -> Option<Peer> {
    let host = Ipv4Addr::UNSPECIFIED;
    let host = session.ask(cx, PeerHost { host })?.host;
    let port = session.ask(cx, PeerPort::default())?.port;
    Some(Peer { host, port })
}

impl Unconnected {
    /// One for the port and host `key`; `places` are the layer itself, the one below, the one above.
    pub(crate) fn new(
        cx: &Kernel,
        table: &Rc<Table>,
        places: (&ProtocolRef, &ProtocolRef, &ProtocolRef),
        key: TakerKey,
        to: Option<Peer>,
    ) -> Self {
        Self {
            table: Rc::clone(table),
            udp: places.0.clone(),
            lower: places.1.clone(),
            upper: places.2.clone(),
            key,
            to,
            ways: Map::new(cx.secret(), PEERS_MAX),
            order: Lru::new(cx.secret(), PEERS_MAX),
        }
    }

    /// Passes a checked datagram, its header still in front, to an unconnected session.
    pub(crate) fn pop_from(
        cx: &Kernel,
        session: &SessionRef,
        host: Option<Ipv4Addr>,
        header: &Header,
        mut message: Message,
    ) -> Result<(), Refused> {
        let Some(host) = host else {
            return Err(session.refuse(cx, message, &reason::NOT_SUPPORTED));
        };
        let port = header.src.map_or(0, NonZeroU16::get);
        message.remove_attribute::<TransportChecksum>();
        if message.set_attribute(Peer { host, port }).is_err() {
            return Err(session.refuse(cx, message, &ATTRIBUTES_FULL));
        }
        session.pop(cx, message)
    }

    /// The way to a host: the one kept, or a new one.
    fn way(&self, cx: &Kernel, host: Ipv4Addr) -> Result<Way, OpenError> {
        let peer = u32::from(host);
        if let Some(way) = self.ways.get(&peer) {
            if !way.lower.head().is_closed() {
                self.order.touch(&peer);
                return Ok(way);
            }
            self.forget(cx, peer);
        }
        let local = match self.key.1 {
            0 => Part::Any,
            host => self.source(cx, Ipv4Addr::from(host)),
        };
        let participants = Participants::pair(local, Part::Host(host));
        let lower = self.lower.open(cx, Upper::new(&self.udp), participants)?;
        if self.ways.len() >= PEERS_MAX
            && let Some(oldest) = self.order.oldest()
        {
            self.forget(cx, oldest);
        }
        let below = max_packet(cx, &lower, u32::from(u16::MAX)).min(u32::from(u16::MAX));
        let way = Way {
            pseudo: Origin::ask(cx, &lower).pseudo.map(|p| p.sent),
            payload_max: (below as usize).saturating_sub(HEADER_LEN),
            lower,
        };
        let _ = self.ways.bind(peer, way.clone());
        let _ = self.order.insert(peer);
        Ok(way)
    }

    /// The local host to send from: that of the port, unless it is a broadcast or a group.
    fn source(&self, cx: &Kernel, host: Ipv4Addr) -> Part {
        match IsMany::ask(cx, &self.lower, Some(host)) {
            true => Part::Any,
            false => Part::Host(host),
        }
    }

    fn forget(&self, cx: &Kernel, peer: u32) {
        self.order.remove(&peer);
        if let Some(way) = self.ways.unbind(&peer) {
            way.lower.close(cx);
        }
    }
}

impl Session for Unconnected {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let peer = message.remove_attribute::<Peer>().or(self.to);
        let Some(peer) = peer.filter(|peer| peer.port != 0) else {
            this.discard(cx, message, &NO_PEER);
            return Err(PushError::NotSupported);
        };
        let way = match self.way(cx, peer.host) {
            Ok(way) => way,
            Err(error) => {
                this.discard(cx, message, &NO_ROUTE);
                return Err(match error {
                    OpenError::NoBuffers => PushError::NoBuffers,
                    OpenError::Full => PushError::QueueFull,
                    _ => PushError::NoRoute,
                });
            }
        };
        if message.len() > way.payload_max {
            this.discard(cx, message, &reason::TOO_BIG);
            let max = way.payload_max as u32;
            return Err(PushError::TooBig { max });
        }
        let ports = (self.key.0, peer.port);
        let base = base(&self.table, way.pseudo, ports);
        let header = seal(template(ports.0, ports.1), base, &message);
        if message.push_array(&header).is_err() {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        way.lower.push(cx, message)
    }

    /// The protocol has checked length and checksum; the header is still in front.
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        let Some(header) = message.pop_array::<HEADER_LEN>().copied() else {
            return Err(this.refuse(cx, message, &reason::TRUNCATED));
        };
        self.upper
            .demux(cx, this, message)
            .or_else(|refused| restore(refused, &header))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (port, host) = self.key;
        if let Some(question) = ask.get::<Describe>() {
            let host = Ipv4Addr::from(host);
            question.text = match self.to {
                Some(to) => alloc::format!("port {port} of {host} with {}:{}", to.host, to.port),
                None => alloc::format!("port {port} of {host} with everybody"),
            };
        } else if let Some(question) = ask.get::<MinPacket>() {
            question.octets = 0;
        } else if let Some(question) = ask.get::<MyPort>() {
            question.port = port;
        } else if let Some(question) = ask.get::<MyHost>().filter(|_| host != 0) {
            question.host = Ipv4Addr::from(host);
        } else if let (Some(question), Some(to)) = (ask.get::<PeerPort>(), self.to) {
            question.port = to.port;
        } else if let (Some(question), Some(to)) = (ask.get::<PeerHost>(), self.to) {
            question.host = to.host;
        } else {
            let answer = self.lower.control(cx, ask);
            if answer.is_answered() {
                less_header(ask, HEADER_LEN);
                return answer;
            }
            // What a layer says of itself may depend on the peer; the format's own limit does not.
            let limit = crate::wire::PAYLOAD_LEN_MAX as u32;
            return ask.answer::<MaxPacket>(|q| q.octets = limit);
        }
        Answer::Answered
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        if let Some(Taker::Unconnected(session)) = self.table.takers.get(&self.key)
            && session == *this
        {
            self.table.takers.unbind(&self.key);
        }
        for (peer, _) in self.ways.snapshot() {
            self.forget(cx, peer);
        }
        Closing::Done
    }
}
