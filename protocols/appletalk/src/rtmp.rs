//! Routing (Inside AppleTalk, chapter 5): packets; what a node keeps of it; the table of a router.

mod stub;
mod table;
#[cfg(test)]
mod tests;

pub use stub::{Heard, ROUTER_VALID, Stub};
pub use table::{Entry, EntryState, Merged, Port, Table, VALIDITY};

use crate::addr::{NET_ANY, NetRange, Node};
use crate::ddp::DATA_LEN_MAX;
use alloc::vec::Vec;
use core::time::Duration;

/// Interval at which a router tells its routes.
pub const UPDATE_INTERVAL: Duration = Duration::from_secs(10);
/// The distance of networks that cannot be reached any more.
pub const DISTANCE_BAD: u8 = 31;
/// The greatest distance of networks that can be reached.
pub const DISTANCE_MAX: u8 = 15;
/// The version in tuples of the extended form, and in front of those of the other.
const VERSION: u8 = 0x82;
/// Bit that says that a tuple has the extended form.
const EXTENDED: u8 = 0x80;

/// Networks, and how many routers away they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The networks; one alone if they are no range.
    pub range: NetRange,
    /// Whether they are told as a range, also a range of one.
    pub is_extended: bool,
    /// At most 31.
    pub distance: u8,
}

/// Error of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The packet ends within its header or a tuple.
    #[error("a tuple that is not whole")]
    Truncated,
    /// Node numbers of other than eight bits.
    #[error("node numbers of {0} bits")]
    NodeLength(u8),
    /// A sender that no router can be.
    #[error("a sender that no router can be")]
    Sender,
    /// Networks that are none, or a distance above 31.
    #[error("networks that are no range, or a distance that is none")]
    Route,
    /// A version other than that of phase 2.
    #[error("version {0:#x}")]
    Version(u8),
    /// No function that there is.
    #[error("function {0}")]
    Function(u8),
}

/// Data, that a router sends every ten seconds, and its response to a request, which has no routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// The router.
    pub sender: Node,
    /// The networks of the cable; `None` on one that is not extended, whose network is that of the
    /// sender.
    pub range: Option<NetRange>,
    /// Routes behind the router.
    pub routes: Vec<Route>,
}

impl Route {
    /// Splits a tuple off.
    fn split(octets: &[u8]) -> Result<(Self, &[u8]), Error> {
        let ([a, b, distance], rest) = octets.split_first_chunk().ok_or(Error::Truncated)?;
        let first = u16::from_be_bytes([*a, *b]);
        let is_extended = distance & EXTENDED != 0;
        let distance = distance & !EXTENDED;
        let (last, rest) = match is_extended {
            false => (first, rest),
            true => {
                let ([a, b, version], rest) = rest.split_first_chunk().ok_or(Error::Truncated)?;
                if *version != VERSION {
                    return Err(Error::Version(*version));
                }
                (u16::from_be_bytes([*a, *b]), rest)
            }
        };
        let range = NetRange::new(first, last).filter(|_| distance <= DISTANCE_BAD);
        let range = range.ok_or(Error::Route)?;
        Ok((Self { range, is_extended, distance }, rest))
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.range.first().to_be_bytes());
        out.push(self.distance | if self.is_extended { EXTENDED } else { 0 });
        if self.is_extended {
            out.extend_from_slice(&self.range.last().to_be_bytes());
            out.push(VERSION);
        }
    }
}

impl Data {
    /// Reads data or a response.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(octets: &[u8]) -> Result<Self, Error> {
        let ([a, b, bits, node], rest) = octets.split_first_chunk().ok_or(Error::Truncated)?;
        if *bits != 8 {
            return Err(Error::NodeLength(*bits));
        }
        let sender = Node::new(u16::from_be_bytes([*a, *b]), *node);
        if !sender.is_one() {
            return Err(Error::Sender);
        }
        let (range, mut rest) = match rest {
            // A response on a cable that is not extended.
            [] => (None, rest),
            [0, 0, VERSION, rest @ ..] => (None, rest),
            [0, 0, version, ..] => return Err(Error::Version(*version)),
            _ => {
                let (route, rest) = Route::split(rest)?;
                if !route.is_extended || route.distance != 0 {
                    return Err(Error::Route);
                }
                (Some(route.range), rest)
            }
        };
        let mut routes = Vec::new();
        while !rest.is_empty() {
            let (route, behind) = Route::split(rest)?;
            routes.push(route);
            rest = behind;
        }
        Ok(Self { sender, range, routes })
    }

    /// Octets of it; those of a response if it has no routes and `is_response`.
    fn put_header(&self, is_response: bool) -> Vec<u8> {
        let [a, b] = self.sender.net.to_be_bytes();
        let mut octets = [a, b, 8, self.sender.node].to_vec();
        match self.range {
            Some(range) => Route { range, is_extended: true, distance: 0 }.put(&mut octets),
            None if is_response => {}
            None => octets.extend_from_slice(&[0, 0, VERSION]),
        }
        octets
    }

    /// Encodes a response, which tells only the sender and the cable's networks.
    #[must_use]
    pub fn response(&self) -> Vec<u8> {
        self.put_header(true)
    }

    /// Encodes data, in as many packets as it takes; one at least.
    #[must_use]
    pub fn packets(&self) -> Vec<Vec<u8>> {
        let header = self.put_header(false);
        let mut packets = [header.clone()].to_vec();
        for route in &self.routes {
            let mut tuple = Vec::new();
            route.put(&mut tuple);
            if packets.last().is_none_or(|last| last.len() + tuple.len() > DATA_LEN_MAX) {
                packets.push(header.clone());
            }
            if let Some(last) = packets.last_mut() {
                last.extend(tuple);
            }
        }
        packets
    }

    /// The networks of the cable that this came over.
    #[must_use]
    pub fn cable(&self) -> Option<NetRange> {
        self.range.or_else(|| NetRange::new(self.sender.net, self.sender.net))
    }

    /// True if the sender is of the cable's networks.
    #[must_use]
    pub fn is_plausible(&self) -> bool {
        self.sender.net != NET_ANY && self.range.is_none_or(|range| range.contains(self.sender.net))
    }
}

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The router and the networks of the cable.
    Networks = 1,
    /// All routes but those that lead over this cable.
    RoutesBeyond = 2,
    /// All routes.
    Routes = 3,
}

impl Request {
    /// Reads a request; what lies behind is not looked at.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(octets: &[u8]) -> Result<Self, Error> {
        match octets.first().ok_or(Error::Truncated)? {
            1 => Ok(Self::Networks),
            2 => Ok(Self::RoutesBeyond),
            3 => Ok(Self::Routes),
            other => Err(Error::Function(*other)),
        }
    }
}
