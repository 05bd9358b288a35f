//! Datagrams (Inside AppleTalk, chapter 4): both headers, the checksum, hops, and where a datagram
//! goes next.

use crate::aarp::Hw;
use crate::addr::{AtAddr, BROADCAST, NET_ANY, NetRange, Node, START_UP};
use alloc::vec::Vec;
use core::time::Duration;

/// Octets of the extended header.
pub const LONG_LEN: usize = 13;
/// Octets of the short header, of datagrams within one LocalTalk network.
pub const SHORT_LEN: usize = 5;
/// Octets of data at most.
pub const DATA_LEN_MAX: usize = 586;
/// A datagram that has passed this many routers goes no further.
pub const HOPS_MAX: u8 = 15;
/// Offset of the checksum in an extended header.
pub const CHECKSUM_AT: usize = 2;
/// Offset in an extended header from which on the checksum covers it.
pub const SUMMED_FROM: usize = 4;

/// Protocol type: RTMP data and responses.
pub const TYPE_RTMP: u8 = 1;
/// Protocol type: NBP.
pub const TYPE_NBP: u8 = 2;
/// Protocol type: ATP.
pub const TYPE_ATP: u8 = 3;
/// Protocol type: AEP.
pub const TYPE_AEP: u8 = 4;
/// Protocol type: RTMP requests.
pub const TYPE_RTMP_REQUEST: u8 = 5;
/// Protocol type: ADSP.
pub const TYPE_ADSP: u8 = 7;

/// Socket of RTMP.
pub const SOCKET_RTMP: u8 = 1;
/// Socket of names (NBP).
pub const SOCKET_NAMES: u8 = 2;
/// Socket of the echoer (AEP).
pub const SOCKET_ECHO: u8 = 4;
/// Socket of zone information (ZIP).
pub const SOCKET_ZONE: u8 = 6;
/// The sockets that are given to those that ask for any.
pub const SOCKETS_DYNAMIC: core::ops::RangeInclusive<u8> = 128..=254;

/// True for what a socket can be: 0 and 255 are none.
#[must_use]
pub const fn is_socket(socket: u8) -> bool {
    socket != 0 && socket != 0xff
}

/// Error of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Fewer octets than the header has.
    #[error("shorter than its header")]
    Truncated,
    /// The length is more than the octets, less than the header, or more than any datagram may
    /// have.
    #[error("a length that it does not have")]
    Length,
    /// Socket 0 or 255.
    #[error("a socket that cannot be")]
    Socket,
    /// From all nodes, or from no node.
    #[error("a source that no node can have")]
    Source,
}

/// An extended header whose length and addresses can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Long {
    /// Routers that it has passed; at most [`HOPS_MAX`].
    hops: u8,
    /// Octets of header and data.
    length: u16,
    /// The checksum; 0 if there is none.
    pub checksum: u16,
    /// Destination.
    pub to: AtAddr,
    /// Source.
    pub from: AtAddr,
    /// The protocol type.
    pub kind: u8,
}

impl Long {
    /// The header of a datagram with so much data, without hops and checksum; `None` if that is
    /// more than [`DATA_LEN_MAX`].
    #[must_use]
    pub const fn new(to: AtAddr, from: AtAddr, kind: u8, data_len: usize) -> Option<Self> {
        if data_len > DATA_LEN_MAX {
            return None;
        }
        Some(Self { hops: 0, length: (LONG_LEN + data_len) as u16, checksum: 0, to, from, kind })
    }

    /// Reads a header; says nothing of what lies behind.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(octets: &[u8; LONG_LEN]) -> Result<Self, Error> {
        let [a, b, c, d, to_a, to_b, from_a, from_b, to_node, from_node, to, from, kind] = *octets;
        let word = u16::from_be_bytes([a, b]);
        let length = word & 0x03ff;
        if !(LONG_LEN..=LONG_LEN + DATA_LEN_MAX).contains(&usize::from(length)) {
            return Err(Error::Length);
        }
        if !is_socket(to) || !is_socket(from) {
            return Err(Error::Socket);
        }
        if from_node == 0 || from_node == BROADCAST {
            return Err(Error::Source);
        }
        Ok(Self {
            hops: (word >> 10) as u8 & HOPS_MAX,
            length,
            checksum: u16::from_be_bytes([c, d]),
            to: AtAddr::new(u16::from_be_bytes([to_a, to_b]), to_node, to),
            from: AtAddr::new(u16::from_be_bytes([from_a, from_b]), from_node, from),
            kind,
        })
    }

    /// Encodes the header.
    #[must_use]
    pub const fn octets(&self) -> [u8; LONG_LEN] {
        let [a, b] = ((self.hops as u16) << 10 | self.length).to_be_bytes();
        let [c, d] = self.checksum.to_be_bytes();
        let ([to_a, to_b], [from_a, from_b]) =
            (self.to.net.to_be_bytes(), self.from.net.to_be_bytes());
        let (to, from) = (self.to, self.from);
        let nodes = (to.node, from.node);
        let sockets = (to.socket, from.socket);
        [a, b, c, d, to_a, to_b, from_a, from_b, nodes.0, nodes.1, sockets.0, sockets.1, self.kind]
    }

    /// Octets of data; at most [`DATA_LEN_MAX`].
    #[must_use]
    pub const fn data_len(&self) -> usize {
        self.length as usize - LONG_LEN
    }

    /// Octets of data, if they lie within the `arrived` ones behind the header.
    ///
    /// # Errors
    /// [`Error::Length`] if they do not.
    pub const fn data_of(&self, arrived: usize) -> Result<usize, Error> {
        if self.data_len() > arrived { Err(Error::Length) } else { Ok(self.data_len()) }
    }

    /// Routers that it has passed.
    #[must_use]
    pub const fn hops(&self) -> u8 {
        self.hops
    }

    /// The header behind one router more; `None` if it has passed as many as it may. The checksum
    /// stays, for it does not cover the hops.
    #[must_use]
    pub const fn forwarded(self) -> Option<Self> {
        if self.hops >= HOPS_MAX {
            return None;
        }
        Some(Self { hops: self.hops + 1, ..self })
    }

    /// A sum that has the header's part of what is covered in it.
    #[must_use]
    pub fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        sum.add(&self.octets()[SUMMED_FROM..]);
        sum
    }

    /// The header with the checksum of this data.
    #[must_use]
    pub fn with_checksum(self, data: &[u8]) -> Self {
        let mut sum = self.sum();
        sum.add(data);
        Self { checksum: sum.checksum(), ..self }
    }

    /// True if there is no checksum, or this data's.
    #[must_use]
    pub fn is_intact(&self, data: &[u8]) -> bool {
        self.checksum == 0 || self.with_checksum(data).checksum == self.checksum
    }
}

