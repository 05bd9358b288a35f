//! The layer: ports tell conversations apart, and the checksum covers what the layer below says of
//! its hosts.

use crate::unconnected::{To, Unconnected};
use crate::wire::{CHECKSUM_AT, HEADER_LEN, Header, Template};
use alloc::string::String;
use core::cell::{Cell, RefCell};
use xk_core::map::MapStats;
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Part, Participants, ProtocolRef, SessionRef, Upper,
    graph, reason,
};
use xk_kit::Checksum;
use xk_kit::control::{self, NetworkError};
use xk_kit::layer::{Arrival, Conversation, Layer, Layered, Receiver, Unsent};
use xk_kit::net::attribute::Peer;
use xk_kit::net::drop_sources::Source;
use xk_kit::net::groups::Joins;
use xk_kit::net::ports;
use xk_kit::net::template::{HeaderField, Headers};
use xk_kit::wire::offload;

/// One instance of the layer.
pub struct Udp {
    /// Whether datagrams are sent with a checksum.
    checksum: bool,
    pub(crate) origins: ports::Origins,
    pub(crate) choices: ports::Choices,
    /// The unconnected session that was reached last.
    reached: RefCell<Option<Reached>>,
}

/// An unconnected session, and what is known of the session below through which it was reached.
#[derive(Clone)]
struct Reached {
    /// The session below, and our port.
    at: (u64, u16),
    /// Template of datagrams to our port from the peer's port 0.
    template: Template,
    peer: HostAddr,
    session: SessionRef,
}

/// The protocol object.
pub(crate) type Ports = Layered<Udp, HEADER_LEN>;
pub(crate) type Connected = Conversation<Udp, HEADER_LEN>;

/// State of a conversation.
pub struct UdpState {
    template: Template,
    /// Whether the layers below complete checksums, so that long payloads need not be summed here.
    leaves_sums: bool,
    sends: Cell<Sends>,
    /// Payloads of fewer octets go as they are; 0 until one went, and after a report.
    quick: Cell<u8>,
}

