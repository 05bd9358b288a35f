//! Packets: a header of 20 octets, the entries, with the flag `LISTED` the members, and the body,
//! all in network order.
//!
//! | packet | entries | body |
//! | --- | --- | --- |
//! | `DATA`, `RESENT` | the predecessors | octets of the layer above |
//! | `REQUEST` | the messages that are asked for | none |
//! | `LEAVES` | the leaves of the sender's view; with `HELD`, of what the receiver held; with `LAST`, the receiver's last message in the view | none |
//! | `OPEN`, always with the members | none | none |
//! | `OPEN_ACK` | none | none |
//! | `RESTART` | none | [`Asking`] |
//! | `RESTART_ACK`, with the members once the other is let in | none | [`Let`], and then [`base`] |
//! | `SIDE` | none | octets of the layer above |
//! | `GONE` | none | none |

use crate::graph::MEMBERS_MAX;
use alloc::vec::Vec;
use xk_core::{HostAddr, Message};
use xk_kit::net::attribute::Peer;

xk_kit::header! {
    /// The header.
    pub struct Header {
        /// Version of the format: 1.
        pub version: u8,
        /// Kind of the packet.
        pub kind: u8,
        /// [`NULL`], [`ANSWER`] and [`LISTED`].
        pub flags: u8,
        /// Number of entries behind the header.
        pub entries: u8,
        /// Number of the conversation.
        pub conversation: u32,
        /// Index of the sender in the list of members.
        pub sender: u16,
        /// Number of times that the sender has been started, from 1.
        pub incarnation: u16,
        /// Number of the message among those of its sender, from 1; 0 where it is no message.
        pub seq: u32,
        /// Octets of the body.
        pub length: u32,
    }
}

xk_kit::header! {
    /// An entry: one message.
    pub struct Entry {
        /// Index of its sender.
        pub sender: u16,
        /// Incarnation of the sender.
        pub incarnation: u16,
        /// Number of the message.
        pub seq: u32,
    }
}

xk_kit::header! {
    /// One member of the list.
    struct Listed {
        process: u32,
        /// Port on the layer below; 0 where that has none.
        port: u16,
        /// Version of IP.
        family: u8,
        zero: u8,
        /// The host; one of IPv4 as `::ffff:10.0.0.1`.
        host: u128,
    }
}

xk_kit::header! {
    /// Question of a member that wants to come back.
    pub struct Asking {
        /// Number of its start.
        pub start: u64,
        /// The number with which the asked member has answered; 0 before.
        pub cookie: u64,
        /// Index of the first member of which the base is asked for.
        pub first: u16,
    }
}

xk_kit::header! {
    /// Answer to a member that wants to come back.
    pub struct Let {
        /// Number of its start.
        pub start: u64,
        /// Number that it is to show the next time.
        pub cookie: u64,
        /// Index of the member; 0 while it is not let in.
        pub me: u16,
        /// Index of the first member of which the base follows.
        pub first: u16,
    }
}

xk_kit::header! {
    /// Front of the base of one member; behind it are the depths, of four octets each.
    struct Based {
        incarnation: u16,
        flags: u16,
        seq: u32,
        since: u32,
        depths: u16,
    }
}

xk_kit::header! {
    /// Front of the list.
    struct Front {
        window: u16,
        members: u16,
    }
}

/// Octets of the header.
pub const HEADER_OCTETS: usize = Header::OCTETS;
/// Version of the format.
pub const VERSION: u8 = 1;
/// Flag of a message that is not for the layer above.
pub const NULL: u8 = 1;
/// Flag of a packet whose sender wants the receiver's leaves.
pub const ANSWER: u8 = 2;
/// Flag of a packet with the list of members behind its entries.
pub const LISTED: u8 = 4;

/// Flag of `LEAVES` whose entries are what the receiver was known to hold.
pub const HELD: u8 = 8;

/// Flag of a null that is the last message of its sender, which leaves.
pub const LAST: u8 = 16;

