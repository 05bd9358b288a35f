//! IPv4 headers (RFC 791): fields, options, checksum.
//!
//! A header without options is read by [`Header::parse`] alone, checksum
//! included; one with options needs [`Header::parse_options`] too.

use core::fmt;

use xk_kit::Checksum;
pub use xk_kit::net::addr::Ipv4;
use xk_kit::net::attribute::Ecn;
use xk_kit::net::checksum;

mod options;
pub use options::{Options, record};

/// Octets of the header without options.
pub const HEADER_LEN: usize = 20;
/// Octets of the longest header.
pub const HEADER_LEN_MAX: usize = 60;
/// Octets of the options at most.
pub const OPTIONS_LEN_MAX: usize = 40;
/// Octets of the longest datagram, header included.
pub const DATAGRAM_LEN_MAX: usize = 65_535;
/// Octets every network must carry whole (RFC 791, section 3.2).
pub const MTU_MIN: usize = 68;

/// Flags and fragment offset.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Fragment(u16);

impl Fragment {
    /// A whole datagram that may be fragmented.
    pub const WHOLE: Self = Self(0);
    /// A whole datagram that must not be fragmented.
    pub const DONT: Self = Self(0x4000);

    /// A fragment at `offset` octets, a multiple of 8 up to 65,528; `more` if others follow it.
    #[must_use]
    pub const fn new(offset: usize, more: bool) -> Option<Self> {
        if offset > 0x1fff << 3 || !offset.is_multiple_of(8) {
            return None;
        }
        Some(Self((offset >> 3) as u16 | if more { 0x2000 } else { 0 }))
    }

    /// Octets of the datagram's payload before this fragment.
    #[inline]
    pub const fn offset(self) -> usize {
        (self.0 as usize & 0x1fff) << 3
    }

    /// Whether fragments follow this one.
    #[inline]
    pub const fn more(self) -> bool {
        self.0 & 0x2000 != 0
    }

    /// Whether routers must not fragment.
    #[inline]
    pub const fn dont(self) -> bool {
        self.0 & 0x4000 != 0
    }

    /// Whether this is part of a datagram and not a whole one.
    #[inline]
    pub const fn is_part(self) -> bool {
        self.0 & 0x3fff != 0
    }

    /// The two octets as a number, reserved bit zero.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }
}

/// The header, its options and checksum aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Differentiated services (6 bits, RFC 2474) and congestion notification (2 bits, RFC 3168).
    pub traffic_class: u8,
    /// Identification, by which fragments find together.
    pub id: u16,
    /// Flags and fragment offset.
    pub fragment: Fragment,
    /// Hops left.
    pub ttl: u8,
    /// Number of the protocol above.
    pub protocol: u8,
    /// Sender.
    pub src: Ipv4,
    /// Receiver.
    pub dst: Ipv4,
    header_len: u8,
    total_len: u16,
}

/// A whole datagram, checked; octets beyond its length are trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The header.
    pub header: Header,
    /// Options of the header.
    pub options: Options<'a>,
    /// The payload.
    pub payload: &'a [u8],
}

/// Why octets are no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// Fewer octets than the header needs.
    #[error("fewer octets than the header needs")]
    Truncated,
    /// Another version than 4.
    #[error("version {0} is not 4")]
    Version(u8),
    /// A header length below 20 octets; holds the 32-bit words.
    #[error("header of {0} words, not 5 or more")]
    HeaderLength(u8),
    /// A total length below the header's or beyond what arrived.
    #[error("total length below the header's or beyond the end")]
    TotalLength,
    /// The header checksum is wrong.
    #[error("wrong header checksum")]
    Checksum,
    /// A fragment that is no multiple of 8 octets though others follow, or
    /// that reaches beyond the longest datagram.
    #[error("fragment not a multiple of 8 octets or too far out")]
    Fragment,
    /// A malformed option; holds the offset from the start of the header of
    /// the octet at fault, for the pointer of an ICMP parameter problem.
    #[error("malformed option at octet {0}")]
    Option(u8),
}

/// More payload than a datagram carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than {DATAGRAM_LEN_MAX} octets with the header")]
pub struct TooLong;

/// Octets of the header as its first octet tells: 20 to 60.
#[inline]
pub const fn header_len(first: u8) -> Result<usize, Error> {
    match (first >> 4, first & 0xf) {
        (4, words @ 5..) => Ok(words as usize * 4),
        (4, words) => Err(Error::HeaderLength(words)),
        (version, _) => Err(Error::Version(version)),
    }
}

