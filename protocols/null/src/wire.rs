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
        write!(f, "null > {}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_octets() {
        let header = Header {
            number: 0x0102_0304,
        };
        assert_eq!(header.emit(), [1, 2, 3, 4]);
        assert_eq!(Header::parse(&[1, 2, 3, 4]), header);
    }
}
