//! The header: type number, length, run, sequence number.

use core::fmt;
use core::num::NonZeroU16;

/// Octets of the header.
pub const HEADER_OCTETS: usize = 12;
/// The longest message, in octets: what the length field can say.
pub const MESSAGE_OCTETS_MAX: usize = u16::MAX as usize;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type number of the protocol above.
    pub number: NonZeroU16,
    /// Octets of the message behind the header.
    pub length: u16,
    /// Which of the sender's sessions sent it: a number drawn by lot when it was opened.
    pub run: u32,
    /// How many messages that session sent before this one, modulo 2^32.
    pub sequence: u32,
}

/// What is wrong with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The type number is zero.
    Number,
    /// The message is shorter than the header says.
    Length,
}

impl Header {
    /// Reads the header of a message with `present` octets behind it.
    ///
    /// # Errors
    /// [`ParseError`]. What is returned says no more than `present` octets.
    #[inline]
    pub fn parse(octets: &[u8; HEADER_OCTETS], present: usize) -> Result<Self, ParseError> {
        let [n0, n1, l0, l1, r0, r1, r2, r3, s0, s1, s2, s3] = *octets;
        let number = u16::from_be_bytes([n0, n1]);
        let header = Self {
            number: NonZeroU16::new(number).ok_or(ParseError::Number)?,
            length: u16::from_be_bytes([l0, l1]),
            run: u32::from_be_bytes([r0, r1, r2, r3]),
            sequence: u32::from_be_bytes([s0, s1, s2, s3]),
        };
        if usize::from(header.length) > present {
            return Err(ParseError::Length);
        }
        Ok(header)
    }

    /// Writes the header.
    #[inline]
    #[must_use]
    pub fn emit(self) -> [u8; HEADER_OCTETS] {
        let [n0, n1] = self.number.get().to_be_bytes();
        let [l0, l1] = self.length.to_be_bytes();
        let [r0, r1, r2, r3] = self.run.to_be_bytes();
        let [s0, s1, s2, s3] = self.sequence.to_be_bytes();
        [n0, n1, l0, l1, r0, r1, r2, r3, s0, s1, s2, s3]
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            number,
            length,
            run,
            sequence,
        } = self;
        write!(
            f,
            "seq > {number}, {length} octets, run {run:08x}, number {sequence}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OCTETS: [u8; HEADER_OCTETS] = [0, 7, 0x01, 0x02, 0, 0, 0, 5, 0, 0, 0, 9];

    #[test]
    fn real_octets() {
        let header = Header {
            number: NonZeroU16::new(7).unwrap(),
            length: 0x0102,
            run: 5,
            sequence: 9,
        };
        assert_eq!(header.emit(), OCTETS);
        assert_eq!(Header::parse(&OCTETS, 0x0102), Ok(header));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |at: usize, octet| {
            let mut octets = OCTETS;
            octets[at] = octet;
            Header::parse(&octets, 0x0102)
        };
        assert_eq!(with(1, 0), Err(ParseError::Number));
        assert_eq!(with(3, 3), Err(ParseError::Length));
        assert_eq!(with(3, 1).map(|h| h.length), Ok(0x0101), "padding");
    }

    proptest! {
        #[test]
        fn what_is_read_is_written(octets: [u8; HEADER_OCTETS], present in 0..100_000_usize) {
            if let Ok(header) = Header::parse(&octets, present) {
                prop_assert_eq!(header.emit(), octets);
                prop_assert!(usize::from(header.length) <= present);
            }
        }
    }
}
