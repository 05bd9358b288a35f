//! An unconnected session: receives from everybody on one port, sends to the peer that each message
//! names, or else to the many hosts that it was opened to.

use crate::protocol::{Ports, header_of, is_free, offer_of};
use crate::wire::{HEADER_LEN, Template};
use core::any::Any;
use core::net::Ipv4Addr;
use xk_core::control::Describe;
use xk_core::map::{Lru, Map};
use xk_core::object::{Closing, OpenError, PushError, Refused};
use xk_core::participant::Wild;
use xk_core::reason::{self, Class, Reason};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, ProtocolRef, Session, SessionRef, Upper,
};
use xk_kit::control::{IsMany, MaxPacket, MinPacket, MyHost, MyPort, PeerHost, PeerPort};
use xk_kit::layer::Receiver;
use xk_kit::net::attribute::Peer;
use xk_kit::net::ports::{ANY_HOST, Origin, Pseudo, ephemeral, less_header};
use xk_kit::wire::offload::TransportChecksum;

/// Of how many hosts an unconnected session keeps the lower session.
pub const PEERS_MAX: usize = 64;

/// A message to send that names no peer.
pub(crate) static NO_PEER: Reason = Reason::new("no peer", Class::Bad);
/// A message that has no room for one more attribute.
static ATTRIBUTES_FULL: Reason = Reason::new("attributes full", Class::Exhausted);
/// No lower session with this peer could be opened.
pub(crate) static NO_ROUTE: Reason = Reason::new("no route", Class::Bad);

/// What is kept of one host.
#[derive(Clone)]
struct Way {
    lower: SessionRef,
    /// For datagrams sent.
    pseudo: Option<Pseudo>,
    payload_max: usize,
}

pub(crate) struct Unconnected {
    all: Ports,
    /// The layer itself, on whose behalf lower sessions are opened.
    udp: ProtocolRef,
    upper: ProtocolRef,
    /// Our port and host; [`ANY_HOST`] for any.
    port: u16,
    host: u32,
    /// The port of a broadcast or a group where messages go that name no peer.
    to: Option<Peer>,
    ways: Map<u32, Way>,
    order: Lru<u32>,
}

impl Unconnected {
    /// The session of `upper` on this port and host, which sends what names no peer `to` many
    /// hosts: the one there is, once more held, or a new one.
    pub(crate) fn open(
        all: &Ports,
        cx: &Kernel,
        (this, upper): (&ProtocolRef, &ProtocolRef),
        (local, host): (Wild<u16>, u32),
        to: Option<Peer>,
    ) -> Result<SessionRef, OpenError> {
        let port = match local {
            Wild::Is(port) => port,
            Wild::Any => ephemeral(cx, |port| is_free(all, port, host))?,
        };
        let offer = offer_of(port, host);
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
            ways: Map::new(cx.secret(), PEERS_MAX),
            order: Lru::new(cx.secret(), PEERS_MAX),
        };
        let session = cx.new_session(this, upper, body);
        let bound = all.offers.bind(offer, Receiver::Session(session.clone()));
        bound.inspect_err(|_| session.retire(cx))?;
        Ok(session)
    }

    /// Passes a checked datagram, its header still in front, to an unconnected session.
    pub(crate) fn pop_from(
        cx: &Kernel,
        session: &SessionRef,
        peer: Option<Peer>,
        mut message: Message,
    ) -> Result<(), Refused> {
        let Some(peer) = peer else {
            return Err(session.refuse(cx, message, &reason::NOT_SUPPORTED));
        };
        message.remove_attribute::<TransportChecksum>();
        if message.set_attribute(peer).is_err() {
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
        let local = match self.host {
            ANY_HOST => Part::Any,
            host => self.source(cx, Ipv4Addr::from(host)),
        };
        let participants = Participants::pair(local, Part::Host(host));
        let lower = self.all.lower.open(cx, Upper::new(&self.udp), participants)?;
        if self.ways.len() >= PEERS_MAX
            && let Some(oldest) = self.order.oldest()
        {
            self.forget(cx, oldest);
        }
        let way = Way {
            pseudo: Origin::ask(cx, &lower).pseudo,
            payload_max: Ports::octets_max(cx, &lower),
            lower,
        };
        let _ = self.ways.bind(peer, way.clone());
        let _ = self.order.insert(peer);
        Ok(way)
    }

    /// The local host to send from: that of the port, unless it is a broadcast or a group.
    fn source(&self, cx: &Kernel, host: Ipv4Addr) -> Part {
        match IsMany::ask(cx, &self.all.lower, Some(host)) {
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
    fn any(&self) -> Option<&dyn Any> {
        Some(self)
    }

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
        let ports = (self.port, peer.port);
        let template = Template::new(ports, way.pseudo, self.all.layer.checksum);
        let header = header_of(&template, &message);
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
        let taken = self.upper.demux(cx, this, message);
        taken.map_err(|mut refused| {
            // For the layer below to quote; without a buffer the refusal goes on all the same.
            let _ = refused.message.push_array(&header);
            refused
        })
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (port, host) = (self.port, self.host);
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
            let answer = self.all.lower.control(cx, ask);
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
        let offer = offer_of(self.port, self.host);
        if let Some(Receiver::Session(session)) = self.all.offers.get(&offer)
            && session == *this
        {
            self.all.offers.unbind(&offer);
        }
        for (peer, _) in self.ways.snapshot() {
            self.forget(cx, peer);
        }
        Closing::Done
    }
}
