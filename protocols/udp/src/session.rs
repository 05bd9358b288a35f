//! A connected session: one peer's port and one of ours, through one lower session.

use crate::protocol::{Key, key};
use crate::table::{Table, Taker};
use crate::wire::{HEADER_LEN, has_checksum};
use alloc::rc::Rc;
use core::cell::Cell;
use core::net::Ipv4Addr;
use xk_core::control::{Describe, Question};
use xk_core::object::{BURST_MAX, Burst, Closing, Outgoing, PushError, Refused};
use xk_core::reason::{self, Class, Reason};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef};
use xk_kit::Checksum;
use xk_kit::checksum::LONG;
use xk_kit::control::{
    MaxPacket, MinPacket, MyHost, MyPort, NetworkErrorKind, PeerPort, ServesPort,
};
use xk_kit::offload::TransportChecksum;
use xk_kit::ports::{self, Pseudo, less_header};

/// The peer has nobody on this port, as the network said before.
pub(crate) static UNREACHABLE: Reason = Reason::new("unreachable", Class::Bad);
/// The peer sent from port zero: it wants no reply.
pub(crate) static NO_REPLY: Reason = Reason::new("no reply wanted", Class::Bad);

/// Where in a datagram the checksum is.
const CHECKSUM_AT: u16 = 6;

/// What keeps a message from being sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// The network said so after a message before; the next push is told.
    Unreachable,
    /// The peer has no port to send to.
    NoPeer,
}

pub(crate) struct UdpSession {
    table: Rc<Table>,
    key: Key,
    lower: SessionRef,
    upper: ProtocolRef,
    gate: Cell<Gate>,
    /// Octets of the largest payload.
    payload_max: usize,
    /// The header of every datagram sent here, but for length and checksum.
    template: u64,
    /// The sum over pseudo-header and ports; `None` if datagrams are sent without checksum.
    base: Option<Base>,
    /// The same for datagrams that arrive; `None` if the layer below has no pseudo-header.
    base_received: Option<Base>,
    /// The layers below complete checksums, so that long payloads need not be summed here.
    leaves_sums: bool,
}

/// Put to a session by its protocol: the peer's port is unreachable, tell the next push.
struct PortUnreachable;

impl Question for PortUnreachable {
    const NAME: &'static str = "udp-port-unreachable";
}

/// Notes what the network said about `session`.
pub(crate) fn unreachable_port(cx: &Kernel, session: &SessionRef, kind: NetworkErrorKind) {
    if kind == NetworkErrorKind::PortUnreachable {
        let _ = session.ask(cx, PortUnreachable);
    }
}

/// A header without length and checksum, as a number: the source port highest.
pub(crate) fn template(local: u16, peer: u16) -> u64 {
    u64::from(local) << 48 | u64::from(peer) << 32
}

/// The sum to begin with for a payload of `payload` octets: `base` and the length, which counts once in the
/// pseudo-header and once in the header.
#[inline(always)]
fn begin(base: Base, payload: usize) -> Checksum {
    let mut sum = Checksum::resume(base);
    let length = (payload + HEADER_LEN) as u16;
    sum.add_u32(2 * u32::from(length));
    sum
}

/// The checksum for the header. Zero says that there is none (RFC 768).
#[inline(always)]
fn end(sum: Checksum) -> u16 {
    match sum.finish() {
        0 => 0xffff,
        checksum => checksum,
    }
}

/// The header for a payload of `payload` octets.
#[inline(always)]
fn header(template: u64, payload: usize, checksum: u16) -> [u8; HEADER_LEN] {
    let length = (payload + HEADER_LEN) as u16;
    (template | u64::from(length) << 16 | u64::from(checksum)).to_be_bytes()
}

/// The header for any payload. `base` is the sum over pseudo-header and ports.
pub(crate) fn seal(template: u64, base: Option<Base>, payload: &Message) -> [u8; HEADER_LEN] {
    let checksum = match base {
        None => 0,
        Some(base) => {
            let mut sum = begin(base, payload.len());
            add_slices(&mut sum, payload);
            end(sum)
        }
    };
    header(template, payload.len(), checksum)
}

fn add_slices(sum: &mut Checksum, payload: &Message) {
    for slice in payload.slices() {
        sum.add(slice.octets);
    }
}

/// The checksum in a header.
#[inline(always)]
fn checksum_of(header: &[u8; HEADER_LEN]) -> u16 {
    let [.., a, b] = *header;
    u16::from_be_bytes([a, b])
}

/// The sum over pseudo-header and ports, folded ([`Checksum::folded`]).
pub(crate) type Base = u16;

