//! The layer: the peer's address and the type number tell conversations apart, and a frame is for
//! this station or it is not.

use crate::number::{Key, key, number_in, station_in};
use crate::wire::{
    Error, EthAddr, EtherType, HEADER_LEN, Header, Kind, Length, PAYLOAD_LEN_MAX, PAYLOAD_LEN_MIN,
    SNAP_LEN, Selector, is_same, source_and_word,
};
use alloc::string::{String, ToString};
use core::cell::Cell;
use xk_core::graph::{Build, BuildError};
use xk_core::map::{Map, MapStats};
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::participant::AddressError;
use xk_core::reason::{self, Class, Reason};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, ProtocolRef, Secret, SessionRef, Upper,
};
use xk_kit::control::{
    JoinGroup, LeaveGroup, LinkType, MaxPacket, MinPacket, MyEther, OptPacket, PeerEther,
    max_packet,
};
use xk_kit::layer::{Arrival, Conversation, Layer, Layered, Receiver, Unsent};
use xk_kit::net::attribute::LinkCast;
use xk_kit::net::drop_sources::Source;
use xk_kit::net::receivers;
use xk_kit::net::template::{HeaderField, Headers};
use xk_kit::wire::offload::{self, Offloads};
use xk_kit::wire::segments;

/// A frame came back that this station had sent, or another station uses its address.
pub(crate) static LOOPED: Reason = Reason::new("looped", Class::Bad);

/// Largest number of joined group addresses, unless a graph says another.
pub(crate) const GROUPS_MAX: usize = 512;
/// Form of the parameter `address`.
const ADDRESS: &str = "the address of one station, such as 02:00:00:00:00:01";

/// One station on an Ethernet.
pub struct Eth {
    /// The address that the graph gives it.
    given: Option<EthAddr>,
    /// The station's address, from its start on.
    mine: Cell<EthAddr>,
    /// Group addresses whose frames are taken, and how often each was joined.
    groups: Map<[u8; 6], u32>,
    /// Joins of addresses that found no place: while there are any, frames to all groups are taken.
    unlisted: Cell<u32>,
}

/// The protocol object.
type Station = Layered<Eth, HEADER_LEN>;
/// One upper protocol's frames to and from one peer.
type Frames = Conversation<Eth, HEADER_LEN>;

/// State of a conversation.
pub struct EthState {
    /// The header of every frame sent, as octets; of an IEEE 802.3 one the length is filled in.
    sent: [u8; HEADER_LEN],
    /// The header of almost every frame that arrives. Zeros, which no accepted frame has, if the
    /// frames are IEEE 802.3's or the peer is a group.
    arriving: [u8; HEADER_LEN],
    /// Payload of the frames.
    selector: Option<Selector>,
    /// The LLC and SNAP headers; `llc_octets` of them count, none in Ethernet II.
    llc: [u8; SNAP_LEN],
    llc_octets: usize,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on, [`BuildError::Param`] if
/// `address` is no station's.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let given = build.params.parse::<EthAddr>("address", ADDRESS)?;
    if given.is_some_and(|address| !address.is_unicast()) {
        return Err(BuildError::param("address", ADDRESS));
    }
    let groups_max = build.int("groups_max")?;
    Layered::build(build, Eth::new(build.cx.secret(), given, groups_max))
}

/// Reads the LLC and SNAP headers behind the first `front` octets of an IEEE 802.3 frame: their
/// selector, and their length.
fn read_llc(
    message: &mut Message,
    front: usize,
    length: Length,
) -> Result<(u32, usize), &'static Reason> {
    let length = usize::from(length.get());
    if message.len() - front < length {
        return Err(&reason::BAD_LENGTH);
    }
    let end = front + length.min(SNAP_LEN);
    message.pull_up(end)?;
    let octets = message.peek_slice(end).unwrap_or_default();
    let octets = octets.get(front..).unwrap_or_default();
    let (selector, rest) = Selector::parse_llc(octets).map_err(|error| match error {
        Error::Control => &reason::NOT_SUPPORTED,
        _ => &reason::TRUNCATED,
    })?;
    let number = selector.number().ok_or(&reason::NO_PROTOCOL)?;
    Ok((number, octets.len() - rest.len()))
}

impl Eth {
    /// A station with the address `given` or the wire's, which lists so many groups.
    pub(crate) fn new(secret: Secret, given: Option<EthAddr>, groups_max: usize) -> Self {
        let groups = Map::new(secret, groups_max);
        Self { given, mine: Cell::default(), groups, unlisted: Cell::new(0) }
    }

    /// Takes frames to this group once more.
    fn join(&self, group: EthAddr) {
        let joins = self.groups.get(&group.0).unwrap_or(0).saturating_add(1);
        if self.groups.replace(group.0, joins).is_err() {
            self.unlisted.set(self.unlisted.get().saturating_add(1));
        }
    }