/// Splits a datagram with an extended header into that and its data, padding cut off, the checksum
/// not looked at.
///
/// # Errors
/// [`Error`].
pub fn split(octets: &[u8]) -> Result<(Long, &[u8]), Error> {
    let (header, rest) = octets.split_first_chunk().ok_or(Error::Truncated)?;
    let header = Long::parse(header)?;
    Ok((header, &rest[..header.data_of(rest.len())?]))
}

/// A whole datagram with an extended header; `None` if the data is too long.
#[must_use]
pub fn join(to: AtAddr, from: AtAddr, kind: u8, data: &[u8], checksum: bool) -> Option<Vec<u8>> {
    let header = Long::new(to, from, kind, data.len())?;
    let header = if checksum { header.with_checksum(data) } else { header };
    Some([&header.octets()[..], data].concat())
}

/// A short header, of a datagram whose nodes the link's header names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    length: u16,
    /// The socket where it goes.
    pub to: u8,
    /// The socket where it comes from.
    pub from: u8,
    /// The protocol type.
    pub kind: u8,
}

impl Short {
    /// The header of a datagram with so much data; `None` if that is more than [`DATA_LEN_MAX`].
    #[must_use]
    pub const fn new(to: u8, from: u8, kind: u8, data_len: usize) -> Option<Self> {
        if data_len > DATA_LEN_MAX {
            return None;
        }
        Some(Self { length: (SHORT_LEN + data_len) as u16, to, from, kind })
    }

    /// Reads a header; says nothing of what lies behind.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(octets: &[u8; SHORT_LEN]) -> Result<Self, Error> {
        let [a, b, to, from, kind] = *octets;
        let length = u16::from_be_bytes([a, b]) & 0x03ff;
        if !(SHORT_LEN..=SHORT_LEN + DATA_LEN_MAX).contains(&usize::from(length)) {
            return Err(Error::Length);
        }
        if !is_socket(to) || !is_socket(from) {
            return Err(Error::Socket);
        }
        Ok(Self { length, to, from, kind })
    }

    /// Encodes the header.
    #[must_use]
    pub const fn octets(&self) -> [u8; SHORT_LEN] {
        let [a, b] = self.length.to_be_bytes();
        [a, b, self.to, self.from, self.kind]
    }

    /// Octets of data; at most [`DATA_LEN_MAX`].
    #[must_use]
    pub const fn data_len(&self) -> usize {
        self.length as usize - SHORT_LEN
    }

    /// Octets of data, if they lie within the `arrived` ones behind the header.
    ///
    /// # Errors
    /// [`Error::Length`] if they do not.
    pub const fn data_of(&self, arrived: usize) -> Result<usize, Error> {
        if self.data_len() > arrived { Err(Error::Length) } else { Ok(self.data_len()) }
    }

    /// The extended header that says what this one and the link's say: both nodes are of the
    /// network of the link, [`NET_ANY`] if that is not known.
    ///
    /// # Errors
    /// [`Error::Source`].
    pub const fn lengthened(&self, net: u16, to: u8, from: u8) -> Result<Long, Error> {
        if from == 0 || from == BROADCAST {
            return Err(Error::Source);
        }
        let length = (LONG_LEN + self.data_len()) as u16;
        let to = AtAddr::new(net, to, self.to);
        let from = AtAddr::new(net, from, self.from);
        Ok(Long { hops: 0, length, checksum: 0, to, from, kind: self.kind })
    }
}

