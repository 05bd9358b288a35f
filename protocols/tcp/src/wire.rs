//! Segments on the wire (RFC 9293, section 3.1): header, flags, options.

use crate::options::{ALIGNED_TIMESTAMPS, Options, TIMESTAMPS_LEN, Timestamps};
use crate::seq::Seq;
use core::fmt;
use core::ops::{BitOr, BitOrAssign};
use xk_core::{HostAddr, fields};
use xk_kit::Checksum;

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;
/// Octets of the longest header.
pub const HEADER_LEN_MAX: usize = 60;
/// Octets of the longest options.
pub const OPTIONS_LEN_MAX: usize = HEADER_LEN_MAX - HEADER_LEN;
/// Offset of the sequence number in a header.
pub const SEQ_AT: usize = 4;
/// Offset of the control bits in a header.
pub const FLAGS_AT: usize = 13;
/// Offset of the checksum in a header.
pub const CHECKSUM_AT: usize = 16;
/// The protocol's number in IP.
pub const IP_PROTOCOL: u8 = 6;

/// The control bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u16);

fields!(Flags(bits));

impl Flags {
    /// None at all.
    pub const NONE: Flags = Flags(0);
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push: the sender has nothing more at the moment.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgement field counts.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer counts.
    pub const URG: Flags = Flags(0x20);
    /// The highest of the three flags that tell of marks (RFC 9768).
    pub const AE: Flags = Flags(0x100);
    /// Congestion was seen on the way (RFC 3168).
    pub const ECE: Flags = Flags(0x40);
    /// The congestion window was reduced (RFC 3168).
    pub const CWR: Flags = Flags(0x80);

    /// All that there are.
    const ALL: u16 = 0x1ff;

    /// Whether all of `flags` are set.
    #[inline]
    #[must_use]
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Whether any of `flags` is set.
    #[inline]
    #[must_use]
    pub const fn any(self, flags: Flags) -> bool {
        self.0 & flags.0 != 0
    }

    /// All but `flags`.
    #[inline]
    #[must_use]
    pub const fn without(self, flags: Flags) -> Flags {
        Flags(self.0 & !flags.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

/// A header, its checksum aside: that belongs to the octets, not to what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Port of the sender.
    pub src: u16,
    /// Port of the receiver.
    pub dst: u16,
    /// The first octet of data, or the SYN.
    pub seq: Seq,
    /// The next octet that the sender expects, if [`Flags::ACK`] is set.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// The sender's receive window, as in the field: not scaled.
    pub window: u16,
    /// End of urgent data, from `seq` on, if [`Flags::URG`] is set.
    pub urgent: u16,
    /// The options.
    pub options: Options,
}

/// Octets of a header whose only option are the timestamps, as nearly every segment's is.
pub const PLAIN_LEN: usize = HEADER_LEN + TIMESTAMPS_LEN;

/// The header of a segment with nothing unusual: an acknowledgement, perhaps pushed, with the
/// timestamps for its only option, laid out as nearly every sender does (RFC 7323, appendix A).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// As of [`Header`].
    pub seq: Seq,
    /// As of [`Header`].
    pub ack: Seq,
    /// As of [`Header`].
    pub window: u16,
    /// The timestamps.
    pub timestamps: Timestamps,
}

impl Plain {
    /// Data offset and reserved bits of such a header.
    const OFFSET: u8 = (PLAIN_LEN as u8 / 4) << 4;

    /// Reads such a header; `None` if this is another one. Says nothing of ports, checksum and
    /// data.
    #[inline]
    #[must_use]
    pub fn parse(octets: &[u8; PLAIN_LEN]) -> Option<Self> {
        let long = |at: usize| {
            u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
        };
        let is_plain = octets[12] == Self::OFFSET
            && u16::from(octets[13]) & !Flags::PSH.0 == Flags::ACK.0
            && long(20) == ALIGNED_TIMESTAMPS;
        is_plain.then(|| Self {
            seq: Seq(long(4)),
            ack: Seq(long(8)),
            window: u16::from_be_bytes([octets[14], octets[15]]),
            timestamps: Timestamps { value: long(24), echo: long(28) },
        })
    }
}

/// Why octets are no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Error {
    /// Fewer octets than a header.
    #[error("fewer octets than a header")]
    Truncated,
    /// The data offset is below 5 or behind the end.
    #[error("the data offset is below 5 or behind the end")]
    Offset,
    /// A port is zero (reserved: RFC 6335, section 6).
    #[error("port zero")]
    Port,
    /// An option is malformed (RFC 9293, section 3.2, MUST-7).
    #[error("a malformed option")]
    Option,
    /// The checksum is wrong.
    #[error("wrong checksum")]
    Checksum,
}