/// Kinds of packets.
pub mod kind {
    /// A message.
    pub const DATA: u8 = 1;
    /// A request for messages.
    pub const REQUEST: u8 = 2;
    /// A message, sent again by any member that has it.
    pub const RESENT: u8 = 3;
    /// The leaves of the sender's view.
    pub const LEAVES: u8 = 4;
    /// The beginning of a conversation whose first member has no message to send yet.
    pub const OPEN: u8 = 5;
    /// The answer to a list of members.
    pub const OPEN_ACK: u8 = 6;
    /// The question of a member that has lost its state and wants to come back.
    pub const RESTART: u8 = 7;
    /// The answer to that.
    pub const RESTART_ACK: u8 = 8;
    /// A message to one member, beside the graph.
    pub const SIDE: u8 = 9;
    /// The answer to a packet of a conversation that the host has left: of no member, and without
    /// answer.
    pub const GONE: u8 = 10;
}

/// Address of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Number of the process.
    pub process: u32,
    /// Host and port of the member.
    pub peer: Peer,
}

/// List of the members, which the first tells the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Messages that a member may have sent and another not have yet.
    pub window: u16,
    /// The members; the first is the sender.
    pub members: Vec<Address>,
}

impl Opening {
    /// Writes the list.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let front = Front { window: self.window, members: self.members.len() as u16 };
        let mut octets = front.emit().to_vec();
        for Address { process, peer } in &self.members {
            let (host, _) = peer.host.to_parts();
            let listed = Listed {
                process: *process,
                port: peer.port,
                family: if peer.host.to_v4().is_some() { 4 } else { 6 },
                zero: 0,
                host: u128::from_be_bytes(host),
            };
            octets.extend_from_slice(&listed.emit());
        }
        octets
    }

    /// Reads a list that lies `at` octets behind the front of a message; `None` if there is none.
    #[must_use]
    pub fn read(message: &Message, at: usize) -> Option<Self> {
        let mut front = [0; Front::OCTETS];
        let is_there = message.copy_to(at, &mut front) == front.len();
        let Front { window, members } = Front::parse(&front);
        if !is_there || window == 0 || window > 256 || usize::from(members) > MEMBERS_MAX {
            return None;
        }
        let mut list = Vec::with_capacity(members.into());
        for n in 0..usize::from(members) {
            let mut listed = [0; Listed::OCTETS];
            if message.copy_to(at + Front::OCTETS + n * Listed::OCTETS, &mut listed) < listed.len()
            {
                return None;
            }
            let Listed { process, port, family, zero, host } = Listed::parse(&listed);
            let host = HostAddr::from_parts((host.to_be_bytes(), 0));
            let is_sound = zero == 0 && family == if host.to_v4().is_some() { 4 } else { 6 };
            if !is_sound || host.is_unspecified() || host.is_group() {
                return None;
            }
            list.push(Address { process, peer: Peer { host, port } });
        }
        Some(Self { window, members: list })
    }

    /// Octets of a list of so many members.
    #[must_use]
    pub const fn octets(members: usize) -> usize {
        Front::OCTETS + members * Listed::OCTETS
    }
}

/// Base of a member that comes back, as it is sent.
pub mod base {
    use super::Based;
    use crate::graph::{BaseOf, depths_max};
    use alloc::vec::Vec;
    use xk_core::Message;

    /// Octets of what is known of one sender, without the depths.
    pub const FRONT_OCTETS: usize = Based::OCTETS;
    const MASKED: u16 = 1;
    const LEAF: u16 = 2;

    /// Writes what is known of one sender.
    pub fn emit(of: &BaseOf, octets: &mut Vec<u8>) {
        let flags = (u16::from(of.is_masked) * MASKED) | (u16::from(of.is_leaf) * LEAF);
        let (incarnation, depths) = (of.incarnation, of.depths.len() as u16);
        let (seq, since) = (of.seq, of.since);
        octets.extend(Based { incarnation, flags, seq, since, depths }.emit());
        of.depths.iter().for_each(|depth| octets.extend(depth.to_be_bytes()));
    }

