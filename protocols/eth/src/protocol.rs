//! The protocol object: opens, enables, filters and demultiplexes.

use crate::number::Selector;
use crate::session::{EthSession, Key, address, behind_header, bits};
use crate::wire::{
    Control, EthAddr, EtherType, FRAME_LEN_MIN, HEADER_LEN, Length, PAYLOAD_LEN_MAX, Payload,
    SNAP_LEN,
};
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use xk_core::Secret;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::message::PullUpError;
use xk_core::object::{Burst, Enable, OpenError, PushError, Refused, SessionTable};
use xk_core::participant::AddressError;
use xk_core::reason::Class;
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, Reason, SessionRef,
    Upper, reason,
};
use xk_kit::attribute::LinkCast;
use xk_kit::control::{JoinGroup, MaxPacket, MyEther, OptPacket};
use xk_kit::offload::{self, Offloads};
use xk_kit::talkers::{Source, Talkers};

/// A frame came back that this station had sent, or another station uses its address.
pub static LOOPED: Reason = Reason::new("looped", Class::Bad);

/// How many upper protocols may enable it.
const ENABLES_MAX: usize = 256;
/// How many group addresses may be joined.
pub const GROUPS_MAX: usize = 256;
/// How many sessions it holds unless the graph says otherwise.
pub(crate) const SESSIONS_MAX: usize = 65_536;
/// From how many on a first frame costs an idle session its place.
const IDLE_MAX: usize = 4096;

/// What protocol and sessions share.
pub(crate) struct Shared {
    lower: ProtocolRef,
    pub(crate) sessions: SessionTable<Key>,
    /// This station's address, as [`bits`].
    pub(crate) mine: Cell<u64>,
    /// The stations whose frames were dropped.
    talkers: Talkers,
    /// Group addresses whose frames are taken, as [`bits`].
    groups: Map<u64, ()>,
    /// Zeros that short frames are padded with; made once, cloned for each.
    zeros: RefCell<Option<Message>>,
}

/// One station on an Ethernet.
pub struct Eth {
    shared: Rc<Shared>,
    /// The address that the graph gives it.
    address: Option<EthAddr>,
    /// The wire's session.
    wire: RefCell<Option<SessionRef>>,
    /// Type number to the protocol that takes frames with it.
    enables: Map<u32, ProtocolRef>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on, [`BuildError::Param`] if `address` is no station's.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    const EXPECTED: &str = "the address of one station, such as 02:00:00:00:00:01";
    let address = build.params.parse::<EthAddr>("address", EXPECTED)?;
    if address.is_some_and(|a| !a.is_unicast()) {
        return Err(BuildError::Param {
            name: "address",
            index: 0,
            expected: EXPECTED.into(),
        });
    }
    let key = build.cx.secret();
    let sessions = SessionTable::new(key, build.params.number("sessions_max", SESSIONS_MAX))
        .with_idle_max(build.params.number("idle_max", IDLE_MAX))
        .with_passive_max(build.params.number("passive_max", 0));
    let talkers = Talkers::read(build.params);
    build.add(Eth::new(key, build.lower(0)?, address, (sessions, talkers)))
}

impl Shared {
    /// Appends `short` zeros.
    pub(crate) fn pad(
        &self,
        cx: &Kernel,
        message: &mut Message,
        short: usize,
    ) -> Result<(), PushError> {
        // A checksum that is left open is found from the end.
        offload::settle(cx.pool(), message).map_err(|_| PushError::NoBuffers)?;
        let mut zeros = self.zeros.borrow_mut();
        let zeros = match &mut *zeros {
            Some(zeros) => zeros,
            none => {
                let made = cx.pool().copy_from(0, &[0; FRAME_LEN_MIN]);
                none.insert(made.map_err(|_| PushError::NoBuffers)?)
            }
        };
        let mut pad = zeros.try_clone().map_err(|_| PushError::NoBuffers)?;
        pad.truncate(short);
        message.join(pad);
        Ok(())
    }

