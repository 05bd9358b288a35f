//! Traits of a shell's buffers and addresses that the machines need.

use super::wire::Header;
use crate::addr::{AtAddr, NET_ANY};

/// The data of a packet as a shell keeps it: a message, a chain of mbufs or of message blocks.
pub trait Payload: Sized {
    /// Number of octets.
    fn octets(&self) -> usize;

    /// Once more what this holds, octets shared where the shell's buffers can be; `None` if there
    /// is no buffer, which the shell has counted.
    fn again(&self) -> Option<Self>;

    /// Takes the first `octets`, no more than there are, off the front; `None` if there is no
    /// buffer, which the shell has counted: the rest is then as it was.
    fn cut(&mut self, octets: usize) -> Option<Self>;

    /// Appends what followed.
    fn join(&mut self, behind: Self);
}

/// The other end: network, node and socket.
pub trait Peer: Copy + Ord {
    /// The host without the socket: what shares a responder's room.
    fn host(&self) -> u32;

    /// Whether a packet from `from` comes from the peer that a request was sent to as this.
    fn is(&self, from: &Self) -> bool {
        self == from
    }
}

impl Peer for AtAddr {
    fn host(&self) -> u32 {
        u32::from(self.net) << 8 | u32::from(self.node)
    }

    /// True if both are one node: a request to "this network" is answered from the network's own
    /// number.
    fn is(&self, from: &Self) -> bool {
        let is_same_net = self.net == from.net || self.net == NET_ANY || from.net == NET_ANY;
        (self.node, self.socket) == (from.node, from.socket) && is_same_net
    }
}

/// A packet to be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Packet<A, P> {
    /// Destination.
    pub to: A,
    /// The socket of ours that the packet leaves from.
    pub socket: u8,
    /// Header of the packet.
    pub header: Header,
    /// Data of the packet; `None` for none.
    pub data: Option<P>,
}