    /// Takes one join back; false if there is none.
    fn leave(&self, group: EthAddr) -> bool {
        match self.groups.get(&group.0) {
            // It was joined so often that nothing counts any more.
            Some(u32::MAX) => {}
            Some(1) => drop(self.groups.unbind(&group.0)),
            Some(joins) => drop(self.groups.replace(group.0, joins - 1)),
            None => match self.unlisted.get().checked_sub(1) {
                Some(left) => self.unlisted.set(left),
                None => return false,
            },
        }
        true
    }

    /// The address from the graph, else from the wire, else one drawn now: any that is local and
    /// one station's.
    fn address(&self, cx: &Kernel, lower: &ProtocolRef) -> EthAddr {
        let of_wire = || lower.ask(cx, MyEther::default());
        let of_wire = || of_wire().map(|q| EthAddr(q.address));
        let known = self.given.or_else(of_wire).filter(|a| a.is_unicast());
        known.unwrap_or_else(|| {
            let mut octets = [0; 6];
            cx.random().fill(&mut octets);
            octets[0] = octets[0] & !1 | 2;
            EthAddr(octets)
        })
    }

    /// Whether a frame is for this station, and how it was addressed if not to it alone.
    fn admit(&self, header: &Header) -> Result<Option<LinkCast>, &'static Reason> {
        let Header { dst, src, .. } = *header;
        let mine = self.mine.get();
        if src == mine {
            return Err(&LOOPED);
        }
        // A group cannot send (IEEE 802.3, section 3.2.3).
        if !src.is_unicast() {
            return Err(&reason::BAD_SOURCE);
        }
        if dst == mine {
            return Ok(None);
        }
        if dst.is_broadcast() {
            return Ok(Some(LinkCast::Broadcast));
        }
        if dst.is_multicast() && (self.groups.contains(&dst.0) || self.unlisted.get() > 0) {
            return Ok(Some(LinkCast::Multicast));
        }
        Err(&reason::NOT_MINE)
    }

    /// The type number of a frame, its header still in front, if this station takes it.
    fn number_of(
        &self,
        header: &[u8; HEADER_LEN],
        message: &mut Message,
    ) -> Result<u32, &'static Reason> {
        let header = Header::parse(header).map_err(|_| &reason::MALFORMED)?;
        self.admit(&header)?;
        match header.kind {
            Kind::Type(ether_type) => Ok(ether_type.get().into()),
            Kind::Length(length) => Ok(read_llc(message, HEADER_LEN, length)?.0),
        }
    }

    /// Checks the local participant: left open, or this station.
    fn check_local(&self, ends: &mut Participants) -> Result<(), AddressError> {
        match ends.local_mut()?.pop() {
            None | Some(Part::Any) => Ok(()),
            Some(Part::Ether(local)) if local == self.mine.get().0 => Ok(()),
            Some(Part::Ether(_)) => Err(AddressError::OutOfRange),
            Some(_) => Err(AddressError::WrongFamily),
        }
    }

    /// Answers what the station and its conversations answer alike; `None` to other questions.
    fn answer(&self, cx: &Kernel, lower: &ProtocolRef, ask: &mut Ask<'_>) -> Option<Answer> {
        if let Some(question) = ask.get::<MyEther>() {
            question.address = self.mine.get().0;
            return Some(Answer::Answered);
        }
        let joined = ask.get::<JoinGroup>().map(|join| EthAddr(join.address));
        let is_taken = match joined {
            // Frames to all stations are taken in any case.
            Some(group) if group.is_broadcast() => true,
            Some(group) if group.is_multicast() => {
                self.join(group);
                true
            }
            Some(_) => false,
            None => {
                let group = EthAddr(ask.get::<LeaveGroup>()?.address);
                group.is_broadcast() || self.leave(group)
            }
        };
        if !is_taken {
            return Some(Answer::Unknown);
        }
        // A wire that filters by itself must know too; one that does not need not.
        let _ = lower.control(cx, ask);
        Some(Answer::Answered)
    }
}

/// The type number of an upper protocol, if it means something here.
fn number(cx: &Kernel, this: &ProtocolRef, upper: Upper<'_>) -> Result<u32, OpenError> {
    let number = upper.number_on(cx, this)?;
    match Selector::from_number(number) {
        Some(_) => Ok(number),
        None => Err(OpenError::NoTypeNumber),
    }
}

impl Layer<HEADER_LEN> for Eth {
    type Key = Key;
    type State = EthState;

