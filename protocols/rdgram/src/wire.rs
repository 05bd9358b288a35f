//! The header: one number of four octets in network order, which names the protocol above.

/// Octets of the header.
pub const HEADER_OCTETS: usize = 4;

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The type number of the protocol above.
    pub number: u32,
}

impl Header {
    /// Reads a header; every value is valid.
    #[inline]
    pub fn parse(octets: &[u8; HEADER_OCTETS]) -> Self {
        Self {
            number: u32::from_be_bytes(*octets),
        }
    }

    /// Writes the header.
    #[inline]
    pub fn emit(self) -> [u8; HEADER_OCTETS] {
        self.number.to_be_bytes()
    }
}

impl core::fmt::Display for Header {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "rdgram > {}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn the_octets_are_in_network_order() {
        let header = Header::parse(&[0, 0, 1, 7]);
        assert_eq!(header.number, 263);
        assert_eq!(header.to_string(), "rdgram > 263");
    }

    proptest! {
        #[test]
        fn round_trip(octets: [u8; HEADER_OCTETS]) {
            prop_assert_eq!(Header::parse(&octets).emit(), octets);
        }
    }
}
