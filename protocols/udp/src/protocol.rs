//! The layer: ports tell conversations apart, and the checksum covers what the layer below says of
//! its hosts.

use crate::unconnected::Unconnected;
use crate::wire::{HEADER_LEN, Header, Template, length_of, ports_of};
use alloc::string::String;
use core::cell::Cell;
use core::net::Ipv4Addr;
use core::num::NonZeroU16;
use xk_core::control::ListMaps;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::participant::{AddressError, Wild};
use xk_core::reason::{self, Class, Reason};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, ProtocolRef, SessionRef, Upper,
};
use xk_kit::Checksum;
use xk_kit::control::{
    IsMany, MaxPacket, MinPacket, MyHost, MyPort, NetworkError, NetworkErrorKind, PeerPort,
    ServesPort,
};
use xk_kit::layer::{Arrival, Bounds, Conversation, Layer, Layered, Receiver, Unsent};
use xk_kit::net::attribute::Peer;
use xk_kit::net::checksum::LONG;
use xk_kit::net::ports::{ANY_HOST, Origins, definite, ephemeral, is_everybody, local_host};
use xk_kit::net::talkers::{PARAMETER, SOURCES_MAX, Talkers};
use xk_kit::wire::offload::{Offloads, TransportChecksum};

/// No protocol of the peer takes this port, as the network said before.
pub(crate) static UNREACHABLE: Reason = Reason::new("unreachable", Class::Bad);
/// The peer sent from port zero: it wants no reply.
pub(crate) static NO_REPLY: Reason = Reason::new("no reply wanted", Class::Bad);

/// Where in a datagram the checksum is.
const CHECKSUM_AT: u16 = 6;
/// Offers that a layer takes unless the graph says otherwise.
const OFFERS_MAX: usize = 16_384;

/// One instance of the layer.
pub struct Udp {
    /// Whether datagrams are sent with a checksum.
    pub(crate) checksum: bool,
    pub(crate) origins: Origins,
    /// The peers whose datagrams were dropped.
    talkers: Talkers,
}

/// The protocol object.
pub(crate) type Ports = Layered<Udp, HEADER_LEN>;
type Connected = Conversation<Udp, HEADER_LEN>;

/// What a conversation keeps.
pub struct State {
    template: Template,
    /// Whether the layers below complete checksums, so that long payloads need not be summed here.
    leaves_sums: bool,
    sends: Cell<Sends>,
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
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let params = build.params;
    let bounds = Bounds {
        passive: params.number("passive_max", 0),
        offers: params.number("enables_max", OFFERS_MAX),
        ..Bounds::sessions(params.number("sessions_max", 65_536))
    };
    let checksum = params.get("checksum").is_none() || params.flag("checksum");
    let sources = params.number(PARAMETER.name, SOURCES_MAX);
    let lower = build.lower(0)?;
    build.add(layered(build.cx, lower, bounds, (checksum, sources)))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(
    cx: &Kernel,
    name: &str,
    lower: ProtocolRef,
    sessions_max: usize,
    checksum: bool,
) -> ProtocolRef {
    let bounds = Bounds { offers: OFFERS_MAX, ..Bounds::sessions(sessions_max) };
    let layer = layered(cx, lower, bounds, (checksum, SOURCES_MAX));
    cx.add_protocol(crate::ENTRY.kind, name, layer)
}

fn layered(
    cx: &Kernel,
    lower: ProtocolRef,
    bounds: Bounds,
    (checksum, sources): (bool, usize),
) -> Ports {
    let secret = cx.secret();
    let udp = Udp { checksum, origins: Origins::new(secret), talkers: Talkers::new(sources) };
    Layered::new(secret, lower, bounds, udp)
}

/// The number of an offer for a local port and host; [`ANY_HOST`] for any.
pub(crate) fn offer_of(port: u16, host: u32) -> u64 {
    u64::from(port) << 32 | u64::from(host)
}

/// A key's two ports: ours, the peer's.
fn ports_in(key: u32) -> (u16, u16) {
    (key as u16, (key >> 16) as u16)
}

/// The header for any payload.
pub(crate) fn header_of(template: &Template, payload: &Message) -> [u8; HEADER_LEN] {
    let sum = template.sum_sent(payload.len());
    template.header(payload.len(), sum.map(|sum| with_payload(sum, payload, 0)))
}

/// True if the checksum of a datagram is right or absent, its payload behind `front` octets.
fn is_intact(
    template: &Template,
    header: &[u8; HEADER_LEN],
    message: &Message,
    front: usize,
) -> bool {
    let sum = template.sum_received(header, message.len() - front);
    sum.is_none_or(|sum| with_payload(sum, message, front).is_valid())
}

/// A sum with the octets of a message behind the first `front`.
fn with_payload(mut sum: Checksum, message: &Message, mut front: usize) -> Checksum {
    if let Some(payload) = message.single_slice().and_then(|octets| octets.get(front..)) {
        sum.add(payload);
        return sum;
    }
    for slice in message.slices() {
        let skipped = front.min(slice.octets.len());
        front -= skipped;
        sum.add(&slice.octets[skipped..]);
    }
    sum
}

/// The receiver of what comes to this port and host, which may be a broadcast or a group.
fn receiver(all: &Ports, port: u16, host: Option<Ipv4Addr>) -> Option<Receiver> {
    let at = |host| all.offers.get(&offer_of(port, host));
    host.and_then(|host| at(host.into())).or_else(|| at(ANY_HOST))
}

/// True if what comes to this port is taken by `upper` alone, or not at all.
fn may_use(all: &Ports, port: u16, host: u32, upper: &ProtocolRef) -> bool {
    let at = |host| all.offers.get(&offer_of(port, host));
    [ANY_HOST, host].into_iter().filter_map(at).all(|receiver| match receiver {
        Receiver::Protocol(other) => other == *upper,
        Receiver::Session(session) => session.head().upper() == upper.id(),
    })
}

/// True if this port is offered to no one.
pub(crate) fn is_free(all: &Ports, port: u16, host: u32) -> bool {
    let is_taken = |host| all.offers.contains(&offer_of(port, host));
    !is_taken(ANY_HOST) && !is_taken(host)
}

impl Layer<HEADER_LEN> for Udp {
    /// The peer's port in the upper half, ours in the lower.
    type Key = u32;
    type State = State;

