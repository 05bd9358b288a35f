//! Ethernet II and IEEE 802.3 frames, without preamble and frame check
//! sequence. The word after the addresses tells the two apart: from 0x600 on
//! it is a type, up to 1500 the length of an IEEE 802.2 packet
//! (IEEE 802.3, section 3.2.6; RFC 1042; RFC 1122, section 2.3.3).

use core::fmt;
use core::num::NonZeroU16;

pub use xk_kit::net::addr::EthAddr;

/// Octets of the header: two addresses and the type or length.
pub const HEADER_LEN: usize = 14;
/// Octets of the shortest frame, frame check sequence not counted.
pub const FRAME_LEN_MIN: usize = 60;
/// Octets of the shortest payload, padding counted.
pub const PAYLOAD_LEN_MIN: usize = FRAME_LEN_MIN - HEADER_LEN;
/// Octets of the longest payload (IEEE 802.3, section 3.2.7).
pub const PAYLOAD_LEN_MAX: usize = 1500;
/// The least value of the word after the addresses that is a type.
pub const TYPE_MIN: u16 = 0x600;
/// Octets of LLC with SNAP (RFC 1042): the most that precede the payload of an IEEE 802.3 frame.
pub const SNAP_LEN: usize = 8;
/// Octets of the LLC header of an unnumbered packet (IEEE 802.2, section 5.2).
pub const LLC_LEN: usize = 3;
/// The control field of unnumbered information.
const UI: u8 = 0x03;
/// The service access point that says SNAP follows.
pub(crate) const SAP_SNAP: u8 = 0xaa;

/// An Ethernet type: 0x600 or more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(NonZeroU16);

impl EtherType {
    /// Internet Protocol version 4.
    pub const IPV4: Self = Self::literal(0x0800);
    /// Address Resolution Protocol.
    pub const ARP: Self = Self::literal(0x0806);
    /// IEEE 802.1Q tag.
    pub const VLAN: Self = Self::literal(0x8100);
    /// Internet Protocol version 6.
    pub const IPV6: Self = Self::literal(0x86dd);

    /// A type, unless `value` is below 0x600 and so a length.
    #[inline]
    #[must_use]
    pub const fn new(value: u16) -> Option<Self> {
        match NonZeroU16::new(value) {
            Some(word) if value >= TYPE_MIN => Some(Self(word)),
            _ => None,
        }
    }

    /// The number, 0x600 or more.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    const fn literal(value: u16) -> Self {
        match Self::new(value) {
            Some(value) => value,
            None => panic!("an Ethernet type is at least 0x600"),
        }
    }
}

/// Meaning of the word after the addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ethernet II: the type of the payload.
    Type(EtherType),
    /// IEEE 802.3: octets of the IEEE 802.2 packet that follows.
    Length(Length),
}

impl Kind {
    /// The word of an IEEE 802.3 frame whose length is not known yet.
    pub const NO_LENGTH: Self = Self::Length(Length(0));

    /// Writes it into a header.
    #[inline]
    pub const fn put(self, header: &mut [u8; HEADER_LEN]) {
        let word = match self {
            Self::Type(ether_type) => ether_type.get(),
            Self::Length(length) => length.get(),
        };
        [header[12], header[13]] = word.to_be_bytes();
    }
}

/// Octets after the header of an IEEE 802.3 frame, 0 to 1500, padding not
/// counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Length(u16);

impl Length {
    /// A length, unless it exceeds 1500 octets.
    #[inline]
    #[must_use]
    pub const fn new(octets: u16) -> Option<Self> {
        if octets as usize <= PAYLOAD_LEN_MAX { Some(Self(octets)) } else { None }
    }

    /// The number of octets, 0 to 1500.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// The station that shall receive it.
    pub dst: EthAddr,
    /// The station that sent it.
    pub src: EthAddr,
    /// Type or length.
    pub kind: Kind,
}

/// Protocol of a frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Ethernet II.
    Type(EtherType),
    /// IEEE 802.3 with LLC: the service access point at the receiver.
    Sap(u8),
    /// IEEE 802.3 with LLC and SNAP.
    Snap(Snap),
}

/// A SNAP protocol (RFC 1042).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Snap {
    /// The organisation that numbered the protocol; zero stands for Ethernet types.
    pub oui: [u8; 3],
    /// The protocol's number.
    pub protocol: u16,
}