    /// What protocol and sessions answer alike; `None` if it is another question.
    pub(crate) fn control(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Option<Answer> {
        if let Some(question) = ask.get::<MyEther>() {
            question.address = address(self.mine.get()).0;
            return Some(Answer::Answered);
        }
        let question = ask.get::<JoinGroup>()?;
        let group = EthAddr(question.address);
        let taken = group.is_broadcast()
            || group.is_multicast() && self.groups.replace(bits(group), ()).is_ok();
        if !taken {
            return Some(Answer::Unknown);
        }
        // A wire that filters by itself must know too; one that does not need not.
        let _ = self.lower.control(cx, ask);
        Some(Answer::Answered)
    }

    /// Whether a frame is what almost all are: from one other station to this one alone. Of others [`Shared::admit`]
    /// tells more.
    #[inline]
    fn is_usual(&self, dst: u64, src: u64) -> bool {
        let mine = self.mine.get();
        dst == mine && src != mine && src != 0 && src & GROUP_BIT == 0
    }

    /// Whether a frame is for this station, and how it was addressed if not to it alone.
    #[inline]
    fn admit(&self, dst: u64, src: u64) -> Result<Option<LinkCast>, &'static Reason> {
        let mine = self.mine.get();
        if src == mine {
            return Err(&LOOPED);
        }
        // A group cannot send (IEEE 802.3, section 3.2.3).
        if src & GROUP_BIT != 0 || src == 0 {
            return Err(&reason::BAD_SOURCE);
        }
        if dst == mine {
            return Ok(None);
        }
        if dst == BROADCAST_BITS {
            return Ok(Some(LinkCast::Broadcast));
        }
        if dst & GROUP_BIT != 0 && self.groups.get(&dst).is_some() {
            return Ok(Some(LinkCast::Multicast));
        }
        Err(&reason::NOT_MINE)
    }
}

/// The bit that marks a group, in an address as [`bits`].
const GROUP_BIT: u64 = 1 << 40;
/// The address of all stations, as [`bits`].
const BROADCAST_BITS: u64 = (1 << 48) - 1;

/// Destination, source (as [`bits`]), and the type or length, from a header. Two loads do, since what follows an address
/// is cut off by a shift.
#[inline]
fn split(octets: &[u8; HEADER_LEN]) -> (u64, u64, u16) {
    let [front @ .., _, _, _, _, _, _] = octets;
    let [_, _, _, _, _, _, back @ ..] = octets;
    let (front, back) = (u64::from_be_bytes(*front), u64::from_be_bytes(*back));
    (front >> 16, back >> 16, back as u16)
}

/// The whole header in two numbers, to compare it with another.
#[inline(always)]
fn ends(octets: &[u8; HEADER_LEN]) -> (u64, u64) {
    let [front @ .., _, _, _, _, _, _] = octets;
    let [_, _, _, _, _, _, back @ ..] = octets;
    (u64::from_ne_bytes(*front), u64::from_ne_bytes(*back))
}

impl Eth {
    pub(crate) fn new(
        secret: Secret,
        lower: ProtocolRef,
        address: Option<EthAddr>,
        (sessions, talkers): (SessionTable<Key>, Talkers),
    ) -> Self {
        let shared = Shared {
            lower,
            sessions,
            talkers,
            mine: Cell::new(0),
            groups: Map::new(secret, GROUPS_MAX),
            zeros: RefCell::default(),
        };
        Self {
            shared: Rc::new(shared),
            address,
            wire: RefCell::default(),
            enables: Map::new(secret, ENABLES_MAX),
        }
    }

    /// The address from the graph, else from the wire, else one drawn now: any that is local and one station's.
    fn address(&self, cx: &Kernel) -> EthAddr {
        let of_wire = || self.shared.lower.ask(cx, MyEther::default());
        let of_wire = || of_wire().map(|q| EthAddr(q.address));
        let known = self.address.or_else(of_wire).filter(|a| a.is_unicast());
        known.unwrap_or_else(|| {
            let mut octets = [0; 6];
            cx.random().fill(&mut octets);
            octets[0] = octets[0] & !1 | 2;
            EthAddr(octets)
        })
    }

    /// Refuses a frame from the station `src` (see [`bits`]), counted as its.
    #[cold]
    fn refuse(
        &self,
        this: &ProtocolRef,
        message: Message,
        src: u64,
        why: &'static Reason,
    ) -> Refused {
        let source = Source::Ether(address(src).0);
        self.shared.talkers.count(source, why);
        this.refuse(message, why)
    }

    /// Checks the local participant: left open, or this station.
    fn check_local(&self, participants: &mut Participants) -> Result<(), AddressError> {
        match participants.local_mut()?.pop() {
            None | Some(Part::Any) => Ok(()),
            Some(Part::Ether(local)) if bits(EthAddr(local)) == self.shared.mine.get() => Ok(()),
            Some(Part::Ether(_)) => Err(AddressError::OutOfRange),
            Some(_) => Err(AddressError::WrongFamily),
        }
    }