    const QUOTES: bool = true;
    const NO_RECEIVER: &'static Reason = &reason::NO_PORT;
    const OCTETS_MAX: usize = u16::MAX as usize - HEADER_LEN;

    fn key(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u32, OpenError> {
        let local = match ends.local_mut()?.pop_port()? {
            Wild::Is(0) => return Err(AddressError::OutOfRange.into()),
            Wild::Is(port) => port,
            Wild::Any => 0,
        };
        let peer = definite(ends.peer_mut()?.pop_port()?)?;
        let host = ends.local_mut()?;
        if host.is_empty() {
            host.push(Part::Any);
        }
        Ok(u32::from(peer) << 16 | u32::from(local))
    }

    fn offer(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u64, OpenError> {
        let local = ends.local_mut()?;
        let port = definite(local.pop_port()?)?;
        Ok(offer_of(port, local_host(local)?))
    }

    #[inline(always)]
    fn key_of(header: &[u8; HEADER_LEN]) -> u32 {
        ports_of(header)
    }

    fn offer_for(key: u32) -> u64 {
        offer_of(ports_in(key).0, ANY_HOST)
    }

    fn begin(&self, cx: &Kernel, lower: &SessionRef, key: u32) -> State {
        let pseudo = self.origins.of(cx, lower).pseudo;
        let (local, peer) = ports_in(key);
        let sends = if peer == 0 { Sends::NoPeer } else { Sends::Freely };
        State {
            template: Template::new((local, peer), pseudo, self.checksum),
            leaves_sums: Offloads::of_session(cx, lower).tx_checksum,
            sends: Cell::new(sends),
        }
    }

    fn ends(&self, cx: &Kernel, lower: &SessionRef, key: u32) -> Participants {
        let (local, peer) = ports_in(key);
        self.origins.of(cx, lower).participants(local, peer)
    }

    /// The header for a payload in one slice, below [`LONG`]: that is summed without a call.
    #[inline(always)]
    fn header(&self, own: &Connected, message: &Message) -> Option<[u8; HEADER_LEN]> {
        let State { template, sends, .. } = &own.state;
        let payload = message.single_slice()?;
        let octets = payload.len();
        if octets >= LONG || octets > own.octets_max || sends.get() != Sends::Freely {
            return None;
        }
        let mut sum = template.sum_sent(octets);
        if let Some(sum) = &mut sum {
            sum.add(payload);
        }
        Some(template.header(octets, sum))
    }

    fn examine_sent(
        &self,
        _: &Kernel,
        own: &Connected,
        message: &mut Message,
    ) -> Result<[u8; HEADER_LEN], Unsent> {
        let State { template, leaves_sums, sends } = &own.state;
        let octets = message.len();
        match sends.get() {
            Sends::Freely if octets <= own.octets_max => {}
            Sends::Freely => {
                let max = own.octets_max as u32;
                return Err((PushError::TooBig { max }, &reason::TOO_BIG));
            }
            Sends::Unreachable => {
                sends.set(Sends::Freely);
                return Err((PushError::Unreachable, &UNREACHABLE));
            }
            Sends::NoPeer => return Err((PushError::NotSupported, &NO_REPLY)),
        }
        let left = match *leaves_sums && octets >= LONG {
            true => leave_sum(template, message),
            false => None,
        };
        Ok(left.unwrap_or_else(|| header_of(template, message)))
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
        let payload = octets.get(front + HEADER_LEN..).unwrap_or_default();
        // A single message has nothing in front: what is summed by a call is for `examine`.
        if length_of(header) != payload.len() + HEADER_LEN
            || message.has_attributes()
            || front == 0 && payload.len() >= LONG
        {
            return false;
        }
        match own.state.template.sum_received(header, payload.len()) {
            None => true,
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
    ) -> Result<(), &'static Reason> {
        let payload = length_of(header).checked_sub(HEADER_LEN);
        let payload = payload.filter(|octets| *octets <= message.len());
        message.truncate(payload.ok_or(&reason::BAD_LENGTH)?);
        let is_verified =
            message.has_attributes() && message.remove_attribute::<TransportChecksum>().is_some();
        match is_verified || is_intact(&own.state.template, header, message, 0) {
            true => Ok(()),
            false => Err(&reason::BAD_CHECKSUM),
        }
    }

    fn describe(&self, own: &Connected) -> String {
        let (local, peer) = ports_in(own.key);
        alloc::format!("port {local} with port {peer} on {:?}", own.lower)
    }

    fn open(
        all: &Ports,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let from = (this, upper.receiver);
        if is_everybody(ends.peer_mut()?) {
            let local = ends.local_mut()?;
            let port = match local.pop_port()? {
                Wild::Is(0) => return Err(AddressError::OutOfRange.into()),
                port => port,
            };
            return Unconnected::open(all, cx, from, (port, local_host(local)?), None);
        }
        let key = all.layer.key(cx, this, upper, &mut ends)?;
        if let Some(Part::Host(many)) = ends.local_mut()?.top()
            && IsMany::ask(cx, &all.lower, Some(*many))
        {
            // Nothing is sent from there (RFC 1122, section 3.2.1.3).
            *ends.local_mut()? = Participant::of(Part::Any);
        }
        let lower = all.lower.open(cx, Upper::new(this), ends)?;
        let opened = all.layer.open_through(all, cx, from, &lower, key);
        opened.inspect_err(|_| lower.close(cx))
    }

    /// A message of no session: an unconnected one takes it, or an enable makes a session.
    fn first(
        all: &Ports,
        at: Arrival<'_>,
        octets: &[u8; HEADER_LEN],
        mut message: Message,
    ) -> Result<(), Refused> {
        let length = length_of(octets);
        if length < HEADER_LEN || length > message.len() {
            return all.refuse(at, Some(octets), message, &reason::BAD_LENGTH);
        }
        message.truncate(length);
        let Ok(header) = Header::parse(octets) else {
            return all.refuse(at, Some(octets), message, &reason::MALFORMED);
        };
        let origin = all.layer.origins.of(at.cx, at.lower);
        let key = ports_of(octets);
        let template = Template::new(ports_in(key), origin.pseudo, true);
        let is_verified = message.attribute::<TransportChecksum>().is_some();
        if !is_verified && !is_intact(&template, octets, &message, HEADER_LEN) {
            return all.refuse(at, Some(octets), message, &reason::BAD_CHECKSUM);
        }
        match receiver(all, header.dst.get(), origin.destination_of(&message)) {
            Some(Receiver::Protocol(upper)) => all.accept(at, &upper, key, message),
            Some(Receiver::Session(session)) => {
                let port = header.src.map_or(0, NonZeroU16::get);
                let peer = origin.peer.map(|host| Peer { host, port });
                Unconnected::pop_from(at.cx, &session, peer, message)
            }
            None if origin.is_for_many(&message) => {
                // The sender of a broadcast is not told (RFC 1122, section 3.2.2).
                all.layer.dropped(at, Some(octets), &reason::NO_PORT);
                at.this.discard(message, &reason::NO_PORT);
                Ok(())
            }
            None => all.refuse(at, Some(octets), message, &reason::NO_PORT),
        }
    }

    fn control(all: &Ports, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let udp = &all.layer;
        if udp.talkers.answer(this, ask) {
            return Answer::Answered;
        }
        if ask.get::<NetworkError>().is_some() {
            return network_error(all, cx, this, ask);
        }
        let answer = all.answer(cx, ask);
        if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("origins", udp.origins.stats()));
        }
        answer
    }

