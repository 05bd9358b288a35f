//! Ethernet II and IEEE 802.3 frames, without preamble and frame check
//! sequence. The word after the addresses tells the two apart: from 0x600 on
//! it is a type, up to 1500 the length of an IEEE 802.2 packet
//! (IEEE 802.3, section 3.2.6; RFC 1042; RFC 1122, section 2.3.3).

use core::fmt;
use core::num::NonZeroU16;

pub use xk_kit::addr::EthAddr;

/// Octets of the header: two addresses and the type or length.
pub const HEADER_LEN: usize = 14;
/// Octets of the shortest frame, frame check sequence not counted.
pub const FRAME_LEN_MIN: usize = 60;
/// Octets of the longest payload (IEEE 802.3, section 3.2.7).
pub const PAYLOAD_LEN_MAX: usize = 1500;
/// The least value of the word after the addresses that is a type.
pub const TYPE_MIN: u16 = 0x600;
/// Octets of LLC with SNAP (RFC 1042): what precedes the payload of an
/// IEEE 802.3 frame that carries an Ethernet type.
pub const SNAP_LEN: usize = 8;

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
    /// First of the two types for local experiments (IEEE 802, section 9.2.3).
    pub const EXPERIMENT_1: Self = Self::literal(0x88b5);
    /// Second of the two types for local experiments.
    pub const EXPERIMENT_2: Self = Self::literal(0x88b6);

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

/// What the word after the addresses says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Ethernet II: the type of the payload.
    Type(EtherType),
    /// IEEE 802.3: octets of the IEEE 802.2 packet that follows.
    Length(Length),
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
        if octets as usize <= PAYLOAD_LEN_MAX {
            Some(Self(octets))
        } else {
            None
        }
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
    /// Who shall receive it.
    pub dst: EthAddr,
    /// Who sent it.
    pub src: EthAddr,
    /// Type or length.
    pub kind: Kind,
}

/// The LLC header (IEEE 802.2, section 5.2): service access points and control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Llc {
    /// Destination service access point; the low bit marks a group.
    pub dsap: u8,
    /// Source service access point; the low bit marks a response.
    pub ssap: u8,
    /// Control.
    pub control: Control,
}

/// The control field: one octet in an unnumbered packet, else two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Control {
    octets: [u8; 2],
}

impl Control {
    /// Unnumbered information.
    pub const UI: Self = Self { octets: [0x03, 0] };

    /// A control field from its octets; of an unnumbered one (low bits 11)
    /// only the first counts.
    #[inline]
    #[must_use]
    pub const fn new(octets: [u8; 2]) -> Self {
        match octets {
            [first, _] if first & 3 == 3 => Self { octets: [first, 0] },
            octets => Self { octets },
        }
    }

    /// The one or two octets on the wire.
    #[inline]
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        if self.octets[0] & 3 == 3 {
            &self.octets[..1]
        } else {
            &self.octets
        }
    }
}

/// The LLC and SNAP headers of a packet with a SNAP protocol (RFC 1042).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Snap {
    /// Who numbered the protocol; zero stands for Ethernet types.
    pub oui: [u8; 3],
    /// The protocol's number.
    pub protocol: u16,
}

/// A whole frame, the payload without padding where its length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// What follows it.
    pub payload: Payload<'a>,
}

/// The payload of a frame by encapsulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    /// Ethernet II: type and octets, padding included (only the layer above
    /// knows its length).
    Ethernet(EtherType, &'a [u8]),
    /// IEEE 802.3 with a bare LLC header, padding trimmed.
    Llc(Llc, &'a [u8]),
    /// IEEE 802.3 with LLC and SNAP, padding trimmed.
    Snap(Snap, &'a [u8]),
}

/// Why octets are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Error {
    /// Fewer octets than the headers need.
    Truncated,
    /// The word after the addresses is neither type nor length (1501 to 1535).
    TypeOrLength(u16),
    /// The length field exceeds what arrived.
    Length,
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
        Ok(Self {
            dst: EthAddr([a, b, c, d, e, f]),
            src: EthAddr([g, h, i, j, k, l]),
            kind,
        })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, octets: &mut [u8; HEADER_LEN]) {
        octets[..6].copy_from_slice(&self.dst.0);
        octets[6..12].copy_from_slice(&self.src.0);
        let word = match self.kind {
            Kind::Type(ether_type) => ether_type.get(),
            Kind::Length(length) => length.get(),
        };
        octets[12..].copy_from_slice(&word.to_be_bytes());
    }
}