    /// The type number of an IEEE 802.3 frame's payload, of which LLC and SNAP headers and padding are taken off.
    #[cold]
    fn strip_llc(message: &mut Message, word: u16) -> Result<u32, &'static Reason> {
        let length = Length::new(word).ok_or(&reason::MALFORMED)?;
        let length = usize::from(length.get());
        if message.len() < length {
            return Err(&reason::BAD_LENGTH);
        }
        message.truncate(length);
        let front = length.min(SNAP_LEN);
        message.pull_up(front).map_err(lacks)?;
        let octets = message.peek_slice(front).unwrap_or_default();
        let (selector, behind) = match Payload::parse_llc(octets) {
            // Of LLC only unnumbered information is spoken here (IEEE 802.2, section 5.4.1).
            Ok(Payload::Llc(llc, _)) if llc.control != Control::UI || llc.ssap & 1 != 0 => {
                return Err(&reason::NOT_SUPPORTED);
            }
            Ok(Payload::Llc(llc, rest)) => (Selector::Sap(llc.dsap), front - rest.len()),
            Ok(Payload::Snap(snap, _)) => (Selector::Snap(snap), SNAP_LEN),
            _ => return Err(&reason::TRUNCATED),
        };
        if !message.strip(behind) {
            return Err(&reason::TRUNCATED);
        }
        selector.number().ok_or(&reason::NO_PROTOCOL)
    }

    /// Takes any frame: looks at every field, and for the session everywhere.
    #[inline(never)]
    fn demux_closely(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        if let Err(error) = message.pull_up(HEADER_LEN) {
            return Err(this.refuse(message, lacks(error)));
        }
        let Some((dst, src, word)) = message.peek::<HEADER_LEN>().map(split) else {
            return Err(this.refuse(message, &reason::TRUNCATED));
        };
        let admitted = self.shared.admit(dst, src);
        if let Err(why) = admitted.and_then(|cast| mark(&mut message, cast)) {
            return Err(self.refuse(this, message, src, why));
        }
        // Cannot fail: the header was just seen.
        let _ = message.strip(HEADER_LEN);
        let number = match EtherType::new(word) {
            Some(ether_type) => u32::from(ether_type.get()),
            None => match Self::strip_llc(&mut message, word) {
                Ok(number) => number,
                Err(why) => return Err(self.refuse(this, message, src, why)),
            },
        };
        let key = (src, number);
        match self.shared.sessions.get(&key) {
            Some(session) => session.pop(cx, message),
            None => self.demux_first(cx, this, lower, key, message),
        }
    }

    /// The first frame of a conversation: makes the session that somebody has enabled.
    #[cold]
    fn demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        key: Key,
        message: Message,
    ) -> Result<(), Refused> {
        let Some(upper) = self.enables.get(&key.1) else {
            return Err(self.refuse(this, message, key.0, &reason::NO_PROTOCOL));
        };
        let Some(selector) = Selector::from_number(key.1) else {
            return Err(self.refuse(this, message, key.0, &reason::NO_PROTOCOL));
        };
        let (shared, lower) = (&self.shared, lower.clone());
        let body = EthSession::new(cx, shared, lower, upper.clone(), key, selector);
        let session = cx.new_passive_session(this, &upper, body);
        if let Err(full) = shared.sessions.bind(cx, key, session.clone()) {
            session.retire(cx);
            return Err(self.refuse(this, message, key.0, full));
        }
        let mine = Part::Ether(address(shared.mine.get()).0);
        let both = Participants::pair(mine, Part::Ether(address(key.0).0));
        if let Err(unwanted) = upper.open_done(cx, &session, both) {
            session.abort(cx);
            return Err(self.refuse(this, message, key.0, unwanted));
        }
        session.pop(cx, message)
    }
}

/// The reason that corresponds to a header that could not be brought together.
fn lacks(error: PullUpError) -> &'static Reason {
    match error {
        PullUpError::NoBuffers => &reason::NO_BUFFERS,
        PullUpError::TooShort | PullUpError::TooLong => &reason::TRUNCATED,
    }
}

/// Marks how the frame was addressed; one to this station alone bears no mark, whatever its sender's layers had set.
#[inline]
fn mark(message: &mut Message, cast: Option<LinkCast>) -> Result<(), &'static Reason> {
    match cast {
        None => {
            message.remove_attribute::<LinkCast>();
            Ok(())
        }
        Some(cast) => message.set_attribute(cast).map_err(|_| &reason::NO_BUFFERS),
    }
}

