//! The address of a host, of any family.

use crate::control::{Field, Reader, Writer};
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// The address of a host: IPv4, or IPv6 with the scope in which it is unique.
///
/// Equal addresses have equal octets, so this is a key: an IPv4 address is kept as the IPv6 address
/// that stands for it (RFC 4291, section 2.5.5.2), which never goes on a wire; the unspecified
/// address is one for both families; and a scope is kept only where an address needs one. Layers
/// that are of no family (transports, RPC) hold and compare these and never look inside.
///
/// Text: `10.0.0.2`, `2001:db8::1`, `fe80::1%3` (RFC 4007, section 11).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostAddr {
    octets: [u8; 16],
    scope: u32,
}

/// The first twelve octets of an IPv4 address as it is kept.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// Octets of the address, 4 or 16, then these; of IPv6 the zone, too.
impl Field for HostAddr {
    fn put(&self, out: &mut Writer<'_>) {
        match self.to_v4() {
            Some(address) => (4u8, address.octets()).put(out),
            None => (16u8, self.octets, self.scope).put(out),
        }
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        match u8::take(from)? {
            4 => <[u8; 4]>::take(from).map(|octets| Self::v4(octets.into())),
            16 => {
                let (octets, scope) = <([u8; 16], u32)>::take(from)?;
                let host = Self { octets, scope };
                // One address has one form.
                (host == Self::v6(octets.into(), scope)).then_some(host)
            }
            _ => None,
        }
    }
}

impl Field for Ipv4Addr {
    fn put(&self, out: &mut Writer<'_>) {
        self.octets().put(out);
    }

    fn take(from: &mut Reader<'_>) -> Option<Self> {
        <[u8; 4]>::take(from).map(Self::from)
    }
}

impl HostAddr {
    /// No host: `0.0.0.0` and `::`.
    pub const UNSPECIFIED: Self = Self { octets: [0; 16], scope: 0 };
    /// This host itself, of IPv4.
    pub const LOCALHOST: Self = Self::v4(Ipv4Addr::LOCALHOST);
    /// All hosts of a link; IPv6 has only groups.
    pub const BROADCAST: Self = Self::v4(Ipv4Addr::BROADCAST);

    /// An IPv4 address.
    #[inline]
    #[must_use]
    pub const fn v4(address: Ipv4Addr) -> Self {
        let [a, b, c, d] = address.octets();
        if address.to_bits() == 0 {
            return Self::UNSPECIFIED;
        }
        let mut octets = [0; 16];
        (octets[10], octets[11]) = (0xff, 0xff);
        (octets[12], octets[13], octets[14], octets[15]) = (a, b, c, d);
        Self { octets, scope: 0 }
    }

    /// An IPv6 address, and the zone in which it is unique (RFC 4007, section 6): a number of this
    /// host's own, 0 for the one that is usual. It is dropped for addresses that are unique
    /// everywhere. One that stands for an IPv4 address becomes that.
    #[must_use]
    pub const fn v6(address: Ipv6Addr, scope: u32) -> Self {
        let octets = address.octets();
        let needs_scope = match octets {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => {
                return Self::v4(Ipv4Addr::new(a, b, c, d));
            }
            [0xfe, b, ..] => b & 0xc0 == 0x80,
            [0xff, b, ..] => b & 0x0f != 0x0e,
            _ => address.to_bits() == 0,
        };
        Self { octets, scope: if needs_scope { scope } else { 0 } }
    }

    /// True for an IPv4 address.
    #[inline]
    #[must_use]
    pub fn is_v4(&self) -> bool {
        self.octets[..12] == MAPPED
    }

    /// The IPv4 address; `0.0.0.0` for the unspecified one.
    #[inline]
    #[must_use]
    pub fn to_v4(self) -> Option<Ipv4Addr> {
        match self.octets {
            [.., a, b, c, d] if self.is_v4() => Some(Ipv4Addr::new(a, b, c, d)),
            _ => (self == Self::UNSPECIFIED).then_some(Ipv4Addr::UNSPECIFIED),
        }
    }

    /// The IPv6 address; `::` for the unspecified one.
    #[inline]
    #[must_use]
    pub fn to_v6(self) -> Option<Ipv6Addr> {
        (!self.is_v4()).then_some(Ipv6Addr::from_octets(self.octets))
    }

    /// The zone in which an IPv6 address is unique; 0 if it is the usual one, or everywhere.
    #[inline]
    #[must_use]
    pub const fn scope(&self) -> u32 {
        self.scope
    }