    /// Reads what is known of one sender, `at` octets behind the front of a message, and returns
    /// how many octets it takes; `None` if it cannot be.
    #[must_use]
    pub fn read(message: &Message, at: usize, window: u16) -> Option<(BaseOf, usize)> {
        let mut front = [0; Based::OCTETS];
        let is_there = message.copy_to(at, &mut front) == front.len();
        let Based { incarnation, flags, seq, since, depths } = Based::parse(&front);
        let is_sound = is_there
            && incarnation > 0
            && flags <= (MASKED | LEAF)
            && (flags & LEAF == 0 || seq > 0)
            && since <= seq
            && u32::from(depths) <= depths_max(window.into())
            && u32::from(depths) <= seq
            && (depths > 0) == (seq > 0);
        let mut all: Vec<u32> = Vec::with_capacity(if is_sound { depths.into() } else { 0 });
        for n in 0..usize::from(if is_sound { depths } else { 0 }) {
            let mut octets = [0; 4];
            let is_there = message.copy_to(at + front.len() + 4 * n, &mut octets) == 4;
            let depth = u32::from_be_bytes(octets);
            // A path is no longer than there are messages.
            let is_deeper = all.last().is_none_or(|last| *last < depth) && depth < 1 << 31;
            if !is_there || !is_deeper {
                return None;
            }
            all.push(depth);
        }
        let octets = front.len() + 4 * all.len();
        let (is_masked, is_leaf) = (flags & MASKED != 0, flags & LEAF != 0);
        let of = BaseOf { incarnation, since, is_masked, is_leaf, seq, depths: all };
        is_sound.then_some((of, octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use xk_core::message::{Pool, PoolConfig};

    #[test]
    fn real_octets() {
        let header = Header {
            version: 1,
            kind: kind::DATA,
            flags: 0,
            entries: 2,
            conversation: 0x50,
            sender: 0,
            incarnation: 1,
            seq: 2,
            length: 3,
        };
        let octets = [1, 1, 0, 2, 0, 0, 0, 0x50, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3];
        assert_eq!((header.emit(), Header::parse(&octets)), (octets, header));
        let entry = Entry { sender: 2, incarnation: 1, seq: 7 };
        assert_eq!(entry.emit(), [0, 2, 0, 1, 0, 0, 0, 7]);
    }

    #[test]
    fn an_opening_is_read_again_and_nothing_else_is() {
        let address = |process, host: [u8; 4], port| Address {
            process,
            peer: Peer { host: host.into(), port },
        };
        let members = [address(1, [10, 0, 0, 1], 0), address(7, [10, 0, 0, 2], 5000)];
        let opening = Opening { window: 16, members: members.to_vec() };
        let octets = opening.emit();
        assert_eq!((octets.len(), Opening::octets(2)), (4 + 2 * 24, 52));
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let read = |octets: &[u8]| Opening::read(&pool.copy_from(0, octets).unwrap(), 0);
        assert_eq!(read(&octets), Some(opening));
        for end in 0..octets.len() {
            assert_eq!(read(&octets[..end]), None, "cut at {end}");
        }
        for (at, octet) in [(0, 2), (1, 0), (3, 65), (10, 6), (11, 1), (24, 224), (48, 239)] {
            let mut other = octets.clone();
            other[at] = octet;
            assert_eq!(read(&other), None, "octet {at}");
        }
    }

    #[test]
    fn a_base_is_read_again_and_nothing_else_is() {
        let (is_masked, is_leaf, depths) = (true, true, vec![3, 5, 0x0102_0304]);
        let of =
            crate::graph::BaseOf { incarnation: 2, since: 4, is_masked, is_leaf, seq: 9, depths };
        let mut octets = vec![0xff];
        base::emit(&of, &mut octets);
        let fields = [0, 2, 0, 3, 0, 0, 0, 9, 0, 0, 0, 4, 0, 3, 0, 0, 0, 3, 0, 0, 0, 5, 1, 2, 3, 4];
        assert_eq!(octets[1..], fields);
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        let read = |octets: &[u8]| base::read(&pool.copy_from(0, octets).unwrap(), 1, 4);
        assert_eq!(read(&octets), Some((of, 26)));
        for end in 1..octets.len() {
            assert_eq!(read(&octets[..end]), None, "cut at {end}");
        }
        // No incarnation, a flag, too many, an earlier one that is later, no depth, too many, a
        // depth that does not grow, one beyond all.
        let bad = [(2, 0), (4, 4), (8, 2), (12, 10), (14, 0), (14, 5), (22, 3), (23, 0xff)];
        for (at, octet) in bad {
            let mut other = octets.clone();
            other[at] = octet;
            assert_eq!(read(&other), None, "octet {at}");
        }
    }
}
