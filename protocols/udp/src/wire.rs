//! User datagrams (RFC 768): header, length, checksum.

use core::fmt;
use core::num::NonZeroU16;

use xk_kit::Checksum;
use xk_kit::net::addr::Ipv4;
use xk_kit::net::ports::Pseudo;

/// Octets of the header.
pub const HEADER_LEN: usize = 8;
/// Octets of the longest payload in IPv4 without options.
pub const PAYLOAD_LEN_MAX: usize = 65_535 - 20 - HEADER_LEN;
/// The protocol's number in IP.
pub const IP_PROTOCOL: u8 = 17;

/// The header, its checksum aside: that belongs to the octets, not to what
/// they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Port of the sender; `None` (zero on the wire) if no reply is wanted.
    pub src: Option<NonZeroU16>,
    /// Port of the receiver.
    pub dst: NonZeroU16,
    /// Octets of header and payload.
    pub length: Length,
}

/// Octets of header and payload: 8 to 65,535.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Length(u16);

impl Length {
    /// The length of a datagram with `payload` octets, if it fits the field.
    #[inline]
    #[must_use]
    pub const fn of_payload(payload: usize) -> Option<Self> {
        match payload {
            0..=0xfff7 => Some(Self((payload + HEADER_LEN) as u16)),
            _ => None,
        }
    }

    /// Octets of header and payload.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Octets of the payload.
    #[inline]
    #[must_use]
    pub const fn payload(self) -> usize {
        self.0 as usize - HEADER_LEN
    }
}

/// A whole datagram, checked; octets beyond its length are trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The header.
    pub header: Header,
    /// The payload.
    pub payload: &'a [u8],
}

/// Why octets are no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// Fewer than 8 octets.
    Truncated,
    /// The length field is below 8 or exceeds what arrived.
    Length,
    /// Destination port zero (reserved: RFC 6335, section 6).
    Port,
    /// The checksum is wrong.
    Checksum,
}

impl Header {
    /// Reads a header; says nothing of payload and checksum.
    #[inline]
    pub const fn parse(octets: &[u8; HEADER_LEN]) -> Result<Self, Error> {
        let [a, b, c, d, e, f, _, _] = *octets;
        let length = u16::from_be_bytes([e, f]);
        if (length as usize) < HEADER_LEN {
            return Err(Error::Length);
        }
        let Some(dst) = NonZeroU16::new(u16::from_be_bytes([c, d])) else {
            return Err(Error::Port);
        };
        let src = NonZeroU16::new(u16::from_be_bytes([a, b]));
        Ok(Self { src, dst, length: Length(length) })
    }

    /// The template for datagrams with this header's ports, in IPv4 between these addresses.
    #[must_use]
    pub fn template(&self, src: Ipv4, dst: Ipv4) -> Template {
        // A length of zero: the template's own counts come with each datagram.
        let sum = Checksum::pseudo_header(src, dst, IP_PROTOCOL, 0);
        let (sent, received) = (sum, sum);
        let ports = (self.src.map_or(0, NonZeroU16::get), self.dst.get());
        Template::new(ports, Some(Pseudo { sent, received }), true)
    }
}

/// The octets that all datagrams of a conversation have alike, and the sums over them.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// A header without length and checksum: our port highest, then the peer's.
    ports: u64,
    /// The sum over pseudo-header and ports of what is sent, folded; `None` if that goes without
    /// a checksum.
    sent: Option<u16>,
    /// The sum over them of what arrives, folded; `None` if nothing is known of the hosts.
    received: Option<u16>,
}

impl Template {
    /// The template for our port and the peer's, over sums of the addresses. Without `checksum`
    /// datagrams are sent without one, and checked all the same.
    #[must_use]
    pub fn new((local, peer): (u16, u16), pseudo: Option<Pseudo>, checksum: bool) -> Self {
        let base = |mut sum: Checksum| {
            sum.add_u16(local);
            sum.add_u16(peer);
            sum.folded()
        };
        Self {
            ports: u64::from(local) << 48 | u64::from(peer) << 32,
            sent: pseudo.filter(|_| checksum).map(|p| base(p.sent)),
            received: pseudo.map(|p| base(p.received)),
        }
    }

    /// The sum over all of a datagram sent but its payload, of so many octets; `None` if it goes
    /// without a checksum.
    #[inline(always)]
    #[must_use]
    pub fn sum_sent(&self, payload: usize) -> Option<Checksum> {
        self.sent.map(|base| with_length(base, payload))
    }

