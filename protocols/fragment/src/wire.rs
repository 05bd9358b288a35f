//! The header of FRAGMENT ("RPC in the x-Kernel", appendix): 24 octets in network order.
//!
//! ```text
//!  0      1      2          6         10             14             18        20         22     24
//!  | type | zero | clnt_host | svr_host | protocol_num | sequence_num | num_frag | frag_mask | len |
//! ```

/// Octets of the header.
pub const HEADER_OCTETS: usize = 24;
/// Largest number of fragments of a message: bits of the mask.
pub const FRAGMENTS_MAX: usize = 16;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A fragment, sent for the first time.
    Send,
    /// A negative acknowledgement: the receiver lacks fragments, and the mask says which it has.
    Nack,
    /// A fragment, sent again.
    Retransmit,
}

impl Kind {
    /// Value on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::Send => 1,
            Self::Nack => 2,
            Self::Retransmit => 3,
        }
    }
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Kind of the packet.
    pub kind: Kind,
    /// The sender of the message, also in a NACK.
    pub client: [u8; 4],
    /// Destination host.
    pub server: [u8; 4],
    /// The type number of the protocol above.
    pub number: u32,
    /// The message's.
    pub sequence: u32,
    /// Number of fragments of the message.
    pub count: u8,
    /// A fragment: its bit, `1 << i` from 0 on. A NACK: those held.
    pub mask: u16,
    /// Octets of the payload in this packet.
    pub len: u16,
}

/// Why octets are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// An unknown type, or fragments that no message has.
    Malformed,
    /// The payload is shorter than the header says.
    Length,
}

/// The bits of all fragments of a message.
pub const fn full_mask(count: u8) -> u16 {
    ((1_u32 << count) - 1) as u16
}

impl Header {
    /// Reads a header that `payload_octets` follow.
    pub fn parse(octets: &[u8; HEADER_OCTETS], payload_octets: usize) -> Result<Self, Error> {
        let word = |at: usize| u16::from_be_bytes([octets[at], octets[at + 1]]);
        let four = |at: usize| [octets[at], octets[at + 1], octets[at + 2], octets[at + 3]];
        let (count, mask, len) = (word(18), word(20), word(22));
        if !(1..=FRAGMENTS_MAX as u16).contains(&count) {
            return Err(Error::Malformed);
        }
        let (count, beyond) = (count as u8, mask & !full_mask(count as u8));
        let kind = match octets[0] {
            1 => Kind::Send,
            2 => Kind::Nack,
            3 => Kind::Retransmit,
            _ => return Err(Error::Malformed),
        };
        let is_sound = match kind {
            Kind::Nack => mask != full_mask(count) && len == 0,
            // Only a message of one fragment may be empty.
            _ => mask.count_ones() == 1 && (len > 0 || count == 1),
        };
        if beyond != 0 || !is_sound {
            return Err(Error::Malformed);
        }
        if usize::from(len) > payload_octets {
            return Err(Error::Length);
        }
        Ok(Self {
            kind,
            client: four(2),
            server: four(6),
            number: u32::from_be_bytes(four(10)),
            sequence: u32::from_be_bytes(four(14)),
            count,
            mask,
            len,
        })
    }

    /// Writes the header.
    pub fn emit(&self) -> [u8; HEADER_OCTETS] {
        let mut octets = [0; HEADER_OCTETS];
        octets[0] = self.kind.code();
        octets[2..6].copy_from_slice(&self.client);
        octets[6..10].copy_from_slice(&self.server);
        octets[10..14].copy_from_slice(&self.number.to_be_bytes());
        octets[14..18].copy_from_slice(&self.sequence.to_be_bytes());
        octets[18..20].copy_from_slice(&u16::from(self.count).to_be_bytes());
        octets[20..22].copy_from_slice(&self.mask.to_be_bytes());
        octets[22..].copy_from_slice(&self.len.to_be_bytes());
        octets
    }

    /// Number of the fragment, from 0.
    pub fn index(&self) -> usize {
        self.mask.trailing_zeros() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The sheet's example hosts: 10.0.0.1 sends to 10.0.0.2.
    fn header(kind: Kind, sequence: u32, count: u8, mask: u16, len: u16) -> Header {
        Header {
            kind,
            client: [10, 0, 0, 1],
            server: [10, 0, 0, 2],
            number: 102,
            sequence,
            count,
            mask,
            len,
        }
    }

    fn octets(hex: &str) -> Vec<u8> {
        let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|d| (d[0] << 4 | d[1]) as u8).collect()
    }

    #[test]
    fn real_octets_both_ways() {
        let cases = [
            (
                "0100 0a000001 0a000002 00000066 00000012 0001 0001 0018",
                header(Kind::Send, 0x12, 1, 1, 24),
            ),
            (
                "0100 0a000001 0a000002 00000066 00000011 0003 0004 03b8",
                header(Kind::Send, 0x11, 3, 4, 952),
            ),
            (
                "0200 0a000001 0a000002 00000066 00000011 0003 0005 0000",
                header(Kind::Nack, 0x11, 3, 5, 0),
            ),
            (
                "0300 0a000001 0a000002 00000066 00000011 0003 0002 05a0",
                header(Kind::Retransmit, 0x11, 3, 2, 1440),
            ),
        ];
        for (hex, header) in cases {
            let octets = octets(hex);
            assert_eq!(header.emit()[..], octets[..], "{header:?}");
            let chunk = octets.first_chunk().expect("24 octets");
            assert_eq!(Header::parse(chunk, 2000), Ok(header));
        }
    }

    #[test]
    fn what_no_message_has_is_malformed() {
        let good = header(Kind::Send, 7, 3, 2, 100).emit();
        let changed = |at: usize, value: u8| {
            let mut octets = good;
            octets[at] = value;
            Header::parse(&octets, 100)
        };
        assert!(Header::parse(&good, 100).is_ok());
        assert_eq!(Header::parse(&good, 99), Err(Error::Length));
        for kind in (4..=255).chain([0]) {
            assert_eq!(changed(0, kind), Err(Error::Malformed));
        }
        for (at, value) in [(19, 0), (19, 17), (18, 1), (21, 0), (21, 3), (21, 8), (20, 1), (23, 0)]
        {
            assert_eq!(changed(at, value), Err(Error::Malformed), "{at} {value}");
        }
        let full = header(Kind::Nack, 7, 3, 7, 0).emit();
        assert_eq!(Header::parse(&full, 0), Err(Error::Malformed));
        assert_eq!(full_mask(16), 0xffff);
    }
}
