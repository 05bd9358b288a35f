//! Octets of a stream that say where in it they are, so that a receiver can check them.

/// Octets that a sender hands over at once.
pub(super) const WRITE_OCTETS: usize = 65_536;
/// The pattern repeats after so many octets: a prime, so that it meets no boundary of segments or
/// buffers again soon.
const PERIOD: usize = 251;

/// Any part of the stream as one slice.
pub(super) struct Pattern(Vec<u8>);

impl Default for Pattern {
    fn default() -> Self {
        let octet = |at: usize| (at % PERIOD) as u8;
        Self((0..WRITE_OCTETS + PERIOD).map(octet).collect())
    }
}

impl Pattern {
    /// So many octets from a place in the stream on; [`WRITE_OCTETS`] at most.
    #[inline]
    pub(super) fn at(&self, place: u64, octets: usize) -> &[u8] {
        &self.0[(place % PERIOD as u64) as usize..][..octets]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_pattern_join() {
        let pattern = Pattern::default();
        let mut stream = pattern.at(0, 1000).to_vec();
        stream.extend_from_slice(pattern.at(1000, WRITE_OCTETS));
        assert_eq!(&stream[..2000], pattern.at(0, 2000));
        assert_ne!(pattern.at(0, 100), pattern.at(1, 100));
    }
}
