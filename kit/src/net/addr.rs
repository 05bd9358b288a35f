//! Addresses that several protocols share: Ethernet addresses, IPv4 addresses
//! and IPv4 networks.

use core::fmt;
use core::str::FromStr;

pub use core::net::Ipv4Addr as Ipv4;
use xk_core::HostAddr;
use xk_core::control::{Field, Reader, Writer};
use xk_core::participant::{AddressError, Wild};

/// The IPv4 host that a participant names, for layers of that family; unspecified if it is left
/// open.
///
/// # Errors
/// [`AddressError::WrongFamily`].
pub fn ipv4(host: Wild<HostAddr>) -> Result<Ipv4, AddressError> {
    host.value().unwrap_or_default().to_v4().ok_or(AddressError::WrongFamily)
}

/// An Ethernet (EUI-48) address, its octets in the order of transmission
/// (IEEE 802, section 8.2). Written `aa:bb:cc:dd:ee:ff`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EthAddr(pub [u8; 6]);

impl EthAddr {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// No station: never valid as a source, stands for "unknown" in ARP.
    pub const ZERO: Self = Self([0; 6]);

    /// Whether this is the broadcast address.
    #[inline]
    #[must_use]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Whether this addresses a group; the broadcast address does too.
    #[inline]
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether this names one station: no group, not zero.
    #[inline]
    #[must_use]
    pub fn is_unicast(self) -> bool {
        !self.is_multicast() && self != Self::ZERO
    }

    /// The source of what comes from this station, as [`HostAddr::source`] counts hosts.
    #[inline]
    #[must_use]
    pub const fn source(self) -> u64 {
        let Self([a, b, c, d, e, f]) = self;
        u64::from_be_bytes([0, 1, a, b, c, d, e, f])
    }

    /// Whether the address was given locally and not by a manufacturer.
    #[inline]
    #[must_use]
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 != 0
    }

    /// The group address onto which an IPv4 group maps (RFC 1112, section
    /// 6.4): the low 23 bits of the group after 01:00:5e.
    #[must_use]
    pub const fn from_ipv4_group(group: Ipv4) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }
}

impl fmt::Display for EthAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for EthAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<[u8; 6]> for EthAddr {
    fn from(octets: [u8; 6]) -> Self {
        Self(octets)
    }
}

/// Why a text is no Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EthAddrError {
    /// Not six parts between colons; holds how many there are.
    #[error("an Ethernet address has 6 octets, this has {0}")]
    Parts(usize),
    /// This part (0 to 5) is not two hexadecimal digits.
    #[error("octet {} is not two hexadecimal digits", .0 + 1)]
    Octet(usize),
}

impl FromStr for EthAddr {
    type Err = EthAddrError;

    fn from_str(text: &str) -> Result<Self, EthAddrError> {
        let parts = text.split(':').count();
        if parts != 6 {
            return Err(EthAddrError::Parts(parts));
        }
        let mut octets = [0; 6];
        for (n, (octet, part)) in octets.iter_mut().zip(text.split(':')).enumerate() {
            // from_str_radix alone would let a sign pass.
            let digits = part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit());
            *octet = match u8::from_str_radix(part, 16) {
                Ok(value) if digits => value,
                _ => return Err(EthAddrError::Octet(n)),
            };
        }
        Ok(Self(octets))
    }
}

/// An IPv4 address with the length of its network prefix (RFC 4632, section
/// 3.1). Written `192.0.2.1/24`; the host part is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cidr {
    addr: Ipv4,
    prefix: u8,
}

impl Cidr {
    /// An address with a prefix of 0 to 32 bits.
    pub const fn new(addr: Ipv4, prefix: u8) -> Result<Self, CidrError> {
        if prefix > 32 {
            return Err(CidrError::Prefix);
        }
        Ok(Self { addr, prefix })
    }

    /// The address, host part and all.
    #[inline]
    #[must_use]
    pub const fn addr(self) -> Ipv4 {
        self.addr
    }

    /// Bits of the network prefix, 0 to 32.
    #[inline]
    #[must_use]
    pub const fn prefix(self) -> u8 {
        self.prefix
    }

    /// The netmask: `prefix` ones, then zeros.
    #[inline]
    #[must_use]
    pub const fn netmask(self) -> Ipv4 {
        Ipv4::from_bits(self.mask())
    }

    /// The network's own address: host part zero.
    #[inline]
    #[must_use]
    pub const fn network(self) -> Ipv4 {
        Ipv4::from_bits(self.addr.to_bits() & self.mask())
    }

    /// The directed broadcast address; none for prefixes of 31 (RFC 3021) and
    /// 32 bits, which have no room for one.
    #[inline]
    #[must_use]
    pub const fn broadcast(self) -> Option<Ipv4> {
        if self.prefix > 30 {
            return None;
        }
        Some(Ipv4::from_bits(self.addr.to_bits() | !self.mask()))
    }

    /// Whether `addr` lies in this network.
    #[inline]
    #[must_use]
    pub const fn contains(self, addr: Ipv4) -> bool {
        (self.addr.to_bits() ^ addr.to_bits()) & self.mask() == 0
    }

    const fn mask(self) -> u32 {
        match u32::MAX.checked_shl(32 - self.prefix as u32) {
            Some(mask) => mask,
            None => 0,
        }
    }
}

