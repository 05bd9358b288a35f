//! The layer: what goes in one packet, and what arrives in one. `sender` and `receiver` have the
//! messages of several.

use crate::receiver::{FORGED, LATE_FRAGMENT, PER_FRAGMENT};
use crate::sender::{KEPT, LATE_NACK};
use crate::table::{FragmentFigures, Places};
use crate::wire::{Error, FRAGMENTS_MAX, HEADER_OCTETS, Header, Kind};
use crate::{receiver, sender};
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{PushError, Refused};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, ProtocolRef, Reason, SessionRef, reason,
};
use xk_kit::answers::is_for_one;
use xk_kit::control::{MaxPacket, MinPacket, MyHost, OptPacket, PeerHost, opt_packet};
use xk_kit::layer::{Arrival, Bounds, Conversation, Layer, Layered, Unsent};
use xk_kit::net::template::{HeaderField, Headers};
use xk_kit::rpc::retransmit::{AskCopy, FreeCopy, LastCopy};

/// Complete messages whose sequence numbers are remembered, so that a late duplicate of a fragment
/// does not begin one again.
const COMPLETED: usize = 16;
/// Packet that a layer below carries whole if it does not say, in octets.
const OPT_PACKET_UNKNOWN: u32 = 1500;
/// Number of fragments and mask in the header of a message that goes whole.
const WHOLE: [u8; 4] = [0, 1, 0, 1];

/// Our host and the peer's, as the header has them: [folded](xk_core::HostAddr::folded).
pub(crate) type Hosts = ([u8; 4], [u8; 4]);

xk_core::settings! {
    /// Bounds.
    #[derive(Clone, Copy, Debug)]
    pub struct Limits {
        sessions_max: usize = int(1..=16_777_216, 1024,
            "how many sessions it holds; idle ones are evicted for new ones"),
        outstanding_max: usize = int(1..=65_536, 64,
            "how many messages are kept for peers that lack fragments"),
        partial_max: usize = int(1..=65_536, 256, "how many messages are being collected"),
        partial_per_peer: usize = int(1..=65_536, 32,
            "how many of them from one peer for one protocol above"),
    }
}

/// One instance of the layer.
pub struct Fragment {
    pub(crate) limits: Limits,
    pub(crate) outstanding: Places<sender::Outstanding>,
    /// Counts the places that are left for messages to be kept.
    pub(crate) vacant: Semaphore,
    pub(crate) partial: Places<receiver::Partial>,
    pub(crate) figures: Cell<FragmentFigures>,
}

type Fragments = Layered<Fragment, HEADER_OCTETS>;
/// The session object.
pub(crate) type Fragmented = Conversation<Fragment, HEADER_OCTETS>;

/// State of a conversation.
pub struct FragmentState {
    /// The local host and the peer's; zeros if the layer below has none.
    pub(crate) hosts: Hosts,
    /// Whether the layer below knows them, so that others are forged.
    knows_hosts: bool,
    /// The header of a message that goes whole, but for number and length.
    template: [u8; HEADER_OCTETS],
    /// Beginning of the header of such a message from the peer: type, hosts and number.
    expected: [u8; 14],
    /// Octets of payload in one packet.
    pub(crate) fragment_octets: usize,
    /// Sequence number of the message sent last.
    sequence: Cell<u32>,
    /// The name of the copy of the message pushed last, or 0.
    pub(crate) last_kept: Cell<u32>,
    /// Time that it waits for each fragment.
    pub(crate) per_fragment: Cell<Duration>,
    /// Number of messages that it is collecting.
    pub(crate) partials: Rc<Cell<usize>>,
    /// Place of the last of them.
    pub(crate) last_partial: Cell<u32>,
    completed: [Cell<u32>; COMPLETED],
    completed_next: Cell<usize>,
}

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    Ok(add(build.cx, build.name, build.lower(0)?, Limits::read(build)?))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, limits: Limits) -> ProtocolRef {
    let fragment = Fragment {
        limits,
        outstanding: Places::default(),
        vacant: Semaphore::new(limits.outstanding_max as u32),
        partial: Places::default(),
        figures: Cell::default(),
    };
    let bounds = Bounds::sessions(limits.sessions_max);
    let layer = Layered::new(cx.secret(), lower, bounds, fragment);
    cx.add_protocol(crate::ENTRY.kind, name, layer)
}

/// Octets of the payload behind a header.
#[inline(always)]
fn length_of(octets: &[u8; HEADER_OCTETS]) -> usize {
    usize::from(u16::from_be_bytes([octets[22], octets[23]]))
}

impl FragmentState {
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

impl Layer<HEADER_OCTETS> for Fragment {
    /// The type number of the protocol above.
    type Key = u32;
    type State = FragmentState;

