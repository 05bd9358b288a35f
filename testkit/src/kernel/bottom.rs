//! A lower protocol that captures what is pushed and injects what a test wants to arrive.

use super::losses::lose;
use super::pauses::Pauses;
use super::{OnAsk, source_of};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::rc::Rc;
use xk_core::control::{Describe, ListSessions};
use xk_core::object::{
    Burst, Closing, Enable, OpenError, ProtocolId, PushError, Refused, SessionTable,
};
use xk_core::participant::{AddressError, Wild};
use xk_core::question;
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participant, Participants, Protocol, ProtocolRef,
    Reason, Session, SessionRef, Upper, reason,
};
use xk_kit::control::{
    ClaimHost, IsGroup, IsLocalHost, JoinGroup, LeaveGroup, LinkType, MaxPacket, MyEther, MyHost,
    OptPacket, PeerEther, PeerHost, PseudoHeader, SpecificDestination,
};
use xk_kit::net::groups::{JoinHost, LeaveHost};
use xk_kit::net::template::Headers;
use xk_kit::wire::offload::Offloads;
use xk_kit::wire::segments;

/// Called with every message pushed into a [`Bottom`], before it is kept; may inject others.
pub type OnPush = Rc<dyn Fn(&Kernel, &Message)>;

/// Largest number of sessions of a [`Bottom`], and the number from which idle ones make room for
/// new ones: as with `ip`.
const SESSIONS_MAX: usize = 65_536;
const IDLE_MAX: usize = 4096;

/// A family of hosts, for tests that hold for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4: 10.0.0.0/8.
    V4,
    /// IPv6: of one link, so that the scope counts too.
    V6,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Host number `n` of a network that all are in; below 2^24.
    #[must_use]
    pub fn host(self, n: u32) -> HostAddr {
        match self {
            Self::V4 => HostAddr::from((0x0a00_0000 | n).to_be_bytes()),
            Self::V6 => HostAddr::v6((0xfe80 << 112 | 0xa5 << 56 | u128::from(n)).into(), 3),
        }
    }
}

/// The addresses that a [`Bottom`]'s sessions lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// The other end, as on a wire: one session, participants are ignored.
    Link,
    /// Hardware addresses; has the local one.
    Ether([u8; 6]),
    /// Hosts; has the local one.
    Host(HostAddr),
}

/// Properties of a [`Bottom`].
#[derive(Clone, Copy, Debug)]
pub struct Lower {
    /// The kind, for the tables of type numbers.
    pub kind: &'static str,
    /// The addresses that its sessions lead to.
    pub addressing: Addressing,
    /// The largest message it takes, in octets.
    pub max_packet: u32,
    /// The largest message that it reports as not fragmented, in octets.
    pub opt_packet: u32,
    /// The hardware address it answers for [`MyEther`].
    pub ether: Option<[u8; 6]>,
    /// The link type it answers for [`LinkType`].
    pub link_type: Option<u16>,
    /// The protocol number that counts in its [`PseudoHeader`], for [`Addressing::Host`].
    pub protocol: u8,
    /// Whether it takes messages with an unfinished checksum ([`Offloads`]).
    pub partial_checksums: bool,
}

impl Lower {
    /// A link with one other end and no addresses, for messages of up to `max_packet` octets.
    #[must_use]
    pub fn link(max_packet: u32) -> Self {
        Self {
            kind: "bottom",
            addressing: Addressing::Link,
            max_packet,
            opt_packet: max_packet,
            ether: None,
            link_type: None,
            protocol: 0,
            partial_checksums: false,
        }
    }

    /// A wire that carries Ethernet frames of up to 1514 octets and has this hardware address.
    #[must_use]
    pub fn wire(ether: [u8; 6]) -> Self {
        Self { ether: Some(ether), link_type: Some(1), ..Self::link(1514) }
    }

    /// An Ethernet layer as seen from above: participants are hardware addresses, 1500 octets.
    #[must_use]
    pub fn ether(own: [u8; 6]) -> Self {
        Self {
            kind: "eth",
            addressing: Addressing::Ether(own),
            ether: Some(own),
            ..Self::link(1500)
        }
    }

