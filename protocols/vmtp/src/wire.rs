//! The header (RFC 1045, section 3): 64 octets in network order, segment data behind it, and a
//! checksum of four octets behind those.

use xk_core::Message;
use xk_kit::net::checksum::Checksum;

/// Octets of the header.
pub const HEADER_OCTETS: usize = 64;
/// Octets of the checksum behind the data.
pub const CHECKSUM_OCTETS: usize = 4;
/// Octets of a packet without data.
pub const BARE_OCTETS: usize = HEADER_OCTETS + CHECKSUM_OCTETS;
/// Octets of a block of the segment.
pub const BLOCK_OCTETS: usize = 512;
/// Octets of the segment of one packet group at most: 32 blocks.
pub const GROUP_OCTETS: usize = 32 * BLOCK_OCTETS;
/// Packet groups of one message at most (section 2.14).
pub const GROUPS_MAX: usize = 256;
/// Octets of user data in the header of a message without a segment.
pub const USER_OCTETS: usize = 20;
/// The protocol's number in IP.
pub const IP_PROTOCOL: u8 = 81;

/// The checksum covers the header only.
pub const HCO: u32 = 4 << 13;
/// Part of a secure transaction.
pub const EPG: u32 = 2 << 13;
/// The packet was multicast.
pub const MPG: u32 = 1 << 13;
/// The bits of the length, in words of four octets.
const LENGTH: u32 = 0x1fff;

/// The receiver is to acknowledge the group.
pub const APG: u32 = 1 << 30;
/// Not the first group of a run.
pub const NSR: u32 = 1 << 29;
/// Not the last group of a run.
pub const NER: u32 = 1 << 28;
/// Missing blocks are not asked for.
pub const NRT: u32 = 1 << 27;
/// The message goes on in the next group.
pub const CMG: u32 = 1 << 25;
/// The next transaction is 256 further.
pub const STI: u32 = 1 << 24;
/// Place of the three bits that count retransmissions.
const RETRANSMIT: u32 = 20;
/// The bits that count retransmissions.
pub const ROUND: u32 = 7 << RETRANSMIT;
/// Place of the four bits that count forwardings.
const FORWARD: u32 = 16;
/// The bits that count forwardings.
pub const FORWARDS: u32 = FORWARDS_MAX << FORWARD;
/// Place of the gap between packets, in a request.
const GAP: u32 = 8;
/// A response, not a request.
pub const RESPONSE: u32 = 1;
/// Times that a request is forwarded as it is, at most.
pub const FORWARDS_MAX: u32 = 15;

/// A request without response; a response that is not kept.
pub const DGM: u32 = 1 << 30;
/// A part of the segment will do, as `MsgDelivery` says.
pub const MDM: u32 = 1 << 29;
/// There is a segment, of as many octets as `SegmentSize` says.
pub const SDA: u32 = 1 << 28;
/// Must be 0.
const RES: u32 = 1 << 27;
/// The first eight octets of user data name an entity that lives where the server does.
pub const CRE: u32 = 1 << 26;
/// Several responses are wanted.
pub const MRD: u32 = 1 << 25;
/// A code of the RFC's.
pub const PIC: u32 = 1 << 24;
/// The bits of a code proper.
pub const CODE: u32 = 0x00ff_ffff;

/// Codes of operations of the manager (appendix III), without flags.
pub mod operation {
    /// Asks for the transaction of an entity.
    pub const PROBE_ENTITY: u32 = 0x101;
    /// Tells a client of its request.
    pub const NOTIFY_CLIENT: u32 = 0x10f;
    /// Tells a server of its response.
    pub const NOTIFY_SERVER: u32 = 0x110;
    /// Tells the forwarder of a request.
    pub const NOTIFY_REMOTE_CLIENT: u32 = 0x111;
}

