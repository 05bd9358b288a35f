//! Questions that several protocols ask or answer. Forwarded down by default; a protocol answers
//! what it knows.

use alloc::string::{String, ToString};
use core::ops::Deref;
use core::time::Duration;
use xk_core::control::{Field, Reader, Writer};
use xk_core::object::{OpenError, ProtocolRef, SessionRef};
use xk_core::{Answer, HostAddr, Kernel, Message, Reason, fields, question};

/// The largest message that can be pushed, in octets, fragmentation below included.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxPacket {
    /// Octets.
    pub octets: u32,
}
question!(MaxPacket { octets }, "max-packet", Fact);

/// The largest message that goes without being fragmented below, in octets.
#[derive(Clone, Copy, Debug, Default)]
pub struct OptPacket {
    /// Octets.
    pub octets: u32,
}
question!(OptPacket { octets }, "opt-packet", Fact);

/// The smallest message that arrives as it was sent, in octets: a shorter one may have octets added
/// behind it. A layer with a length in its header takes them off; a layer that does not answer
/// may be a link that adds.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinPacket {
    /// Octets; 0 where nothing is ever added.
    pub octets: u32,
}
question!(MinPacket { octets }, "min-packet", Fact);

/// Question for the time at which a wire takes one more message. A driver with a queue of its own
/// asks before it sends, because a refused message is lost. A wire that does not answer cannot
/// tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct WireRoom {
    /// Out: how long until there is room, or may be; zero if there is.
    pub after: Duration,
}
question!(WireRoom { after }, "wire-room", Ask);

/// Asked of an application before a run: what it is to open is opened, and closed again.
#[derive(Clone, Debug, Default)]
pub struct TryOpen {
    /// Out: why it does not open.
    pub refusal: String,
    /// Out: whether the participants are why, and not the way to them.
    pub is_address: bool,
}
question!(TryOpen { refusal, is_address }, "try-open", Ask);

impl TryOpen {
    /// Notes what came of it. Only what a run does not change is a refusal: no address and no
    /// route is learned by waiting.
    pub fn note(&mut self, cx: &Kernel, opened: Result<SessionRef, OpenError>) {
        match opened {
            Ok(session) => session.close(cx),
            Err(error @ (OpenError::Address(_) | OpenError::NoRoute)) => {
                self.refusal = error.to_string();
                self.is_address = matches!(error, OpenError::Address(_));
            }
            Err(_) => {}
        }
    }
}

/// Asks a session to send each message whole or not at all, with packets that tell routers so (RFC
/// 791, section 2.3; RFC 1191, section 3). A message that does not fit the path is refused as too
/// big.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeepWhole;
question!(KeepWhole {}, "keep-whole", Tell);

/// Asks that routers look at the packets of a session from now on (RFC 2113).
#[derive(Clone, Copy, Debug, Default)]
pub struct AlertRouters;
question!(AlertRouters {}, "alert-routers", Tell);

/// Asks that messages which arrive for the asking protocol bear the values of their headers
/// ([`Arrived`](crate::net::attribute::Arrived)).
#[derive(Clone, Copy, Debug, Default)]
pub struct TellArrivals {
    /// In: the number on the network layer of the transport that they arrive for.
    pub number: u32,
}
question!(TellArrivals { number }, "tell-arrivals", Ask);

/// The local host of a session, or the first of a protocol.
#[derive(Clone, Copy, Debug, Default)]
pub struct MyHost {
    /// The host.
    pub host: HostAddr,
}
question!(MyHost { host }, "my-host", Fact);

/// The destination that messages arriving by a session bear: the specific destination of RFC 1122,
/// section 4.1.3.5. It differs from [`MyHost`] where they are sent to a broadcast or a group.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpecificDestination {
    /// Out: the destination.
    pub host: HostAddr,
    /// Out: true if that is a broadcast or a group.
    pub many: bool,
}
question!(SpecificDestination { host, many }, "specific-destination", Fact);

