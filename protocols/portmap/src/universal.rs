//! Universal addresses: those of a transport as text, host and port: `10.0.0.1.8.1` over IPv4,
//! `fe80::1.8.1` over IPv6, the port's two octets last (RFC 5665, sections 5.2.3.3 and 5.2.3.4; RFC
//! 1833, section 2.1, leaves their form to the transport).

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use xk_core::{HostAddr, fields};

/// A transport that programs can be reached by, over one family of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Netid {
    /// Datagrams over IPv4.
    Udp,
    /// A stream over IPv4.
    Tcp,
    /// Datagrams over IPv6.
    Udp6,
    /// A stream over IPv6.
    Tcp6,
}

fields!(
    enum Netid {
        Udp = 0,
        Tcp = 1,
        Udp6 = 2,
        Tcp6 = 3,
    }
);

/// All of them.
pub const NETIDS: [Netid; 4] = [Netid::Udp, Netid::Tcp, Netid::Udp6, Netid::Tcp6];

impl Netid {
    /// The network identifier (RFC 5665, section 5.1).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Udp6 => "udp6",
            Self::Tcp6 => "tcp6",
        }
    }

    /// The transport's number among the protocols on IP, as version 2 names it (RFC 1833, section
    /// 3.1).
    #[must_use]
    pub fn protocol(self) -> u32 {
        if self.is_stream() { 6 } else { 17 }
    }

    /// Whether it carries a stream.
    #[must_use]
    pub fn is_stream(self) -> bool {
        matches!(self, Self::Tcp | Self::Tcp6)
    }

    /// Whether its hosts are of IPv6.
    #[must_use]
    pub fn is_v6(self) -> bool {
        matches!(self, Self::Udp6 | Self::Tcp6)
    }

    /// This transport over the family of this host.
    #[must_use]
    pub fn over(self, host: HostAddr) -> Self {
        match (self.is_stream(), host.to_v4().is_none()) {
            (false, false) => Self::Udp,
            (true, false) => Self::Tcp,
            (false, true) => Self::Udp6,
            (true, true) => Self::Tcp6,
        }
    }

    /// The one with this network identifier.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<Self> {
        NETIDS.into_iter().find(|id| id.name().as_bytes() == name)
    }

    /// The one with this protocol number, over IPv4: version 2 knows no other hosts.
    #[must_use]
    pub fn of_protocol(protocol: u32) -> Option<Self> {
        NETIDS.into_iter().find(|id| id.protocol() == protocol)
    }
}

/// A host and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Universal {
    /// The host; 0.0.0.0 for any of the server's.
    pub host: HostAddr,
    /// The port.
    pub port: u16,
}

fields!(Universal { host, port });

impl Universal {
    /// Reads the text.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = text.rsplitn(3, |octet| *octet == b'.');
        let [low, high] = [parts.next()?, parts.next()?];
        let port = u16::from_be_bytes([number(high)?, number(low)?]);
        let host = parts.next()?;
        if host.contains(&b':') {
            let host: HostAddr = core::str::from_utf8(host).ok()?.parse().ok()?;
            return (host.scope() == 0).then_some(Self { host, port });
        }
        let mut octets = [0_u8; 4];
        let mut parts = host.split(|octet| *octet == b'.');
        for octet in &mut octets {
            *octet = number(parts.next()?)?;
        }
        parts.next().is_none().then_some(Self { host: octets.into(), port })
    }

    /// The text.
    #[must_use]
    pub fn emit(self) -> String {
        format!("{self}")
    }

    /// As the socket interface of most machines has it, `sockaddr_in` or `sockaddr_in6`: the family
    /// 2 or 10 in the machine's order of octets, which is taken to be the more common one; the port
    /// and the host, followed or surrounded by zeroes. RFC 1833 says only that it is specific to
    /// the transport.
    #[must_use]
    pub fn to_socket(self) -> Vec<u8> {
        let [high, low] = self.port.to_be_bytes();
        let host = self.host.octets();
        let (family, at, octets) = if host.len() == 4 { (2, 4, 16) } else { (10, 8, 28) };
        let mut socket = vec![0; octets];
        socket[..4].copy_from_slice(&[family, 0, high, low]);
        socket[at..at + host.len()].copy_from_slice(host);
        socket
    }

    /// Reads a `sockaddr_in` or `sockaddr_in6` with the family in either order.
    #[must_use]
    pub fn of_socket(octets: &[u8]) -> Option<Self> {
        let ([family @ .., high, low], rest) = octets.split_first_chunk::<4>()?;
        let host = match family {
            [2, 0] | [0, 2] => HostAddr::from(*rest.first_chunk::<4>()?),
            [10, 0] | [0, 10] => HostAddr::from(*rest.get(4..)?.first_chunk::<16>()?),
            _ => return None,
        };
        Some(Self { host, port: u16::from_be_bytes([*high, *low]) })
    }
}