    /// The octets that packets carry: four of IPv4, sixteen of IPv6; four for the unspecified one.
    #[inline]
    #[must_use]
    pub fn octets(&self) -> &[u8] {
        if self.is_v4() || *self == Self::UNSPECIFIED { &self.octets[12..] } else { &self.octets }
    }

    /// Sixteen octets and the zone, for [`from_parts`](Self::from_parts).
    #[inline]
    #[must_use]
    pub const fn to_parts(self) -> ([u8; 16], u32) {
        (self.octets, self.scope)
    }

    /// The address again that [`to_parts`](Self::to_parts) made these of; of others, as
    /// [`v6`](Self::v6).
    #[inline]
    #[must_use]
    pub const fn from_parts((octets, scope): ([u8; 16], u32)) -> Self {
        Self::v6(Ipv6Addr::from_octets(octets), scope)
    }

    /// An address of these octets and zone, whether there is one or not.
    pub(super) const fn unchecked(octets: [u8; 16], scope: u32) -> Self {
        Self { octets, scope }
    }

    /// All of it in words, for a keyed hash.
    #[must_use]
    pub fn words(&self) -> [u64; 3] {
        let bits = u128::from_be_bytes(self.octets);
        [(bits >> 64) as u64, bits as u64, self.scope.into()]
    }

    /// True for `0.0.0.0` and `::`.
    #[inline]
    #[must_use]
    pub fn is_unspecified(&self) -> bool {
        self.octets == [0; 16]
    }

    /// True for this host itself.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self.to_v4() {
            Some(address) => address.is_loopback(),
            None => self.octets == Ipv6Addr::LOCALHOST.octets(),
        }
    }

    /// True for what names several hosts wherever it is: a multicast group, or IPv4's limited
    /// broadcast address. The broadcast addresses of networks are known to those networks alone.
    #[inline]
    #[must_use]
    pub fn is_group(&self) -> bool {
        match self.octets {
            [0xff, ..] => true,
            [.., a, _, _, _] if self.is_v4() => a & 0xf0 == 0xe0 || *self == Self::BROADCAST,
            _ => false,
        }
    }

    /// The address in 32 bits, for headers that have no more: those of IPv4 as they are; of IPv6
    /// the sum of its words by exclusive or, which several addresses share.
    #[inline]
    #[must_use]
    pub fn folded(&self) -> u32 {
        let [.., a, b, c, d] = self.octets;
        let last = u32::from_be_bytes([a, b, c, d]);
        if self.is_v4() {
            return last;
        }
        let words = self.octets.as_chunks::<4>().0;
        words.iter().fold(0, |sum, word| sum ^ u32::from_be_bytes(*word))
    }

    /// The source for which a rate or a bound is counted, since another one costs an attacker
    /// something: an IPv4 address, or the 64 bits in front of an IPv6 address, of which one site
    /// has all that follow. Hosts of one link are told apart.
    #[inline]
    #[must_use]
    pub fn source(&self) -> u64 {
        let [high, low, _] = self.words();
        match self.octets {
            _ if self.is_v4() => low & 0xffff_ffff,
            [0xfe, b, ..] if b & 0xc0 == 0x80 => low,
            _ => high,
        }
    }
}

impl From<Ipv4Addr> for HostAddr {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        Self::v4(address)
    }
}

impl From<[u8; 4]> for HostAddr {
    #[inline]
    fn from(octets: [u8; 4]) -> Self {
        Self::v4(octets.into())
    }
}

impl From<[u8; 16]> for HostAddr {
    /// In the usual zone.
    fn from(octets: [u8; 16]) -> Self {
        Self::v6(octets.into(), 0)
    }
}

impl From<Ipv6Addr> for HostAddr {
    /// In the usual zone.
    fn from(address: Ipv6Addr) -> Self {
        Self::v6(address, 0)
    }
}

impl From<IpAddr> for HostAddr {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<HostAddr> for IpAddr {
    /// Without the zone.
    fn from(host: HostAddr) -> Self {
        match host.to_v4() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_octets(host.octets).into(),
        }
    }
}

impl PartialEq<Ipv4Addr> for HostAddr {
    fn eq(&self, other: &Ipv4Addr) -> bool {
        *self == Self::v4(*other)
    }
}

impl fmt::Display for HostAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        IpAddr::from(*self).fmt(f)?;
        match self.scope {
            0 => Ok(()),
            scope => write!(f, "%{scope}"),
        }
    }
}

