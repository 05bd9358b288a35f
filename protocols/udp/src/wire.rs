//! User datagrams (RFC 768): header, length, checksum.

use core::fmt;
use core::num::NonZeroU16;

use xk_kit::Checksum;
use xk_kit::addr::Ipv4;

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
        Ok(Self {
            src,
            dst,
            length: Length(length),
        })
    }

    /// Writes the header without checksum (zero: none, RFC 768).
    #[inline]
    pub fn emit(&self, octets: &mut [u8; HEADER_LEN]) {
        let [a, b] = self.src.map_or(0, NonZeroU16::get).to_be_bytes();
        let [c, d] = self.dst.get().to_be_bytes();
        let [e, f] = self.length.0.to_be_bytes();
        *octets = [a, b, c, d, e, f, 0, 0];
    }

    /// The sum over the pseudo-header of IPv4 for this header's length.
    #[inline]
    #[must_use]
    pub fn pseudo_header(&self, src: Ipv4, dst: Ipv4) -> Checksum {
        Checksum::pseudo_header(src, dst, IP_PROTOCOL, self.length.0)
    }
}

/// Writes the checksum into a header, whatever its field held before; `rest`
/// is the sum over pseudo-header and payload. A checksum of zero goes as
/// 0xffff, because zero says that there is none (RFC 768).
#[inline]
pub fn seal(octets: &mut [u8; HEADER_LEN], rest: Checksum) {
    [octets[6], octets[7]] = [0, 0];
    let checksum = match rest_after(octets, rest).finish() {
        0 => 0xffff,
        checksum => checksum,
    };
    [octets[6], octets[7]] = checksum.to_be_bytes();
}

/// Whether the sender computed a checksum.
#[inline]
#[must_use]
pub const fn has_checksum(octets: &[u8; HEADER_LEN]) -> bool {
    let [.., a, b] = *octets;
    u16::from_ne_bytes([a, b]) != 0
}

/// Whether the checksum is right or absent; `rest` is the sum over
/// pseudo-header and payload (RFC 1122, section 4.1.3.4).
#[inline]
#[must_use]
pub fn checksum_ok(octets: &[u8; HEADER_LEN], rest: Checksum) -> bool {
    !has_checksum(octets) || rest_after(octets, rest).is_valid()
}

/// The header's sum, joined in front so that an odd payload does no harm.
#[inline]
fn rest_after(octets: &[u8; HEADER_LEN], rest: Checksum) -> Checksum {
    let mut sum = Checksum::new();
    sum.add(octets);
    sum.join(rest);
    sum
}

impl<'a> Datagram<'a> {
    /// Reads a datagram that came in IPv4 between these addresses.
    pub fn parse(octets: &'a [u8], src: Ipv4, dst: Ipv4) -> Result<Self, Error> {
        let (head, rest) = octets.split_first_chunk().ok_or(Error::Truncated)?;
        let header = Header::parse(head)?;
        let payload = rest.get(..header.length.payload()).ok_or(Error::Length)?;
        let mut sum = header.pseudo_header(src, dst);
        sum.add(payload);
        if !checksum_ok(head, sum) {
            return Err(Error::Checksum);
        }
        Ok(Self { header, payload })
    }

    /// The header's octets, with checksum, for IPv4 between these addresses.
    #[must_use]
    pub fn header_octets(&self, src: Ipv4, dst: Ipv4) -> [u8; HEADER_LEN] {
        let mut octets = [0; HEADER_LEN];
        self.header.emit(&mut octets);
        let mut sum = self.header.pseudo_header(src, dst);
        sum.add(self.payload);
        seal(&mut octets, sum);
        octets
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let src = self.src.map_or(0, NonZeroU16::get);
        write!(
            f,
            "{src} > {}: UDP, length {}",
            self.dst,
            self.length.payload()
        )
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
