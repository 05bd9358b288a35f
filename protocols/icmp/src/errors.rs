//! Errors: telling senders, and passing on what others tell.

use crate::protocol::{Pings, header_of, reasons};
use crate::wire::{
    ERROR_DATAGRAM_LEN_MAX, HEADER_LEN, Header, IP_PROTOCOL, ParameterProblem,
    QUOTED_PAYLOAD_LEN_MIN, Quoted, TimeExceeded, Unreachable, is_error,
};
use core::net::Ipv4Addr;
use core::num::NonZeroU16;
use xk_core::object::Refused;
use xk_core::reason::{self, Class};
use xk_core::{Kernel, Message, Part, Participants, ProtocolRef, SessionRef, Upper};
use xk_kit::control::{
    DeliverError, NetworkError, NetworkErrorKind, PeerHost, SendError, SendErrorCause, Start,
};
use xk_kit::layer::Arrival;

/// Octets of an IPv4 header without options, as an error goes out under.
const IP_HEADER_LEN: usize = 20;
/// The longest IPv4 header, and the octets behind it that a report carries up.
const QUOTED_LEN: usize = 60 + 16;
/// The name of the reason by which the layer below refuses source routes. Reasons are compared by
/// name.
const SOURCE_ROUTE: &str = "source route";

/// Header of the error for the sender; `None` if the sender is not told of the cause.
fn header_for(cause: SendErrorCause) -> Option<Header> {
    Some(match cause {
        SendErrorCause::Refused(why) => Header::Unreachable(match why.class {
            Class::NoPort => Unreachable::Port,
            Class::NoProtocol => Unreachable::Protocol,
            Class::Prohibited if why.name == SOURCE_ROUTE => Unreachable::SourceRouteFailed,
            Class::Prohibited => Unreachable::Prohibited,
            Class::Bad | Class::Exhausted | Class::NotMine => return None,
        }),
        SendErrorCause::NoRoute => Header::Unreachable(Unreachable::Net),
        SendErrorCause::HostUnreachable => Header::Unreachable(Unreachable::Host),
        SendErrorCause::TimeToLive => Header::TimeExceeded(TimeExceeded::Transit),
        SendErrorCause::Reassembly => Header::TimeExceeded(TimeExceeded::Reassembly),
        SendErrorCause::TooBig { mtu } => {
            Header::Unreachable(Unreachable::FragmentationNeeded(NonZeroU16::new(mtu)))
        }
        SendErrorCause::Parameter { pointer } => {
            Header::ParameterProblem(ParameterProblem::Pointer(pointer))
        }
    })
}

/// Error for the protocol that sent the packet; `None` if it has no use for it.
fn kind_of(header: Header) -> Option<NetworkErrorKind> {
    Some(match header {
        Header::Unreachable(unreachable) => {
            let mtu = match unreachable {
                Unreachable::FragmentationNeeded(Some(mtu)) => u32::from(mtu.get()),
                _ => 0,
            };
            return NetworkErrorKind::of_unreachable(unreachable.code(), mtu);
        }
        Header::TimeExceeded(TimeExceeded::Transit) => NetworkErrorKind::TimeExceeded,
        Header::TimeExceeded(TimeExceeded::Reassembly) => NetworkErrorKind::ReassemblyTimeExceeded,
        Header::ParameterProblem(_) => NetworkErrorKind::ParameterProblem,
        _ => return None,
    })
}

/// Whether errors may be sent to this host, or about packets to it (RFC 1122, section 3.2.2).
fn is_one_host(host: Ipv4Addr) -> bool {
    matches!(host.octets()[0], 1..=126 | 128..=223)
}

/// The packet's source and destination, if its sender may be told.
fn may_tell(packet: &mut Message) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let len = packet.len().min(QUOTED_LEN);
    packet.pull_up(len).ok()?;
    let quoted = Quoted::parse(packet.peek_slice(len)?).ok()?;
    // To ourselves it may come from and go to 127/8.
    let looped = quoted.src.is_loopback() && quoted.dst.is_loopback();
    if quoted.fragment_offset != 0 || !looped && !is_one_host(quoted.src) {
        return None;
    }
    let is_cast = quoted.dst.is_multicast() || quoted.dst.is_broadcast();
    let silent = match quoted.payload.first() {
        Some(kind) => is_error(*kind),
        None => true,
    };
    if is_cast || quoted.protocol == IP_PROTOCOL && silent {
        return None;
    }
    Some((quoted.src, quoted.dst))
}