/// The sum over pseudo-header and ports, in either direction.
fn base_of(pseudo: Option<Checksum>, ports: (u16, u16)) -> Option<Base> {
    let mut sum = pseudo?;
    sum.add_u16(ports.0);
    sum.add_u16(ports.1);
    Some(sum.folded())
}

/// The same for datagrams to be sent.
pub(crate) fn base(table: &Table, pseudo: Option<Checksum>, ports: (u16, u16)) -> Option<Base> {
    base_of(pseudo.filter(|_| table.checksum), ports)
}

impl UdpSession {
    pub(crate) fn new(
        table: &Rc<Table>,
        lower: SessionRef,
        upper: ProtocolRef,
        pseudo: Option<Pseudo>,
        (local, peer): (u16, u16),
        (payload_max, leaves_sums): (usize, bool),
    ) -> Self {
        let gate = if peer == 0 { Gate::NoPeer } else { Gate::Open };
        Self {
            table: Rc::clone(table),
            key: key(&lower, local, peer),
            lower,
            upper,
            gate: Cell::new(gate),
            payload_max,
            template: template(local, peer),
            base: base(table, pseudo.map(|p| p.sent), (local, peer)),
            base_received: base_of(pseudo.map(|p| p.received), (local, peer)),
            leaves_sums,
        }
    }

    fn ports(&self) -> (u16, u16) {
        (self.key.1 as u16, (self.key.1 >> 16) as u16)
    }

    /// Puts the header in front of a payload of one slice of less than `limit` octets, as almost every one is: those below
    /// [`LONG`] are summed without a call. False if this is another, or may not be sent.
    #[inline(always)]
    fn prepare(&self, message: &mut Message, limit: usize) -> bool {
        let Some(payload) = message.single_slice() else {
            return false;
        };
        if payload.len() >= limit
            || payload.len() > self.payload_max
            || self.gate.get() != Gate::Open
        {
            return false;
        }
        let checksum = match self.base {
            None => 0,
            Some(base) => {
                let mut sum = begin(base, payload.len());
                sum.add(payload);
                end(sum)
            }
        };
        let header = header(self.template, payload.len(), checksum);
        message.push_in_place(&header)
    }

    /// The header that lies behind `front` octets of a message of one slice, if the payload has less than `limit` octets and the
    /// checksum is right or absent; `None` says that a closer look is needed.
    #[inline(always)]
    fn intact_header(
        &self,
        message: &Message,
        front: usize,
        limit: usize,
    ) -> Option<[u8; HEADER_LEN]> {
        let (header, payload) = message.single_slice()?.get(front..)?.split_first_chunk()?;
        if payload.len() >= limit || message.has_attributes() {
            return None;
        }
        let is_intact = match self.base_received {
            Some(base) if has_checksum(header) => {
                let mut sum = begin(base, payload.len());
                sum.add_u16(checksum_of(header));
                sum.add(payload);
                sum.is_valid()
            }
            _ => true,
        };
        is_intact.then_some(*header)
    }

    /// Why a message is not sent.
    #[cold]
    fn blocked(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let (why, error) = match self.gate.get() {
            Gate::Open => {
                let max = self.payload_max as u32;
                (&reason::TOO_BIG, PushError::TooBig { max })
            }
            Gate::Unreachable => {
                self.gate.set(Gate::Open);
                (&UNREACHABLE, PushError::Unreachable)
            }
            Gate::NoPeer => (&NO_REPLY, PushError::NotSupported),
        };
        this.discard(cx, message, why);
        Err(error)
    }