/// The peer's host of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerHost {
    /// The host.
    pub host: HostAddr,
}
question!(PeerHost { host }, "peer-host", Fact);

/// The local hardware address.
#[derive(Clone, Copy, Debug, Default)]
pub struct MyEther {
    /// The address.
    pub address: [u8; 6],
}
question!(MyEther { address }, "my-ether", Fact);

/// The peer's hardware address of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerEther {
    /// The address.
    pub address: [u8; 6],
}
question!(PeerEther { address }, "peer-ether", Fact);

/// The local port of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct MyPort {
    /// The port.
    pub port: u16,
}
question!(MyPort { port }, "my-port", Fact);

/// The peer's port of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerPort {
    /// The port.
    pub port: u16,
}
question!(PeerPort { port }, "peer-port", Fact);

/// A session's part of the checksum of the layer above: the sum over the pseudo-header's addresses
/// and protocol number, without the length (RFC 768, RFC 9293 section 3.1).
#[derive(Clone, Copy, Debug, Default)]
pub struct PseudoHeader {
    /// For messages that arrive: the ones' complement sum so far, not folded.
    pub sum: u32,
    /// For messages sent. It differs where those that arrive were sent to everybody or to a group:
    /// an answer goes out from our own host.
    pub sum_sent: u32,
    /// True if no message may go or come without a checksum, since nothing else guards these
    /// addresses (RFC 8200, section 8.1).
    pub is_required: bool,
}
question!(PseudoHeader { sum, sum_sent, is_required }, "pseudo-header", Fact);

impl PseudoHeader {
    /// The sums for messages of this protocol number: from `peer` to `own`, and from `sender` to
    /// `peer`.
    #[must_use]
    pub fn new([own, sender]: [HostAddr; 2], peer: HostAddr, number: u32) -> Self {
        let words = |host: HostAddr| -> u32 {
            let words = host.octets().as_chunks().0.iter();
            words.map(|word| u32::from(u16::from_be_bytes(*word))).sum()
        };
        let others = words(peer) + number;
        let is_required = peer.to_v4().is_none();
        Self { sum: words(own) + others, sum_sent: words(sender) + others, is_required }
    }
}

/// The link type of what passes a wire or session, as in a pcapng interface block (1 is Ethernet,
/// 228 IPv4).
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkType {
    /// The link type.
    pub number: u16,
}
question!(LinkType { number }, "link-type", Fact);

/// The hardware address of a host on the link, if it is known now; asking starts the resolution.
#[derive(Clone, Copy, Debug, Default)]
pub struct Resolve {
    /// In: the host.
    pub host: HostAddr,
    /// Out: its address, or `None` while it is being asked for or after none answered.
    pub address: Option<[u8; 6]>,
}
question!(Resolve { host, address }, "resolve", Ask);

/// Tells the layer below that this host is ours on its link: answer for it and defend it.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClaimHost {
    /// The host.
    pub host: HostAddr,
}
question!(ClaimHost { host }, "claim-host", Tell, standing);

/// Asked upwards: another station on the link uses a host that is ours (RFC 5227 section 2.4).
#[derive(Clone, Copy, Debug)]
pub struct HostConflict {
    /// The host.
    pub host: HostAddr,
    /// The other station.
    pub address: [u8; 6],
}
question!(HostConflict { host, address }, "host-conflict", Tell, upward);

/// Tells the wire or link layer to take frames for this group address as well. Joins count: the
/// frames are taken until each join is taken back ([`LeaveGroup`]).
#[derive(Clone, Copy, Debug)]
pub struct JoinGroup {
    /// The hardware group address.
    pub address: [u8; 6],
}
question!(JoinGroup { address }, "join-group", Tell, standing until "leave-group");

/// Takes one [`JoinGroup`] back.
#[derive(Clone, Copy, Debug)]
pub struct LeaveGroup {
    /// The hardware group address.
    pub address: [u8; 6],
}
question!(LeaveGroup { address }, "leave-group", Tell);

