//! The mark in front of each fragment of a record (RFC 5531, section 11).

/// Octets of a mark.
pub const MARK_OCTETS: usize = 4;
/// Octets of a fragment, at most.
pub const FRAGMENT_MAX: u32 = 0x7fff_ffff;

/// A mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The fragment is the record's last.
    pub is_last: bool,
    /// Octets of the fragment, at most [`FRAGMENT_MAX`].
    pub len: u32,
}

impl Mark {
    /// Reads a mark; every value is valid.
    #[inline]
    #[must_use]
    pub fn parse(octets: [u8; MARK_OCTETS]) -> Self {
        let word = u32::from_be_bytes(octets);
        Self { is_last: word > FRAGMENT_MAX, len: word & FRAGMENT_MAX }
    }

    /// Writes a mark.
    #[inline]
    #[must_use]
    pub fn emit(self) -> [u8; MARK_OCTETS] {
        let last = if self.is_last { 1 << 31 } else { 0 };
        (last | self.len & FRAGMENT_MAX).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_s_layout() {
        // In front of a call of 56 octets, all of it in one fragment.
        let mark = Mark { is_last: true, len: 56 };
        assert_eq!(mark.emit(), [0x80, 0, 0, 0x38]);
        assert_eq!(Mark::parse([0x80, 0, 0, 0x38]), mark);
        for octets in [[0; 4], [0x7f, 0xff, 0xff, 0xff], [0xff; 4], [0, 0, 0, 1]] {
            assert_eq!(Mark::parse(octets).emit(), octets);
        }
    }
}