    /// An internet layer as seen from above: participants are hosts, 65515 octets, 1480 without
    /// fragments. `protocol` is the number that counts in its pseudo-header.
    #[must_use]
    pub fn host(own: impl Into<HostAddr>, protocol: u8) -> Self {
        Self {
            kind: "ip",
            addressing: Addressing::Host(own.into()),
            opt_packet: 1480,
            protocol,
            ..Self::link(65515)
        }
    }

    /// The local address; `None` on a link.
    #[must_use]
    pub fn own(&self) -> Option<Part> {
        match self.addressing {
            Addressing::Link => None,
            Addressing::Ether(own) => Some(Part::Ether(own)),
            Addressing::Host(own) => Some(Part::Host(own)),
        }
    }

    /// The peer that `open`'s participants name.
    pub(crate) fn peer(
        &self,
        mut participants: Participants,
    ) -> Result<Option<Part>, AddressError> {
        if self.addressing == Addressing::Link {
            return participants.check_one_peer().map(|()| None);
        }
        participants.peer_mut()?;
        Ok(self.peers(participants)?.first().copied())
    }

    /// All peers that `open`'s participants name; none on a link.
    fn peers(&self, mut participants: Participants) -> Result<Vec<Part>, AddressError> {
        if self.addressing == Addressing::Link {
            return participants.check_one_peer().map(|()| Vec::new());
        }
        let local = self.pop(participants.local_mut()?)?;
        if local.value().is_some_and(|local| Some(local) != self.own()) {
            return Err(AddressError::OutOfRange);
        }
        let peers = participants.peers_mut();
        peers.iter_mut().map(|peer| self.pop(peer)?.definite()).collect()
    }

    fn pop(&self, participant: &mut Participant) -> Result<Wild<Part>, AddressError> {
        fn part<T>(wild: Wild<T>, make: fn(T) -> Part) -> Wild<Part> {
            wild.value().map_or(Wild::Any, |value| Wild::Is(make(value)))
        }
        match self.addressing {
            Addressing::Link => Ok(Wild::Any),
            Addressing::Ether(_) => Ok(part(participant.pop_ether()?, Part::Ether)),
            Addressing::Host(_) => Ok(part(participant.pop_host()?, Part::Host)),
        }
    }
}

/// A question that only a [`Bottom`] answers: a layer that gives an answer forwards questions that
/// it does not know.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReachedBottom;

question!(ReachedBottom {}, "reached-bottom", Ask);

/// A message that reached the bottom.
#[derive(Debug)]
pub struct Sent {
    /// The session it was pushed into.
    pub session: SessionRef,
    /// The peer of that session; `None` on a link.
    pub peer: Option<Part>,
    /// The protocol whose type number it carries.
    pub selector: ProtocolId,
    /// The message.
    pub message: Message,
}

/// The peer, its host and the destination that is not our own host, the receiver above, the
/// selector.
type Key = ((u8, u64), (HostAddr, HostAddr), u32, u32);

/// Ends of a session: the peer, and the broadcast or group that its messages were sent to.
type Ends = (Option<Part>, Option<HostAddr>);

fn key((peer, many): Ends, receiver: ProtocolId, selector: ProtocolId) -> Key {
    let (mut host, none) = (HostAddr::UNSPECIFIED, (0, 0));
    let peer = match peer {
        None | Some(Part::Any) => none,
        Some(Part::Host(peer)) => {
            host = peer;
            (1, 0)
        }
        Some(Part::Ether([a, b, c, d, e, f])) => (2, u64::from_be_bytes([0, 0, a, b, c, d, e, f])),
        Some(Part::Number(_, number)) => (3, number),
    };
    (peer, (host, many.unwrap_or_default()), receiver.0, selector.0)
}