/// Response codes (appendix II).
pub mod code {
    /// All is well.
    pub const OK: u32 = 0;
    /// Send what is missing.
    pub const RETRY: u32 = 1;
    /// Send all.
    pub const RETRY_ALL: u32 = 2;
    /// Later.
    pub const BUSY: u32 = 3;
    /// There is no such entity.
    pub const NONEXISTENT_ENTITY: u32 = 4;
    /// The transaction is not the current one.
    pub const BAD_TRANSACTION_ID: u32 = 10;
    /// Only one group makes a message here.
    pub const STREAMING_NOT_SUPPORTED: u32 = 11;
    /// The groups before this one are unknown.
    pub const NO_RUN_RECORD: u32 = 12;
    /// The response is not wanted, or not there any more.
    pub const RESPONSE_DISCARDED: u32 = 15;
    /// There are no secure transactions here.
    pub const SECURITY_NOT_SUPPORTED: u32 = 16;
    /// The first code of users.
    pub const USER: u32 = 0x0080_0000;
}

/// Identifier of an entity (section 3.1 and appendix IV, domain 1): flags, a discriminator, and the
/// Internet address of the host that made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Entity(pub u64);

impl Entity {
    /// In the first four bits: a group.
    const GROUP: u64 = 1 << 62;
    /// Largest discriminator.
    pub const DISCRIMINATOR_MAX: u32 = 0x0fff_ffff;
    /// The group of all managers.
    pub const MANAGERS: Self = Self(0x4000_0001_e000_0100);

    /// The entity with this discriminator at the host with this address.
    pub const fn new(discriminator: u32, host: u32) -> Self {
        Self(((discriminator & Self::DISCRIMINATOR_MAX) as u64) << 32 | host as u64)
    }

    /// The group with the discriminator of this entity.
    #[must_use]
    pub const fn group(self) -> Self {
        Self(self.0 | Self::GROUP)
    }

    /// Whether it is a group.
    pub const fn is_group(self) -> bool {
        self.0 & Self::GROUP != 0
    }

    /// The discriminator.
    pub const fn discriminator(self) -> u32 {
        (self.0 >> 32) as u32 & Self::DISCRIMINATOR_MAX
    }

    /// The address of the host.
    pub const fn host(self) -> u32 {
        self.0 as u32
    }
}

/// The header, as it lies in the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The client of the transaction.
    pub client: Entity,
    /// Domain of the entities, above three flags and 13 bits with the length of the data in words.
    pub domain: u32,
    /// Flags and counters of the packet.
    pub control: u32,
    /// The transaction.
    pub transaction: u32,
    /// Blocks in this packet.
    pub delivery: u32,
    /// The server.
    pub server: Entity,
    /// Request or response code, below flags of the message.
    pub code: u32,
    /// User data; the last two words are `MsgDelivery` and `SegmentSize` if flags say so.
    pub user: [u32; 7],
}

/// Why octets are no packet of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// A version that is not 0.
    #[error("another version")]
    Version,
    /// A length that is odd, above 4096, or not that of the packet.
    #[error("not the length of the packet")]
    Length,
    /// A wrong checksum.
    #[error("a wrong checksum")]
    Checksum,
    /// Bits that must be 0, or a code that none may have.
    #[error("bits that must be 0")]
    Reserved,
    /// Blocks that the segment does not have, or that are not those in the packet.
    #[error("blocks that are not in the packet")]
    Delivery,
}

fn word(octets: &[u8; HEADER_OCTETS], at: usize) -> u32 {
    octets.as_chunks::<4>().0.get(at).map_or(0, |word| u32::from_be_bytes(*word))
}

impl Header {
    /// Reads a header; every value is one. See [`Header::check`].
    #[inline]
    pub fn parse(octets: &[u8; HEADER_OCTETS]) -> Self {
        let entity =
            |at| Entity(u64::from(word(octets, at)) << 32 | u64::from(word(octets, at + 1)));
        Self {
            client: entity(0),
            domain: word(octets, 2),
            control: word(octets, 3),
            transaction: word(octets, 4),
            delivery: word(octets, 5),
            server: entity(6),
            code: word(octets, 8),
            user: core::array::from_fn(|at| word(octets, 9 + at)),
        }
    }

    /// Reads the header of a packet.
    ///
    /// # Errors
    /// Why it is none of the protocol.
    #[inline]
    pub fn read(octets: &[u8; HEADER_OCTETS], packet: &Message) -> Result<Self, Error> {
        let header = Self::parse(octets);
        header.check(packet.len())?;
        header.is_intact(octets, packet).then_some(header).ok_or(Error::Checksum)
    }

