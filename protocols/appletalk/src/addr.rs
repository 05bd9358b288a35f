//! Addresses: of a node, of a socket, of a range of networks, and the socket address of 4.3BSD.

use core::fmt;
use core::str::FromStr;

/// The node number of all nodes.
pub const BROADCAST: u8 = 0xff;
/// Network number for "this network, whichever it is".
pub const NET_ANY: u16 = 0;
/// The networks of nodes that know no router (Inside AppleTalk, chapter 4).
pub const START_UP: NetRange = NetRange { first: 0xff00, last: 0xfffe };
/// The node numbers that a node of an extended network may have.
pub const NODES: core::ops::RangeInclusive<u8> = 1..=253;

/// A node: network and number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// The network; [`NET_ANY`] if it is the one that the packet is on.
    pub net: u16,
    /// The number; [`BROADCAST`] for all nodes, 0 for any router.
    pub node: u8,
}

impl Node {
    /// All nodes of the cable.
    pub const ALL: Self = Self { net: NET_ANY, node: BROADCAST };

    /// A node.
    #[must_use]
    pub const fn new(net: u16, node: u8) -> Self {
        Self { net, node }
    }

    /// The socket of this number there.
    #[must_use]
    pub const fn socket(self, socket: u8) -> AtAddr {
        AtAddr { net: self.net, node: self.node, socket }
    }

    /// True for all nodes of a network.
    #[must_use]
    pub const fn is_broadcast(self) -> bool {
        self.node == BROADCAST
    }

    /// True for what one node can be: neither all nodes nor any router, in a definite network.
    #[must_use]
    pub const fn is_one(self) -> bool {
        self.net != NET_ANY && self.net != 0xffff && self.node != 0 && self.node != BROADCAST
    }

    /// The source of what comes from this node, for rates, bounds and shares.
    #[must_use]
    pub const fn source(self) -> u64 {
        u32::from_be_bytes(self.to_octets()) as u64
    }

    /// The four octets of AARP, and of an RTMP response's beginning: 0, the network, the number.
    #[must_use]
    pub const fn to_octets(self) -> [u8; 4] {
        let [high, low] = self.net.to_be_bytes();
        [0, high, low, self.node]
    }

    /// Reads [`to_octets`](Self::to_octets); the first octet is not looked at.
    #[must_use]
    pub const fn from_octets([_, high, low, node]: [u8; 4]) -> Self {
        Self { net: u16::from_be_bytes([high, low]), node }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.net, self.node)
    }
}

/// A socket of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AtAddr {
    /// The network.
    pub net: u16,
    /// The node.
    pub node: u8,
    /// The socket; 1 to 127 are given by number, 128 to 254 are free.
    pub socket: u8,
}

/// Octets of a socket address.
pub const SOCKADDR_LEN: usize = 16;
/// The address family of a socket address, `AF_APPLETALK`.
pub const AF_APPLETALK: u8 = 16;

impl AtAddr {
    /// A socket.
    #[must_use]
    pub const fn new(net: u16, node: u8, socket: u8) -> Self {
        Self { net, node, socket }
    }

    /// The node that it is at.
    #[must_use]
    pub const fn at(self) -> Node {
        Node { net: self.net, node: self.node }
    }

    /// As a `sockaddr_at` of 4.4BSD: length, family, socket, 0, network, node, zeros.
    #[must_use]
    pub const fn to_sockaddr(self) -> [u8; SOCKADDR_LEN] {
        let [high, low] = self.net.to_be_bytes();
        let mut octets = [0; SOCKADDR_LEN];
        (octets[0], octets[1]) = (SOCKADDR_LEN as u8, AF_APPLETALK);
        (octets[2], octets[4], octets[5], octets[6]) = (self.socket, high, low, self.node);
        octets
    }

    /// Reads a `sockaddr_at`; `None` for another family or fewer octets. A length of 0 is that of
    /// 4.3BSD, whose socket addresses had none.
    #[must_use]
    pub fn from_sockaddr(octets: &[u8]) -> Option<Self> {
        let octets: &[u8; SOCKADDR_LEN] = octets.first_chunk()?;
        let [len, family, socket, _, high, low, node, ..] = *octets;
        let fits = family == AF_APPLETALK && (len == 0 || usize::from(len) == SOCKADDR_LEN);
        fits.then_some(Self { net: u16::from_be_bytes([high, low]), node, socket })
    }
}

impl fmt::Display for AtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.net, self.node, self.socket)
    }
}

/// Text that is no address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddrError {
    /// Not a node.
    #[error("expected a node, such as 10.17")]
    Node,
    /// Not a socket.
    #[error("expected a socket of a node, such as 10.17:4")]
    Socket,
    /// Not a range of networks.
    #[error("expected networks, such as 10-19 or 10, from 1 to 65534")]
    Range,
}

/// Digits alone, without the sign that `parse` takes.
fn number<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|octet| octet.is_ascii_digit()).then(|| text.parse().ok())?
}

