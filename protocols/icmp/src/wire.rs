//! ICMP messages (RFC 792, with RFC 1122 section 3.2.2, RFC 1191 and RFC 1812
//! section 4.3): the first eight octets, the checksum over the whole message,
//! and a view of the datagram an error quotes.

use core::mem;
use core::num::NonZeroU16;

use xk_kit::Checksum;
use xk_kit::net::addr::Ipv4;
use xk_kit::net::checksum;

/// Octets of what all messages begin with.
pub const HEADER_LEN: usize = 8;
/// Octets after the header of a timestamp message.
pub const TIMES_LEN: usize = 12;
/// The protocol's number in IP.
pub const IP_PROTOCOL: u8 = 1;
/// Octets of the datagram an error message is part of, at most (RFC 1812, section 4.3.2.3).
pub const ERROR_DATAGRAM_LEN_MAX: usize = 576;
/// Octets of the payload that an error quotes at least (RFC 792).
pub const QUOTED_PAYLOAD_LEN_MIN: usize = 8;

/// Header of a message: its first eight octets, checksum aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Header {
    /// Type 0; what was sent follows.
    EchoReply(Query),
    /// Type 3; the datagram that did not arrive follows.
    Unreachable(Unreachable),
    /// Type 4; never sent any more (RFC 6633), the datagram follows.
    SourceQuench,
    /// Type 5; the datagram that has a better way follows.
    Redirect(Redirect, Ipv4),
    /// Type 8; octets to be sent back follow.
    EchoRequest(Query),
    /// Type 11; the datagram that was too old follows.
    TimeExceeded(TimeExceeded),
    /// Type 12; the datagram with the fault follows.
    ParameterProblem(ParameterProblem),
    /// Type 13; [`Times`] follow.
    TimestampRequest(Query),
    /// Type 14; [`Times`] follow.
    TimestampReply(Query),
}

/// Identity of the question that an answer belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// Identifier of the asker's choice, as a port is.
    pub id: u16,
    /// Number of the question.
    pub sequence: u16,
}

/// Why a datagram did not arrive: codes 0 to 15 of type 3 (RFC 792, RFC 1122
/// section 3.2.2.1, RFC 1812 section 5.2.7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unreachable {
    /// 0: no route.
    Net,
    /// 1: no answer on the last network.
    Host,
    /// 2: the host lacks the protocol.
    Protocol,
    /// 3: the host lacks the port.
    Port,
    /// 4: too long for the next network and not to be fragmented; holds that
    /// network's maximum in octets, if the router knows RFC 1191.
    FragmentationNeeded(Option<NonZeroU16>),
    /// 5: a source route led nowhere.
    SourceRouteFailed,
    /// 6: the network is not known.
    NetUnknown,
    /// 7: the host is not known.
    HostUnknown,
    /// 8: the source is cut off (obsolete).
    SourceIsolated,
    /// 9: communication with the network is forbidden.
    NetProhibited,
    /// 10: communication with the host is forbidden.
    HostProhibited,
    /// 11: the network does not offer this type of service.
    NetService,
    /// 12: the host cannot be reached with this type of service.
    HostService,
    /// 13: filtered by the administration.
    Prohibited,
    /// 14: this precedence is not permitted.
    PrecedenceViolation,
    /// 15: precedence below the required minimum.
    PrecedenceCutoff,
}

/// Traffic to be redirected: codes of type 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Redirect {
    /// Everything for the network; treated as `Host` (RFC 1122, 3.2.2.2).
    Net = 0,
    /// Everything for the host.
    Host = 1,
    /// For the network, with this type of service.
    NetService = 2,
    /// For the host, with this type of service.
    HostService = 3,
}

/// Timer that expired: codes of type 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum TimeExceeded {
    /// Hops used up in transit.
    Transit = 0,
    /// Fragments missing.
    Reassembly = 1,
}

/// Fault of a datagram: codes of type 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterProblem {
    /// 0: the octet at this offset of the header.
    Pointer(u8),
    /// 1: a required option is missing (RFC 1122, section 3.2.2.5).
    MissingOption,
    /// 2: a length is wrong.
    Length,
}