/// Whether datagrams may be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sends {
    Freely,
    /// The network said so after a message before; the next push is told.
    Unreachable,
    /// The peer has no port to send to.
    NoPeer,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`graph::BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut graph::Build<'_>) -> Result<ProtocolRef, graph::BuildError> {
    let layer = Udp {
        checksum: build.flag("checksum")?,
        origins: ports::Origins::new(build.cx.secret()),
        choices: ports::Choices::default(),
        reached: RefCell::default(),
    };
    Layered::build(build, layer)
}

/// The key of a conversation: the peer's port in the upper half, ours in the lower.
pub(crate) fn key_of(local: u16, peer: u16) -> u32 {
    u32::from(peer) << 16 | u32::from(local)
}

/// A key's two ports: ours, the peer's.
fn ports_in(key: u32) -> (u16, u16) {
    (key as u16, (key >> 16) as u16)
}

/// Opens a session below. Nothing is sent from a broadcast or a group (RFC 1122, section 3.2.1.3).
pub(crate) fn open_below(
    all: &Ports,
    cx: &Kernel,
    this: &ProtocolRef,
    mut ends: Participants,
) -> Result<SessionRef, OpenError> {
    let local = ends.local_mut()?;
    if let Some(Part::Host(many)) = local.top()
        && control::IsGroup::ask(cx, &all.lower, Some(*many))
    {
        *local = Part::Any.into();
    }
    all.lower.open(cx, Upper::new(this), ends)
}

/// Cuts a datagram, its payload behind `front` octets, to its length; its checksum is to be right,
/// known to be right, or absent where it may be.
fn examine(
    template: &Template,
    header: Header,
    message: &mut Message,
    front: usize,
) -> Result<(), &'static reason::Reason> {
    let payload = header.payload(message.len() - front).ok_or(&reason::BAD_LENGTH)?;
    message.truncate(front + payload);
    if message.has_attributes() && message.attribute::<offload::TransportChecksum>().is_some() {
        return Ok(());
    }
    let is_intact = match template.sum_received(header, payload) {
        None => !template.is_required,
        Some(sum) => offload::with_behind(sum, message, front).is_valid(),
    };
    if is_intact { Ok(()) } else { Err(&reason::BAD_CHECKSUM) }
}

impl Layer<HEADER_LEN> for Udp {
    /// The peer's port in the upper half, ours in the lower.
    type Key = u32;
    type State = UdpState;

    const QUOTES: bool = true;
    const NO_RECEIVER: &'static reason::Reason = &reason::NO_PORT;
    const OCTETS_MAX: usize = u16::MAX as usize - HEADER_LEN;

    fn offer(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u64, OpenError> {
        let (port, host) = ports::pop_offer(ends)?;
        self.forget_reached();
        Ok(ports::offer(port, host))
    }

    fn is_same_offer(one: u64, other: u64) -> bool {
        ports::port_of(one) == ports::port_of(other)
    }

    #[inline(always)]
    fn key_of(header: &[u8; HEADER_LEN]) -> u32 {
        Header::parse(header).ports()
    }

    fn offer_for(key: u32) -> u64 {
        ports::offer(ports_in(key).0, ports::ANY_HOST)
    }

    fn begin(&self, cx: &Kernel, lower: &SessionRef, key: u32) -> UdpState {
        let pseudo = self.origins.of(cx, lower).pseudo;
        let (local, peer) = ports_in(key);
        let sends = if peer == 0 { Sends::NoPeer } else { Sends::Freely };
        UdpState {
            template: Template::new((local, peer), pseudo, self.checksum),
            leaves_sums: offload::Offloads::of_session(cx, lower).tx_checksum,
            sends: Cell::new(sends),
            quick: Cell::new(0),
        }
    }

    fn ends(&self, cx: &Kernel, lower: &SessionRef, key: u32) -> Participants {
        let (local, peer) = ports_in(key);
        self.origins.of(cx, lower).participants(local, peer)
    }

    /// [`header`](Layer::header) looks at the length.
    #[inline(always)]
    fn fit(&self, _: &Connected, _: &mut Message) -> bool {
        true
    }

    /// The header for a payload in one slice that is summed without a call.
    #[inline(always)]
    fn header(&self, own: &Connected, message: &Message) -> Option<[u8; HEADER_LEN]> {
        let UdpState { template, quick, .. } = &own.state;
        let payload = message.single_slice()?;
        let octets = payload.len();
        if octets >= quick.get().into() {
            return None;
        }
        let mut sum = template.sum_sent(octets);
        if let Some(sum) = &mut sum {
            sum.add(payload);
        }
        Some(template.header(octets, sum).octets())
    }

    fn examine_sent(
        &self,
        _: &Kernel,
        own: &Connected,
        message: &mut Message,
    ) -> Result<[u8; HEADER_LEN], Unsent> {
        let UdpState { template, leaves_sums, sends, quick } = &own.state;
        let octets = message.len();
        match sends.get() {
            Sends::Freely if octets <= own.octets_max => {
                const { assert!(Checksum::LONG > u8::MAX as usize) }
                quick.set(u8::try_from(own.octets_max).unwrap_or(u8::MAX));
            }
            Sends::Freely => return Err((PushError::TooBig, &reason::TOO_BIG)),
            Sends::Unreachable => {
                sends.set(Sends::Freely);
                return Err((PushError::Unreachable, &ports::UNREACHABLE));
            }
            Sends::NoPeer => return Err((PushError::NotSupported, &ports::NO_REPLY)),
        }
        if *leaves_sums
            && octets >= Checksum::LONG
            && let Some(header) = template.partial_header(octets)
            && offload::TransportChecksum::leave(message, HEADER_LEN, CHECKSUM_AT)
        {
            return Ok(header.octets());
        }
        let sum = template.sum_sent(octets).map(|sum| offload::with_behind(sum, message, 0));
        Ok(template.header(octets, sum).octets())
    }

    #[inline(always)]
    fn is_plain(
        &self,
        own: &Connected,
        header: &[u8; HEADER_LEN],
        message: &Message,
        front: usize,
    ) -> bool {
        let Some(octets) = message.single_slice() else {
            return false;
        };
        let header = Header::parse(header);
        let payload = octets.get(front + HEADER_LEN..).unwrap_or_default();
        // A single message has nothing in front: what is summed by a call is for `examine`.
        if header.length() != payload.len() + HEADER_LEN
            || message.has_attributes()
            || front == 0 && payload.len() >= Checksum::LONG
        {
            return false;
        }
        match own.state.template.sum_received(header, payload.len()) {
            None => !own.state.template.is_required,
            Some(mut sum) => {
                sum.add(payload);
                sum.is_valid()
            }
        }
    }

    fn examine(
        &self,
        own: &Connected,
        header: &[u8; HEADER_LEN],
        message: &mut Message,
    ) -> Result<(), &'static reason::Reason> {
        examine(&own.state.template, Header::parse(header), message, 0)?;
        message.remove_attribute::<offload::TransportChecksum>();
        Ok(())
    }

    fn headers(&self, own: &Connected, cx: &Kernel, below: Headers) -> Option<Headers> {
        let header = |ports| Header::new(ports, 0, 0).octets();
        let fields = (CHECKSUM_AT as u8, &[(4, HeaderField::Length { from: 0 })][..]);
        self.origins.of(cx, own.lower()).headers(below, ports_in(own.key), header, fields)
    }

    fn describe(&self, own: &Connected) -> String {
        let (local, peer) = ports_in(own.key);
        alloc::format!("port {local} with port {peer} on {:?}", own.lower())
    }

    fn open(
        all: &Ports,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let from = (this, upper.receiver);
        if ends.peers().len() > 1 {
            return Unconnected::open_to_peers(all, cx, from, ends);
        }
        let (local, peer) = ports::pop_ports(&mut ends)?;
        if peer == 0 {
            let host = ports::local_host(ends.local_mut()?)?;
            return Unconnected::open(all, cx, from, (local, host), To::Everybody);
        }
        let lower = open_below(all, cx, this, ends)?;
        let opened = all.layer.open_through(all, cx, from, &lower, (local, peer));
        opened.inspect_err(|_| lower.close(cx))
    }

    /// A message of no session: an unconnected one takes it, or an enable makes a session.
    fn first(
        all: &Ports,
        at: Arrival<'_>,
        octets: &[u8; HEADER_LEN],
        mut message: Message,
    ) -> Result<(), Refused> {
        let header = Header::parse(octets);
        if let Some(reached) = all.layer.reached(at.lower, header.dst(), &message) {
            let template = reached.template.for_peer(header.src());
            return match examine(&template, header, &mut message, HEADER_LEN) {
                Ok(()) => reached.pop(at.cx, header, message),
                Err(why) => all.refuse(at, Some(octets), message, why),
            };
        }
        let (origin, key) = match all.layer.origins.learned(at.cx, at.lower) {
            Ok(origin) => (origin, header.ports()),
            Err(why) => return all.refuse(at, Some(octets), message, why),
        };
        let template = Template::new((header.dst(), 0), origin.pseudo, true);
        let from = template.for_peer(header.src());
        let examined = match examine(&from, header, &mut message, HEADER_LEN) {
            Ok(()) if header.dst() == 0 => Err(&reason::MALFORMED),
            examined => examined,
        };
        if let Err(why) = examined {
            return all.refuse(at, Some(octets), message, why);
        }
        let (destination, known) = (origin.destination_of(&message), (template, origin));
        let receiver = match origin.many {
            false => ports::receiver(&all.offers, header.dst(), destination),
            true => {
                let (first, other) = members(all, header.dst(), destination, &origin);
                if let Some(Receiver::Session(other)) = other {
                    match message.try_clone() {
                        // The sender hears of one refusal at most.
                        Ok(copy) => drop(all.layer.reach(at, header, known, copy, other)),
                        Err(_) => at.this.head().drops().count(&reason::NO_BUFFERS),
                    }
                }
                first
            }
        };
        match receiver {
            Some(Receiver::Protocol(upper)) => all.accept(at, &upper, key, message),
            Some(Receiver::Session(session)) => {
                all.layer.reach(at, header, known, message, session)
            }
            None if origin.is_for_many(&message) => {
                // The sender of a broadcast is not told (RFC 1122, section 3.2.2).
                all.dropped(at, Some(octets), &reason::NO_PORT);
                at.this.discard(message, &reason::NO_PORT);
                Ok(())
            }
            None => all.refuse(at, Some(octets), message, &reason::NO_PORT),
        }
    }

    fn control(all: &Ports, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if tell_served(all, ask, None) {
            return Answer::Answered;
        }
        match ask.get::<NetworkError>() {
            Some(error) => network_error(all, cx, this, error),
            None => all.answer(cx, ask),
        }
    }

    fn map(&self) -> Option<(&'static str, MapStats)> {
        Some(("origins", self.origins.stats()))
    }

    fn session_control(own: &Connected, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (local, peer) = ports_in(own.key);
        if ports::answer(ask, (local, None), Some((peer, None))) {
            return Answer::Answered;
        }
        if covers_hosts(ask) || Joins::are_meant(ask) {
            // A session to one peer has no groups, nor does what it stands on have some for it.
            return Answer::Unknown;
        }
        if let Some(question) = ask.get::<control::MaxPacket>() {
            question.octets = own.octets_max as u32;
        } else if !tell_served(&own.all, ask, own.all.layer.origins.of(cx, own.lower()).local) {
            return own.answer(cx, ask);
        }
        Answer::Answered
    }

    fn source(at: Arrival<'_>, header: Option<&[u8; HEADER_LEN]>) -> Option<Source> {
        let port = header.map_or(0, |header| Header::parse(header).src());
        Some(Source::port(at.cx, at.lower, port))
    }

    fn stop(&self) {
        self.forget_reached();
        self.origins.clear();
    }
}

/// Whether a question is for the pseudo-header, which is that of the checksum here: a layer above
/// need not cover the hosts again, and on a UDP of another framework it could not.
pub(crate) fn covers_hosts(ask: &mut Ask<'_>) -> bool {
    ask.get::<control::PseudoHeader>().is_some()
}

/// Answers whether a protocol has enabled a port at our host; false to other questions.
pub(crate) fn tell_served(all: &Ports, ask: &mut Ask<'_>, host: Option<HostAddr>) -> bool {
    let is = |port| matches!(ports::receiver(&all.offers, port, host), Some(Receiver::Protocol(_)));
    ask.answer::<control::ServesPort>(|asked| asked.served = is(asked.port)).is_answered()
}

impl Reached {
    /// Passes a datagram from the peer up, with its header still in front.
    fn pop(&self, cx: &Kernel, header: Header, mut message: Message) -> Result<(), Refused> {
        match message.set_attribute(Peer { host: self.peer, port: header.src() }) {
            Ok(()) => self.session.pop(cx, message),
            Err(_) => Err(self.session.refuse(cx, message, &ports::ATTRIBUTES_FULL)),
        }
    }
}

/// The takers of a datagram to a group at a port: the offer for the group, then the one for any
/// host.
fn members(
    all: &Ports,
    port: u16,
    group: Option<HostAddr>,
    origin: &ports::Origin,
) -> (Option<Receiver>, Option<Receiver>) {
    let takes = |taker: &Receiver| match (taker, group, origin.peer) {
        (Receiver::Session(session), Some(group), Some(source)) => {
            session.body().is_none_or(|own: &Unconnected| own.joins.admits(group, source))
        }
        _ => true,
    };
    let at = |host| all.offers.get(&ports::offer(port, host)).filter(takes);
    let (of_group, of_any) = (group.and_then(at), at(ports::ANY_HOST));
    match of_group {
        Some(_) => (of_group, of_any),
        None => (of_any, None),
    }
}

impl Udp {
    /// Passes a datagram, its header still in front, to an unconnected session.
    fn reach(
        &self,
        at: Arrival<'_>,
        header: Header,
        (template, origin): (Template, ports::Origin),
        mut message: Message,
        session: SessionRef,
    ) -> Result<(), Refused> {
        let Some(peer) = origin.peer else {
            return Err(session.refuse(at.cx, message, &reason::NOT_SUPPORTED));
        };
        if let Some(own) = session.body::<Unconnected>() {
            own.heard(at.lower, Peer { host: peer, port: header.src() });
        }
        let reached = Reached { at: (at.lower.id().0, header.dst()), template, peer, session };
        // With attributes it may be another's than the next one from there.
        if !message.has_attributes() && !origin.many {
            self.reached.replace(Some(reached.clone()));
        }
        message.remove_attribute::<offload::TransportChecksum>();
        reached.pop(at.cx, header, message)
    }

    /// The unconnected session of this port, if it is the one that was reached last and through the
    /// same session below. A message with attributes may be for another.
    #[inline]
    fn reached(&self, lower: &SessionRef, port: u16, message: &Message) -> Option<Reached> {
        if message.has_attributes() {
            return None;
        }
        let reached = self.reached.borrow();
        reached.as_ref().filter(|reached| reached.at == (lower.id().0, port)).cloned()
    }

    /// Has the next datagram for an unconnected session search for it.
    pub(crate) fn forget_reached(&self) {
        let _dropped_unborrowed = self.reached.take();
    }

    /// The session with this key through `lower`, whose hold it takes over. Without a local port
    /// it gets a free one; to many hosts it is an unconnected one.
    fn open_through(
        &self,
        all: &Ports,
        cx: &Kernel,
        (this, upper): (&ProtocolRef, &ProtocolRef),
        lower: &SessionRef,
        (local, peer): (u16, u16),
    ) -> Result<SessionRef, OpenError> {
        let origin = self.origins.of(cx, lower);
        let host = origin.local.unwrap_or(ports::ANY_HOST);
        let may_use = |port| {
            port == 0 || ports::is_free(&all.offers, (port, host), |taken| taken.is_of(upper))
        };
        if let Some(many) =
            origin.peer.filter(|_| control::IsGroup::ask(cx, &all.lower, origin.peer))
        {
            if !may_use(local) {
                return Err(OpenError::InUse);
            }
            let to = To::Group(Peer { host: many, port: peer });
            let opened = Unconnected::open(all, cx, (this, upper), (local, host), to)?;
            // It opens what it needs itself, to hosts that it is told of, too.
            lower.close(cx);
            return Ok(opened);
        }
        if ports::is_anothers(&all.offers, local, upper) {
            return Err(OpenError::InUse);
        }
        let is_bound = |port| all.find(lower, key_of(port, peer)).is_some();
        let is_free =
            |port| ports::is_free(&all.offers, (port, host), |_| false) && !is_bound(port);
        let chosen = match local {
            0 => Some(self.choices.choose(ports::ephemerals(cx), is_free)?),
            port if is_bound(port) || may_use(port) => None,
            _ => return Err(OpenError::InUse),
        };
        let port = chosen.as_ref().map_or(local, |chosen| chosen.number);
        all.open_on(cx, this, upper, lower, key_of(port, peer))
    }
}

/// Passes a report about a datagram sent from here on to its session's protocol above.
fn network_error(all: &Ports, cx: &Kernel, this: &ProtocolRef, error: &NetworkError) -> Answer {
    // A report that comes back from above, where no protocol understood it, ends here.
    let lower = error.session.as_ref().filter(|lower| lower.head().protocol() != this.id());
    let header = error.start.first_chunk().map(Header::parse);
    let (Some(lower), Some(header)) = (lower, header) else {
        return Answer::Unknown;
    };
    let (local, peer) = (header.src(), header.dst());
    let offered = |host| ports::receiver(&all.offers, local, host)?.session();
    let found = all.find(lower, key_of(local, peer));
    let found = found.or_else(|| offered(all.layer.origins.of(cx, lower).local));
    let Some(session) = found else {
        return Answer::Unknown;
    };
    // A session that has no holder has no one to tell: it would only lose a message.
    if error.kind == control::NetworkErrorKind::PortUnreachable
        && session.head().opens() > 0
        && let Some(own) = session.body::<Connected>()
        && own.state.sends.get() == Sends::Freely
    {
        own.state.sends.set(Sends::Unreachable);
        own.state.quick.set(0);
    }
    error.tell(cx, &session, HEADER_LEN)
}
