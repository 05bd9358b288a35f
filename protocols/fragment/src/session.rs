//! A session: one upper protocol's end of a conversation with one peer.

use crate::protocol::Hosts;
use crate::receiver::{Due, FORGED, PER_FRAGMENT};
use crate::table::{Key, Table};
use crate::wire::{Error, FRAGMENTS_MAX, HEADER_OCTETS, Header, Kind};
use alloc::rc::Rc;
use core::cell::Cell;
use core::time::Duration;
use xk_core::control::Describe;
use xk_core::object::{Closing, Outgoing, PushError, Refused};
use xk_core::reason;
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef};
use xk_kit::control::{MaxPacket, MinPacket, OptPacket, opt_packet};
use xk_kit::rpc::kept::{AskKept, FreeKept, LastKept};

/// Of how many complete messages the sequence numbers are remembered, so that a late duplicate of
/// one fragment does not begin it anew.
const COMPLETED: usize = 16;
/// What a layer below carries whole that does not say, in octets.
const OPT_PACKET_UNKNOWN: u32 = 1500;

/// A header's type, hosts and number: what is the same in every packet of a session.
type Front = [u8; 14];

pub(crate) struct FragmentSession {
    pub(crate) table: Rc<Table>,
    pub(crate) key: Key,
    /// The layer itself, for timers.
    pub(crate) protocol: ProtocolRef,
    pub(crate) lower: SessionRef,
    pub(crate) upper: ProtocolRef,
    /// Ours and the peer's; zeros where the layer below has none.
    pub(crate) hosts: ([u8; 4], [u8; 4]),
    /// Whether the layer below knows them, so that others are forged.
    knows_hosts: bool,
    /// The header of a message that goes whole, but for number and length.
    template: [u8; HEADER_OCTETS],
    /// How the header of such a message from the peer begins.
    expected: Front,
    /// Octets of payload in one packet.
    pub(crate) fragment_octets: usize,
    /// Of the message sent last.
    sequence: Cell<u32>,
    /// The name of the copy of the message pushed last, or 0.
    pub(crate) last_kept: Cell<u32>,
    /// How long it waits for each fragment.
    pub(crate) per_fragment: Cell<Duration>,
    /// How many messages it is collecting.
    pub(crate) partials: Rc<Cell<usize>>,
    /// Where the last one is.
    pub(crate) last_partial: Cell<u32>,
    completed: [Cell<u32>; COMPLETED],
    completed_next: Cell<usize>,
}

fn front(octets: &[u8; HEADER_OCTETS]) -> Front {
    let mut front = [0; 14];
    front.copy_from_slice(&octets[..14]);
    front
}

impl FragmentSession {
    pub(crate) fn new(
        cx: &Kernel,
        table: &Rc<Table>,
        protocol: &ProtocolRef,
        (upper, number): (&ProtocolRef, u32),
        lower: SessionRef,
        hosts: Option<Hosts>,
    ) -> Self {
        let knows_hosts = hosts.is_some();
        let hosts = hosts.unwrap_or_default();
        let header = |client, server| {
            let header = Header {
                kind: Kind::Send,
                client,
                server,
                number,
                sequence: 0,
                count: 1,
                mask: 1,
                len: 0,
            };
            header.emit()
        };
        let below = opt_packet(cx, &lower, OPT_PACKET_UNKNOWN) as usize;
        Self {
            table: Rc::clone(table),
            key: (lower.id().0, number),
            protocol: protocol.clone(),
            lower,
            upper: upper.clone(),
            hosts,
            knows_hosts,
            template: header(hosts.0, hosts.1),
            expected: front(&header(hosts.1, hosts.0)),
            // The length has 16 bits. A layer that carries next to nothing gets one octet at a
            // time.
            fragment_octets: below.saturating_sub(HEADER_OCTETS).clamp(1, u16::MAX as usize),
            // Not those of the boot before, whose fragments may still be under way, and none that
            // another peer knows.
            sequence: Cell::new(cx.random().next_u32()),
            last_kept: Cell::new(0),
            per_fragment: Cell::new(PER_FRAGMENT),
            partials: Rc::default(),
            last_partial: Cell::new(0),
            completed: [const { Cell::new(0) }; COMPLETED],
            completed_next: Cell::new(0),
        }
    }

    /// The next sequence number; never 0.
    #[inline(always)]
    pub(crate) fn next_sequence(&self) -> u32 {
        let next = self.sequence.get().wrapping_add(1).max(1);
        self.sequence.set(next);
        next
    }

    /// Octets of the largest message.
    pub(crate) fn max(&self) -> u32 {
        (self.fragment_octets * FRAGMENTS_MAX) as u32
    }