/// Kind of an error that the network reports about a message sent before. Each of ICMP's reports
/// keeps its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetworkErrorKind {
    /// No way to the network.
    NetUnreachable,
    /// No answer from the host, or from the next hop.
    HostUnreachable,
    /// The peer has no such protocol.
    ProtocolUnreachable,
    /// The peer has nothing on this port.
    PortUnreachable,
    /// Too big for a link on the way, which may not fragment.
    PacketTooBig {
        /// The largest packet of that link, in octets, lower header included.
        mtu: u32,
    },
    /// The way that the sender has prescribed leads nowhere.
    SourceRouteFailed,
    /// There is no such network.
    NetUnknown,
    /// There is no such host.
    HostUnknown,
    /// The sender is cut off.
    SourceIsolated,
    /// Communication with the network is forbidden.
    NetProhibited,
    /// Communication with the host is forbidden, or the packet is filtered on the way.
    Prohibited,
    /// Lost its way: time to live exceeded.
    TimeExceeded,
    /// Fragments missing at the peer.
    ReassemblyTimeExceeded,
    /// The peer or a router finds a field wrong.
    ParameterProblem,
}

fields!(enum NetworkErrorKind {
    NetUnreachable = 0,
    HostUnreachable = 1,
    ProtocolUnreachable = 2,
    PortUnreachable = 3,
    PacketTooBig { mtu } = 4,
    SourceRouteFailed = 5,
    NetUnknown = 6,
    HostUnknown = 7,
    SourceIsolated = 8,
    NetProhibited = 9,
    Prohibited = 10,
    TimeExceeded = 11,
    ReassemblyTimeExceeded = 12,
    ParameterProblem = 13,
});

impl NetworkErrorKind {
    /// The meaning of a code of ICMP's "destination unreachable" (RFC 792; RFC 1122, section
    /// 3.2.2.1; RFC 1812, section 5.2.7.1), with the octets of the next link's largest packet or 0;
    /// `None` if the code is not known.
    #[must_use]
    pub const fn of_unreachable(code: u8, mtu: u32) -> Option<Self> {
        Some(match code {
            0 | 11 => Self::NetUnreachable,
            1 | 12 => Self::HostUnreachable,
            2 => Self::ProtocolUnreachable,
            3 => Self::PortUnreachable,
            4 => Self::PacketTooBig { mtu },
            5 => Self::SourceRouteFailed,
            6 => Self::NetUnknown,
            7 => Self::HostUnknown,
            8 => Self::SourceIsolated,
            9 => Self::NetProhibited,
            10 | 13..=15 => Self::Prohibited,
            _ => return None,
        })
    }

    /// Whether trying again is of no use. The others, *soft* ones, may be over in a moment (RFC
    /// 1122, section 4.2.3.9, for codes 0 to 5 of ICMP's "destination unreachable"; the later ones,
    /// which are younger, as Linux has them).
    #[must_use]
    pub const fn is_hard(self) -> bool {
        !matches!(
            self,
            Self::NetUnreachable
                | Self::HostUnreachable
                | Self::SourceRouteFailed
                | Self::TimeExceeded
                | Self::ReassemblyTimeExceeded
        )
    }

    /// The kind in a few words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetUnreachable => "net unreachable",
            Self::HostUnreachable => "host unreachable",
            Self::ProtocolUnreachable => "protocol unreachable",
            Self::PortUnreachable => "port unreachable",
            Self::PacketTooBig { .. } => "packet too big",
            Self::SourceRouteFailed => "source route failed",
            Self::NetUnknown => "net unknown",
            Self::HostUnknown => "host unknown",
            Self::SourceIsolated => "source isolated",
            Self::NetProhibited => "net prohibited",
            Self::Prohibited => "prohibited",
            Self::TimeExceeded => "time to live exceeded",
            Self::ReassemblyTimeExceeded => "fragments missing",
            Self::ParameterProblem => "parameter problem",
        }
    }
}

/// The beginning of a message: as many of its first 16 octets as are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    octets: [u8; Self::OCTETS_MAX],
    len: u8,
}

