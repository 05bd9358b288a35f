//! Sessions: with one peer, and with everybody.

use core::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::rc::Rc;

use xk_core::control::{Describe, Question};
use xk_core::object::{Closing, PushError, Refused};
use xk_core::reason::{self, Class};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Reason, Session, SessionRef};
use xk_kit::control::{
    MaxPacket, MyHost, MyPort, NetworkErrorKind, OptPacket, PeerHost, PeerPort, PeerProved,
    ServesPort,
};
use xk_kit::net::attribute::Peer;
use xk_kit::net::ports::taker;

use super::ports::Port;
use super::protocol::{Table, Taker, key};
use crate::outbox::{Outgoing, in_few_slices};
use crate::socket::{DEVICE_FULL, UNREACHABLE};

/// The peer sent from port zero: it wants no reply.
static NO_REPLY: Reason = Reason::new("no reply wanted", Class::Bad);
/// A message to send that names no peer.
static NO_PEER: Reason = Reason::new("no peer", Class::Bad);
/// Octets of the longest payload: an IPv4 packet's less both headers (RFC 791, RFC 768).
pub(crate) const PAYLOAD_MAX: usize = 65_507;
/// Octets of both headers.
pub(crate) const HEADERS_OCTETS: usize = 28;

/// Put to a session by its protocol: the peer's port is unreachable, tell the next push.
pub(crate) struct PortUnreachable;

impl Question for PortUnreachable {
    const NAME: &'static str = "host-udp-port-unreachable";
}

/// Notes what the network said about `session`.
pub(crate) fn unreachable_port(cx: &Kernel, session: &SessionRef, kind: NetworkErrorKind) {
    if kind == NetworkErrorKind::PortUnreachable {
        let _ = session.ask(cx, PortUnreachable);
    }
}

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
        let max = payload_max as u32;
        return Err(PushError::TooBig { max });
    }
    let message = match in_few_slices(cx.pool(), message) {
        Ok(message) => message,
        Err(message) => {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
    };
    let to = SocketAddr::V4(to);
    let outgoing = Outgoing { message, to, from };
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
    /// The network said that the peer has nobody on its port; the next push is told.
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
            this.discard(cx, message, &NO_REPLY);
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

    fn control(&self, _: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(q) = ask.get::<Describe>() {
            let local = SocketAddrV4::new(self.local, self.port.number);
            q.text = format!("{local} with {}", self.peer);
        } else if let Some(q) = ask.get::<MyPort>() {
            q.port = self.port.number;
        } else if let Some(q) = ask.get::<MyHost>() {
            q.host = self.local;
        } else if let Some(q) = ask.get::<PeerPort>() {
            q.port = self.peer.port();
        } else if let Some(q) = ask.get::<PeerHost>() {
            q.host = *self.peer.ip();
        } else if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = self.payload_max() as u32;
        } else if let Some(q) = ask.get::<OptPacket>() {
            q.octets = self.unfragmented() as u32;
        } else if let Some(q) = ask.get::<ServesPort>() {
            let taker = taker(&self.table.takers, q.port, Some(self.local));
            q.served = matches!(taker, Some(Taker::Enabled(..)));
        } else if ask.get::<PeerProved>().is_some() {
            // The system lets nothing in from outside that says it comes from there.
            if !self.peer.ip().is_loopback() {
                return Answer::Unknown;
            }
        } else if ask.get::<PortUnreachable>().is_some() {
            // A session that nobody holds has nobody to tell: it would only lose a message.
            if this.head().opens() > 0 {
                self.unreachable.set(true);
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

/// A session that receives from everybody on one port and sends to the peer that each message
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

/// Where a session sends what names no peer.
pub(crate) fn peer_of(cx: &Kernel, session: &SessionRef) -> Option<SocketAddrV4> {
    let host = Ipv4Addr::UNSPECIFIED;
    let host = session.ask(cx, PeerHost { host })?.host;
    let port = session.ask(cx, PeerPort::default())?.port;
    Some(SocketAddrV4::new(host, port))
}

impl Session for Unconnected {
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let peer = message.remove_attribute::<Peer>();
        let named = peer.map(|peer| SocketAddrV4::new(peer.host, peer.port));
        let Some(to) = named.or(self.to).filter(|to| to.port() != 0) else {
            this.discard(cx, message, &NO_PEER);
            return Err(PushError::NotSupported);
        };
        let way = (source(&self.table, self.local), to);
        send((&self.table, &self.port, PAYLOAD_MAX), cx, this, message, way)
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, _: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(q) = ask.get::<Describe>() {
            let local = SocketAddrV4::new(self.local, self.port.number);
            q.text = match self.to {
                Some(to) => format!("{local} with {to}"),
                None => format!("{local} with everybody"),
            };
        } else if let Some(q) = ask.get::<MyPort>() {
            q.port = self.port.number;
        } else if let Some(q) = ask.get::<MyHost>().filter(|_| !self.local.is_unspecified()) {
            q.host = self.local;
        } else if let (Some(q), Some(to)) = (ask.get::<PeerPort>(), self.to) {
            q.port = to.port();
        } else if let (Some(q), Some(to)) = (ask.get::<PeerHost>(), self.to) {
            q.host = *to.ip();
        } else if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = PAYLOAD_MAX as u32;
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let key = (self.port.number, u32::from(self.local));
        if let Some(Taker::Unconnected(session)) = self.table.takers.get(&key)
            && session == *this
        {
            self.table.takers.unbind(&key);
        }
        self.table.ports.release(&self.port, this.protocol(cx).as_ref());
        Closing::Done
    }
}