impl Header {
    /// A header without options before `payload` octets: time to live 64, no
    /// identification, all else zero.
    pub const fn new(src: Ipv4, dst: Ipv4, protocol: u8, payload: usize) -> Result<Self, TooLong> {
        if payload > DATAGRAM_LEN_MAX - HEADER_LEN {
            return Err(TooLong);
        }
        Ok(Self {
            traffic_class: 0,
            id: 0,
            fragment: Fragment::WHOLE,
            ttl: 64,
            protocol,
            src,
            dst,
            header_len: HEADER_LEN as u8,
            total_len: (HEADER_LEN + payload) as u16,
        })
    }

    /// Makes room for `options` and `payload` octets.
    pub fn set_lengths(&mut self, options: Options<'_>, payload: usize) -> Result<(), TooLong> {
        let header_len = HEADER_LEN + options.octets().len();
        if payload > DATAGRAM_LEN_MAX - header_len {
            return Err(TooLong);
        }
        self.header_len = header_len as u8;
        self.total_len = (header_len + payload) as u16;
        Ok(())
    }

    /// Octets of header and options: 20 to 60, a multiple of 4.
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.header_len as usize
    }

    /// Octets of the options: 0 to 40, a multiple of 4.
    #[inline]
    pub const fn options_len(&self) -> usize {
        self.header_len as usize - HEADER_LEN
    }

    /// Octets of the datagram or fragment, header included.
    #[inline]
    pub const fn total_len(&self) -> usize {
        self.total_len as usize
    }

    /// Octets after header and options.
    #[inline]
    pub const fn payload_len(&self) -> usize {
        self.total_len as usize - self.header_len as usize
    }

    /// Differentiated services code point, 0 to 63.
    #[inline]
    pub const fn dscp(&self) -> u8 {
        self.traffic_class >> 2
    }

    /// Explicit congestion notification, 0 to 3.
    #[inline]
    pub const fn ecn(&self) -> u8 {
        self.traffic_class & 3
    }

    /// Reads the fixed part. The checksum is verified here if there are no
    /// options, else by [`Header::parse_options`]. The reserved flag is ignored.
    #[inline]
    pub fn parse(octets: &[u8; HEADER_LEN]) -> Result<Self, Error> {
        let [first, traffic_class, l0, l1, i0, i1, f0, f1, ttl, protocol, _, _, rest @ ..] =
            *octets;
        let header_len = if first == 0x45 { HEADER_LEN } else { header_len(first)? };
        let [a, b, c, d, e, f, g, h] = rest;
        let header = Self {
            traffic_class,
            id: u16::from_be_bytes([i0, i1]),
            fragment: Fragment(u16::from_be_bytes([f0, f1]) & 0x7fff),
            ttl,
            protocol,
            src: Ipv4::new(a, b, c, d),
            dst: Ipv4::new(e, f, g, h),
            header_len: header_len as u8,
            total_len: u16::from_be_bytes([l0, l1]),
        };
        if header_len == HEADER_LEN && !checksum::is_valid(octets) {
            return Err(Error::Checksum);
        }
        if header.total_len() < header_len {
            return Err(Error::TotalLength);
        }
        if header.fragment.is_part() {
            header.check_fragment()?;
        }
        Ok(header)
    }

    #[cold]
    fn check_fragment(&self) -> Result<(), Error> {
        let len = self.payload_len();
        let even = !self.fragment.more() || len.is_multiple_of(8);
        if even && self.fragment.offset() + len <= DATAGRAM_LEN_MAX {
            Ok(())
        } else {
            Err(Error::Fragment)
        }
    }

    /// Reads the options of a header read from `fixed` and verifies the
    /// checksum over both; `octets` are the [`Header::options_len`] after it.
    pub fn parse_options<'a>(
        &self,
        fixed: &[u8; HEADER_LEN],
        octets: &'a [u8],
    ) -> Result<Options<'a>, Error> {
        let octets = octets.get(..self.options_len()).ok_or(Error::Truncated)?;
        let mut sum = Checksum::new();
        sum.add(fixed);
        sum.add(octets);
        if !sum.is_valid() {
            return Err(Error::Checksum);
        }
        Options::parse(octets)
    }

    /// Writes a header without options, checksum included.
    #[inline]
    pub fn emit(&self, octets: &mut [u8; HEADER_LEN]) {
        Template::new(self).emit(self.total_len, self.id, self.fragment, octets);
    }

    /// Writes header and options, checksum included; the lengths are set to
    /// suit `options` and the payload stays. Returns the octets written.
    pub fn emit_with<'b>(
        &self,
        options: Options<'_>,
        octets: &'b mut [u8; HEADER_LEN_MAX],
    ) -> Result<&'b [u8], TooLong> {
        let mut header = *self;
        header.set_lengths(options, self.payload_len())?;
        let len = header.header_len();
        let (fixed, rest) = octets.split_at_mut(HEADER_LEN);
        if let Some(fixed) = fixed.first_chunk_mut() {
            header.emit(fixed);
        }
        rest[..len - HEADER_LEN].copy_from_slice(options.octets());
        octets[0] = 0x40 | header.header_len >> 2;
        octets[10..12].fill(0);
        let checksum = checksum::checksum(&octets[..len]);
        octets[10..12].copy_from_slice(&checksum.to_be_bytes());
        Ok(&octets[..len])
    }
}