impl Start {
    /// Octets that are kept at most.
    pub const OCTETS_MAX: usize = 16;
    /// Nothing is known.
    pub const NONE: Self = Self { octets: [0; Self::OCTETS_MAX], len: 0 };

    /// The first of these octets.
    #[must_use]
    pub fn new(octets: &[u8]) -> Self {
        let mut start = Self::NONE;
        let known = octets.iter().zip(&mut start.octets);
        start.len = known.map(|(octet, place)| *place = *octet).count() as u8;
        start
    }

    /// The first octets of a message.
    #[must_use]
    pub fn of(message: &Message) -> Self {
        let mut start = Self::NONE;
        start.len = message.copy_to(0, &mut start.octets) as u8;
        start
    }

    /// The known octets behind a header of this length.
    #[must_use]
    pub fn behind(&self, header_octets: usize) -> Self {
        Self::new(self.get(header_octets..).unwrap_or_default())
    }
}

impl Deref for Start {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.octets.get(..self.len.into()).unwrap_or_default()
    }
}

impl Field for Start {
    fn put(&self, out: &mut Writer<'_>) {
        self.len.put(out);
        self.octets.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let len = u8::take(from).map(usize::from)?;
        let octets = <[u8; Self::OCTETS_MAX]>::take(from)?;
        octets.get(..len).map(Self::new)
    }
}

/// Asked upwards: the network reports an error about a message that this session, or one on it, has
/// sent. The receiver finds its own session by the first octets of its header and passes the
/// question on.
#[derive(Clone, Debug)]
pub struct NetworkError {
    /// Kind of error.
    pub kind: NetworkErrorKind,
    /// The host that says so, if it is not the peer itself.
    pub reporter: Option<HostAddr>,
    /// The session of the layer that passes the report on, through which the message went.
    pub session: Option<SessionRef>,
    /// Beginning of the message that the receiver of this question had pushed: its own header
    /// first, 8 octets at least (RFC 792); empty if the message is not known.
    pub start: Start,
}
question!(NetworkError { kind, reporter, session, start }, "network-error", Tell, upward);

impl NetworkError {
    /// An error that nothing more is known of.
    #[must_use]
    pub const fn new(kind: NetworkErrorKind) -> Self {
        Self { kind, reporter: None, session: None, start: Start::NONE }
    }

    /// Tells the protocol above `session` of it, without the header that this layer had put in
    /// front; `Unknown` if that protocol has no use for it.
    pub fn tell(&self, cx: &Kernel, session: &SessionRef, header_octets: usize) -> Answer {
        let start = self.start.behind(header_octets);
        let error = Self { session: Some(session.clone()), start, ..self.clone() };
        let upper = cx.protocol(session.head().upper());
        upper.and_then(|upper| upper.ask(cx, error)).map_or(Answer::Unknown, |_| Answer::Answered)
    }
}

/// Asked upwards by a network layer before it believes a report that any host may have written (RFC
/// 5927, section 4.1): is this the beginning of something that you have sent, and that is not
/// acknowledged? A layer that cannot know does not answer.
#[derive(Clone, Debug)]
pub struct IsOutstanding {
    /// The session of the asking layer that it went through.
    pub session: SessionRef,
    /// Beginning of the message, as in [`NetworkError`].
    pub start: Start,
    /// Out: whether it is.
    pub is: bool,
}
question!(IsOutstanding { session, start, is }, "is-outstanding", Ask, upward);

/// Asked of a network layer by its error protocol: an error arrived about a packet sent from here.
pub struct DeliverError {
    /// The packet's source: ours.
    pub source: HostAddr,
    /// The packet's destination.
    pub destination: HostAddr,
    /// The packet's protocol number.
    pub protocol: u8,
    /// The error, for the layer above; its `session` is filled in on the way.
    pub error: NetworkError,
}
question!(DeliverError { source, destination, protocol, error }, "deliver-error", Tell);