impl fmt::Debug for HostAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is no host address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a host, such as 10.0.0.1, 2001:db8::1 or fe80::1%2")]
pub struct HostAddrError;

impl FromStr for HostAddr {
    type Err = HostAddrError;

    fn from_str(text: &str) -> Result<Self, HostAddrError> {
        let Some((address, scope)) = text.split_once('%') else {
            return text.parse::<IpAddr>().map(Self::from).map_err(|_| HostAddrError);
        };
        // `parse` alone would let a sign pass.
        let is_number = scope.bytes().all(|c| c.is_ascii_digit());
        let scope = scope.parse().ok().filter(|_| is_number).ok_or(HostAddrError)?;
        let address = address.parse::<Ipv6Addr>().map_err(|_| HostAddrError)?;
        let host = Self::v6(address, scope);
        // Of an address that is unique everywhere a zone means nothing.
        if host.scope == scope { Ok(host) } else { Err(HostAddrError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    fn host(text: &str) -> HostAddr {
        text.parse().expect("a host")
    }

    #[test]
    fn one_address_has_one_form() {
        assert_eq!(host("::ffff:10.0.0.1"), Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!(host("::"), host("0.0.0.0"));
        assert_eq!(HostAddr::from(Ipv4Addr::UNSPECIFIED), HostAddr::default());
        let global = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
        assert_eq!(HostAddr::v6(global, 7), HostAddr::v6(global, 0));
        assert_ne!(host("fe80::1%1"), host("fe80::1%2"));
        assert_ne!(host("ff02::1%1"), host("ff02::1%2"));
        assert_eq!(size_of::<HostAddr>(), 20);
    }

    #[test]
    fn texts_that_are_refused() {
        for text in ["", "10.0.0", "10.0.0.1%1", "fe80::1%", "fe80::1%+1", "fe80::1%eth0", "::g"] {
            assert_eq!(text.parse::<HostAddr>(), Err(HostAddrError), "{text}");
        }
        assert_eq!("2001:db8::1%4".parse::<HostAddr>(), Err(HostAddrError));
        assert_eq!(host("fe80::1%3").to_string(), "fe80::1%3");
        assert_eq!(host("::").to_string(), "0.0.0.0");
    }

    #[test]
    fn kinds() {
        for text in ["224.0.0.1", "239.1.2.3", "255.255.255.255", "ff02::1", "ff0e::1"] {
            assert!(host(text).is_group(), "{text}");
        }
        for text in ["10.0.0.255", "240.0.0.1", "fe80::1", "::1", "::", "::ff00:1"] {
            assert!(!host(text).is_group(), "{text}");
        }
        assert!(host("127.3.0.1").is_loopback() && host("::1").is_loopback());
        assert!(!host("10.0.0.1").is_loopback() && !host("::").is_loopback());
        assert_eq!((host("::").to_v4(), host("::1").to_v4()), (Some([0; 4].into()), None));
        assert_eq!(host("10.0.0.1").octets(), [10, 0, 0, 1]);
        assert_eq!(host("2001:db8::1").octets().len(), 16);
    }

    #[test]
    fn sources_are_what_a_site_has() {
        assert_eq!(host("2001:db8::1").source(), host("2001:db8::2:3").source());
        assert_ne!(host("2001:db8::1").source(), host("2001:db8:0:1::1").source());
        assert_ne!(host("fe80::1").source(), host("fe80::2").source());
        assert_eq!(host("10.0.0.1").source(), 0x0a00_0001);
        assert_eq!(host("10.0.0.1").folded(), 0x0a00_0001);
        assert_eq!(host("2001:db8::1").folded(), 0x2001_0db9);
    }

    proptest! {
        #[test]
        fn texts_and_parts_round_trip(bits: u128, low in 0u128..1 << 33, scope: u32) {
            for bits in [bits, low, 0xffff_0000_0000 | low, 0xfe80 << 112 | bits >> 16] {
                let address = Ipv6Addr::from_bits(bits);
                for host in [HostAddr::from(address), HostAddr::v6(address, scope)] {
                    prop_assert_eq!(host.to_string().parse(), Ok(host));
                    prop_assert_eq!(HostAddr::from_parts(host.to_parts()), host);
                    let is_both = host.to_v4().is_some() && host.to_v6().is_some();
                    prop_assert_eq!(is_both, host == HostAddr::UNSPECIFIED);
                }
            }
        }

        #[test]
        fn no_text_panics(text in any::<std::string::String>()) {
            let _ = text.parse::<HostAddr>();
        }
    }
}
