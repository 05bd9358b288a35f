//! Sessions: with one peer, and with all.

use core::cell::Cell;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::rc::Rc;

use xk_core::control::Describe;
use xk_core::object::{Closing, PushError, Refused};
use xk_core::reason;
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef};
use xk_kit::control::{MaxPacket, OptPacket, PeerProved, ServesPort};
use xk_kit::layer::Receiver;
use xk_kit::net::attribute::Peer;
use xk_kit::net::ports::{self, UNREACHABLE};
use xk_kit::wire::device::DEVICE_FULL;

use super::ports::Port;
use super::protocol::{Table, key};
use crate::outbox::{Outgoing, in_few_slices};

/// Octets of the longest payload: an IPv4 packet's less both headers (RFC 791, RFC 768).
pub(crate) const PAYLOAD_MAX: usize = 65_507;
/// Octets of both headers.
pub(crate) const HEADERS_OCTETS: usize = 28;

/// The host that a datagram is to come from, where the socket leaves that open.
fn source(table: &Table, local: Ipv4Addr) -> Option<Ipv4Addr> {
    (table.ports.host.is_unspecified() && !local.is_unspecified()).then_some(local)
}

/// Sends a message of at most `payload_max` octets.
fn send(
    (table, port, payload_max): (&Table, &Rc<Port>, usize),
    cx: &Kernel,
    this: &SessionRef,
    message: Message,
    (from, to): (Option<Ipv4Addr>, SocketAddrV4),
) -> Result<(), PushError> {
    if message.len() > payload_max {
        this.discard(cx, message, &reason::TOO_BIG);
        return Err(PushError::TooBig);
    }
    let message = in_few_slices(cx, this, message)?;
    let outgoing = Outgoing { message, to: to.into(), from };
    if let Err(message) = table.ports.send(port, outgoing, || this.protocol(cx)) {
        this.discard(cx, message, &DEVICE_FULL);
        return Err(PushError::QueueFull);
    }
    Ok(())
}

/// A conversation with one peer.
pub(crate) struct Connected {
    pub(crate) table: Rc<Table>,
    pub(crate) port: Rc<Port>,
    pub(crate) upper: ProtocolRef,
    pub(crate) local: Ipv4Addr,
    pub(crate) peer: SocketAddrV4,
    /// Octets that the way takes in one packet, headers included.
    pub(crate) mtu: usize,
    /// The network said that the peer's port is unreachable; the next push is told.
    pub(crate) unreachable: Cell<bool>,
}

impl Connected {
    fn unfragmented(&self) -> usize {
        self.mtu.saturating_sub(HEADERS_OCTETS).min(PAYLOAD_MAX)
    }

    fn payload_max(&self) -> usize {
        if self.table.fragment { PAYLOAD_MAX } else { self.unfragmented() }
    }
}

impl Session for Connected {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        if self.unreachable.replace(false) {
            this.discard(cx, message, &UNREACHABLE);
            return Err(PushError::Unreachable);
        }
        if self.peer.port() == 0 {
            this.discard(cx, message, &ports::NO_REPLY);
            return Err(PushError::NotSupported);
        }
        let way = (source(&self.table, self.local), self.peer);
        let port = (&*self.table, &self.port, self.payload_max());
        send(port, cx, this, message, way)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(q) = ask.get::<Describe>() {
            let local = SocketAddrV4::new(self.local, self.port.number);
            q.text = format!("{local} with {}", self.peer);
        } else if ports::answer(
            ask,
            (self.port.number, Some(self.local.into())),
            Some((self.peer.port(), Some((*self.peer.ip()).into()))),
        ) {
            return Answer::Answered;
        } else if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = self.payload_max() as u32;
        } else if let Some(q) = ask.get::<OptPacket>() {
            q.octets = self.unfragmented() as u32;
        } else if let Some(q) = ask.get::<ServesPort>() {
            let found = ports::receiver(&self.table.offers, q.port, Some(self.local.into()));
            q.served = matches!(found, Some((Receiver::Protocol(_), _)));
        } else if ask.get::<PeerProved>().is_some() {
            // The system lets nothing in from outside that says it comes from there.
            if !self.peer.ip().is_loopback() {
                return Answer::Unknown;
            }
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let key = key(self.port.number, self.local, self.peer);
        // Only if it is bound: one that found the table full is not, and another may have its key.
        self.table.sessions.release(&key, this);
        self.table.ports.release(&self.port, this.protocol(cx).as_ref());
        Closing::Done
    }
}

/// A session that receives from all peers on one port and sends to the peer that each message
/// names, or else to the many hosts that it was opened to.
pub(crate) struct Unconnected {
    pub(crate) table: Rc<Table>,
    pub(crate) port: Rc<Port>,
    pub(crate) upper: ProtocolRef,
    /// The only host that it receives for; unspecified for every one.
    pub(crate) local: Ipv4Addr,
    /// The port of a broadcast or a group where messages go that name no peer.
    pub(crate) to: Option<SocketAddrV4>,
}

impl Session for Unconnected {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let peer = message.remove_attribute::<Peer>();
        // A host of another family is none that these sockets reach.
        let named = peer.map(|peer| match peer.host.to_v4() {
            Some(host) => SocketAddrV4::new(host, peer.port),
            None => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0),
        });
        let Some(to) = named.or(self.to).filter(|to| to.port() != 0) else {
            this.discard(cx, message, &ports::NO_PEER);
            return Err(PushError::NotSupported);
        };
        let way = (source(&self.table, self.local), to);
        send((&self.table, &self.port, PAYLOAD_MAX), cx, this, message, way)
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let host = (!self.local.is_unspecified()).then(|| self.local.into());
        let to = self.to.map(|to| (to.port(), Some((*to.ip()).into())));
        if ports::answer(ask, (self.port.number, host), to) {
            return Answer::Answered;
        }
        if let Some(q) = ask.get::<Describe>() {
            let local = SocketAddrV4::new(self.local, self.port.number);
            q.text = match self.to {
                Some(to) => format!("{local} with {to}"),
                None => format!("{local} with everybody"),
            };
        } else if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = PAYLOAD_MAX as u32;
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let offer = ports::offer(self.port.number, self.local.into());
        if let Some((Receiver::Session(session), _)) = self.table.offers.get(&offer)
            && session == *this
        {
            self.table.offers.unbind(&offer);
        }
        self.table.ports.release(&self.port, this.protocol(cx).as_ref());
        Closing::Done
    }
}