/// Milliseconds since midnight UT, most significant bit set if not so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Times {
    /// Time at which the request was sent.
    pub originate_ms: u32,
    /// Time at which the request arrived.
    pub receive_ms: u32,
    /// Time at which the reply was sent.
    pub transmit_ms: u32,
}

/// A whole message, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The first eight octets.
    pub header: Header,
    /// Octets behind the header.
    pub body: &'a [u8],
}

/// The beginning of a datagram as an error message quotes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quoted<'a> {
    /// Sender, which receives the error.
    pub src: Ipv4,
    /// Receiver.
    pub dst: Ipv4,
    /// Number of the protocol above.
    pub protocol: u8,
    /// Identification.
    pub id: u16,
    /// Octets of the datagram as its header says, not as quoted.
    pub total_len: u16,
    /// Octets of the datagram's payload before this fragment.
    pub fragment_offset: u16,
    /// The header with its options, 20 to 60 octets.
    pub header: &'a [u8],
    /// As much of the payload as is there: for the first fragment the
    /// beginning of the protocol's own header.
    pub payload: &'a [u8],
}

/// Why octets are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// Fewer octets than the message needs.
    #[error("fewer octets than the message needs")]
    Truncated,
    /// The checksum is wrong.
    #[error("wrong checksum")]
    Checksum,
    /// A type not known here: to be ignored (RFC 1122, section 3.2.2).
    #[error("type {0} is not known")]
    Type(u8),
    /// A known type with an unknown code; holds both.
    #[error("type {0} has no code {1}")]
    Code(u8, u8),
    /// The quotation is no IPv4 datagram.
    #[error("what is quoted is no IPv4 datagram")]
    Quoted,
}

/// Meanings of the codes of type 3, from 0 on.
const UNREACHABLE: [Unreachable; 16] = [
    Unreachable::Net,
    Unreachable::Host,
    Unreachable::Protocol,
    Unreachable::Port,
    Unreachable::FragmentationNeeded(None),
    Unreachable::SourceRouteFailed,
    Unreachable::NetUnknown,
    Unreachable::HostUnknown,
    Unreachable::SourceIsolated,
    Unreachable::NetProhibited,
    Unreachable::HostProhibited,
    Unreachable::NetService,
    Unreachable::HostService,
    Unreachable::Prohibited,
    Unreachable::PrecedenceViolation,
    Unreachable::PrecedenceCutoff,
];

impl Unreachable {
    /// The code on the wire, 0 to 15.
    pub fn code(self) -> u8 {
        let is_same = |one: &Self| mem::discriminant(one) == mem::discriminant(&self);
        UNREACHABLE.iter().position(is_same).map_or(0, |code| code as u8)
    }

    /// Whether trying again is of no use: codes 2 to 4 (RFC 1122, section 4.2.3.9).
    pub const fn is_hard(self) -> bool {
        matches!(self, Self::Protocol | Self::Port | Self::FragmentationNeeded(_))
    }

    fn parse(code: u8, mtu: u16) -> Option<Self> {
        Some(match *UNREACHABLE.get(usize::from(code))? {
            Self::FragmentationNeeded(_) => Self::FragmentationNeeded(NonZeroU16::new(mtu)),
            plain => plain,
        })
    }
}