struct State {
    lower: Lower,
    /// As [`Lower::opt_packet`] says, until the path changes.
    opt_packet: Cell<u32>,
    sessions: SessionTable<Key>,
    enables: RefCell<Vec<(u64, ProtocolRef, ProtocolId)>>,
    enable_last: Cell<u64>,
    /// Receiver and selector of every protocol that has opened or enabled.
    users: RefCell<Vec<(ProtocolId, ProtocolId)>>,
    sent: RefCell<Vec<Sent>>,
    sent_count: Cell<u64>,
    refused: RefCell<Vec<(&'static Reason, Vec<u8>)>>,
    keeps: Cell<bool>,
    opens: Cell<u64>,
    closes: Cell<u64>,
    takes_peers: Cell<bool>,
    failure: Cell<Option<PushError>>,
    pauses: Pauses,
    on_push: RefCell<Option<OnPush>>,
    on_ask: RefCell<Option<OnAsk>>,
}

/// The lowest protocol of a test: captures pushed messages, and passes up those given to
/// [`Bottom::inject`].
#[derive(Clone)]
pub struct Bottom {
    state: Rc<State>,
    protocol: ProtocolRef,
}

impl Bottom {
    /// Adds a bottom to a kernel.
    pub fn add(cx: &Kernel, name: &str, lower: Lower) -> Self {
        let state = Rc::new(State {
            opt_packet: Cell::new(lower.opt_packet),
            lower,
            sessions: SessionTable::new(cx.secret(), SESSIONS_MAX).with_idle_max(IDLE_MAX),
            enables: RefCell::default(),
            enable_last: Cell::new(0),
            users: RefCell::default(),
            sent: RefCell::default(),
            sent_count: Cell::new(0),
            refused: RefCell::default(),
            keeps: Cell::new(true),
            opens: Cell::new(0),
            closes: Cell::new(0),
            takes_peers: Cell::new(false),
            failure: Cell::new(None),
            pauses: Pauses::default(),
            on_push: RefCell::default(),
            on_ask: RefCell::default(),
        });
        let body = BottomProtocol(Rc::clone(&state));
        let protocol = cx.add_protocol(lower.kind, name, body);
        Self { state, protocol }
    }

    /// The protocol object, for layers above.
    #[must_use]
    pub fn protocol(&self) -> &ProtocolRef {
        &self.protocol
    }

    /// Properties of the bottom.
    #[must_use]
    pub fn lower(&self) -> &Lower {
        &self.state.lower
    }

    /// Takes the messages pushed since the last call, oldest first.
    #[must_use]
    pub fn take_sent(&self) -> Vec<Sent> {
        self.state.sent.take()
    }

    /// Takes the messages that the layers above refused since the last call, at once or late: each
    /// with its reason and its octets.
    #[must_use]
    pub fn take_refused(&self) -> Vec<(&'static Reason, Vec<u8>)> {
        self.state.refused.take()
    }

    /// Hands out the pushed messages one by one, in order, without an allocation.
    pub fn drain_sent(&self, each: impl FnMut(Sent)) {
        self.state.sent.borrow_mut().drain(..).for_each(each);
    }

    /// Number of messages pushed so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.state.sent_count.get()
    }

    /// Sets whether pushed messages are kept for [`Bottom::take_sent`]; at first they are.
    pub fn keep(&self, keeps: bool) {
        self.state.keeps.set(keeps);
    }

    /// Makes every push fail with this error, or none.
    pub fn fail(&self, failure: Option<PushError>) {
        self.state.failure.set(failure);
    }

    /// Makes `open`, `open_enable`, `control` and `push` block for a varying time of up to `most`,
    /// on shepherds with a stack; at first they do not block.
    pub fn block(&self, most: Duration) {
        self.state.pauses.set(most);
    }

    /// Gives sessions several peers from now on: what is pushed goes to each, and what any of them
    /// sends comes through the session.
    pub fn take_peers(&self) {
        self.state.takes_peers.set(true);
    }

    /// Sets a function that is called with every pushed message before it is kept.
    pub fn on_push(&self, on_push: OnPush) {
        *self.state.on_push.borrow_mut() = Some(on_push);
    }

    /// Sets a function that may answer questions to it and its sessions first.
    pub fn on_ask(&self, on_ask: OnAsk) {
        *self.state.on_ask.borrow_mut() = Some(on_ask);
    }

    /// Sets the largest message that it reports as not fragmented, in octets.
    pub fn set_opt_packet(&self, octets: u32) {
        self.state.opt_packet.set(octets);
    }