    /// Sends any message that may be sent.
    #[inline(never)]
    fn push_other(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), PushError> {
        if message.len() > self.payload_max || self.gate.get() != Gate::Open {
            return self.blocked(cx, this, message);
        }
        let header = match self.base {
            Some(base) if self.leaves_sums && message.len() >= LONG => {
                self.leave_sum(base, &mut message)
            }
            base => seal(self.template, base, &message),
        };
        if message.push_array(&header).is_err() {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        self.lower.push(cx, message)
    }

    /// The header for a payload whose sum somebody below completes: the field holds that over the pseudo-header.
    fn leave_sum(&self, base: Base, message: &mut Message) -> [u8; HEADER_LEN] {
        let length = message.len() + HEADER_LEN;
        let partial = TransportChecksum::Partial {
            segment: length as u32,
            field: CHECKSUM_AT,
        };
        if message.set_attribute(partial).is_err() {
            return seal(self.template, Some(base), message);
        }
        // The ports are in `base` and will be summed once more: out with them.
        let (local, peer) = self.ports();
        let mut pseudo = Checksum::resume(base);
        pseudo.add_u16(!local);
        pseudo.add_u16(!peer);
        pseudo.add_u16(length as u16);
        header(self.template, message.len(), !pseudo.finish())
    }

    /// Hands any payload up if the checksum is right, or absent.
    #[inline(never)]
    fn pop_other(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let Some(header) = message.pop_array::<HEADER_LEN>().copied() else {
            return Err(this.refuse(cx, message, &reason::TRUNCATED));
        };
        let is_verified =
            message.has_attributes() && message.remove_attribute::<TransportChecksum>().is_some();
        if !is_verified
            && has_checksum(&header)
            && let Some(base) = self.base_received
        {
            let mut sum = begin(base, message.len());
            sum.add_u16(checksum_of(&header));
            add_slices(&mut sum, &message);
            if !sum.is_valid() {
                let port = self.ports().1;
                self.table
                    .talkers
                    .blame(cx, &self.lower, port, &reason::BAD_CHECKSUM);
                return Err(this.refuse(cx, message, &reason::BAD_CHECKSUM));
            }
        }
        self.upper
            .demux(cx, this, message)
            .or_else(|refused| restore(refused, &header))
    }
}

impl Session for UdpSession {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        if self.prepare(&mut message, LONG) {
            return self.lower.push(cx, message);
        }
        self.push_other(cx, this, message)
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        // Sums that are left to the layers below go the other way.
        let limit = if self.leaves_sums { LONG } else { usize::MAX };
        let prepare = |message: &mut Message| self.prepare(message, limit);
        let other = |message| self.push_other(cx, this, message);
        self.lower.push_prepared(cx, burst, prepare, other)
    }

    /// The protocol has checked length and ports; the header is still in front.
    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        if let Some(header) = self.intact_header(&message, 0, LONG)
            && message.strip_in_place(HEADER_LEN)
        {
            return self
                .upper
                .demux(cx, this, message)
                .or_else(|refused| restore(refused, &header));
        }
        self.pop_other(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        while burst.goes_on(this) {
            let mut headers = [[0; HEADER_LEN]; BURST_MAX];
            let mut run = 0;
            while run < burst.len()
                && let Some(header) = burst
                    .look(run, |message, front| {
                        self.intact_header(message, front, usize::MAX)
                    })
                    .flatten()
            {
                headers[run % BURST_MAX] = header;
                run += 1;
            }
            if run == 0
                && let Some(message) = burst.next()
            {
                self.pop_other(cx, this, message)?;
                continue;
            }
            let before = burst.taken();
            let part = burst.first(run).behind(HEADER_LEN);
            if let Err(refused) = self.upper.demux_burst(cx, this, part) {
                let at = (burst.taken() - before).wrapping_sub(1);
                return restore(refused, &headers[at % BURST_MAX]);
            }
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (local, peer) = self.ports();
        if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!("port {local} with port {peer} on {:?}", self.lower);
        } else if let Some(question) = ask.get::<MyPort>() {
            question.port = local;
        } else if let Some(question) = ask.get::<PeerPort>() {
            question.port = peer;
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = self.payload_max as u32;
        } else if let Some(question) = ask.get::<ServesPort>() {
            let host = Ipv4Addr::UNSPECIFIED;
            let local = self.lower.ask(cx, MyHost { host }).map(|q| q.host);
            let taker = ports::taker(&self.table.takers, question.port, local);
            question.served = matches!(taker, Some(Taker::Enabled(_)));
        } else if let Some(question) = ask.get::<MinPacket>() {
            question.octets = 0;
        } else if ask.get::<PortUnreachable>().is_some() {
            // A session that nobody holds has nobody to tell: it would only lose a message.
            if this.head().opens() > 0 && self.gate.get() == Gate::Open {
                self.gate.set(Gate::Unreachable);
            }
        } else {
            let answer = self.lower.control(cx, ask);
            if answer.is_answered() {
                less_header(ask, HEADER_LEN);
            }
            return answer;
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        // Only if it is bound: one that found the table full is not, and another may have its key.
        self.table.sessions.release(&self.key, this);
        if !this.head().is_passive() {
            self.lower.close(cx);
        }
        Closing::Done
    }
}

/// Puts the header back in front of what was refused above, for the layer below to quote.
#[cold]
#[inline(never)]
pub(crate) fn restore(mut refused: Refused, header: &[u8; HEADER_LEN]) -> Result<(), Refused> {
    // Without a buffer for it the refusal goes on all the same; the pool has counted that.
    let _ = refused.message.push_array(header);
    Err(refused)
}
