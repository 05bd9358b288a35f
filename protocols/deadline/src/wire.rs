//! The headers: of a request the time that its client still waits, of a reply whether the request
//! was begun.

use core::time::Duration;

/// Octets in front of a request, and in front of a reply.
pub const HEADER_OCTETS: usize = 4;
/// In a request: the client waits as long as it takes.
const FOREVER: u32 = u32::MAX;

/// Header of a request: the time that its client still waits; `None` without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left(pub Option<Duration>);

impl Left {
    /// Reads the header.
    #[must_use]
    pub fn parse(octets: [u8; HEADER_OCTETS]) -> Self {
        match u32::from_be_bytes(octets) {
            FOREVER => Self(None),
            us => Self(Some(Duration::from_micros(us.into()))),
        }
    }

    /// Writes the header: microseconds, rounded up, so that the server never gives up first. 71
    /// minutes and more are sent as no limit.
    #[must_use]
    pub fn emit(self) -> [u8; HEADER_OCTETS] {
        let us = self.0.map(|time| time.as_nanos().div_ceil(1000));
        let us = us.and_then(|us| u32::try_from(us).ok());
        us.unwrap_or(FOREVER).to_be_bytes()
    }
}

/// Header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The procedure was executed; its reply follows.
    Executed,
    /// The procedure was not begun: too little time was left.
    TooLate,
}

impl Status {
    /// Reads the header; `None` if it is none.
    #[must_use]
    pub fn parse(octets: [u8; HEADER_OCTETS]) -> Option<Self> {
        match octets {
            [0, 0, 0, 0] => Some(Self::Executed),
            [0, 0, 0, 1] => Some(Self::TooLate),
            _ => None,
        }
    }

    /// Writes the header.
    #[must_use]
    pub fn emit(self) -> [u8; HEADER_OCTETS] {
        match self {
            Self::Executed => [0, 0, 0, 0],
            Self::TooLate => [0, 0, 0, 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_octets() {
        let left = Left(Some(Duration::from_micros(0x0102_0304)));
        assert_eq!(left.emit(), [1, 2, 3, 4]);
        assert_eq!(Left::parse([1, 2, 3, 4]), left);
        assert_eq!(Left::parse([0xff; 4]), Left(None));
        for status in [Status::Executed, Status::TooLate] {
            assert_eq!(Status::parse(status.emit()), Some(status));
        }
        assert_eq!(Status::parse([1, 0, 0, 0]), None);
    }

    #[test]
    fn the_server_never_gives_up_first() {
        let told = |ns| Left::parse(Left(Some(Duration::from_nanos(ns))).emit()).0;
        assert_eq!(told(1), Some(Duration::from_micros(1)));
        assert_eq!(told(1000), Some(Duration::from_micros(1)));
        assert_eq!(told(1001), Some(Duration::from_micros(2)));
        let longest = u64::from(u32::MAX) * 1000;
        assert_eq!(told(longest), None);
        assert_eq!(told(longest - 1000), Some(Duration::from_nanos(longest - 1000)));
        assert_eq!(told(u64::MAX), None);
        assert_eq!(Left(None).emit(), [0xff; 4]);
    }
}
