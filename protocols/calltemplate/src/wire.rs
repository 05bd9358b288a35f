//! The headers: of a request its version, of a reply the time that the server took.

use core::time::Duration;

/// Octets in front of a request, and in front of a reply.
pub const HEADER_OCTETS: usize = 4;
/// The only version there is.
pub const VERSION: u8 = 1;
/// The header of every request.
pub const REQUEST: [u8; HEADER_OCTETS] = [VERSION, 0, 0, 0];

/// Whether these octets begin a request that can be read.
#[inline]
#[must_use]
pub fn is_request([version, ..]: &[u8; HEADER_OCTETS]) -> bool {
    *version == VERSION
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// How long the server took, in microseconds.
    pub us: u32,
}

impl Reply {
    /// What took so long, rounded down to what the header can say.
    #[must_use]
    pub fn after(time: Duration) -> Self {
        Self { us: u32::try_from(time.as_micros()).unwrap_or(u32::MAX) }
    }

    /// Reads the header.
    #[must_use]
    pub fn parse(octets: [u8; HEADER_OCTETS]) -> Self {
        Self { us: u32::from_be_bytes(octets) }
    }

    /// Writes the header.
    #[must_use]
    pub fn emit(self) -> [u8; HEADER_OCTETS] {
        self.us.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_octets() {
        assert!(is_request(&REQUEST) && is_request(&[1, 2, 3, 4]));
        assert!(!is_request(&[2, 0, 0, 0]));
        let reply = Reply::after(Duration::from_micros(0x0102_0304));
        assert_eq!(reply.emit(), [1, 2, 3, 4]);
        assert_eq!(Reply::parse([1, 2, 3, 4]), reply);
    }

    #[test]
    fn what_is_too_long_is_the_longest() {
        assert_eq!(Reply::after(Duration::from_secs(1 << 40)).us, u32::MAX);
        assert_eq!(Reply::after(Duration::from_nanos(1999)).us, 1);
    }
}