    /// Whether the checksum at the end of a packet is right, or not there.
    #[inline]
    fn is_intact(&self, octets: &[u8; HEADER_OCTETS], packet: &Message) -> bool {
        let mut there = [0; CHECKSUM_OCTETS];
        let data = self.data_octets();
        match packet.peek_in_place::<BARE_OCTETS>() {
            Some(bare) if data == 0 => there.copy_from_slice(&bare[HEADER_OCTETS..]),
            _ => {
                packet.copy_to(HEADER_OCTETS + data, &mut there);
            }
        }
        if there == [0; CHECKSUM_OCTETS] {
            return true;
        }
        let mut sums = Sums::of(octets);
        if data > 0 && self.domain & HCO == 0 {
            sums.add_message(packet, HEADER_OCTETS, data);
        }
        sums.finish() == there
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_OCTETS] {
        let mut octets = [0; HEADER_OCTETS];
        let [c, s] = [self.client.0, self.server.0].map(|e| [(e >> 32) as u32, e as u32]);
        let [u0, u1, u2, u3, u4, u5, u6] = self.user;
        let front = [c[0], c[1], self.domain, self.control, self.transaction, self.delivery];
        let back = [s[0], s[1], self.code, u0, u1, u2, u3, u4, u5, u6];
        let words = front.into_iter().chain(back);
        for (to, word) in octets.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *to = word.to_be_bytes();
        }
        octets
    }

    /// Whether a packet with this header, `octets` long from the header to the checksum, may be one
    /// of the protocol.
    ///
    /// # Errors
    /// Why it is none.
    #[inline]
    pub fn check(&self, octets: usize) -> Result<(), Error> {
        let length = self.domain & LENGTH;
        if self.domain >> 29 != 0 {
            return Err(Error::Version);
        }
        if length & 1 != 0 || octets != BARE_OCTETS + self.data_octets() || length > 4096 {
            return Err(Error::Length);
        }
        if self.code & RES != 0 {
            return Err(Error::Reserved);
        }
        let size = self.segment_octets();
        if size > GROUP_OCTETS * GROUPS_MAX {
            return Err(Error::Delivery);
        }
        Ok(())
    }

    /// Octets of the data in this packet, padding included.
    #[inline]
    pub fn data_octets(&self) -> usize {
        4 * (self.domain & LENGTH) as usize
    }

    /// The header for a packet with these blocks, `octets` long with padding.
    #[inline]
    #[must_use]
    pub fn with_data(self, delivery: u32, octets: usize) -> Self {
        Self { domain: self.domain & !LENGTH | (octets as u32 / 4), delivery, ..self }
    }

    /// Octets of the segment of the message.
    #[inline]
    pub fn segment_octets(&self) -> usize {
        if self.code & SDA == 0 { 0 } else { self.user[6] as usize }
    }

    /// Whether a packet with so many octets of data has the whole segment.
    #[inline]
    pub fn is_whole(&self, data: usize) -> bool {
        let size = self.segment_octets();
        self.has(SDA) && size <= data && self.delivery == blocks_of(size) && padded(size) == data
    }

    /// Whether it is a response.
    #[inline]
    pub fn is_response(&self) -> bool {
        self.control & RESPONSE != 0
    }

    /// The code without flags.
    #[inline]
    pub fn plain_code(&self) -> u32 {
        self.code & CODE
    }

    /// Whether all of these flags of the message are set.
    #[inline]
    pub fn has(&self, flags: u32) -> bool {
        self.code & flags == flags
    }

    /// Whether the receiver is to acknowledge the group.
    #[inline]
    pub fn wants_answer(&self) -> bool {
        self.control & APG != 0
    }

    /// Number of retransmissions, modulo 8.
    #[inline]
    pub fn round(&self) -> u32 {
        round_of(self.control)
    }

    /// The header of the transmission with this number.
    #[must_use]
    pub fn with_round(self, round: u32) -> Self {
        let control = self.control & !ROUND | (round & 7) << RETRANSMIT;
        Self { control, ..self }
    }

    /// Times that the request was forwarded.
    #[inline]
    pub fn forwards(&self) -> u32 {
        self.control >> FORWARD & FORWARDS_MAX
    }

    /// The header of a request that was forwarded so often.
    #[must_use]
    pub fn with_forwards(self, count: u32) -> Self {
        let control = self.control & !FORWARDS | (count & FORWARDS_MAX) << FORWARD;
        Self { control, ..self }
    }

    /// The gap between packets that the sender of a request wants, in 1/32 of a packet's time.
    #[inline]
    pub fn gap(&self) -> u8 {
        (self.control >> GAP) as u8
    }

    /// The entity in two words of user data.
    pub fn user_entity(&self, at: usize) -> Entity {
        let word = |at| u64::from(self.user.get(at).copied().unwrap_or(0));
        Entity(word(at) << 32 | word(at + 1))
    }

    /// The twenty octets of a message without a segment.
    pub fn user_octets(&self) -> [u8; USER_OCTETS] {
        let mut octets = [0; USER_OCTETS];
        for (to, word) in octets.as_chunks_mut::<4>().0.iter_mut().zip(self.user) {
            *to = word.to_be_bytes();
        }
        octets
    }

    /// Puts these octets where a segment would be told of.
    pub fn set_user_octets(&mut self, octets: &[u8; USER_OCTETS]) {
        self.code &= !SDA;
        self.user = [0; 7];
        for (to, word) in self.user.iter_mut().zip(octets.as_chunks::<4>().0) {
            *to = u32::from_be_bytes(*word);
        }
    }
}

