//! A session: one upper protocol's frames to and from one peer.

use crate::number::Selector;
use crate::protocol::Shared;
use crate::wire::{
    Control, EthAddr, FRAME_LEN_MIN, HEADER_LEN, Header, Kind, Length, Llc, PAYLOAD_LEN_MAX,
    SNAP_LEN, padding,
};
use alloc::format;
use alloc::rc::Rc;
use xk_core::control::Describe;
use xk_core::object::{Burst, Closing, Outgoing, PushError, Refused};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef, reason};
use xk_kit::control::{LinkType, MaxPacket, MinPacket, OptPacket, PeerEther};
use xk_kit::segments;

/// The key that a frame is demultiplexed by: the peer's address (see [`bits`]) and the type number.
pub(crate) type Key = (u64, u32);

/// An address as a number, the first octet highest: compared faster than six octets.
pub(crate) fn bits(address: EthAddr) -> u64 {
    let [a, b, c, d, e, f] = address.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The address that [`bits`] made this number of.
pub(crate) fn address(bits: u64) -> EthAddr {
    let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
    EthAddr([a, b, c, d, e, f])
}

/// Octets of payload that need no padding.
const PAYLOAD_LEN_MIN: usize = FRAME_LEN_MIN - HEADER_LEN;
/// Octets of the LLC header of an unnumbered packet.
const LLC_LEN: usize = 3;

pub(crate) struct EthSession {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: Key,
    /// The wire's session.
    pub(crate) lower: SessionRef,
    pub(crate) upper: ProtocolRef,
    /// Octets of the longest message that fits the wire behind the headers.
    payload_max: usize,
    /// The same for frames that need nothing but the header; 0 if there are LLC headers too.
    plain_max: usize,
    /// The header of every frame sent here; of an IEEE 802.3 one the length is filled in.
    header: [u8; HEADER_LEN],
    /// The LLC and SNAP headers; `llc_octets` of them count, none in Ethernet II.
    llc: [u8; SNAP_LEN],
    llc_octets: usize,
}

impl EthSession {
    pub(crate) fn new(
        cx: &Kernel,
        shared: &Rc<Shared>,
        lower: SessionRef,
        upper: ProtocolRef,
        key: Key,
        selector: Selector,
    ) -> Self {
        let mut llc = [0; SNAP_LEN];
        let llc_octets = match selector {
            Selector::Type(_) => 0,
            Selector::Sap(sap) => {
                let mut octets = [0; LLC_LEN + 1];
                let packet = Llc {
                    dsap: sap,
                    ssap: sap,
                    control: Control::UI,
                };
                let octets = packet.emit(&mut octets);
                llc[..octets.len()].copy_from_slice(octets);
                octets.len()
            }
            Selector::Snap(snap) => {
                snap.emit(&mut llc);
                SNAP_LEN
            }
        };
        let kind = match selector {
            Selector::Type(ether_type) => Kind::Type(ether_type),
            _ => Kind::Length(Length::default()),
        };
        let mut header = [0; HEADER_LEN];
        let (dst, src) = (address(key.0), address(shared.mine.get()));
        Header { dst, src, kind }.emit(&mut header);
        let frame_max = lower.ask(cx, MaxPacket::default());
        let mut room = frame_max.map_or(PAYLOAD_LEN_MAX, |q| behind_header(q.octets) as usize);
        if llc_octets > 0 {
            room = room.min(PAYLOAD_LEN_MAX);
        }
        let payload_max = room.saturating_sub(llc_octets);
        Self {
            shared: Rc::clone(shared),
            key,
            lower,
            upper,
            payload_max,
            plain_max: if llc_octets == 0 { payload_max } else { 0 },
            header,
            llc,
            llc_octets,
        }
    }

    /// Makes the frame of almost every message: no longer than the wire takes, with nothing but the header before it, and
    /// behind a short one zeros in the same buffer. False, and the frame is still to be made, for others.
    #[inline]
    fn prepare(&self, message: &mut Message) -> bool {
        let octets = message.len();
        if octets.max(PAYLOAD_LEN_MIN) > self.plain_max {
            return false;
        }
        // A checksum that is left open is found from the end: its frame is padded behind it.
        let is_long = octets >= PAYLOAD_LEN_MIN
            || !message.has_attributes() && message.pad_in_place(PAYLOAD_LEN_MIN);
        is_long && message.push_in_place(&self.header)
    }

    /// Sends any frame: one that is too long, or needs padding, more headers or a buffer for them.
    #[inline(never)]
    fn push_other(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), PushError> {
        if segments::longest(&message) > self.payload_max {
            this.discard(cx, message, &reason::TOO_BIG);
            let max = self.payload_max as u32;
            return Err(PushError::TooBig { max });
        }
        let made = if self.llc_octets == 0 {
            message
                .push_array(&self.header)
                .map_err(|_| PushError::NoBuffers)
        } else {
            self.push_llc(&mut message)
        };
        let made = match padding(message.len()) {
            short if short > 0 && made.is_ok() => self.shared.pad(cx, &mut message, short),
            _ => made,
        };
        if let Err(error) = made {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(error);
        }
        self.lower.push(cx, message)
    }

    /// The headers of an IEEE 802.3 frame: LLC, perhaps SNAP, and the length of all that (IEEE 802.3, section 3.2.6).
    #[cold]
    fn push_llc(&self, message: &mut Message) -> Result<(), PushError> {
        let no_buffers = |_| PushError::NoBuffers;
        let front = message.push_header(self.llc_octets).map_err(no_buffers)?;
        front.copy_from_slice(&self.llc[..self.llc_octets]);
        // At most 1500: checked against `payload_max`.
        let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
        let header = message.push_header(HEADER_LEN).map_err(no_buffers)?;
        header.copy_from_slice(&self.header);
        header[HEADER_LEN - 2..].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}

/// Octets behind the header in a frame of `octets`.
pub(crate) fn behind_header(octets: u32) -> u32 {
    octets.saturating_sub(HEADER_LEN as u32)
}

impl Session for EthSession {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        if self.prepare(&mut message) {
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
        let prepare = |message: &mut Message| self.prepare(message);
        let other = |message| self.push_other(cx, this, message);
        self.lower.push_prepared(cx, burst, prepare, other)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<PeerEther>() {
            question.address = address(self.key.0).0;
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<MinPacket>() {
            question.octets = xk_kit::standins::LINK_MIN;
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = self.payload_max as u32;
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<OptPacket>() {
            let frame = self.lower.ask(cx, OptPacket::default());
            let headers = (HEADER_LEN + self.llc_octets) as u32;
            let max = self.payload_max as u32;
            question.octets = frame.map_or(max, |q| q.octets.saturating_sub(headers).min(max));
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<LinkType>() {
            // What passes here is the payload; only these two have a link type of their own.
            return match self.key.1 {
                0x0800 => answer_link_type(question, 228),
                0x86dd => answer_link_type(question, 229),
                _ => Answer::Unknown,
            };
        }
        if let Some(question) = ask.get::<Describe>() {
            let (mine, peer) = (address(self.shared.mine.get()), address(self.key.0));
            question.text = match Selector::from_number(self.key.1) {
                Some(selector) => format!("{mine} > {peer}, {selector}"),
                None => format!("{mine} > {peer}"),
            };
            return Answer::Answered;
        }
        self.shared
            .control(cx, ask)
            .unwrap_or_else(|| self.lower.control(cx, ask))
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        self.shared.sessions.unbind(&self.key);
        Closing::Done
    }
}

fn answer_link_type(question: &mut LinkType, number: u16) -> Answer {
    question.number = number;
    Answer::Answered
}