impl Field for Cidr {
    fn put(&self, out: &mut Writer<'_>) {
        self.addr.put(out);
        self.prefix.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        let (addr, prefix) = Field::take(from)?;
        Self::new(addr, prefix).ok()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.prefix)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why something is no IPv4 network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CidrError {
    /// No `/` between address and prefix.
    #[error("expected ADDRESS/PREFIX, as in 192.0.2.1/24")]
    Slash,
    /// The part before the `/` is no IPv4 address.
    #[error("the part before / is not an IPv4 address")]
    Addr,
    /// The prefix is not a number from 0 to 32.
    #[error("the prefix is not a number from 0 to 32")]
    Prefix,
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (addr, prefix) = text.split_once('/').ok_or(CidrError::Slash)?;
        let addr = addr.parse().map_err(|_| CidrError::Addr)?;
        if !prefix.bytes().all(|c| c.is_ascii_digit()) {
            return Err(CidrError::Prefix);
        }
        Self::new(addr, prefix.parse().map_err(|_| CidrError::Prefix)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn eth_text() {
        let addr = EthAddr([0x02, 0, 0x5e, 0x10, 0xab, 0xff]);
        assert_eq!(addr.to_string(), "02:00:5e:10:ab:ff");
        assert_eq!("02:00:5E:10:aB:ff".parse(), Ok(addr));
        assert_eq!("02:00:5e".parse::<EthAddr>(), Err(EthAddrError::Parts(3)));
        for wrong in ["02:00:5e:+1:ab:ff", "02:00:5e:1:ab:ff", "02:00:5e:xx:ab:ff"] {
            assert_eq!(wrong.parse::<EthAddr>(), Err(EthAddrError::Octet(3)), "{wrong}");
        }
        assert_eq!("".parse::<EthAddr>(), Err(EthAddrError::Parts(1)));
    }

    #[test]
    fn eth_kinds() {
        assert!(EthAddr::BROADCAST.is_broadcast() && EthAddr::BROADCAST.is_multicast());
        assert!(!EthAddr::ZERO.is_unicast());
        let group = EthAddr::from_ipv4_group(Ipv4::new(239, 255, 0, 251));
        assert_eq!(group, EthAddr([1, 0, 0x5e, 0x7f, 0, 251]));
        assert!(group.is_multicast() && !group.is_broadcast() && !group.is_local());
        assert!(EthAddr([2, 0, 0, 0, 0, 1]).is_local());
        assert!(EthAddr([2, 0, 0, 0, 0, 1]).is_unicast());
    }

    #[test]
    fn cidr_parts() {
        let net: Cidr = "192.0.2.77/26".parse().unwrap();
        assert_eq!(net.netmask(), Ipv4::new(255, 255, 255, 192));
        assert_eq!(net.network(), Ipv4::new(192, 0, 2, 64));
        assert_eq!(net.broadcast(), Some(Ipv4::new(192, 0, 2, 127)));
        assert!(net.contains(Ipv4::new(192, 0, 2, 127)));
        assert!(!net.contains(Ipv4::new(192, 0, 2, 128)));
        assert_eq!(net.to_string(), "192.0.2.77/26");
    }

    #[test]
    fn cidr_edges() {
        let all: Cidr = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains(Ipv4::BROADCAST));
        assert_eq!(all.netmask(), Ipv4::UNSPECIFIED);
        let host: Cidr = "192.0.2.1/32".parse().unwrap();
        assert_eq!((host.broadcast(), host.netmask()), (None, Ipv4::BROADCAST));
        assert_eq!("192.0.2.1/31".parse::<Cidr>().unwrap().broadcast(), None);
        assert_eq!("192.0.2.1".parse::<Cidr>(), Err(CidrError::Slash));
        assert_eq!("192.0.2/24".parse::<Cidr>(), Err(CidrError::Addr));
        for wrong in ["33", "", "+8", "-1", "256"] {
            let text = std::format!("192.0.2.1/{wrong}");
            assert_eq!(text.parse::<Cidr>(), Err(CidrError::Prefix), "{text}");
        }
    }

    proptest! {
        #[test]
        fn texts_round_trip(octets: [u8; 6], bits: u32, prefix in 0u8..=32) {
            let eth = EthAddr(octets);
            prop_assert_eq!(eth.to_string().parse(), Ok(eth));
            let net = Cidr::new(Ipv4::from_bits(bits), prefix).unwrap();
            prop_assert_eq!(net.to_string().parse(), Ok(net));
        }

        #[test]
        fn agrees_with_smoltcp(a: u32, b: u32, prefix in 0u8..=32) {
            let (a, b) = (Ipv4::from_bits(a), Ipv4::from_bits(b));
            let ours = Cidr::new(a, prefix).unwrap();
            let theirs = smoltcp::wire::Ipv4Cidr::new(a, prefix);
            prop_assert_eq!(ours.contains(b), theirs.contains_addr(&b));
            prop_assert_eq!(ours.netmask(), theirs.netmask());
            prop_assert_eq!(ours.network(), theirs.network().address());
            prop_assert_eq!(ours.broadcast(), theirs.broadcast());
        }

        #[test]
        fn any_text_is_refused_or_read(text in ".{0,24}") {
            let _ = text.parse::<EthAddr>();
            let _ = text.parse::<Cidr>();
        }
    }
}