/// Tells a packet's sender, if that is allowed.
pub(crate) fn send_error(all: &Pings, cx: &Kernel, this: &ProtocolRef, question: &mut SendError) {
    let icmp = &all.layer;
    let Some(mut packet) = question.packet.take() else {
        return;
    };
    let told = match header_for(question.cause) {
        Some(header) if !question.link_broadcast => may_tell(&mut packet).map(|t| (header, t)),
        _ => None,
    };
    let Some((header, (src, dst))) = told else {
        this.discard(packet, &reasons::NOT_TOLD);
        return;
    };
    if !icmp.limit.take(cx, u64::from(src.to_bits()), 1) {
        this.discard(packet, &reasons::RATE_LIMITED);
        return;
    }
    packet.truncate(ERROR_DATAGRAM_LEN_MAX - IP_HEADER_LEN - HEADER_LEN);
    if packet.push_array(&header_of(header, &packet)).is_err() {
        this.discard(packet, &reason::NO_BUFFERS);
        return;
    }
    // What was for us is answered from where it was sent to; the rest from the way back.
    let open = |local: Part| {
        let ends = Participants::pair(local, Part::host(src));
        all.lower.open(cx, Upper::new(this), ends)
    };
    let Ok(session) = open(Part::host(dst)).or_else(|_| open(Part::Any)) else {
        this.discard(packet, &reasons::NOT_SENT);
        return;
    };
    match session.push(cx, packet) {
        Ok(()) => icmp.figure(|f| f.errors_sent += 1),
        Err(_) => this.head().drops().count(&reasons::NOT_SENT),
    }
    icmp.keep(cx, session);
}

/// Takes an error message, checksum verified, and passes it on to the sender of the packet.
pub(crate) fn take_error(
    all: &Pings,
    at: Arrival<'_>,
    octets: &[u8; HEADER_LEN],
    header: Header,
    mut message: Message,
) -> Result<(), Refused> {
    let Arrival { cx, lower, .. } = at;
    let refuse = |message, why| all.refuse(at, Some(octets), message, why);
    let Some(kind) = kind_of(header) else {
        return refuse(message, &reasons::IGNORED);
    };
    let len = message.len().min(HEADER_LEN + QUOTED_LEN);
    if message.pull_up(len).is_err() {
        return refuse(message, &reason::NO_BUFFERS);
    }
    let body = message.peek_slice(len).and_then(|o| o.get(HEADER_LEN..));
    let Some(Ok(quoted)) = body.map(Quoted::parse) else {
        return refuse(message, &reason::MALFORMED);
    };
    if quoted.fragment_offset != 0 {
        return refuse(message, &reasons::LATER_FRAGMENT);
    }
    if quoted.payload.len() < QUOTED_PAYLOAD_LEN_MIN {
        return refuse(message, &reason::TRUNCATED);
    }
    let reporter = lower.ask(cx, PeerHost::default()).map(|q| q.host);
    let question = DeliverError {
        source: quoted.src.into(),
        destination: quoted.dst.into(),
        protocol: quoted.protocol,
        error: NetworkError {
            reporter: reporter.filter(|host| *host != quoted.dst),
            start: Start::new(quoted.payload),
            ..NetworkError::new(kind)
        },
    };
    if all.lower.ask(cx, question).is_none() {
        return refuse(message, &reasons::UNMATCHED_ERROR);
    }
    // If no session has sent such a packet, the layer below has counted it.
    all.layer.figure(|f| f.errors_received += 1);
    Ok(())
}

/// The network reports an error about an echo request: tells the protocol that asked for it.
pub(crate) fn report_echo_error(all: &Pings, cx: &Kernel, error: &NetworkError) {
    let Some(lower) = &error.session else {
        return;
    };
    let find = |id: u16| all.find(lower, id.into());
    // A protocol that does not understand it has no use for it.
    let tell = |session: &SessionRef| {
        let _ = error.tell(cx, session, HEADER_LEN);
    };
    match *error.start {
        [8, _, _, _, a, b, _, _, ..] => {
            find(u16::from_be_bytes([a, b])).iter().for_each(tell);
        }
        // Which request failed is not known: every session that goes the same way hears of it.
        [] => all.layer.ids_through(lower).filter_map(find).for_each(|s| tell(&s)),
        _ => {}
    }
}