impl Header {
    /// Reads the first eight octets; the checksum needs the whole message.
    /// Octets the standards leave unused are ignored.
    #[inline]
    pub fn parse(octets: &[u8; HEADER_LEN]) -> Result<Self, Error> {
        let [kind, code, _, _, a, b, c, d] = *octets;
        let query = Query { id: u16::from_be_bytes([a, b]), sequence: u16::from_be_bytes([c, d]) };
        Ok(match (kind, code) {
            (0, 0) => Self::EchoReply(query),
            (3, code) => Unreachable::parse(code, query.sequence)
                .map(Self::Unreachable)
                .ok_or(Error::Code(kind, code))?,
            (4, 0) => Self::SourceQuench,
            (5, 0) => Self::Redirect(Redirect::Net, Ipv4::new(a, b, c, d)),
            (5, 1) => Self::Redirect(Redirect::Host, Ipv4::new(a, b, c, d)),
            (5, 2) => Self::Redirect(Redirect::NetService, Ipv4::new(a, b, c, d)),
            (5, 3) => Self::Redirect(Redirect::HostService, Ipv4::new(a, b, c, d)),
            (8, 0) => Self::EchoRequest(query),
            (11, 0) => Self::TimeExceeded(TimeExceeded::Transit),
            (11, 1) => Self::TimeExceeded(TimeExceeded::Reassembly),
            (12, 0) => Self::ParameterProblem(ParameterProblem::Pointer(a)),
            (12, 1) => Self::ParameterProblem(ParameterProblem::MissingOption),
            (12, 2) => Self::ParameterProblem(ParameterProblem::Length),
            (13, 0) => Self::TimestampRequest(query),
            (14, 0) => Self::TimestampReply(query),
            (0 | 4 | 5 | 8 | 11..=14, code) => return Err(Error::Code(kind, code)),
            (kind, _) => return Err(Error::Type(kind)),
        })
    }

    /// Writes the first eight octets, checksum included; `body` is the sum over what follows.
    #[inline]
    pub fn emit(&self, body: Checksum, octets: &mut [u8; HEADER_LEN]) {
        let [a, b, c, d] = match *self {
            Self::EchoReply(query)
            | Self::EchoRequest(query)
            | Self::TimestampRequest(query)
            | Self::TimestampReply(query) => {
                let ([a, b], [c, d]) = (query.id.to_be_bytes(), query.sequence.to_be_bytes());
                [a, b, c, d]
            }
            Self::Unreachable(Unreachable::FragmentationNeeded(Some(mtu))) => {
                u32::from(mtu.get()).to_be_bytes()
            }
            Self::Redirect(_, gateway) => gateway.octets(),
            Self::ParameterProblem(ParameterProblem::Pointer(at)) => [at, 0, 0, 0],
            _ => [0; 4],
        };
        *octets = [self.kind(), self.code(), 0, 0, a, b, c, d];
        let mut sum = Checksum::new();
        sum.add(octets);
        sum.join(body);
        [octets[2], octets[3]] = sum.finish().to_be_bytes();
    }

    /// The type on the wire.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::EchoReply(_) => 0,
            Self::Unreachable(_) => 3,
            Self::SourceQuench => 4,
            Self::Redirect(..) => 5,
            Self::EchoRequest(_) => 8,
            Self::TimeExceeded(_) => 11,
            Self::ParameterProblem(_) => 12,
            Self::TimestampRequest(_) => 13,
            Self::TimestampReply(_) => 14,
        }
    }

    /// The code on the wire.
    pub fn code(&self) -> u8 {
        match self {
            Self::Unreachable(unreachable) => unreachable.code(),
            Self::Redirect(redirect, _) => *redirect as u8,
            Self::TimeExceeded(which) => *which as u8,
            Self::ParameterProblem(ParameterProblem::Pointer(_)) => 0,
            Self::ParameterProblem(ParameterProblem::MissingOption) => 1,
            Self::ParameterProblem(ParameterProblem::Length) => 2,
            _ => 0,
        }
    }

    /// Whether this reports an error and quotes a datagram; no error may
    /// answer it (RFC 1122, section 3.2.2).
    pub const fn is_error(&self) -> bool {
        is_error(self.kind())
    }

    /// The header of the answer to a request.
    #[must_use]
    pub const fn reply(&self) -> Option<Self> {
        match *self {
            Self::EchoRequest(query) => Some(Self::EchoReply(query)),
            Self::TimestampRequest(query) => Some(Self::TimestampReply(query)),
            _ => None,
        }
    }
}

