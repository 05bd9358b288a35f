//! Address resolution (Inside AppleTalk, chapter 2, "AARP"): packets; the claim of an address of
//! one's own; the table of others' addresses.

mod claim;
mod table;
#[cfg(test)]
mod tests;

pub use claim::{Claim, Wish};
pub use table::{Resolution, Table};

use crate::addr::Node;
use alloc::vec::Vec;
use core::time::Duration;

/// Octets of a packet.
pub const PACKET_LEN: usize = 28;
/// The hardware number of Ethernet.
const ETHERNET: u16 = 1;
/// The protocol number of AppleTalk.
const APPLETALK: u16 = 0x809b;

/// An address of hardware.
pub type Hw = [u8; 6];

/// The hardware address of all AppleTalk nodes of an Ethernet.
pub const ALL_NODES: Hw = [0x09, 0x00, 0x07, 0xff, 0xff, 0xff];

/// Function of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// Asks for the hardware of the target.
    Request = 1,
    /// Tells the hardware of the sender.
    Response = 2,
    /// Asks whether the target, which the sender would like to be, is there.
    Probe = 3,
}

/// Error of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Fewer octets than a packet has.
    #[error("shorter than a packet")]
    Truncated,
    /// Not about AppleTalk on Ethernet.
    #[error("hardware {0:#x} or protocol {1:#x}")]
    Family(u16, u16),
    /// Addresses of other lengths.
    #[error("addresses of {0} and {1} octets")]
    Lengths(u8, u8),
    /// No function that there is.
    #[error("function {0}")]
    Function(u16),
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Function of the packet.
    pub function: Function,
    /// Hardware of the sender.
    pub from_hw: Hw,
    /// The sender; in a probe, the one that it would like to be.
    pub from: Node,
    /// Hardware of the target; zeros in requests and probes.
    pub to_hw: Hw,
    /// The target.
    pub to: Node,
}

impl Packet {
    /// Reads a packet; what lies behind is padding.
    ///
    /// # Errors
    /// [`Error`].
    pub fn parse(octets: &[u8]) -> Result<Self, Error> {
        let octets: &[u8; PACKET_LEN] = octets.first_chunk().ok_or(Error::Truncated)?;
        let word = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        if (word(0), word(2)) != (ETHERNET, APPLETALK) {
            return Err(Error::Family(word(0), word(2)));
        }
        if (octets[4], octets[5]) != (6, 4) {
            return Err(Error::Lengths(octets[4], octets[5]));
        }
        let function = match word(6) {
            1 => Function::Request,
            2 => Function::Response,
            3 => Function::Probe,
            other => return Err(Error::Function(other)),
        };
        let hw = |at: usize| core::array::from_fn(|i| octets[at + i]);
        let node = |at: usize| Node::from_octets(core::array::from_fn(|i| octets[at + i]));
        Ok(Self { function, from_hw: hw(8), from: node(14), to_hw: hw(18), to: node(24) })
    }

    /// Encodes the packet.
    #[must_use]
    pub fn octets(&self) -> [u8; PACKET_LEN] {
        let mut octets = [0; PACKET_LEN];
        octets[..2].copy_from_slice(&ETHERNET.to_be_bytes());
        octets[2..4].copy_from_slice(&APPLETALK.to_be_bytes());
        (octets[4], octets[5], octets[7]) = (6, 4, self.function as u8);
        octets[8..14].copy_from_slice(&self.from_hw);
        octets[14..18].copy_from_slice(&self.from.to_octets());
        octets[18..24].copy_from_slice(&self.to_hw);
        octets[24..].copy_from_slice(&self.to.to_octets());
        octets
    }

    /// A request for a node.
    const fn request(from_hw: Hw, from: Node, to: Node) -> Self {
        Self { function: Function::Request, from_hw, from, to_hw: [0; 6], to }
    }

    /// A probe for a node.
    const fn probe(from_hw: Hw, node: Node) -> Self {
        Self { function: Function::Probe, from_hw, from: node, to_hw: [0; 6], to: node }
    }

    /// The response to this request or probe, of the hardware that is its target.
    #[must_use]
    pub const fn response(&self, hw: Hw) -> Self {
        Self {
            function: Function::Response,
            from_hw: hw,
            from: self.to,
            to_hw: self.from_hw,
            to: self.from,
        }
    }
}

/// Counts and times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Probes before an address is one's own.
    pub probes: u8,
    /// The time between two of them.
    pub probe_interval: Duration,
    /// Requests before a node is given up.
    pub tries: u8,
    /// The time between two of them.
    pub retry: Duration,
    /// Time for which an address is believed that was not confirmed.
    pub lifetime: Duration,
    /// Largest number of nodes in the table.
    pub nodes_max: usize,
}

impl Default for Config {
    /// Ten probes and ten requests, 200 ms apart, and a minute.
    fn default() -> Self {
        Self {
            probes: 10,
            probe_interval: Duration::from_millis(200),
            tries: 10,
            retry: Duration::from_millis(200),
            lifetime: Duration::from_secs(60),
            nodes_max: 256,
        }
    }
}