/// A header prepared once for many datagrams: only lengths, identification
/// and fragment are written and summed for each.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    /// The first eight octets and the next as numbers, then the receiver.
    words: (u64, u64, [u8; 4]),
    /// The sum of the header's 16-bit words, at most nine of them.
    sum: u32,
}

impl Template {
    /// Prepares a header; its options, lengths, identification and fragment do not count.
    #[must_use]
    pub fn new(header: &Header) -> Self {
        let front = [0x45, header.traffic_class, 0, 0, 0, 0, 0, 0];
        let [a, b, c, d] = header.src.octets();
        let middle = [header.ttl, header.protocol, 0, 0, a, b, c, d];
        let dst = header.dst.octets();
        let words = (u64::from_be_bytes(front), u64::from_be_bytes(middle), dst);
        let halves = |word: u64| (0..4).map(move |at| (word >> (16 * at)) as u32 & 0xffff);
        let last = header.dst.to_bits().into();
        let sum = halves(words.0).chain(halves(words.1)).chain(halves(last)).sum();
        Self { words, sum }
    }

    /// This template with these two bits for marks of congestion (RFC 3168, section 5).
    #[inline]
    #[must_use]
    pub fn marked(mut self, ecn: Ecn) -> Self {
        let (old, new) = ((self.words.0 >> 48) as u32 & 3, u32::from(ecn.bits()));
        self.words.0 = self.words.0 & !(3 << 48) | u64::from(new) << 48;
        self.sum = self.sum - old + new;
        self
    }

    /// This template with so many hops and this class of traffic, each as before if that is `None`.
    #[must_use]
    pub fn sent(mut self, hops: Option<u8>, class: Option<u8>) -> Self {
        if let Some(class) = class {
            let old = (self.words.0 >> 48) as u32 & 0xff;
            self.words.0 = self.words.0 & !(0xff << 48) | u64::from(class) << 48;
            self.sum = self.sum - old + u32::from(class);
        }
        if let Some(hops) = hops {
            let old = (self.words.1 >> 56) as u32;
            self.words.1 = self.words.1 & !(0xff << 56) | u64::from(hops) << 56;
            self.sum = self.sum - (old << 8) + (u32::from(hops) << 8);
        }
        self
    }

    /// Writes the header of a datagram or fragment that has `total` octets with it.
    #[inline]
    pub fn emit(&self, total: u16, id: u16, fragment: Fragment, octets: &mut [u8; HEADER_LEN]) {
        // Total length, identification, and flags with fragment offset lie side by side.
        let (len, id) = (u32::from(total), u32::from(id));
        let part = u32::from(fragment.0);
        let sum = self.sum + len + id + part;
        // Twelve words: their carries, at most 11, cannot carry again twice.
        let sum = (sum >> 16) + (sum & 0xffff);
        let checksum = !((sum >> 16) + sum) as u16;
        let front = self.words.0 | u64::from(len << 16 | id) << 16 | u64::from(part);
        let middle = self.words.1 | u64::from(checksum) << 32;
        octets[..8].copy_from_slice(&front.to_be_bytes());
        octets[8..16].copy_from_slice(&middle.to_be_bytes());
        octets[16..].copy_from_slice(&self.words.2);
    }
}

/// The header of a whole datagram without options, checked as by [`Header::parse`], and taken apart
/// only where it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// The first eight octets and the next as numbers, then the receiver.
    words: (u64, u64, u32),
}