    fn key(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<Key, OpenError> {
        let number = number(cx, this, upper)?;
        self.check_local(ends)?;
        let peer = EthAddr(ends.peer_mut()?.pop_ether()?.definite()?);
        if peer == EthAddr::ZERO || peer == self.mine.get() {
            return Err(AddressError::OutOfRange.into());
        }
        Ok(key(peer, number))
    }

    fn offer(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u64, OpenError> {
        let number = number(cx, this, upper)?;
        if !ends.is_empty() {
            self.check_local(ends)?;
        }
        Ok(number.into())
    }

    #[inline(always)]
    fn key_of(header: &[u8; HEADER_LEN]) -> Key {
        (source_and_word(header), 0)
    }

    fn offer_for(key: Key) -> u64 {
        number_in(key).into()
    }

    fn octets_max(&self, cx: &Kernel, lower: &SessionRef, key: Key) -> usize {
        let frame = max_packet(cx, lower, (HEADER_LEN + PAYLOAD_LEN_MAX) as u32) as usize;
        let room = frame.saturating_sub(HEADER_LEN);
        match Selector::from_number(number_in(key)) {
            Some(Selector::Type(_)) | None => room,
            Some(other) => room.min(PAYLOAD_LEN_MAX).saturating_sub(other.emit(&mut [0; SNAP_LEN])),
        }
    }

    fn begin(&self, _: &Kernel, _: &SessionRef, key: Key) -> EthState {
        let (mine, peer) = (self.mine.get(), station_in(key));
        let selector = Selector::from_number(number_in(key));
        let kind = match selector {
            Some(Selector::Type(ether_type)) => Kind::Type(ether_type),
            _ => Kind::NO_LENGTH,
        };
        let mut llc = [0; SNAP_LEN];
        let llc_octets = selector.map_or(0, |selector| selector.emit(&mut llc));
        let header = |dst, src| Header { dst, src, kind }.octets();
        let arriving = match kind {
            Kind::Type(_) if peer.is_unicast() => header(mine, peer),
            _ => [0; HEADER_LEN],
        };
        EthState { sent: header(peer, mine), arriving, selector, llc, llc_octets }
    }

    /// Almost every message is no longer than the wire takes, and behind a short one there is room
    /// for zeros. With LLC headers none is fit.
    #[inline(always)]
    fn fit(&self, own: &Frames, message: &mut Message) -> bool {
        let octets = message.len();
        if octets > own.octets_max || own.state.llc_octets > 0 {
            return false;
        }
        // A checksum that is left open is found from the end: its frame is padded behind it.
        octets >= PAYLOAD_LEN_MIN
            || !message.has_attributes() && message.pad_in_place::<PAYLOAD_LEN_MIN>()
    }

    #[inline(always)]
    fn header(&self, own: &Frames, _: &Message) -> Option<[u8; HEADER_LEN]> {
        Some(own.state.sent)
    }

    fn examine_sent(
        &self,
        cx: &Kernel,
        own: &Frames,
        message: &mut Message,
    ) -> Result<[u8; HEADER_LEN], Unsent> {
        let state = &own.state;
        let no_buffers = |_| (PushError::NoBuffers, &reason::NO_BUFFERS);
        if segments::longest(message) > own.octets_max {
            return Err((PushError::TooBig, &reason::TOO_BIG));
        }
        let mut header = state.sent;
        if state.llc_octets > 0 {
            let front = message.push_header(state.llc_octets).map_err(no_buffers)?;
            front.copy_from_slice(&state.llc[..state.llc_octets]);
            // At most 1500: checked against `octets_max`.
            Kind::Length(Length::new(message.len() as u16).unwrap_or_default()).put(&mut header);
        }
        if message.len() < PAYLOAD_LEN_MIN {
            // A checksum that is left open is found from the end.
            let settled = offload::finish_checksum(cx.pool(), message);
            settled.and_then(|()| message.pad(PAYLOAD_LEN_MIN)).map_err(no_buffers)?;
        }
        Ok(header)
    }

    #[inline(always)]
    fn is_plain(
        &self,
        own: &Frames,
        header: &[u8; HEADER_LEN],
        message: &Message,
        _: usize,
    ) -> bool {
        is_same(header, &own.state.arriving) && !message.has_attributes()
    }

    fn examine(
        &self,
        _: &Frames,
        header: &[u8; HEADER_LEN],
        message: &mut Message,
    ) -> Result<(), &'static Reason> {
        let header = Header::parse(header).map_err(|_| &reason::MALFORMED)?;
        match self.admit(&header)? {
            // One to this station alone bears no mark, whatever its sender's layers had set.
            None => drop(message.remove_attribute::<LinkCast>()),
            Some(cast) => message.set_attribute(cast).map_err(|_| &reason::NO_BUFFERS)?,
        }
        if let Kind::Length(length) = header.kind {
            let (_, llc_octets) = read_llc(message, 0, length)?;
            message.truncate(length.get().into());
            // Cannot fail: these were just read.
            let _ = message.strip(llc_octets);
        }
        Ok(())
    }

    fn headers(&self, own: &Frames, _: &Kernel, below: Headers) -> Option<Headers> {
        let EthState { sent, llc, llc_octets, selector, .. } = &own.state;
        let header = Header::parse(sent).ok()?;
        let arriving = Header { dst: header.src, src: header.dst, ..header }.octets();
        let [to, from] = [sent, &arriving].map(|front| [&front[..], &llc[..*llc_octets]].concat());
        let length = HeaderField::Length { from: HEADER_LEN as u8 };
        // The sender's access point may be any; its lowest bit tells responses.
        let source = if let Some(Selector::Sap(_)) = selector { 1 } else { 0xff };
        let all = [(12, length), (15, HeaderField::Bits(source))];
        let (all, peer) = (&all[..if *llc_octets > 0 { 2 } else { 0 }], HeaderField::Peer(6));
        let [to_any, from_any] = [0, 6].map(|at| [all, &[(at, peer)]].concat());
        let Headers { sent, received } = below.with((&to, &to_any), (&from, &from_any))?;
        let padding = PAYLOAD_LEN_MIN.saturating_sub(*llc_octets);
        Some(Headers { sent: sent.padded_to(padding), received })
    }

    fn describe(&self, own: &Frames) -> String {
        let (mine, peer) = (self.mine.get(), station_in(own.key));
        let selector = own.state.selector.map(|s| s.to_string());
        alloc::format!("{mine} > {peer}, {}", selector.unwrap_or_default())
    }

    fn ends(&self, _: &Kernel, _: &SessionRef, key: Key) -> Participants {
        let part = |station: EthAddr| Part::Ether(station.0);
        Participants::pair(part(self.mine.get()), part(station_in(key)))
    }

    fn start(all: &Station, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        all.layer.mine.set(all.layer.address(cx, &all.lower));
        all.enable(cx, this)
    }

    /// A frame of IEEE 802.3, or of a new conversation: its number may lie behind the header.
    fn first(
        all: &Station,
        at: Arrival<'_>,
        header: &[u8; HEADER_LEN],
        mut message: Message,
    ) -> Result<(), Refused> {
        let number = match all.layer.number_of(header, &mut message) {
            Ok(number) => number,
            Err(why) => return all.refuse(at, Some(header), message, why),
        };
        let key = key(station_in(Self::key_of(header)), number);
        if let Some(session) = all.find(at.lower, key) {
            return session.pop(at.cx, message);
        }
        match all.offers.get(&number.into()) {
            Some(Receiver::Protocol(upper)) => all.accept(at, &upper, key, message),
            _ => all.refuse(at, Some(header), message, Self::NO_RECEIVER),
        }
    }

    fn control(all: &Station, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Offloads>() {
            question.answer(this.id(), || Offloads::of_protocol(cx, &all.lower));
            return Answer::Answered;
        }
        if let Some(answer) = all.layer.answer(cx, &all.lower, ask) {
            return answer;
        }
        let answer = all.answer(cx, ask);
        if answer.is_answered() {
            return answer;
        }
        // What the format takes, on a wire that says nothing.
        let max = PAYLOAD_LEN_MAX as u32;
        match ask.answer::<MaxPacket>(|q| q.octets = max) {
            Answer::Unknown => ask.answer::<OptPacket>(|q| q.octets = max),
            answered => answered,
        }
    }

    fn map(&self) -> Option<(&'static str, MapStats)> {
        Some(("groups", self.groups.stats()))
    }

    fn session_control(own: &Frames, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (state, max) = (&own.state, own.octets_max as u32);
        if let Some(question) = ask.get::<PeerEther>() {
            question.address = station_in(own.key).0;
        } else if let Some(question) = ask.get::<MinPacket>() {
            question.octets = receivers::LINK_MIN;
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = max;
        } else if let Some(question) = ask.get::<OptPacket>() {
            let frame = own.lower().ask(cx, OptPacket::default());
            let headers = (HEADER_LEN + state.llc_octets) as u32;
            question.octets = frame.map_or(max, |q| q.octets.saturating_sub(headers).min(max));
        } else if let Some(question) = ask.get::<LinkType>() {
            // What passes here is the payload; only these two have a link type of their own.
            question.number = match state.selector {
                Some(Selector::Type(EtherType::IPV4)) => 228,
                Some(Selector::Type(EtherType::IPV6)) => 229,
                _ => return Answer::Unknown,
            };
        } else {
            let answer = own.all.layer.answer(cx, &own.all.lower, ask);
            return answer.unwrap_or_else(|| own.answer(cx, ask));
        }
        Answer::Answered
    }

    fn source(_: Arrival<'_>, header: Option<&[u8; HEADER_LEN]>) -> Option<Source> {
        header.map(|header| Source::Ether(station_in(Self::key_of(header)).0))
    }

    fn stop(&self) {
        self.unlisted.set(0);
        self.groups.clear();
    }
}
