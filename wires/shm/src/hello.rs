//! The first message of each side: 32 octets, all numbers with the least octet first.
//!
//! | octets | |
//! | --- | --- |
//! | 0..4 | `xksm` |
//! | 4..6 | version, 2 |
//! | 6..8 | kind: 1 asks for a link, 2 grants it, 3 refuses |
//! | 8..12 | slots a direction; a grant says which of both sides' figures is taken, the smaller one |
//! | 12..16 | octets of the longest frame, the same on both sides |
//! | 16..20 | why it refuses |
//! | 20..24 | octets of a frame in one slot at most, the same on both sides; 0: all |
//! | 24..32 | zero |
//!
//! With a request comes one descriptor, the reading end of the pipe by which the sender of the
//! message wakes the other; with a grant come two, the memory and such a pipe.

use crate::error::Refusal;
use crate::layout::Geometry;

/// Octets of a hello.
pub(crate) const HELLO_OCTETS: usize = 32;
/// The version spoken here.
pub(crate) const VERSION: u16 = 2;

const MAGIC: [u8; 4] = *b"xksm";
const REQUEST: u16 = 1;
const GRANT: u16 = 2;
const REFUSAL: u16 = 3;

/// First message of a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hello {
    /// Asks for a link of at most this many slots and of exactly this length of frames.
    Request(Geometry),
    /// Here is the link.
    Grant(Geometry),
    /// There is none.
    Refusal(Refusal),
}

/// Why octets are no hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HelloError {
    /// The message has another length.
    Length,
    /// The message is of another protocol.
    Magic,
    /// The message is of another version.
    Version,
    /// The message is of an unknown kind.
    Kind,
    /// A figure out of range, or something where zero must be.
    Figures,
}

impl HelloError {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Length => "its hello has another length",
            Self::Magic => "its hello begins otherwise",
            Self::Version => "its hello has another version",
            Self::Kind => "its hello is of an unknown kind",
            Self::Figures => "a figure of its hello is out of range",
        }
    }
}

impl Hello {
    pub(crate) fn emit(&self) -> [u8; HELLO_OCTETS] {
        let (kind, slots, octets, why, in_slot) = match self {
            Self::Request(g) => (REQUEST, g.slots(), g.frame_octets_max(), 0, g.in_slot()),
            Self::Grant(g) => (GRANT, g.slots(), g.frame_octets_max(), 0, g.in_slot()),
            Self::Refusal(why) => {
                let octets = match why {
                    Refusal::FrameOctets { octets } => *octets,
                    _ => 0,
                };
                (REFUSAL, 0, octets, why.number(), 0)
            }
        };
        let mut hello = [0; HELLO_OCTETS];
        let fields: [&[u8]; 7] = [
            &MAGIC,
            &VERSION.to_le_bytes(),
            &kind.to_le_bytes(),
            &slots.to_le_bytes(),
            &octets.to_le_bytes(),
            &why.to_le_bytes(),
            &in_slot.to_le_bytes(),
        ];
        for (octet, value) in hello.iter_mut().zip(fields.into_iter().flatten()) {
            *octet = *value;
        }
        hello
    }

    pub(crate) fn parse(octets: &[u8]) -> Result<Self, HelloError> {
        let octets: &[u8; HELLO_OCTETS] = octets.try_into().map_err(|_| HelloError::Length)?;
        let (words, _) = octets.as_chunks::<4>();
        let word = |at: usize| words.get(at).map_or(0, |word| u32::from_le_bytes(*word));
        if !octets.starts_with(&MAGIC) {
            return Err(HelloError::Magic);
        }
        let (version, kind) = (word(1) as u16, (word(1) >> 16) as u16);
        if version != VERSION {
            return Err(HelloError::Version);
        }
        let is_refusal = kind == REFUSAL;
        if (6..8).any(|at| word(at) != 0) || word(if is_refusal { 5 } else { 4 }) != 0 {
            return Err(HelloError::Figures);
        }
        let geometry = match word(5) {
            0 => Geometry::new(word(2), word(3)),
            in_slot => Geometry::spanning(word(2), word(3), in_slot),
        };
        let geometry = geometry.ok_or(HelloError::Figures);
        match kind {
            REQUEST => Ok(Self::Request(geometry?)),
            GRANT => Ok(Self::Grant(geometry?)),
            REFUSAL => Ok(Self::Refusal(Refusal::from_number(word(4), word(3)))),
            _ => Err(HelloError::Kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Hello> {
        let geometry = Geometry::new(64, 9014).unwrap();
        let refusals = [
            Refusal::Busy,
            Refusal::Version,
            Refusal::FrameOctets { octets: 9014 },
            Refusal::Malformed,
            Refusal::Stranger,
            Refusal::Other(77),
        ];
        let refusals = refusals.into_iter().map(Hello::Refusal);
        let spanning = Geometry::spanning(512, 66_560, 2112).unwrap();
        let links = [Hello::Request(geometry), Hello::Grant(geometry), Hello::Grant(spanning)];
        links.into_iter().chain(refusals).collect()
    }

    #[test]
    fn every_hello_is_read_as_it_was_written() {
        for hello in all() {
            assert_eq!(Hello::parse(&hello.emit()), Ok(hello));
        }
    }

    #[test]
    fn a_request_has_these_octets() {
        let hello = Hello::Request(Geometry::default()).emit();
        let expected = b"xksm\x02\0\x01\0\0\x02\0\0\xea\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        assert_eq!(&hello, expected);
    }

    #[test]
    fn what_is_cut_or_too_long_is_refused() {
        let mut hello = Hello::Request(Geometry::default()).emit().to_vec();
        for octets in 0..hello.len() {
            assert_eq!(Hello::parse(&hello[..octets]), Err(HelloError::Length));
        }
        hello.push(0);
        assert_eq!(Hello::parse(&hello), Err(HelloError::Length));
    }

    #[test]
    fn wrong_fields_are_told_apart() {
        let hello = Hello::Grant(Geometry::default()).emit();
        for (at, value, expected) in [
            (0, b'y', HelloError::Magic),
            (4, 1, HelloError::Version),
            (6, 4, HelloError::Kind),
            (8, 3, HelloError::Figures),
            (15, 1, HelloError::Figures),
            (16, 1, HelloError::Figures),
            (20, 1, HelloError::Figures),
            (31, 1, HelloError::Figures),
        ] {
            let mut changed = hello;
            changed[at] = value;
            assert_eq!(Hello::parse(&changed), Err(expected), "octet {at}");
        }
    }

    proptest! {
        #[test]
        fn any_octets_give_an_answer(octets in prop::collection::vec(any::<u8>(), 0..40), real in 0usize..9, at in 0usize..32) {
            let _ = Hello::parse(&octets);
            let mut hello = all()[real].emit();
            hello[at] ^= octets.first().copied().unwrap_or(0);
            if let Ok(read) = Hello::parse(&hello) {
                prop_assert_eq!(Hello::parse(&read.emit()), Ok(read));
            }
        }
    }
}