impl Protocol for Eth {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        self.shared.mine.set(bits(self.address(cx)));
        let lower = &self.shared.lower;
        let wire = lower.open(cx, Upper::new(this), Participants::default())?;
        *self.wire.borrow_mut() = Some(wire);
        let any = Participants::local(Part::Any);
        lower.open_enable(cx, Upper::new(this), any).map(drop)
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let number = upper.number_on(cx, this)?;
        let selector = Selector::from_number(number).ok_or(OpenError::NoTypeNumber)?;
        self.check_local(&mut participants)?;
        let peer = participants.peer_mut()?.pop_ether()?.definite()?;
        let peer = bits(EthAddr(peer));
        if peer == 0 || peer == self.shared.mine.get() {
            return Err(OpenError::Address(AddressError::OutOfRange));
        }
        let key = (peer, number);
        if let Some(session) = self.shared.sessions.get(&key) {
            if session.head().upper() != upper.receiver.id() {
                return Err(OpenError::InUse);
            }
            session.hold();
            return Ok(session);
        }
        let lower = self.wire.borrow().clone().ok_or(OpenError::NoLower)?;
        let (shared, receiver) = (&self.shared, upper.receiver);
        let body = EthSession::new(cx, shared, lower, receiver.clone(), key, selector);
        let session = cx.new_session(this, receiver, body);
        match shared.sessions.bind(cx, key, session.clone()) {
            Ok(()) => Ok(session),
            Err(_) => {
                session.retire(cx);
                Err(OpenError::Full)
            }
        }
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let number = upper.number_on(cx, this)?;
        Selector::from_number(number).ok_or(OpenError::NoTypeNumber)?;
        if !participants.is_empty() {
            self.check_local(&mut participants)?;
        }
        match self.enables.bind(number, upper.receiver.clone()) {
            Ok(()) => Ok(Enable(u64::from(number))),
            Err(_) => Err(OpenError::InUse),
        }
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        if let Ok(number) = u32::try_from(enable.0) {
            self.enables.unbind(&number);
        }
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        if let Some((dst, src, word)) = message.peek_in_place::<HEADER_LEN>().map(split)
            && self.shared.is_usual(dst, src)
            && !message.has_attributes()
            && let Some(ether_type) = EtherType::new(word)
            && let key = (src, u32::from(ether_type.get()))
            && let Some(session) = self.shared.sessions.latest(&key)
        {
            message.strip_in_place(HEADER_LEN);
            return session.pop(cx, message);
        }
        self.demux_closely(cx, this, lower, message)
    }

    fn demux_burst(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        burst: Burst<'_>,
    ) -> Result<(), Refused> {
        while burst.goes_on(lower) {
            if let Some(first) = burst.peek::<HEADER_LEN>(0)
                && !first.has_attributes
                && let header = first.octets
                && let (dst, src, word) = split(&header)
                && self.shared.is_usual(dst, src)
                && let Some(ether_type) = EtherType::new(word)
                && let key = (src, u32::from(ether_type.get()))
                && let Some(session) = self.shared.sessions.get(&key)
            {
                let words = ends(&header);
                let run = burst.count_while::<HEADER_LEN>(|_, glance| {
                    ends(&glance.octets) == words && !glance.has_attributes
                });
                session.pop_burst(cx, burst.first(run).behind(HEADER_LEN))?;
            } else if let Some(message) = burst.next() {
                self.demux_closely(cx, this, lower, message)?;
            }
        }
        Ok(())
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Offloads>() {
            question.answer(this.id(), || Offloads::of_protocol(cx, &self.shared.lower));
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&self.shared.sessions);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            let maps = &mut question.maps;
            maps.push(("active", self.shared.sessions.stats()));
            maps.push(("passive", self.enables.stats()));
            maps.push(("groups", self.shared.groups.stats()));
            return Answer::Answered;
        }
        if self.shared.talkers.answer(this, ask) {
            return Answer::Answered;
        }
        let lower = &self.shared.lower;
        if let Some(question) = ask.get::<MaxPacket>() {
            let frame = lower.ask(cx, MaxPacket::default());
            question.octets = frame.map_or(PAYLOAD_LEN_MAX as u32, |q| behind_header(q.octets));
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<OptPacket>() {
            let frame = lower.ask(cx, OptPacket::default());
            question.octets = frame.map_or(PAYLOAD_LEN_MAX as u32, |q| behind_header(q.octets));
            return Answer::Answered;
        }
        self.shared
            .control(cx, ask)
            .unwrap_or_else(|| lower.control(cx, ask))
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.lower)
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        self.shared.sessions.clear();
        self.shared.talkers.clear();
        self.enables.clear();
        self.shared.groups.clear();
        drop(self.shared.zeros.take());
        if let Some(wire) = self.wire.take() {
            wire.close(cx);
        }
    }
}