impl Plain {
    /// Reads the header if it is one of version 4, without options, of a whole datagram, of sound
    /// length and checksum; `None` says that a closer look is needed.
    #[inline]
    #[must_use]
    pub fn parse(octets: &[u8; HEADER_LEN]) -> Option<Self> {
        let plain = Self::read(octets)?;
        (plain.total_len() >= HEADER_LEN).then_some(plain)
    }

    /// As [`parse`](Self::parse), for a datagram that has `len` octets, no more and no less.
    #[inline]
    #[must_use]
    pub fn of_whole(octets: &[u8; HEADER_LEN], len: usize) -> Option<Self> {
        let plain = Self::read(octets)?;
        (plain.total_len() == len).then_some(plain)
    }

    #[inline]
    fn read(octets: &[u8; HEADER_LEN]) -> Option<Self> {
        let [front @ .., _, _, _, _, _, _, _, _, _, _, _, _] = octets;
        let [_, _, _, _, _, _, _, _, middle @ .., _, _, _, _] = octets;
        let [_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, dst @ ..] = octets;
        let front = u64::from_be_bytes(*front);
        let middle = u64::from_be_bytes(*middle);
        let dst = u32::from_be_bytes(*dst);
        // Version and header length; offset and "more fragments". The other flags may be as they
        // like.
        let common = front & 0xff00_0000_0000_3fff == 0x4500_0000_0000_0000;
        let mut sum = Checksum::new();
        sum.add_u64(front);
        sum.add_u64(middle);
        sum.add_u32(dst);
        (common && sum.is_valid()).then_some(Self { words: (front, middle, dst) })
    }

    /// Octets of the datagram, header included.
    #[inline]
    pub const fn total_len(self) -> usize {
        (self.words.0 >> 32) as u16 as usize
    }

    /// Sender (the upper half) and receiver.
    #[inline]
    pub const fn hosts(self) -> u64 {
        self.words.1 << 32 | self.words.2 as u64
    }

    /// Number of the protocol above.
    #[inline]
    pub const fn protocol(self) -> u8 {
        (self.words.1 >> 48) as u8
    }

    /// Whether a router has marked it instead of dropping it (RFC 3168, section 5).
    #[inline]
    pub const fn is_marked(self) -> bool {
        (self.words.0 >> 48) & 3 == 3
    }

    /// The header as it came.
    #[must_use]
    pub fn octets(self) -> [u8; HEADER_LEN] {
        let mut octets = [0; HEADER_LEN];
        octets[..8].copy_from_slice(&self.words.0.to_be_bytes());
        octets[8..16].copy_from_slice(&self.words.1.to_be_bytes());
        octets[16..].copy_from_slice(&self.words.2.to_be_bytes());
        octets
    }
}

/// Takes one hop off a header on the wire and mends its checksum (RFC 1624,
/// RFC 1812 section 5.3.1). Returns the hops left; `None`, the header
/// unchanged, if the datagram must not be forwarded.
#[inline]
pub fn decrement_ttl(octets: &mut [u8; HEADER_LEN]) -> Option<u8> {
    let [.., ttl, protocol, c0, c1, _, _, _, _, _, _, _, _] = octets;
    let left = ttl.checked_sub(1).filter(|left| *left > 0)?;
    let old = u16::from_be_bytes([*ttl, *protocol]);
    let new = u16::from_be_bytes([left, *protocol]);
    let sum = checksum::update_u16(u16::from_be_bytes([*c0, *c1]), old, new);
    [*c0, *c1] = sum.to_be_bytes();
    *ttl = left;
    Some(left)
}

impl<'a> Packet<'a> {
    /// Reads a datagram or fragment.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        let (fixed, rest) = octets.split_first_chunk().ok_or(Error::Truncated)?;
        let header = Header::parse(fixed)?;
        let options = match header.options_len() {
            0 => Options::NONE,
            _ => header.parse_options(fixed, rest)?,
        };
        let payload = octets.get(header.header_len()..header.total_len());
        Ok(Self { header, options, payload: payload.ok_or(Error::TotalLength)? })
    }
}

impl fmt::Debug for Fragment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = match (self.more(), self.dont()) {
            (false, false) => "none",
            (true, false) => "+",
            (false, true) => "DF",
            (true, true) => "+, DF",
        };
        write!(f, "offset {}, flags [{flags}]", self.offset())
    }
}

#[cfg(test)]
mod tests;