    /// The header for a payload of so many octets, over a sum of all, as
    /// [`sum_sent`](Self::sum_sent) begins it.
    #[inline(always)]
    #[must_use]
    pub fn header(&self, payload: usize, sum: Option<Checksum>) -> [u8; HEADER_LEN] {
        let checksum = match sum.map(Checksum::finish) {
            None => 0,
            // Zero says that there is none (RFC 768).
            Some(0) => 0xffff,
            Some(checksum) => checksum,
        };
        self.with(payload, checksum)
    }

    /// The header for a payload whose sum is completed below: its field holds the sum over the
    /// pseudo-header. `None` if datagrams are sent without a checksum.
    pub fn partial_header(&self, payload: usize) -> Option<[u8; HEADER_LEN]> {
        let mut sum = Checksum::resume(self.sent?);
        // The ports will be summed once more: out with them.
        sum.add_u16(!((self.ports >> 48) as u16));
        sum.add_u16(!((self.ports >> 32) as u16));
        sum.add_u16((payload + HEADER_LEN) as u16);
        Some(self.with(payload, !sum.finish()))
    }

    #[inline(always)]
    fn with(&self, payload: usize, checksum: u16) -> [u8; HEADER_LEN] {
        let length = (payload + HEADER_LEN) as u16;
        (self.ports | u64::from(length) << 16 | u64::from(checksum)).to_be_bytes()
    }

    /// The sum over all of an arriving datagram but its payload, of so many octets: with that it
    /// is valid if the checksum is right. `None` if the datagram has no checksum (RFC 1122,
    /// section 4.1.3.4), or the addresses are not known.
    #[inline(always)]
    #[must_use]
    pub fn sum_received(&self, header: &[u8; HEADER_LEN], payload: usize) -> Option<Checksum> {
        let [.., a, b] = *header;
        let checksum = u16::from_be_bytes([a, b]);
        let mut sum = with_length(self.received.filter(|_| checksum != 0)?, payload);
        sum.add_u16(checksum);
        Some(sum)
    }
}

/// The sum over pseudo-header and ports, and the length, which counts once in the pseudo-header and
/// once in the header.
#[inline(always)]
fn with_length(base: u16, payload: usize) -> Checksum {
    let mut sum = Checksum::resume(base);
    let length = (payload + HEADER_LEN) as u16;
    sum.add_u32(2 * u32::from(length));
    sum
}

/// Both ports, the source's in the upper half, as they lie in an arriving header.
#[inline(always)]
#[must_use]
pub fn ports_of(header: &[u8; HEADER_LEN]) -> u32 {
    (u64::from_be_bytes(*header) >> 32) as u32
}

/// Octets of header and payload, as a header says.
#[inline(always)]
#[must_use]
pub fn length_of(header: &[u8; HEADER_LEN]) -> usize {
    usize::from((u64::from_be_bytes(*header) >> 16) as u16)
}

impl<'a> Datagram<'a> {
    /// Reads a datagram that came in IPv4 between these addresses.
    pub fn parse(octets: &'a [u8], src: Ipv4, dst: Ipv4) -> Result<Self, Error> {
        let (head, rest) = octets.split_first_chunk().ok_or(Error::Truncated)?;
        let header = Header::parse(head)?;
        let payload = rest.get(..header.length.payload()).ok_or(Error::Length)?;
        let sum = header.template(src, dst).sum_received(head, payload.len());
        let is_intact = sum.is_none_or(|mut sum| {
            sum.add(payload);
            sum.is_valid()
        });
        match is_intact {
            true => Ok(Self { header, payload }),
            false => Err(Error::Checksum),
        }
    }

    /// The header's octets, with checksum, for IPv4 between these addresses.
    #[must_use]
    pub fn header_octets(&self, src: Ipv4, dst: Ipv4) -> [u8; HEADER_LEN] {
        let payload = self.payload;
        let template = self.header.template(src, dst);
        let sum = template.sum_sent(payload.len()).map(|mut sum| {
            sum.add(payload);
            sum
        });
        template.header(payload.len(), sum)
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let src = self.src.map_or(0, NonZeroU16::get);
        write!(f, "{src} > {}: UDP, length {}", self.dst, self.length.payload())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "fewer than 8 octets",
            Self::Length => "the length field is below 8 or exceeds the datagram",
            Self::Port => "destination port zero",
            Self::Checksum => "wrong checksum",
        })
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