/// An action for the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a packet to this hardware, which is that of [`ALL_NODES`] for most.
    Send(Hw, Packet),
    /// This address is one's own from now on, in place of one before.
    Claimed(Node),
    /// Another node has this address: the one that was tried, or, in spite of defence, one's own.
    Conflict(Node),
    /// Messages that wait for this node can go, to this hardware.
    Resolved(Node, Hw),
    /// Messages that wait for this node cannot go.
    Unresolved(Node),
}

/// Why a packet was of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// From hardware, or of a node, that cannot be one station.
    BadSource,
    /// From one's own hardware.
    Looped,
    /// A response that was not asked for.
    Unsolicited,
    /// About other nodes.
    NotMine,
    /// The table is full of nodes that are asked for.
    Full,
}

/// One's own address and those of others, on one Ethernet.
#[derive(Clone, Debug)]
pub struct Aarp {
    config: Config,
    hw: Hw,
    claim: Claim,
    table: Table,
}

impl Aarp {
    /// A station of this hardware, without an address as yet.
    #[must_use]
    pub const fn new(hw: Hw, config: Config) -> Self {
        Self { config, hw, claim: Claim::new(), table: Table::new() }
    }

    /// The hardware address.
    #[must_use]
    pub const fn hw(&self) -> Hw {
        self.hw
    }

    /// One's own address, if there is one.
    #[must_use]
    pub const fn me(&self) -> Option<Node> {
        self.claim.me()
    }

    /// The claim.
    #[must_use]
    pub const fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The table.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Begins to claim an address; the one that is held is kept until another is one's own. What
    /// is to be sent is said by [`tick`](Self::tick), at once.
    pub fn wish(&mut self, wish: Wish, now: Duration, random: &mut dyn FnMut() -> u32) {
        self.claim.wish(wish, now, random);
    }

    /// Looks a node up, for something to be sent there.
    pub fn resolve(&mut self, to: Node, now: Duration) -> (Resolution, Option<Action>) {
        let Some(me) = self.me() else { return (Resolution::NoAddress, None) };
        let (resolution, ask) = self.table.resolve(to, now, &self.config);
        let send = |hw| Action::Send(hw, Packet::request(self.hw, me, to));
        (resolution, ask.map(send))
    }

    /// Time at which [`tick`](Self::tick) has something to do.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        [self.claim.next(), self.table.next()].into_iter().flatten().min()
    }

    /// Does what is due by now.
    pub fn tick(&mut self, now: Duration, random: &mut dyn FnMut() -> u32) -> Vec<Action> {
        let mut actions = Vec::new();
        match self.claim.tick(now, &self.config, random) {
            Some(claim::Step::Probe(node)) => {
                actions.push(Action::Send(ALL_NODES, Packet::probe(self.hw, node)));
            }
            Some(claim::Step::Claimed(node)) => actions.push(Action::Claimed(node)),
            None => {}
        }
        if let Some(me) = self.me() {
            let hw = self.hw;
            self.table.tick(now, &self.config, |step| match step {
                table::Step::Ask(node, to) => {
                    actions.push(Action::Send(to, Packet::request(hw, me, node)));
                }
                table::Step::GiveUp(node) => actions.push(Action::Unresolved(node)),
            });
        }
        actions
    }

    /// Takes a packet in.
    ///
    /// # Errors
    /// Why it was of no use.
    pub fn input(
        &mut self,
        packet: &Packet,
        now: Duration,
        random: &mut dyn FnMut() -> u32,
    ) -> Result<Vec<Action>, Refusal> {
        if packet.from_hw == self.hw {
            return Err(Refusal::Looped);
        }
        if packet.from_hw[0] & 1 != 0 || packet.from_hw == [0; 6] || !packet.from.is_one() {
            return Err(Refusal::BadSource);
        }
        let mut actions = Vec::new();
        if let Some(node) = self.claim.heard(packet, now, random) {
            actions.push(Action::Conflict(node));
        }
        let for_me = self.me() == Some(packet.to);
        match packet.function {
            // Whatever has this address defends it, and says so to the sender of the probe alone.
            Function::Probe if !for_me => self.table.doubt(packet.to, packet.from_hw),
            Function::Probe => {}
            // What names itself as this node is no node to be learnt.
            _ if self.me() == Some(packet.from) => {}
            _ => match self.table.learn(packet, for_me, now, &self.config) {
                Ok(true) => actions.push(Action::Resolved(packet.from, packet.from_hw)),
                Ok(false) => {}
                Err(_) if !actions.is_empty() => {}
                // A request is answered all the same: one by one the others get their turn.
                Err(Refusal::Full) if for_me => {}
                Err(refusal) => return Err(refusal),
            },
        }
        if for_me && packet.function != Function::Response {
            actions.push(Action::Send(packet.from_hw, packet.response(self.hw)));
        }
        Ok(actions)
    }
}