impl Header {
    /// A header without options.
    #[must_use]
    pub const fn new(src: u16, dst: u16, seq: Seq, ack: Seq, flags: Flags) -> Self {
        Self { src, dst, seq, ack, flags, window: 0, urgent: 0, options: Options::NONE }
    }

    /// Octets of the header at the start of `octets`, options included.
    ///
    /// # Errors
    /// [`Error::Offset`] if that cannot be.
    #[inline]
    pub const fn length(octets: &[u8; HEADER_LEN]) -> Result<usize, Error> {
        let length = (octets[12] >> 4) as usize * 4;
        if length < HEADER_LEN {
            return Err(Error::Offset);
        }
        Ok(length)
    }

    /// Reads the header at the start of `octets`, and how many octets it has; says nothing of
    /// checksum and data.
    #[inline]
    pub fn parse(octets: &[u8]) -> Result<(Self, usize), Error> {
        let fixed: &[u8; HEADER_LEN] = octets.first_chunk().ok_or(Error::Truncated)?;
        let length = Self::length(fixed)?;
        let options = octets.get(HEADER_LEN..length).ok_or(Error::Offset)?;
        let word = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let long = |at: usize| u32::from(word(at)) << 16 | u32::from(word(at + 2));
        if word(0) == 0 || word(2) == 0 {
            return Err(Error::Port);
        }
        let header = Self {
            src: word(0),
            dst: word(2),
            seq: Seq(long(4)),
            ack: Seq(long(8)),
            flags: Flags(word(12) & Flags::ALL),
            window: word(14),
            urgent: word(18),
            options: Options::parse(options).ok_or(Error::Option)?,
        };
        Ok((header, length))
    }

    /// Writes header and options without checksum; answers how many octets they take.
    #[inline]
    pub fn emit(&self, octets: &mut [u8; HEADER_LEN_MAX]) -> usize {
        let Some((fixed, rest)) = octets.split_first_chunk_mut::<HEADER_LEN>() else {
            return 0;
        };
        let length = HEADER_LEN + self.options.emit(rest);
        fixed[0..2].copy_from_slice(&self.src.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.dst.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        let offset = (length as u16 / 4) << 12;
        fixed[12..14].copy_from_slice(&(offset | self.flags.0).to_be_bytes());
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        fixed[16..18].fill(0);
        fixed[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        length
    }

    /// The reset that answers such a segment, with `data` octets, if it belongs to no connection
    /// (RFC 9293, section 3.10.7.1); `None` if it is a reset itself.
    #[must_use]
    pub fn answering_reset(&self, data: usize) -> Option<Self> {
        if self.flags.has(Flags::RST) {
            return None;
        }
        let reset = |seq, ack, flags| Self::new(self.dst, self.src, seq, ack, flags);
        Some(if self.flags.has(Flags::ACK) {
            reset(self.ack, Seq(0), Flags::RST)
        } else {
            reset(Seq(0), self.seq + self.span(data), Flags::RST | Flags::ACK)
        })
    }

    /// Sequence numbers that the segment takes with `data` octets: one for each, and for SYN and
    /// FIN.
    #[inline]
    #[must_use]
    pub fn span(&self, data: usize) -> u32 {
        data as u32 + u32::from(self.flags.has(Flags::SYN)) + u32::from(self.flags.has(Flags::FIN))
    }
}

/// The checksum of a segment of `len` octets in all between these hosts, whose octets add up to
/// `sum`; zero if they contain the right one.
#[must_use]
pub fn checksum(
    src: impl Into<HostAddr>,
    dst: impl Into<HostAddr>,
    len: u16,
    sum: Checksum,
) -> u16 {
    let mut whole = Checksum::pseudo_header(src, dst, IP_PROTOCOL, len.into());
    whole.join(sum);
    whole.finish()
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Flags {
    /// One letter each, as in tcpdump: `S.` for SYN and ACK.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [
            (Flags::FIN, "F"),
            (Flags::SYN, "S"),
            (Flags::RST, "R"),
            (Flags::PSH, "P"),
            (Flags::URG, "U"),
            (Flags::ECE, "E"),
            (Flags::CWR, "W"),
            (Flags::AE, "A"),
            (Flags::ACK, "."),
        ];
        for (flag, letter) in letters {
            if self.has(flag) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { src, dst, seq, .. } = self;
        write!(f, "{src} > {dst}: TCP {}, seq {seq}", self.flags)?;
        if self.flags.has(Flags::ACK) {
            write!(f, ", ack {}", self.ack)?;
        }
        write!(f, ", win {}{}", self.window, self.options)
    }
}

#[cfg(test)]
mod tests;