    /// Number of sessions opened from above.
    #[must_use]
    pub fn opens(&self) -> u64 {
        self.state.opens.get()
    }

    /// Number of sessions that were closed.
    #[must_use]
    pub fn closes(&self) -> u64 {
        self.state.closes.get()
    }

    /// The sessions with a hold from above.
    #[must_use]
    pub fn held(&self) -> Vec<SessionRef> {
        let mut all = self.state.sessions.sessions(usize::MAX);
        all.retain(|session| session.head().opens() > 0);
        all
    }

    /// Number of standing enables.
    #[must_use]
    pub fn enables(&self) -> usize {
        self.state.enables.borrow().len()
    }

    /// Injects a message from `peer` (`None` on a link) for the first protocol that enabled or
    /// opened; false if it was refused. A refusal ends here, because the refusing layer has counted
    /// it.
    pub fn inject(&self, cx: &Kernel, peer: Option<Part>, message: Message) -> bool {
        self.deliver(cx, (peer, None), None, message).is_ok()
    }

    /// Injects a message that was sent to `many`, a broadcast or a group. Its pseudo-header counts
    /// as if it had been sent to this host alone.
    ///
    /// # Errors
    /// What the layers above refused.
    pub fn inject_cast(
        &self,
        cx: &Kernel,
        peer: Option<Part>,
        many: HostAddr,
        message: Message,
    ) -> Result<(), Refused> {
        self.deliver(cx, (peer, Some(many)), None, message)
    }

    /// Injects a message with the type number of `selector`.
    ///
    /// # Errors
    /// What the layers above refused.
    pub fn inject_for(
        &self,
        cx: &Kernel,
        peer: Option<Part>,
        selector: ProtocolId,
        message: Message,
    ) -> Result<(), Refused> {
        self.deliver(cx, (peer, None), Some(selector), message)
    }

    fn deliver(
        &self,
        cx: &Kernel,
        ends: Ends,
        selector: Option<ProtocolId>,
        message: Message,
    ) -> Result<(), Refused> {
        match self.session_of(cx, ends, selector) {
            Ok(session) => session.pop(cx, message),
            Err(why) => Err(self.protocol.refuse(message, why)),
        }
    }

    /// The session for messages from `peer`: an existing one, or a new one, which the layer above
    /// is told of.
    ///
    /// # Errors
    /// Why there is none.
    pub fn session(
        &self,
        cx: &Kernel,
        peer: Option<Part>,
        selector: Option<ProtocolId>,
    ) -> Result<SessionRef, &'static Reason> {
        self.session_of(cx, (peer, None), selector)
    }

    fn session_of(
        &self,
        cx: &Kernel,
        ends: Ends,
        selector: Option<ProtocolId>,
    ) -> Result<SessionRef, &'static Reason> {
        let enabled = self.enabled(selector);
        if let Some(session) = self.find(ends, selector) {
            return Ok(session);
        }
        let (upper, selector) = enabled.ok_or(&reason::NO_PROTOCOL)?;
        let key = key(ends, upper.id(), selector);
        let body = BottomSession {
            state: Rc::clone(&self.state),
            upper: upper.clone(),
            ends,
            others: Vec::new(),
            selector,
            key,
        };
        let session = cx.new_passive_session(&self.protocol, &upper, source_of(ends.0), body);
        self.state.sessions.bind(cx, key, session.clone())?;
        if let Err(unwanted) = session.announce(cx, &upper, self.participants(ends)) {
            session.abort(cx);
            return Err(unwanted);
        }
        Ok(session)
    }

    /// The protocol that takes what arrives.
    fn enabled(&self, selector: Option<ProtocolId>) -> Option<(ProtocolRef, ProtocolId)> {
        let enables = self.state.enables.borrow();
        let mut all = enables.iter();
        let found = all.find(|(_, _, s)| selector.is_none_or(|selector| selector == *s));
        found.map(|(_, upper, selector)| (upper.clone(), *selector))
    }

    /// The session with this peer, of the first protocol that has one.
    fn find(&self, ends: Ends, selector: Option<ProtocolId>) -> Option<SessionRef> {
        let users = self.state.users.borrow();
        let mut fits = users.iter().filter(|(_, s)| selector.is_none_or(|selector| selector == *s));
        fits.find_map(|(receiver, s)| self.state.sessions.get(&key(ends, *receiver, *s)))
    }

    fn participants(&self, (peer, many): Ends) -> Participants {
        let own = many.map(Part::Host).or(self.state.lower.own());
        match (own, peer) {
            (Some(own), Some(peer)) => Participants::pair(own, peer),
            _ => Participants::default(),
        }
    }
}