impl FromStr for Node {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        let parts = text.split_once('.');
        let node = parts.and_then(|(net, node)| Some(Self::new(number(net)?, number(node)?)));
        node.ok_or(AddrError::Node)
    }
}

impl FromStr for AtAddr {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        let parts = text.split_once(':');
        let addr =
            parts.and_then(|(at, socket)| Some(at.parse::<Node>().ok()?.socket(number(socket)?)));
        addr.ok_or(AddrError::Socket)
    }
}

/// The networks of one cable: from 1 to 0xfffe, the first not above the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetRange {
    first: u16,
    last: u16,
}

impl NetRange {
    /// The range from one network to another; `None` if they are no range.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == NET_ANY || first > last || last == 0xffff {
            return None;
        }
        Some(Self { first, last })
    }

    /// The first network.
    #[must_use]
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The last network.
    #[must_use]
    pub const fn last(self) -> u16 {
        self.last
    }

    /// True if the network is one of these.
    #[must_use]
    pub const fn contains(self, net: u16) -> bool {
        self.first <= net && net <= self.last
    }

    /// True if a network is in both.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The network that a random number chooses.
    #[must_use]
    pub const fn pick(self, random: u32) -> u16 {
        let count = (self.last - self.first) as u32 + 1;
        self.first + (random % count) as u16
    }
}

impl fmt::Display for NetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl FromStr for NetRange {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ends = number(first).zip(number(last));
        ends.and_then(|(first, last)| Self::new(first, last)).ok_or(AddrError::Range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::{String, ToString};

    #[test]
    fn texts() {
        assert_eq!("10.17".parse(), Ok(Node::new(10, 17)));
        assert_eq!("10.17:129".parse(), Ok(AtAddr::new(10, 17, 129)));
        assert_eq!("10-19".parse(), Ok(NetRange { first: 10, last: 19 }));
        assert_eq!("10".parse(), Ok(NetRange { first: 10, last: 10 }));
        for text in ["", "10", "10.", ".1", "10.256", "65536.1", "+1.2", "1.+2", "1.2.3"] {
            assert_eq!(text.parse::<Node>(), Err(AddrError::Node), "{text}");
        }
        for text in ["", "-", "0", "0-4", "19-10", "1-65535", "10-", "-10", "1-2-3"] {
            assert_eq!(text.parse::<NetRange>(), Err(AddrError::Range), "{text}");
        }
        assert_eq!("10.17".parse::<AtAddr>(), Err(AddrError::Socket));
    }

    #[test]
    fn kinds() {
        assert!(START_UP.contains(0xff00) && START_UP.contains(0xfffe));
        assert!(!START_UP.contains(0xfeff) && !START_UP.contains(0xffff));
        assert!(Node::new(1, 254).is_one() && !Node::new(0, 1).is_one());
        assert!(!Node::new(1, 0).is_one() && !Node::ALL.is_one());
        let range = NetRange::new(10, 19).unwrap();
        assert!(range.overlaps(NetRange::new(19, 25).unwrap()));
        assert!(!range.overlaps(NetRange::new(20, 25).unwrap()));
        assert_eq!((range.pick(0), range.pick(9), range.pick(10)), (10, 19, 10));
        assert!(START_UP.contains(START_UP.pick(u32::MAX)));
    }

    #[test]
    fn sockaddrs() {
        let octets = [16, 16, 129, 0, 0, 10, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let addr = AtAddr::new(10, 17, 129);
        assert_eq!(addr.to_sockaddr(), octets);
        for len in 0..SOCKADDR_LEN {
            assert_eq!(AtAddr::from_sockaddr(&octets[..len]), None, "{len}");
        }
        let (mut old, mut other, mut short) = (octets, octets, octets);
        (old[0], other[1], short[0]) = (0, 2, 8);
        assert_eq!(AtAddr::from_sockaddr(&old), Some(addr));
        assert_eq!(AtAddr::from_sockaddr(&other), None);
        assert_eq!(AtAddr::from_sockaddr(&short), None);
    }

    proptest! {
        #[test]
        fn all_round_trips(net: u16, node: u8, socket: u8, last: u16) {
            let addr = AtAddr { net, node, socket };
            prop_assert_eq!(AtAddr::from_sockaddr(&addr.to_sockaddr()), Some(addr));
            prop_assert_eq!(addr.to_string().parse(), Ok(addr));
            prop_assert_eq!(addr.at().to_string().parse(), Ok(addr.at()));
            prop_assert_eq!(Node::from_octets(addr.at().to_octets()), addr.at());
            if let Some(range) = NetRange::new(net, last) {
                prop_assert_eq!(range.to_string().parse(), Ok(range));
                prop_assert!(range.contains(range.pick(u32::from(socket) << 16 | 7)));
            }
        }

        #[test]
        fn no_text_panics(text in any::<String>()) {
            let _ = (text.parse::<AtAddr>(), text.parse::<NetRange>());
        }
    }
}
