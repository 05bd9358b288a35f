//! The header ("RPC in the x-Kernel", appendix): 36 octets in network order without gaps, and what
//! makes one acceptable.

/// Octets of the header.
pub const HEADER_LEN: usize = 36;
/// The protocol's number in IP (RFC 1700, Sprite-RPC).
pub const IP_PROTOCOL: u8 = 90;
/// Fragments of one message at most (Sprite, rpcPacket.h).
pub const FRAGMENTS_MAX: usize = 16;
/// Octets of area 1 (Sprite's parameters) at most.
pub const AREA1_LEN_MAX: usize = 1024;
/// Octets of area 2 (Sprite's data) at most.
pub const AREA2_LEN_MAX: usize = 16_384;

/// The receiver is to acknowledge even if it would wait.
pub const PLSACK: u16 = 0x0001;
/// The last packet of a batch of fragments; of an acknowledgement, that fragments are missing.
pub const LASTFRAG: u16 = 0x0002;
/// With [`ACK`]: asks whether a channel is idle, or says so.
pub const CLOSE: u16 = 0x0004;
/// With [`REPLY`]: the call failed, the command is the code. With [`NACK`]: a challenge, the
/// process is the ticket.
pub const ERROR: u16 = 0x0008;
/// For the server half of the receiver; else for its client half.
pub const SERVER: u16 = 0x0010;
/// A request.
pub const REQUEST: u16 = 0x0100;
/// An acknowledgement; the mask says which fragments are held.
pub const ACK: u16 = 0x0200;
/// A reply.
pub const REPLY: u16 = 0x0400;
/// With [`REQUEST`] or [`REPLY`]: answered by the dispatcher itself.
pub const ECHO: u16 = 0x0800;
/// Not executed: the server has no free process, or ([`ERROR`]) does not know the client.
pub const NACK: u16 = 0x1000;
/// The number of the round, modulo 8, in bits that only Sprite used: 0 at first, one more each time
/// that anything of the message is sent again. What answers a packet bears its number, so that each
/// round is answered, and the answer acted upon, once.
pub const ROUND: u16 = 0x00e0;
/// Bits that must be 0.
const RESERVED: u16 = 0xe000;

/// Octets from the client's host to the fragment count, by which a client knows a reply.
pub(crate) const REPLY_KEY: core::ops::Range<usize> = 2..20;
/// Octets from the client's host to the server process, by which a server knows a channel.
pub(crate) const CHANNEL_KEY: core::ops::Range<usize> = 2..14;

/// The header, as it lies in the packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Kind of the packet.
    pub flags: u16,
    /// The host of the client, in replies as well: an IPv4 address, or another
    /// [folded](xk_core::HostAddr::folded).
    pub client_host: u32,
    /// The host of the server.
    pub server_host: u32,
    /// The client's channel.
    pub channel: u16,
    /// The server's hint, which the client echoes: the ticket of the client's incarnation.
    pub process: u16,
    /// The call, in every packet of it.
    pub sequence: u32,
    /// 0, or the number of fragments.
    pub fragments: u16,
    /// Bit of the fragment in data; bits of the fragments held in an acknowledgement.
    pub mask: u16,
    /// The procedure, or the code of an error.
    pub command: u16,
    /// The boot id of the sender.
    pub boot: u32,
    /// Octets of both areas in this packet.
    pub sizes: [u16; 2],
    /// Offsets in the areas reassembled.
    pub offsets: [u16; 2],
}

/// Why octets are no packet of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// Fewer octets than the header, or than its sizes say.
    #[error("fewer octets than the header says")]
    Truncated,
    /// Not exactly one kind of packet, or bits that must be 0.
    #[error("not exactly one kind of packet")]
    Flags,
    /// Beyond the limits of the areas.
    #[error("beyond the limits of the areas")]
    TooBig,
    /// A fragment count above 16, a mask of data that is not one bit below the count, or offsets
    /// without fragments.
    #[error("no possible fragment")]
    Fragment,
}

/// The two octets at `AT`.
#[inline(always)]
pub(crate) fn u16_at<const AT: usize>(octets: &[u8; HEADER_LEN]) -> u16 {
    u16::from_be_bytes([octets[AT], octets[AT + 1]])
}

/// The four octets at `AT`.
#[inline(always)]
pub(crate) fn u32_at<const AT: usize>(octets: &[u8; HEADER_LEN]) -> u32 {
    u32::from_be_bytes([octets[AT], octets[AT + 1], octets[AT + 2], octets[AT + 3]])
}