/// The checksum of datagrams as it grows: each octet is added, and the sum rotated left by a bit.
///
/// An addition's carry is lost, and each waits for the rotation before it, so that octets cannot be
/// taken together as those of the Internet's checksum are. The plain loop takes three instructions
/// and two cycles an octet, which is what the two operations take one behind the other: 0.3 us for
/// the longest datagram.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u16);

impl Sum {
    /// Takes further octets in.
    pub fn add(&mut self, octets: &[u8]) {
        let add = |sum: u16, octet: &u8| sum.wrapping_add(u16::from(*octet)).rotate_left(1);
        self.0 = octets.iter().fold(self.0, add);
    }

    /// The checksum: a sum of 0 is sent as all ones, for 0 says that there is none.
    #[must_use]
    pub const fn checksum(self) -> u16 {
        if self.0 == 0 { 0xffff } else { self.0 }
    }
}

/// A node's knowledge of one cable that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// The node's own address there.
    pub me: Node,
    /// The networks of the cable; those of nodes without a router until one is heard.
    pub range: NetRange,
    /// The router heard last, `A-ROUTER`.
    pub router: Option<Node>,
}

/// The next hop of a datagram on a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// The datagram stays in this node.
    Here,
    /// To this node, of this cable.
    Node(Node),
    /// To all nodes of this cable.
    All,
}

impl Cable {
    /// A cable of a node that knows no router and has this address.
    #[must_use]
    pub const fn new(me: Node) -> Self {
        Self { me, range: START_UP, router: None }
    }

    /// True if the network is the cable's own, from a node's point of view: in its range, unnamed,
    /// or of the networks of nodes that know no router.
    #[must_use]
    pub const fn is_local(&self, net: u16) -> bool {
        net == NET_ANY || self.range.contains(net) || START_UP.contains(net)
    }

    /// The next hop from a node that routes nothing: straight to nodes of the cable, for others the
    /// best router, or if none is known for them the router heard last. `None`: there is no way.
    #[must_use]
    pub fn way(&self, to: Node, best: Option<Node>) -> Option<NextHop> {
        match to {
            Node { net, node }
                if node == self.me.node && (net == NET_ANY || net == self.me.net) =>
            {
                Some(NextHop::Here)
            }
            Node { net, node: BROADCAST } if self.is_local(net) => Some(NextHop::All),
            // Any router of this cable.
            Node { net, node: 0 } if self.is_local(net) => self.router.map(NextHop::Node),
            Node { net, .. } if self.is_local(net) => {
                let net = if net == NET_ANY { self.me.net } else { net };
                Some(NextHop::Node(Node { net, ..to }))
            }
            _ => best.or(self.router).map(NextHop::Node),
        }
    }

    /// True if a datagram that came over this cable is for this node: for its address, or for all
    /// nodes of its network or of the cable. A network that is not named is this one.
    #[must_use]
    pub const fn is_for_me(&self, to: Node) -> bool {
        let is_my_net = to.net == NET_ANY || to.net == self.me.net;
        is_my_net && (to.node == self.me.node || to.node == BROADCAST)
    }
}

/// The best router for each of some networks: the one whose datagrams from there came last
/// (Inside AppleTalk, chapter 4, "best-router forwarding algorithm"), known by its address on the
/// data link. Bounded; the one heard longest ago goes.
#[derive(Clone, Debug, Default)]
pub struct BestRouters {
    known: Vec<Best>,
    /// Largest number of networks.
    max: usize,
}

#[derive(Clone, Copy, Debug)]
struct Best {
    net: u16,
    router: Hw,
    until: Duration,
}

/// Time for which a best router is believed.
pub const BEST_ROUTER_VALID: Duration = Duration::from_secs(40);

impl BestRouters {
    /// An empty table for at most `max` networks.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { known: Vec::new(), max }
    }

    /// Notes that a datagram from a network came by way of a router. Answers whether the way there
    /// is another now.
    pub fn heard(&mut self, net: u16, router: Hw, now: Duration) -> bool {
        let until = now + BEST_ROUTER_VALID;
        if let Some(known) = self.known.iter_mut().find(|known| known.net == net) {
            let is_other = known.router != router || known.until <= now;
            *known = Best { net, router, until };
            return is_other;
        }
        if self.known.len() >= self.max {
            let oldest = self.known.iter().enumerate().min_by_key(|(_, known)| known.until);
            let Some((oldest, _)) = oldest else { return false };
            self.known.swap_remove(oldest);
        }
        self.known.push(Best { net, router, until });
        true
    }

    /// The best router for a network.
    #[must_use]
    pub fn best(&self, net: u16, now: Duration) -> Option<Hw> {
        let best = self.known.iter().find(|known| known.net == net && known.until > now);
        best.map(|best| best.router)
    }

    /// Forgets those that are believed no more. Answers whether there were any.
    pub fn expire(&mut self, now: Duration) -> bool {
        let before = self.known.len();
        self.known.retain(|known| known.until > now);
        self.known.len() != before
    }

    /// Time of the next [`expire`](Self::expire).
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.known.iter().map(|known| known.until).min()
    }

    /// Number of networks that it knows.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.known.len()
    }

    /// True if it knows none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests;
