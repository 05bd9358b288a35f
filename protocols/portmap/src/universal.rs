//! Universal addresses: those of a transport as text. For UDP and TCP over IPv4
//! `h1.h2.h3.h4.p1.p2`, host and port octet by octet (RFC 5665, section 5.2.3.3; RFC 1833, section
//! 2.1, leaves their form to the transport).

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::net::Ipv4Addr;

/// A transport that programs can be reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Netid {
    /// Datagrams.
    Udp,
    /// A stream.
    Tcp,
}

/// All of them.
pub const NETIDS: [Netid; 2] = [Netid::Udp, Netid::Tcp];

impl Netid {
    /// Its network identifier (RFC 5665, section 5.1).
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }

    /// Its number among the protocols on IP, as version 2 names it (RFC 1833, section 3.1).
    #[must_use]
    pub fn protocol(self) -> u32 {
        match self {
            Self::Udp => 17,
            Self::Tcp => 6,
        }
    }

    /// The one with this network identifier.
    #[must_use]
    pub fn of_name(name: &[u8]) -> Option<Self> {
        NETIDS.into_iter().find(|id| id.name().as_bytes() == name)
    }

    /// The one with this protocol number.
    #[must_use]
    pub fn of_protocol(protocol: u32) -> Option<Self> {
        NETIDS.into_iter().find(|id| id.protocol() == protocol)
    }
}

/// A host and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Universal {
    /// The host; 0.0.0.0 for any of the server's.
    pub host: Ipv4Addr,
    /// The port.
    pub port: u16,
}

impl Universal {
    /// Reads the text.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut octets = [0_u8; 6];
        let mut parts = text.split(|octet| *octet == b'.');
        for octet in &mut octets {
            *octet = number(parts.next()?)?;
        }
        if parts.next().is_some() {
            return None;
        }
        let [a, b, c, d, high, low] = octets;
        Some(Self { host: Ipv4Addr::new(a, b, c, d), port: u16::from_be_bytes([high, low]) })
    }

    /// The text.
    #[must_use]
    pub fn emit(self) -> String {
        format!("{self}")
    }

    /// As the socket interface of most machines has it, `sockaddr_in`: the family 2 in the
    /// machine's order of octets, which is taken to be the more common one; the port, the host,
    /// zeroes. RFC 1833 says only that it is specific to the transport.
    #[must_use]
    pub fn to_socket(self) -> [u8; SOCKET_OCTETS] {
        let mut octets = [0; SOCKET_OCTETS];
        let [high, low] = self.port.to_be_bytes();
        let [a, b, c, d] = self.host.octets();
        octets[..8].copy_from_slice(&[2, 0, high, low, a, b, c, d]);
        octets
    }

    /// Reads a `sockaddr_in` with the family in either order.
    #[must_use]
    pub fn of_socket(octets: &[u8]) -> Option<Self> {
        let [family @ .., high, low, a, b, c, d] = octets.first_chunk::<8>()?;
        if ![[2, 0], [0, 2]].contains(family) {
            return None;
        }
        Some(Self { host: Ipv4Addr::new(*a, *b, *c, *d), port: u16::from_be_bytes([*high, *low]) })
    }
}

/// Octets of a `sockaddr_in`.
pub const SOCKET_OCTETS: usize = 16;

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
        write!(f, "{}.{high}.{low}", self.host)
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
    fn what_is_no_address_is_none() {
        for text in [
            "",
            "1.2.3.4",
            "1.2.3.4.5",
            "1.2.3.4.5.6.7",
            "1.2.3.4.5.256",
            "1.2.3.4.5.",
            "1.2.3.4.5.0006",
            "::1.8.1",
            "1.2.3.4.-1.6",
            "/run/rpcbind.sock",
        ] {
            assert_eq!(Universal::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Universal::of_socket(&[10, 0, 8, 1, 1, 2, 3, 4]), None);
        assert_eq!(Universal::of_socket(&[2, 0, 8, 1, 1, 2, 3]), None);
    }
}