    /// The length has 16 bits.
    const OCTETS_MAX: usize = u16::MAX as usize;
    /// Each loses what a link added behind its end, and some wait for others.
    const ONE_BY_ONE: bool = true;

    #[inline(always)]
    fn key_of(octets: &[u8; HEADER_OCTETS]) -> u32 {
        u32::from_be_bytes([octets[10], octets[11], octets[12], octets[13]])
    }

    fn begin(&self, cx: &Kernel, lower: &SessionRef, number: u32) -> FragmentState {
        let mine = lower.ask(cx, MyHost::default()).map(|q| q.host.folded().to_be_bytes());
        let peer = lower.ask(cx, PeerHost::default()).map(|q| q.host.folded().to_be_bytes());
        let known = mine.zip(peer);
        let hosts = known.unwrap_or_default();
        let header = |client, server| {
            let (sequence, len) = (0, 0);
            let kind = Kind::Send;
            Header { kind, client, server, number, sequence, count: 1, mask: 1, len }.emit()
        };
        let mut expected = [0; 14];
        expected.copy_from_slice(&header(hosts.1, hosts.0)[..14]);
        let below = opt_packet(cx, lower, OPT_PACKET_UNKNOWN) as usize;
        FragmentState {
            hosts,
            knows_hosts: known.is_some(),
            template: header(hosts.0, hosts.1),
            expected,
            // A layer that carries next to nothing gets one octet at a time.
            fragment_octets: below.saturating_sub(HEADER_OCTETS).clamp(1, Self::OCTETS_MAX),
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

    /// [`header`](Layer::header) looks at the length: a long message goes in several packets.
    #[inline(always)]
    fn fit(&self, _: &Fragmented, _: &mut Message) -> bool {
        true
    }

    /// The header of a message that goes whole.
    #[inline(always)]
    fn header(&self, own: &Fragmented, message: &Message) -> Option<[u8; HEADER_OCTETS]> {
        let (state, len) = (&own.state, message.len());
        state.last_kept.set(0);
        if len > state.fragment_octets {
            return None;
        }
        let mut octets = state.template;
        octets[14..18].copy_from_slice(&state.next_sequence().to_be_bytes());
        octets[22..].copy_from_slice(&(len as u16).to_be_bytes());
        Some(octets)
    }

    fn unsent(
        own: &Fragmented,
        cx: &Kernel,
        this: &SessionRef,
        message: Message,
        (error, why): Unsent,
    ) -> Result<(), PushError> {
        if message.len() > own.state.fragment_octets {
            return sender::push_large(own, cx, this, message);
        }
        this.discard(cx, message, why);
        Err(error)
    }

    /// Headers of messages that go whole.
    fn headers(&self, own: &Fragmented, _: &Kernel, below: Headers) -> Option<Headers> {
        let FragmentState { template, expected, fragment_octets, .. } = &own.state;
        let mut arriving = *template;
        arriving[..14].copy_from_slice(expected);
        let length = HeaderField::Length { from: HEADER_OCTETS as u8 };
        let of_all = [(14, HeaderField::Free(4)), (22, length)];
        let sent = [&of_all[..], &[(6, HeaderField::Peer(4))]].concat();
        // An arrival may have anything in the octet that is zero, and where hosts are not known.
        let unchecked = match own.state.knows_hosts {
            true => [(1, HeaderField::Free(1)), (2, HeaderField::Peer(4))],
            false => [(1, HeaderField::Free(1)), (2, HeaderField::Free(8))],
        };
        let received = [&of_all[..], &unchecked].concat();
        let headers = below.with((template, &sent), (&arriving, &received))?;
        Some(Headers { sent: headers.sent.carrying(*fragment_octets), ..headers })
    }

    #[inline(always)]
    fn is_plain(
        &self,
        own: &Fragmented,
        octets: &[u8; HEADER_OCTETS],
        message: &Message,
        front: usize,
    ) -> bool {
        octets[..14] == own.state.expected
            && octets[18..22] == WHOLE
            && message.len() >= front + HEADER_OCTETS + length_of(octets)
    }

    fn examine(
        &self,
        own: &Fragmented,
        octets: &[u8; HEADER_OCTETS],
        message: &mut Message,
    ) -> Result<(), &'static Reason> {
        let header = Header::parse(octets, message.len()).map_err(|error| match error {
            Error::Malformed => &reason::MALFORMED,
            Error::Length => &reason::BAD_LENGTH,
        })?;
        let said = match header.kind {
            Kind::Nack => (header.client, header.server),
            Kind::Send | Kind::Retransmit => (header.server, header.client),
        };
        if own.state.knows_hosts && said != own.state.hosts {
            return Err(&FORGED);
        }
        // No peer keeps a message of one fragment to send it again.
        if header.kind == Kind::Retransmit && header.count == 1 {
            return Err(&reason::MALFORMED);
        }
        message.truncate(usize::from(header.len));
        Ok(())
    }

    #[inline(always)]
    fn deliver(
        own: &Fragmented,
        cx: &Kernel,
        this: &SessionRef,
        octets: &[u8; HEADER_OCTETS],
        mut message: Message,
    ) -> Result<(), Refused> {
        if octets[18..22] != WHOLE {
            return take_part(own, cx, this, octets, message);
        }
        // Ethernet adds octets behind a short one.
        message.truncate(length_of(octets));
        own.upper.demux(cx, this, message)
    }

    fn timeout(own: &Fragmented, cx: &Kernel, this: &SessionRef, token: u64) {
        let place = token as u32;
        match token & KEPT {
            0 => receiver::ask_for_missing(own, cx, this, place),
            _ => drop(own.all.layer.release_place(cx, place, true)),
        }
    }

    fn end(own: &Fragmented, cx: &Kernel, this: &SessionRef) {
        own.all.layer.free_all(cx, this);
        own.all.layer.give_up_all(cx, this);
    }

    fn describe(&self, own: &Fragmented) -> String {
        alloc::format!("number {}, fragments of {} octets", own.key, own.state.fragment_octets)
    }

    fn open_done(_: &Fragments, at: Arrival<'_>, _: Participants) -> Result<(), &'static Reason> {
        is_for_one(at.cx, at.lower)
    }

    /// Only what is sent for the first time begins a conversation.
    fn first(
        all: &Fragments,
        at: Arrival<'_>,
        octets: &[u8; HEADER_OCTETS],
        message: Message,
    ) -> Result<(), Refused> {
        let why = match Header::parse(octets, message.len() - HEADER_OCTETS).map(|h| h.kind) {
            Ok(Kind::Send) => return all.take_offered(at, octets, message),
            Ok(Kind::Nack) => &LATE_NACK,
            Ok(Kind::Retransmit) => &LATE_FRAGMENT,
            Err(_) => &reason::MALFORMED,
        };
        all.refuse(at, Some(octets), message, why)
    }

    fn control(all: &Fragments, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<FragmentFigures>() {
            *question = all.layer.figures();
            return Answer::Answered;
        }
        let answer = all.answer(cx, ask);
        if answer.is_answered() {
            let _ = ask.answer::<OptPacket>(|q| q.octets = q.octets.max(1));
            if let Some(question) = ask.get::<MaxPacket>() {
                let below = all.lower.ask(cx, OptPacket::default()).map(|q| q.octets);
                let one = below.map(|octets| octets.saturating_sub(HEADER_OCTETS as u32));
                let one = one.unwrap_or(question.octets).clamp(1, Self::OCTETS_MAX as u32);
                question.octets = one * FRAGMENTS_MAX as u32;
            }
        }
        answer
    }

    fn session_control(
        own: &Fragmented,
        cx: &Kernel,
        this: &SessionRef,
        ask: &mut Ask<'_>,
    ) -> Answer {
        let fragment = &own.all.layer;
        if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = own.state.max();
        } else if let Some(question) = ask.get::<OptPacket>() {
            question.octets = own.state.fragment_octets as u32;
        } else if let Some(question) = ask.get::<MinPacket>() {
            question.octets = 0;
        } else if let Some(question) = ask.get::<LastCopy>() {
            question.ticket = own.state.last_kept.get();
        } else if let Some(question) = ask.get::<AskCopy>() {
            question.state = fragment.ask_kept(this, question.ticket);
        } else if let Some(question) = ask.get::<FreeCopy>() {
            let ticket = question.ticket;
            fragment.free_kept(cx, this, ticket);
        } else {
            return own.answer(cx, ask);
        }
        Answer::Answered
    }

    fn stop(&self) {
        self.outstanding.clear();
        self.partial.clear();
    }
}

/// Takes a packet that is no whole message, examined.
#[cold]
fn take_part(
    own: &Fragmented,
    cx: &Kernel,
    this: &SessionRef,
    octets: &[u8; HEADER_OCTETS],
    message: Message,
) -> Result<(), Refused> {
    match Header::parse(octets, message.len()) {
        Ok(header) if header.kind == Kind::Nack => {
            sender::nacked(own, cx, this, &header, message);
            Ok(())
        }
        Ok(header) => receiver::collect(own, cx, this, &header, message),
        Err(_) => Err(this.refuse(cx, message, &reason::MALFORMED)),
    }
}