impl State {
    fn note_refused(&self, refused: &Refused) {
        if self.keeps.get() {
            let octets = refused.message.octets().collect();
            self.refused.borrow_mut().push((refused.reason, octets));
        }
    }

    fn note_user(&self, upper: Upper<'_>) {
        let user = (upper.receiver.id(), upper.selector);
        let mut users = self.users.borrow_mut();
        if !users.contains(&user) {
            users.push(user);
        }
    }
}

struct BottomProtocol(Rc<State>);

impl Protocol for BottomProtocol {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let state = &self.0;
        if !state.takes_peers.get() {
            state.lower.peer(participants.clone())?;
        }
        let peers = state.lower.peers(participants)?;
        state.pauses.pause(cx);
        state.opens.set(state.opens.get() + 1);
        state.note_user(upper);
        let key_of = |peer| key((peer, None), upper.receiver.id(), upper.selector);
        let ends = (peers.first().copied(), None);
        let key = key_of(ends.0);
        if let Some(session) = state.sessions.get(&key) {
            session.hold();
            return Ok(session);
        }
        let others: Vec<_> =
            peers.iter().skip(1).map(|peer| (*peer, key_of(Some(*peer)))).collect();
        let body = BottomSession {
            state: Rc::clone(state),
            upper: upper.receiver.clone(),
            ends,
            others: others.clone(),
            selector: upper.selector,
            key,
        };
        let session = cx.new_session(this, upper.receiver, body);
        for key in others.iter().map(|(_, key)| *key).chain([key]) {
            state.sessions.bind(cx, key, session.clone()).map_err(|_| OpenError::Full)?;
        }
        state.pauses.pause(cx);
        Ok(session)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        _: Participants,
    ) -> Result<Enable, OpenError> {
        let state = &self.0;
        state.pauses.pause(cx);
        state.note_user(upper);
        let number = state.enable_last.get() + 1;
        state.enable_last.set(number);
        let enable = (number, upper.receiver.clone(), upper.selector);
        state.enables.borrow_mut().push(enable);
        state.pauses.pause(cx);
        Ok(Enable(number))
    }

    fn open_disable(&self, _: &Kernel, _: &ProtocolRef, enable: Enable) {
        let mut enables = self.0.enables.borrow_mut();
        enables.retain(|(number, _, _)| *number != enable.0);
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        self.0.pauses.pause(cx);
        if let Some(lost) = lose(cx, ask) {
            return lost;
        }
        if self.0.answered_first(cx, ask) {
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<Offloads>() {
            question.answer_wire(this.id(), self.0.lower.partial_checksums, false);
            return Answer::Answered;
        }
        if let Some(list) = ask.get::<ListSessions>() {
            list.add(&self.0.sessions);
            return Answer::Answered;
        }
        self.0.answer(ask, (None, None))
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let state = &self.0;
        let enables = state.enables.take();
        let sent = state.sent.take();
        state.users.take();
        state.sessions.clear();
        // Outside of the borrows: what is dropped may hold the last handle of something else.
        drop((enables, sent, state.on_push.take(), state.on_ask.take()));
    }
}

impl State {
    fn answered_first(&self, cx: &Kernel, ask: &mut Ask<'_>) -> bool {
        let on_ask = self.on_ask.borrow().clone();
        on_ask.is_some_and(|on_ask| on_ask(cx, ask).is_answered())
    }

