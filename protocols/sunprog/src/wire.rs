//! The header of accepted replies: how the call went (RFC 5531, section 9).

use xk_core::Reason;
use xk_kit::rpc::call::{BAD_ARGUMENTS, NO_PROCEDURE, NO_PROGRAM, NO_VERSION, SYSTEM_ERROR};

/// Octets of `accept_stat`.
pub const STAT_OCTETS: usize = 4;
/// The longest reply to a call that did not succeed, in octets.
pub const FAILED_OCTETS_MAX: usize = 12;

/// Result of an accepted call: `accept_stat` and its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// SUCCESS: the results follow.
    Success,
    /// PROG_UNAVAIL.
    NoProgram,
    /// PROG_MISMATCH.
    Mismatch {
        /// The lowest version there is.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// PROC_UNAVAIL.
    NoProcedure,
    /// GARBAGE_ARGS.
    BadArguments,
    /// SYSTEM_ERR.
    SystemError,
}

impl Accepted {
    /// The whole of it: octets, and how many count.
    #[must_use]
    pub fn emit(self) -> ([u8; FAILED_OCTETS_MAX], usize) {
        let (words, count) = match self {
            Accepted::Success => ([0; 3], 1),
            Accepted::NoProgram => ([1, 0, 0], 1),
            Accepted::Mismatch { low, high } => ([2, low, high], 3),
            Accepted::NoProcedure => ([3, 0, 0], 1),
            Accepted::BadArguments => ([4, 0, 0], 1),
            Accepted::SystemError => ([5, 0, 0], 1),
        };
        let mut octets = [0; FAILED_OCTETS_MAX];
        for (to, from) in octets.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&from.to_be_bytes());
        }
        (octets, 4 * count)
    }

    /// Reads it from the front of `octets`; `None` if it is not there or is none.
    #[must_use]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let part = octets.get(4 * at..4 * at + 4)?.first_chunk()?;
            Some(u32::from_be_bytes(*part))
        };
        Some(match word(0)? {
            0 => Accepted::Success,
            1 => Accepted::NoProgram,
            2 => Accepted::Mismatch { low: word(1)?, high: word(2)? },
            3 => Accepted::NoProcedure,
            4 => Accepted::BadArguments,
            5 => Accepted::SystemError,
            _ => return None,
        })
    }

    /// Result of a call that was refused for this reason.
    #[must_use]
    pub fn of(reason: &Reason) -> Self {
        let known = [
            (&NO_PROCEDURE, Accepted::NoProcedure),
            (&BAD_ARGUMENTS, Accepted::BadArguments),
            (&NO_PROGRAM, Accepted::NoProgram),
        ];
        let found = known.iter().find(|(other, _)| **other == *reason);
        found.map_or(Accepted::SystemError, |(_, accepted)| *accepted)
    }

    /// The reason, if the call did not succeed.
    #[must_use]
    pub fn reason(self) -> Option<&'static Reason> {
        match self {
            Accepted::Success => None,
            Accepted::NoProgram => Some(&NO_PROGRAM),
            Accepted::Mismatch { .. } => Some(&NO_VERSION),
            Accepted::NoProcedure => Some(&NO_PROCEDURE),
            Accepted::BadArguments => Some(&BAD_ARGUMENTS),
            Accepted::SystemError => Some(&SYSTEM_ERROR),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn each_is_read_as_it_is_written() {
        let (low, high) = (2, 3);
        let all = [
            Accepted::Success,
            Accepted::NoProgram,
            Accepted::Mismatch { low, high },
            Accepted::NoProcedure,
            Accepted::BadArguments,
            Accepted::SystemError,
        ];
        for (number, accepted) in all.into_iter().enumerate() {
            let (octets, count) = accepted.emit();
            let octets: Vec<u8> = octets[..count].to_vec();
            assert_eq!(octets[..4], (number as u32).to_be_bytes());
            assert_eq!(Accepted::parse(&octets), Some(accepted));
            for len in 0..count {
                assert_eq!(Accepted::parse(&octets[..len]), None, "{accepted:?} cut to {len}");
            }
            if let Some(reason) = accepted.reason()
                && !matches!(accepted, Accepted::Mismatch { .. })
            {
                assert_eq!(Accepted::of(reason), accepted);
            }
        }
        assert_eq!(Accepted::parse(&[0, 0, 0, 6]), None);
        let (octets, count) = Accepted::Mismatch { low, high }.emit();
        assert_eq!(octets[..count], [0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3]);
    }
}