    /// Puts the header in front of a message that goes whole; false if it does not, or has no room.
    #[inline(always)]
    fn prepare(&self, message: &mut Message) -> bool {
        self.last_kept.set(0);
        let len = message.len();
        len <= self.fragment_octets
            && message.fill_in_place(|octets: &mut [u8; HEADER_OCTETS]| self.fill(octets, len))
    }

    #[inline(always)]
    fn fill(&self, octets: &mut [u8; HEADER_OCTETS], len: usize) {
        *octets = self.template;
        octets[14..18].copy_from_slice(&self.next_sequence().to_be_bytes());
        octets[22..].copy_from_slice(&(len as u16).to_be_bytes());
    }

    #[inline(never)]
    fn push_other(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), PushError> {
        let len = message.len();
        if len > self.fragment_octets {
            return self.push_large(cx, this, message);
        }
        let mut header = [0; HEADER_OCTETS];
        self.fill(&mut header, len);
        if message.push_array(&header).is_err() {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(PushError::NoBuffers);
        }
        self.lower.push(cx, message)
    }

    /// Takes any packet.
    #[inline(never)]
    fn pop_other(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        // The protocol has brought the header together.
        let Some(octets) = message.pop_array::<HEADER_OCTETS>().copied() else {
            return Err(this.refuse(cx, message, &reason::TRUNCATED));
        };
        let header = match Header::parse(&octets, message.len()) {
            Ok(header) => header,
            Err(Error::Malformed) => return Err(this.refuse(cx, message, &reason::MALFORMED)),
            Err(Error::Length) => return Err(this.refuse(cx, message, &reason::BAD_LENGTH)),
        };
        let said = match header.kind {
            Kind::Nack => (header.client, header.server),
            Kind::Send | Kind::Retransmit => (header.server, header.client),
        };
        if self.knows_hosts && said != self.hosts {
            return Err(this.refuse(cx, message, &FORGED));
        }
        message.truncate(usize::from(header.len));
        match header.kind {
            Kind::Nack => {
                self.nacked(cx, this, &header, message);
                Ok(())
            }
            Kind::Send if header.count == 1 => self.upper.demux(cx, this, message),
            // Nobody keeps a message of one fragment to send it again.
            Kind::Retransmit if header.count == 1 => {
                Err(this.refuse(cx, message, &reason::MALFORMED))
            }
            _ => self.collect(cx, this, &header, message),
        }
    }

    /// Whether a message is one of those last completed.
    pub(crate) fn was_completed(&self, sequence: u32) -> bool {
        sequence != 0 && self.completed.iter().any(|c| c.get() == sequence)
    }

    pub(crate) fn note_completed(&self, sequence: u32) {
        let at = self.completed_next.get();
        self.completed_next.set((at + 1) % COMPLETED);
        if let Some(place) = self.completed.get(at) {
            place.set(sequence);
        }
    }
}

impl Session for FragmentSession {
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
        let other = |message| self.push_other(cx, this, message);
        self.lower.push_prepared(cx, burst, |message| self.prepare(message), other)
    }

    /// The header is still in front.
    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        if let Some(octets) = message.peek_in_place::<HEADER_OCTETS>()
            && octets[..14] == self.expected
            && octets[18..22] == [0, 1, 0, 1]
            && let len = usize::from(u16::from_be_bytes([octets[22], octets[23]]))
            && len + HEADER_OCTETS <= message.len()
        {
            message.strip_in_place(HEADER_OCTETS);
            // Ethernet adds octets behind a short one.
            message.truncate(len);
            return self.upper.demux(cx, this, message);
        }
        self.pop_other(cx, this, message)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = self.max();
        } else if let Some(question) = ask.get::<OptPacket>() {
            question.octets = self.fragment_octets as u32;
        } else if let Some(question) = ask.get::<MinPacket>() {
            question.octets = 0;
        } else if let Some(question) = ask.get::<LastKept>() {
            question.ticket = self.last_kept.get();
        } else if let Some(question) = ask.get::<AskKept>() {
            question.state = self.ask_kept(this, question.ticket);
        } else if let Some(question) = ask.get::<FreeKept>() {
            let ticket = question.ticket;
            self.free_kept(cx, this, ticket);
        } else if let Some(due) = ask.get::<Due>() {
            let place = due.place;
            self.ask_for_missing(cx, this, place);
        } else if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!(
                "number {}, fragments of {} octets",
                self.key.1,
                self.fragment_octets
            );
        } else {
            return self.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.table.sessions.release(&self.key, this);
        self.free_all(cx, this);
        self.give_up_all(cx, this);
        if !this.head().is_passive() {
            self.lower.close(cx);
        }
        Closing::Done
    }
}