    /// Answers what a layer of this kind knows, of itself or of a session with `peer`.
    fn answer(&self, ask: &mut Ask<'_>, (peer, many): Ends) -> Answer {
        let lower = &self.lower;
        if let Some(q) = ask.get::<MaxPacket>() {
            q.octets = lower.max_packet;
        } else if let Some(q) = ask.get::<OptPacket>() {
            q.octets = self.opt_packet.get();
        } else if let (Some(q), Some(address)) = (ask.get::<MyEther>(), lower.ether) {
            q.address = address;
        } else if let (Some(q), Some(number)) = (ask.get::<LinkType>(), lower.link_type) {
            q.number = number;
        } else if let (Some(q), Some(Part::Ether(address))) = (ask.get::<PeerEther>(), peer) {
            q.address = address;
        } else if ask.get::<JoinGroup>().is_some()
            || ask.get::<LeaveGroup>().is_some()
            || ask.get::<JoinHost>().is_some()
            || ask.get::<LeaveHost>().is_some()
            || ask.get::<ClaimHost>().is_some()
            || ask.get::<ReachedBottom>().is_some()
        {
            // Granted: everything that is injected passes.
        } else if let Addressing::Host(own) = lower.addressing {
            return self.answer_host(ask, own, (peer, many));
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }

    fn answer_host(&self, ask: &mut Ask<'_>, own: HostAddr, (peer, many): Ends) -> Answer {
        if let Some(q) = ask.get::<MyHost>() {
            q.host = own;
        } else if let Some(q) = ask.get::<SpecificDestination>() {
            q.host = many.unwrap_or(own);
            q.many = many.is_some();
        } else if let Some(q) = ask.get::<IsLocalHost>() {
            q.local = q.host == own;
        } else if let Some(q) = ask.get::<IsGroup>() {
            q.many = q.host.is_group();
        } else if let (Some(q), Some(Part::Host(host))) = (ask.get::<PeerHost>(), peer) {
            q.host = host;
        } else if let (Some(q), Some(Part::Host(host))) = (ask.get::<PseudoHeader>(), peer) {
            *q = PseudoHeader::new([own; 2], host, self.lower.protocol.into());
        } else {
            return Answer::Unknown;
        }
        Answer::Answered
    }
}

struct BottomSession {
    state: Rc<State>,
    upper: ProtocolRef,
    ends: Ends,
    /// Further peers, each with its key.
    others: Vec<(Part, Key)>,
    selector: ProtocolId,
    key: Key,
}

impl Session for BottomSession {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        let state = &self.state;
        state.pauses.pause(cx);
        if let Some(failure) = state.failure.get() {
            return Err(failure);
        }
        if segments::longest(&message) > state.lower.max_packet as usize {
            return Err(PushError::TooBig);
        }
        state.sent_count.set(state.sent_count.get() + 1);
        let on_push = state.on_push.borrow().clone();
        if let Some(on_push) = on_push {
            on_push(cx, &message);
        }
        if state.keeps.get() {
            let sent = |peer, message| {
                let (session, selector) = (this.clone(), self.selector);
                state.sent.borrow_mut().push(Sent { session, peer, selector, message });
            };
            for (peer, _) in &self.others {
                sent(Some(*peer), message.try_clone().map_err(|_| PushError::NoBuffers)?);
            }
            sent(self.ends.0, message);
        }
        Ok(())
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message).inspect_err(|refused| self.state.note_refused(refused))
    }

    fn refused(&self, _: &Kernel, _: &SessionRef, refused: Refused) {
        self.state.note_refused(&refused);
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        self.state.pauses.pause(cx);
        if let Some(lost) = lose(cx, ask) {
            return lost;
        }
        if self.state.answered_first(cx, ask) {
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<Offloads>() {
            question.answer_wire(this.head().protocol(), self.state.lower.partial_checksums, false);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<Describe>() {
            question.text = format!("to {:?}", self.ends.0);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<Headers>() {
            let octets_max = self.state.lower.max_packet as usize;
            return question.found(Some(Headers::of_wire(octets_max)));
        }
        self.state.answer(ask, self.ends)
    }

    fn close(&self, _: &Kernel, _: &SessionRef) -> Closing {
        self.state.closes.set(self.state.closes.get() + 1);
        for key in self.others.iter().map(|(_, key)| key).chain([&self.key]) {
            self.state.sessions.unbind(key);
        }
        Closing::Done
    }
}