impl Header {
    /// Reads a header; every value is one. See [`Header::check`].
    pub fn parse(octets: &[u8; HEADER_LEN]) -> Self {
        Self {
            flags: u16_at::<0>(octets),
            client_host: u32_at::<2>(octets),
            server_host: u32_at::<6>(octets),
            channel: u16_at::<10>(octets),
            process: u16_at::<12>(octets),
            sequence: u32_at::<14>(octets),
            fragments: u16_at::<18>(octets),
            mask: u16_at::<20>(octets),
            command: u16_at::<22>(octets),
            boot: u32_at::<24>(octets),
            sizes: [u16_at::<28>(octets), u16_at::<30>(octets)],
            offsets: [u16_at::<32>(octets), u16_at::<34>(octets)],
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self) -> [u8; HEADER_LEN] {
        let mut octets = [0; HEADER_LEN];
        octets[0..2].copy_from_slice(&self.flags.to_be_bytes());
        octets[2..6].copy_from_slice(&self.client_host.to_be_bytes());
        octets[6..10].copy_from_slice(&self.server_host.to_be_bytes());
        octets[10..12].copy_from_slice(&self.channel.to_be_bytes());
        octets[12..14].copy_from_slice(&self.process.to_be_bytes());
        octets[14..18].copy_from_slice(&self.sequence.to_be_bytes());
        octets[18..20].copy_from_slice(&self.fragments.to_be_bytes());
        octets[20..22].copy_from_slice(&self.mask.to_be_bytes());
        octets[22..24].copy_from_slice(&self.command.to_be_bytes());
        octets[24..28].copy_from_slice(&self.boot.to_be_bytes());
        octets[28..30].copy_from_slice(&self.sizes[0].to_be_bytes());
        octets[30..32].copy_from_slice(&self.sizes[1].to_be_bytes());
        octets[32..34].copy_from_slice(&self.offsets[0].to_be_bytes());
        octets[34..36].copy_from_slice(&self.offsets[1].to_be_bytes());
        octets
    }

    /// Whether the packet is one of the protocol; `body` octets lie behind the header.
    ///
    /// # Errors
    /// Why it is none.
    pub fn check(&self, body: usize) -> Result<(), Error> {
        let kind = self.flags & (REQUEST | ACK | REPLY | NACK);
        if kind.count_ones() != 1 || self.flags & RESERVED != 0 {
            return Err(Error::Flags);
        }
        if self.body_len() > body {
            return Err(Error::Truncated);
        }
        let ends =
            [0, 1].map(|area| usize::from(self.offsets[area]) + usize::from(self.sizes[area]));
        if ends[0] > AREA1_LEN_MAX || ends[1] > AREA2_LEN_MAX {
            return Err(Error::TooBig);
        }
        if usize::from(self.fragments) > FRAGMENTS_MAX {
            return Err(Error::Fragment);
        }
        if kind & (REQUEST | REPLY) == 0 {
            return Ok(());
        }
        let is_right = match self.fragments {
            0 => self.mask == 0 && self.offsets == [0, 0],
            count => self.mask.is_power_of_two() && self.mask <= 1 << (count - 1),
        };
        if is_right { Ok(()) } else { Err(Error::Fragment) }
    }

    /// Octets behind the header that belong to the packet.
    #[inline]
    pub fn body_len(&self) -> usize {
        usize::from(self.sizes[0]) + usize::from(self.sizes[1])
    }

    /// The header of a packet without a body.
    pub(crate) fn bare(self) -> Self {
        Self { fragments: 0, mask: 0, sizes: [0, 0], offsets: [0, 0], ..self }
    }

    /// The number of the packet's round.
    #[inline]
    pub(crate) fn round(&self) -> Round {
        Round(self.flags & ROUND)
    }

    /// Whether it is a whole message or the last packet of a batch, and so to be answered if no
    /// other is.
    pub(crate) fn is_last(&self) -> bool {
        self.fragments == 0 || self.flags & (LASTFRAG | PLSACK) != 0
    }

    /// The mask of all fragments.
    pub fn all(&self) -> u16 {
        all_of(self.fragments)
    }
}

/// The number of a round, as it stands in the flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Round(u16);

impl Round {
    /// The one behind it.
    pub(crate) fn next(self) -> Self {
        Self((self.0 + (ROUND & ROUND.wrapping_neg())) & ROUND)
    }

    /// Bits of the kind in the flags.
    pub(crate) fn flags(self) -> u16 {
        self.0
    }
}

/// The mask of `count` fragments.
pub(crate) fn all_of(count: u16) -> u16 {
    ((1u32 << count.min(16)) - 1) as u16
}

#[cfg(test)]
mod tests;