impl Llc {
    /// Reads an LLC header; returns what follows it too.
    pub fn parse(octets: &[u8]) -> Result<(Self, &[u8]), Error> {
        let (&[dsap, ssap, first], rest) = octets.split_first_chunk().ok_or(Error::Truncated)?;
        if first & 3 == 3 {
            return Ok((
                Self {
                    dsap,
                    ssap,
                    control: Control::new([first, 0]),
                },
                rest,
            ));
        }
        let (&second, rest) = rest.split_first().ok_or(Error::Truncated)?;
        Ok((
            Self {
                dsap,
                ssap,
                control: Control::new([first, second]),
            },
            rest,
        ))
    }

    /// Writes the header; returns its octets, of which the slice has three or
    /// four: as long as the control field asks.
    pub fn emit<'b>(&self, octets: &'b mut [u8; 4]) -> &'b [u8] {
        let control = self.control.octets;
        *octets = [self.dsap, self.ssap, control[0], control[1]];
        &octets[..2 + self.control.octets().len()]
    }
}

impl Snap {
    /// An Ethernet type in SNAP (RFC 1042).
    #[must_use]
    pub const fn new(ether_type: EtherType) -> Self {
        Self {
            oui: [0; 3],
            protocol: ether_type.get(),
        }
    }

    /// The Ethernet type, if that is what numbers the protocol.
    #[must_use]
    pub const fn ether_type(&self) -> Option<EtherType> {
        match self.oui {
            [0, 0, 0] => EtherType::new(self.protocol),
            _ => None,
        }
    }

    /// Reads LLC and SNAP headers; `None` if the LLC header says otherwise.
    #[inline]
    #[must_use]
    pub const fn parse(octets: &[u8; SNAP_LEN]) -> Option<Self> {
        match *octets {
            [0xaa, 0xaa, 0x03, a, b, c, d, e] => Some(Self {
                oui: [a, b, c],
                protocol: u16::from_be_bytes([d, e]),
            }),
            _ => None,
        }
    }

    /// Writes LLC and SNAP headers.
    #[inline]
    pub const fn emit(&self, octets: &mut [u8; SNAP_LEN]) {
        let ([a, b, c], [d, e]) = (self.oui, self.protocol.to_be_bytes());
        *octets = [0xaa, 0xaa, 0x03, a, b, c, d, e];
    }
}

impl<'a> Frame<'a> {
    /// Reads a frame. Frames below the minimum of 60 octets pass: virtual
    /// wires have no such minimum.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = octets.split_first_chunk().ok_or(Error::Truncated)?;
        let header = Header::parse(header)?;
        let payload = match header.kind {
            Kind::Type(ether_type) => Payload::Ethernet(ether_type, rest),
            Kind::Length(length) => {
                let rest = rest.get(..usize::from(length.get())).ok_or(Error::Length)?;
                Payload::parse_llc(rest)?
            }
        };
        Ok(Self { header, payload })
    }
}

impl<'a> Payload<'a> {
    /// Reads the payload of an IEEE 802.3 frame, padding trimmed already.
    pub fn parse_llc(octets: &'a [u8]) -> Result<Self, Error> {
        if let Some((head, rest)) = octets.split_first_chunk()
            && let Some(snap) = Snap::parse(head)
        {
            return Ok(Self::Snap(snap, rest));
        }
        let (llc, rest) = Llc::parse(octets)?;
        // LLC says SNAP, but its five octets are not there.
        if (llc.dsap, llc.ssap, llc.control) == (0xaa, 0xaa, Control::UI) {
            return Err(Error::Truncated);
        }
        Ok(Self::Llc(llc, rest))
    }
}

/// Zero octets to append to a frame of `len` octets, header counted, so that
/// it reaches the minimum of 60.
#[inline]
#[must_use]
pub const fn padding(len: usize) -> usize {
    FRAME_LEN_MIN.saturating_sub(len)
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

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}, ", self.src, self.dst)?;
        match self.kind {
            Kind::Type(ether_type) => write!(f, "ethertype {ether_type}"),
            Kind::Length(length) => write!(f, "802.3, length {}", length.get()),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("fewer octets than the headers need"),
            Self::TypeOrLength(word) => write!(f, "0x{word:04x} is neither type nor length"),
            Self::Length => f.write_str("the length field exceeds the frame"),
        }
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests;