/// Whether a type reports an error, for looking into a quoted message.
#[must_use]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// Makes a reply of an echo request on the wire, in place: the type changes and the checksum with
/// it (RFC 1624). `None`, nothing changed, if `octets` are no echo request.
#[inline]
pub fn echo_reply(octets: &mut [u8; HEADER_LEN]) -> Option<()> {
    let [kind @ 8, 0, c0, c1, ..] = octets else {
        return None;
    };
    *kind = 0;
    // A reply may be all zeros, whose checksum is ones; of anything else, ones are as good as zero
    // (RFC 1071).
    let sum = match checksum::update_u16(u16::from_be_bytes([*c0, *c1]), 0x0800, 0) {
        0 => 0xffff,
        sum => sum,
    };
    [*c0, *c1] = sum.to_be_bytes();
    Some(())
}

impl Times {
    /// Reads what follows the header of a timestamp message.
    #[must_use]
    pub const fn parse(octets: &[u8; TIMES_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *octets;
        Self {
            originate_ms: u32::from_be_bytes([a, b, c, d]),
            receive_ms: u32::from_be_bytes([e, f, g, h]),
            transmit_ms: u32::from_be_bytes([i, j, k, l]),
        }
    }

    /// Writes the octets that follow the header.
    pub fn emit(&self, octets: &mut [u8; TIMES_LEN]) {
        octets[..4].copy_from_slice(&self.originate_ms.to_be_bytes());
        octets[4..8].copy_from_slice(&self.receive_ms.to_be_bytes());
        octets[8..].copy_from_slice(&self.transmit_ms.to_be_bytes());
    }
}

impl<'a> Message<'a> {
    /// Reads a message.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        let (head, body) = octets.split_first_chunk().ok_or(Error::Truncated)?;
        if !checksum::is_valid(octets) {
            return Err(Error::Checksum);
        }
        let header = Header::parse(head)?;
        let message = Self { header, body };
        match header {
            Header::TimestampRequest(_) | Header::TimestampReply(_) if body.len() < TIMES_LEN => {
                Err(Error::Truncated)
            }
            header if header.is_error() => Quoted::parse(body).map(|_| message),
            _ => Ok(message),
        }
    }

    /// The datagram an error quotes.
    pub fn quoted(&self) -> Option<Quoted<'a>> {
        if self.header.is_error() { Quoted::parse(self.body).ok() } else { None }
    }

    /// The times of a timestamp message.
    #[must_use]
    pub fn times(&self) -> Option<Times> {
        match self.header {
            Header::TimestampRequest(_) | Header::TimestampReply(_) => {
                self.body.first_chunk().map(Times::parse)
            }
            _ => None,
        }
    }

    /// The header's octets, checksum over the whole message included.
    #[must_use]
    pub fn header_octets(&self) -> [u8; HEADER_LEN] {
        let mut sum = Checksum::new();
        sum.add(self.body);
        let mut octets = [0; HEADER_LEN];
        self.header.emit(sum, &mut octets);
        octets
    }
}

impl<'a> Quoted<'a> {
    /// Reads a quoted datagram. Its checksum is not verified: routers quote
    /// headers that they have changed already.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        let fixed: &[u8; 20] = octets.first_chunk().ok_or(Error::Truncated)?;
        let header_len = usize::from(fixed[0] & 0xf) * 4;
        if fixed[0] >> 4 != 4 || header_len < 20 {
            return Err(Error::Quoted);
        }
        let (header, payload) = octets.split_at_checked(header_len).ok_or(Error::Truncated)?;
        let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let total_len = word(2);
        // Extensions (RFC 4884) may follow the datagram; they are not its own.
        let quoted_len = usize::from(total_len).checked_sub(header_len).ok_or(Error::Quoted)?;
        let [.., a, b, c, d, e, f, g, h] = *fixed;
        Ok(Self {
            src: Ipv4::new(a, b, c, d),
            dst: Ipv4::new(e, f, g, h),
            protocol: fixed[9],
            id: word(4),
            total_len,
            fragment_offset: (word(6) & 0x1fff) << 3,
            header,
            payload: &payload[..payload.len().min(quoted_len)],
        })
    }
}

#[cfg(test)]
mod tests;