/// Control bits with this gap in place.
pub fn gap_bits(gap: u8) -> u32 {
    u32::from(gap) << GAP
}

/// Number of retransmissions in a control word, modulo 8.
#[inline]
pub fn round_of(control: u32) -> u32 {
    control >> RETRANSMIT & 7
}

/// The mask of the blocks of so many octets of a group.
#[inline]
pub fn blocks_of(octets: usize) -> u32 {
    match octets.min(GROUP_OCTETS).div_ceil(BLOCK_OCTETS) {
        32.. => u32::MAX,
        blocks => (1 << blocks) - 1,
    }
}

/// Octets of these blocks of a group that has `octets`.
pub fn octets_in(delivery: u32, octets: usize) -> usize {
    let full = delivery.count_ones() as usize * BLOCK_OCTETS;
    let last = octets / BLOCK_OCTETS;
    match octets % BLOCK_OCTETS {
        rest if rest > 0 && last < 32 && delivery >> last & 1 != 0 => full - BLOCK_OCTETS + rest,
        _ => full,
    }
}

/// Octets with the padding that makes them a multiple of eight.
pub fn padded(octets: usize) -> usize {
    octets.next_multiple_of(8)
}

/// Octets between two changes of the sum.
const CLUSTER: usize = 32;

/// Both sums over a packet.
#[derive(Clone, Copy, Default)]
pub struct Sums {
    sums: [Checksum; 2],
    octets: usize,
}

impl Sums {
    /// The sums over a header.
    #[inline]
    pub fn of(header: &[u8; HEADER_OCTETS]) -> Self {
        let mut sums = [Checksum::new(); 2];
        let (first, second) = header.split_at(CLUSTER);
        sums[0].add(first);
        sums[1].add(second);
        Self { sums, octets: HEADER_OCTETS }
    }

    /// Adds what follows.
    pub fn add(&mut self, mut octets: &[u8]) {
        while !octets.is_empty() {
            let left = CLUSTER - self.octets % CLUSTER;
            let (now, rest) = octets.split_at(left.min(octets.len()));
            self.sums[(self.octets / CLUSTER) & 1].add(now);
            self.octets += now.len();
            octets = rest;
        }
    }

    /// Adds `octets` of a message that lie behind the first `skip`.
    pub fn add_message(&mut self, message: &Message, mut skip: usize, octets: usize) {
        let mut left = octets;
        for slice in message.octet_slices() {
            let slice = match slice.get(skip..) {
                Some(slice) => slice,
                None => {
                    skip -= slice.len();
                    continue;
                }
            };
            skip = 0;
            let now = slice.get(..left).unwrap_or(slice);
            self.add(now);
            left -= now.len();
        }
    }

    /// The octets of the checksum: the sums, with all ones for zero.
    #[inline]
    pub fn finish(self) -> [u8; CHECKSUM_OCTETS] {
        let [one, two] = self.sums.map(|sum| match !sum.finish() {
            0 => 0xffff_u16.to_be_bytes(),
            sum => sum.to_be_bytes(),
        });
        [one[0], one[1], two[0], two[1]]
    }
}

#[cfg(test)]
mod tests;