/// One to three digits below 256.
fn number(digits: &[u8]) -> Option<u8> {
    if digits.is_empty() || digits.len() > 3 {
        return None;
    }
    digits.iter().try_fold(0_u8, |value, digit| {
        let digit = char::from(*digit).to_digit(10)?;
        value.checked_mul(10)?.checked_add(u8::try_from(digit).ok()?)
    })
}

impl fmt::Display for Universal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [high, low] = self.port.to_be_bytes();
        // Without the zone, which is known to this host alone.
        let host = HostAddr::from_parts((self.host.to_parts().0, 0));
        write!(f, "{host}.{high}.{low}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_octets_are_the_same_address() {
        let address = Universal { host: [127, 0, 0, 1].into(), port: 2049 };
        assert_eq!(address.emit(), "127.0.0.1.8.1");
        assert_eq!(Universal::parse(b"127.0.0.1.8.1"), Some(address));
        assert_eq!(Universal::of_socket(&address.to_socket()), Some(address));
        let other_order = [0, 2, 8, 1, 127, 0, 0, 1];
        assert_eq!(Universal::of_socket(&other_order), Some(address));
    }

    #[test]
    fn a_host_of_ipv6_has_its_own_forms() {
        let host: HostAddr = "2001:db8::1".parse().unwrap();
        let address = Universal { host, port: 2049 };
        assert_eq!(address.emit(), "2001:db8::1.8.1");
        assert_eq!(Universal::parse(b"2001:db8::1.8.1"), Some(address));
        assert_eq!(
            Universal::parse(b"::ffff:10.0.0.1.8.1").unwrap().host,
            HostAddr::from([10, 0, 0, 1])
        );
        let socket = address.to_socket();
        assert_eq!((socket.len(), &socket[..8]), (28, &[10, 0, 8, 1, 0, 0, 0, 0][..]));
        assert_eq!(Universal::of_socket(&socket), Some(address));
        assert_eq!(Universal::of_socket(&socket[..23]), None);
        assert_eq!(Netid::Udp.over(host), Netid::Udp6);
        assert_eq!(Netid::Tcp6.over(HostAddr::LOCALHOST), Netid::Tcp);
    }

    #[test]
    fn what_is_no_address_is_none() {
        for text in [
            "",
            "1.2.3.4",
            "1.2.3.4.5",
            "1.2.3.4.5.6.7",
            "1.2.3.4.5.256",
            "1.2.3.4.5.",
            "1.2.3.4.5.0006",
            "::1.1",
            "::g.8.1",
            "fe80::1%2.8.1",
            "1.2.3.4.-1.6",
            "/run/rpcbind.sock",
        ] {
            assert_eq!(Universal::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Universal::of_socket(&[10, 0, 8, 1, 1, 2, 3, 4]), None);
        assert_eq!(Universal::of_socket(&[2, 0, 8, 1, 1, 2, 3]), None);
    }
}