/// Why octets are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// Fewer octets than the headers need.
    #[error("fewer octets than the headers need")]
    Truncated,
    /// The word after the addresses is neither type nor length (1501 to 1535).
    #[error("0x{0:04x} is neither type nor length")]
    TypeOrLength(u16),
    /// LLC other than unnumbered information, or a response (IEEE 802.2, section 5.4.1).
    #[error("LLC other than unnumbered information")]
    Control,
}

impl Header {
    /// Reads a header.
    #[inline]
    pub const fn parse(octets: &[u8; HEADER_LEN]) -> Result<Self, Error> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = *octets;
        let word = u16::from_be_bytes([m, n]);
        let kind = match (EtherType::new(word), Length::new(word)) {
            (Some(ether_type), _) => Kind::Type(ether_type),
            (None, Some(length)) => Kind::Length(length),
            (None, None) => return Err(Error::TypeOrLength(word)),
        };
        Ok(Self { dst: EthAddr([a, b, c, d, e, f]), src: EthAddr([g, h, i, j, k, l]), kind })
    }

    /// The header's octets.
    #[inline]
    #[must_use]
    pub const fn octets(&self) -> [u8; HEADER_LEN] {
        let EthAddr([a, b, c, d, e, f]) = self.dst;
        let EthAddr([g, h, i, j, k, l]) = self.src;
        let mut octets = [a, b, c, d, e, f, g, h, i, j, k, l, 0, 0];
        self.kind.put(&mut octets);
        octets
    }
}

/// The source's address and the type or length, as they lie in a header.
#[inline(always)]
#[must_use]
pub const fn source_and_word(header: &[u8; HEADER_LEN]) -> [u8; 8] {
    let [_, _, _, _, _, _, octets @ ..] = *header;
    octets
}

/// True if two headers are equal: in two comparisons of eight octets, which overlap.
#[inline(always)]
#[must_use]
pub fn is_same(a: &[u8; HEADER_LEN], b: &[u8; HEADER_LEN]) -> bool {
    let front = |header: &[u8; HEADER_LEN]| {
        let [octets @ .., _, _, _, _, _, _] = *header;
        u64::from_ne_bytes(octets)
    };
    let back = |header| u64::from_ne_bytes(source_and_word(header));
    front(a) == front(b) && back(a) == back(b)
}

impl Selector {
    /// Reads the headers of an IEEE 802.2 packet without padding; answers the rest, too.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Control`].
    pub fn parse_llc(octets: &[u8]) -> Result<(Self, &[u8]), Error> {
        match octets {
            [SAP_SNAP, SAP_SNAP, UI, a, b, c, d, e, rest @ ..] => {
                let protocol = u16::from_be_bytes([*d, *e]);
                let oui = [*a, *b, *c];
                Ok((Self::Snap(Snap { oui, protocol }), rest))
            }
            [] | [_] | [_, _] | [SAP_SNAP, SAP_SNAP, UI, ..] => Err(Error::Truncated),
            [dsap, ssap, UI, rest @ ..] if ssap & 1 == 0 => Ok((Self::Sap(*dsap), rest)),
            _ => Err(Error::Control),
        }
    }

    /// Writes the headers between that of the frame and the payload, with one service access point
    /// for both ends; answers how many octets they have, none in Ethernet II.
    pub fn emit(self, octets: &mut [u8; SNAP_LEN]) -> usize {
        match self {
            Self::Type(_) => 0,
            Self::Sap(sap) => {
                octets[..LLC_LEN].copy_from_slice(&[sap, sap, UI]);
                LLC_LEN
            }
            Self::Snap(Snap { oui, protocol }) => {
                let ([a, b, c], [d, e]) = (oui, protocol.to_be_bytes());
                *octets = [SAP_SNAP, SAP_SNAP, UI, a, b, c, d, e];
                SNAP_LEN
            }
        }
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::IPV4 => f.write_str("IPv4"),
            Self::ARP => f.write_str("ARP"),
            Self::VLAN => f.write_str("802.1Q"),
            Self::IPV6 => f.write_str("IPv6"),
            _ => write!(f, "0x{:04x}", self.get()),
        }
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(ether_type) => write!(f, "{ether_type}"),
            Self::Sap(sap) => write!(f, "LLC 0x{sap:02x}"),
            Self::Snap(Snap { oui, protocol }) => {
                let [a, b, c] = oui;
                write!(f, "SNAP {a:02x}:{b:02x}:{c:02x} 0x{protocol:04x}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