/// Cause for which a network layer tells the sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendErrorCause {
    /// A layer above refused the packet.
    Refused(&'static Reason),
    /// No route to the destination.
    NoRoute,
    /// The next hop does not answer.
    HostUnreachable,
    /// Time to live exceeded while forwarding.
    TimeToLive,
    /// Fragments missing when the reassembly timer went off.
    Reassembly,
    /// Does not fit the next link and may not be fragmented.
    TooBig {
        /// The next link's largest packet, in octets.
        mtu: u16,
    },
    /// An octet of the header is wrong.
    Parameter {
        /// Offset of the octet.
        pointer: u8,
    },
}

fields!(enum SendErrorCause {
    Refused(reason) = 0,
    NoRoute = 1,
    HostUnreachable = 2,
    TimeToLive = 3,
    Reassembly = 4,
    TooBig { mtu } = 5,
    Parameter { pointer } = 6,
});

/// Asked of the error protocol by its network layer: tell the sender of this packet.
/// It decides whether that is allowed (RFC 1122 section 3.2.2) and may be done now (rate limit).
pub struct SendError {
    /// The packet, network header in front. Taken by the layer that answers.
    pub packet: Option<Message>,
    /// Why.
    pub cause: SendErrorCause,
    /// True if the packet came as a link-layer broadcast or multicast: then no host is told.
    pub link_broadcast: bool,
}
question!(SendError { packet, cause, link_broadcast }, "send-error", Ask, upward);

/// Asked of a network layer by its error protocol: put these questions to me from now on.
pub struct RegisterErrorProtocol {
    /// The protocol that takes [`SendError`].
    pub protocol: ProtocolRef,
}
question!(RegisterErrorProtocol { protocol }, "register-error-protocol", Tell, standing);

/// Answered by a session whose peer has shown that it gets what is sent to it, by returning
/// something that only its receiver can know, or is this host itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeerProved;
question!(PeerProved {}, "peer-proved", Ask);

/// Asked of a session: whether this port, too, is served at its local host; or of a protocol, at
/// any host. Only a layer with ports answers.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServesPort {
    /// In: the port.
    pub port: u16,
    /// Out: true if a protocol has enabled it.
    pub served: bool,
}
question!(ServesPort { port, served }, "serves-port", Ask);

/// Whether a packet to this host would be delivered here.
#[derive(Clone, Copy, Debug, Default)]
pub struct IsLocalHost {
    /// In: the host.
    pub host: HostAddr,
    /// Out: true if it is one of ours, or a broadcast or group that we take.
    pub local: bool,
}
question!(IsLocalHost { host, local }, "is-local-host", Ask);

/// Whether what is sent to this host goes to several: it is a broadcast of a network of ours, or a
/// group. Nothing ever comes from it; an answer goes out from a host of ours.
#[derive(Clone, Copy, Debug, Default)]
pub struct IsGroup {
    /// In: the host.
    pub host: HostAddr,
    /// Out: true if it is several.
    pub many: bool,
}
question!(IsGroup { host, many }, "is-group", Ask);

impl IsGroup {
    /// Asks `lower` and the layers below it about a host; false without a host.
    pub fn ask(cx: &Kernel, lower: &ProtocolRef, host: Option<HostAddr>) -> bool {
        let asked = host.and_then(|host| lower.ask(cx, Self { host, many: false }));
        asked.is_some_and(|answer| answer.many)
    }
}

/// The largest message that `session` takes without fragmentation, or `otherwise` if no layer below
/// knows.
pub fn opt_packet(cx: &Kernel, session: &SessionRef, otherwise: u32) -> u32 {
    session.ask(cx, OptPacket::default()).map_or(otherwise, |q| q.octets)
}

/// The largest message that `session` takes at all, or `otherwise` if no layer below knows.
pub fn max_packet(cx: &Kernel, session: &SessionRef, otherwise: u32) -> u32 {
    session.ask(cx, MaxPacket::default()).map_or(otherwise, |q| q.octets)
}