    fn session_control(own: &Connected, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let (local, peer) = ports_in(own.key);
        if let Some(question) = ask.get::<MyPort>() {
            question.port = local;
        } else if let Some(question) = ask.get::<PeerPort>() {
            question.port = peer;
        } else if let Some(question) = ask.get::<MaxPacket>() {
            question.octets = own.octets_max as u32;
        } else if let Some(question) = ask.get::<ServesPort>() {
            let host = own.lower.ask(cx, MyHost { host: Ipv4Addr::UNSPECIFIED });
            let host = host.map(|q| q.host);
            let found = receiver(&own.all, question.port, host);
            question.served = matches!(found, Some(Receiver::Protocol(_)));
        } else if let Some(question) = ask.get::<MinPacket>() {
            question.octets = 0;
        } else {
            return own.answer(cx, ask);
        }
        Answer::Answered
    }

    fn dropped(&self, at: Arrival<'_>, header: Option<&[u8; HEADER_LEN]>, why: &'static Reason) {
        let port = header.map_or(0, |header| (ports_of(header) >> 16) as u16);
        self.talkers.blame(at.cx, at.lower, port, why);
    }

    fn stop(&self) {
        self.talkers.clear();
        self.origins.clear();
    }
}

/// The header for a payload whose sum a layer below completes; `None` if it is to be summed here.
#[inline(never)]
fn leave_sum(template: &Template, message: &mut Message) -> Option<[u8; HEADER_LEN]> {
    let payload = message.len();
    let header = template.partial_header(payload)?;
    let partial =
        TransportChecksum::Partial { segment: (payload + HEADER_LEN) as u32, field: CHECKSUM_AT };
    message.set_attribute(partial).is_ok().then_some(header)
}

impl Udp {
    /// The session with this key through `lower`, whose hold it takes over. Without a local port
    /// it gets a free one; to many hosts it is an unconnected one.
    fn open_through(
        &self,
        all: &Ports,
        cx: &Kernel,
        (this, upper): (&ProtocolRef, &ProtocolRef),
        lower: &SessionRef,
        key: u32,
    ) -> Result<SessionRef, OpenError> {
        let origin = self.origins.of(cx, lower);
        let host = origin.local.map_or(ANY_HOST, u32::from);
        let (local, peer) = ports_in(key);
        let may_use = |port| may_use(all, port, host, upper);
        if let Some(many) = origin.peer.filter(|_| IsMany::ask(cx, &all.lower, origin.peer)) {
            let local = if local == 0 { Wild::Any } else { Wild::Is(local) };
            if matches!(local, Wild::Is(port) if !may_use(port)) {
                return Err(OpenError::InUse);
            }
            let to = Peer { host: many, port: peer };
            let opened = Unconnected::open(all, cx, (this, upper), (local, host), Some(to))?;
            // It opens what it needs itself, to hosts that it is told of, too.
            lower.close(cx);
            return Ok(opened);
        }
        let with = |local: u16| u32::from(peer) << 16 | u32::from(local);
        let is_bound = |port| all.find(lower, with(port)).is_some();
        let port = match local {
            0 => ephemeral(cx, |port| is_free(all, port, host) && !is_bound(port))?,
            port => port,
        };
        if !is_bound(port) && !may_use(port) {
            return Err(OpenError::InUse);
        }
        all.open_on(cx, this, upper, lower, with(port))
    }
}

/// Passes a report about a datagram sent from here on to its session's protocol above.
fn network_error(all: &Ports, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
    let Some(error) = ask.get::<NetworkError>() else {
        return Answer::Unknown;
    };
    let Some(lower) = error.session.clone() else {
        return Answer::Unknown;
    };
    // A report that comes back from above, where no protocol understood it, ends here.
    if lower.head().protocol() == this.id() || error.start_len < HEADER_LEN {
        return Answer::Unknown;
    }
    let [a, b, c, d, ..] = error.start;
    let (local, peer) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    let connected = all.find(&lower, u32::from(peer) << 16 | u32::from(local));
    let found = connected.or_else(|| {
        let host = all.layer.origins.of(cx, &lower).local;
        match receiver(all, local, host) {
            Some(Receiver::Session(session)) => Some(session),
            _ => None,
        }
    });
    let Some(session) = found else {
        return Answer::Unknown;
    };
    // A session that has no holder has no one to tell: it would only lose a message.
    if error.kind == NetworkErrorKind::PortUnreachable
        && session.head().opens() > 0
        && let Some(own) = session.body::<Connected>()
        && own.state.sends.get() == Sends::Freely
    {
        own.state.sends.set(Sends::Unreachable);
    }
    error.start.copy_within(HEADER_LEN.., 0);
    error.start_len = error.start_len.min(error.start.len()) - HEADER_LEN;
    error.session = Some(session.clone());
    match cx.protocol(session.head().upper()) {
        Some(upper) => upper.control(cx, ask),
        None => Answer::Unknown,
    }
}
