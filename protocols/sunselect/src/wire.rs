//! The header of calls, and the words with which a server refuses them (RFC 5531, section 9).

use xk_kit::rpc::onc::ProcedureName;

/// Octets of the header of a call: the version of ONC RPC, program, version, procedure.
pub const CALL_OCTETS: usize = 16;
/// Octets in front of an accepted reply: `reply_stat`.
pub const REPLY_OCTETS: usize = 4;
/// The version of ONC RPC.
pub const RPC_VERSION: u32 = 2;
/// `reply_stat`: the call was taken.
pub const ACCEPTED: u32 = 0;
/// `reply_stat`: the call was not taken.
pub const DENIED: u32 = 1;
/// `reject_stat`: another version of ONC RPC.
const RPC_MISMATCH: u32 = 0;
/// `reject_stat`: the credential was not taken.
const AUTH_ERROR: u32 = 1;

/// The client speaks another version of ONC RPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("version {0} of ONC RPC")]
pub struct WrongVersion(pub u32);

/// The word at `at`, in network order.
#[inline]
pub(crate) fn word<const N: usize>(octets: &[u8; N], at: usize) -> u32 {
    let part = octets.get(4 * at..4 * at + 4).and_then(|o| o.first_chunk());
    u32::from_be_bytes(*part.unwrap_or(&[0; 4]))
}

/// Reads the header of a call: the procedure that it names.
///
/// # Errors
/// [`WrongVersion`].
#[inline]
pub fn parse(octets: &[u8; CALL_OCTETS]) -> Result<ProcedureName, WrongVersion> {
    match word(octets, 0) {
        RPC_VERSION => Ok(ProcedureName {
            program: word(octets, 1),
            version: word(octets, 2),
            procedure: word(octets, 3),
        }),
        other => Err(WrongVersion(other)),
    }
}

/// The header of the calls of a procedure.
#[must_use]
pub fn emit(name: ProcedureName) -> [u8; CALL_OCTETS] {
    let words = [RPC_VERSION, name.program, name.version, name.procedure];
    let mut octets = [0; CALL_OCTETS];
    for (to, from) in octets.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&from.to_be_bytes());
    }
    octets
}

/// Contents of a denied reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The server speaks other versions of ONC RPC.
    RpcMismatch {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The credential was not taken: `auth_stat`.
    Auth(u32),
}

/// The longest denied reply, in words.
const DENIED_WORDS: usize = 4;

impl Denied {
    /// The whole reply, with `reply_stat`: octets, and how many of them count.
    #[must_use]
    pub fn emit(self) -> ([u8; 4 * DENIED_WORDS], usize) {
        let (words, count) = match self {
            Denied::RpcMismatch { low, high } => ([DENIED, RPC_MISMATCH, low, high], 4),
            Denied::Auth(stat) => ([DENIED, AUTH_ERROR, stat, 0], 3),
        };
        let mut octets = [0; 4 * DENIED_WORDS];
        for (to, from) in octets.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&from.to_be_bytes());
        }
        (octets, 4 * count)
    }

    /// Reads what is behind `reply_stat`, as far as it is there; `None` if it is none.
    #[must_use]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let word = |at: usize| {
            let part = octets.get(4 * at..4 * at + 4)?.first_chunk()?;
            Some(u32::from_be_bytes(*part))
        };
        match word(0)? {
            RPC_MISMATCH => Some(Denied::RpcMismatch { low: word(1)?, high: word(2)? }),
            AUTH_ERROR => Some(Denied::Auth(word(1)?)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    fn octets(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn the_header_of_a_real_call() {
        // NFS version 3 GETATTR, in Wireshark's test capture nfs.pcap, behind number and type.
        let real = octets(&[2, 0x0001_86a3, 3, 1]);
        let name = ProcedureName { program: 100_003, version: 3, procedure: 1 };
        let real: [u8; CALL_OCTETS] = real.try_into().unwrap();
        assert_eq!(parse(&real), Ok(name));
        assert_eq!(emit(name), real);
        assert_eq!(name.to_string(), "program 100003 version 3 procedure 1");
        let mut other = real;
        other[3] = 3;
        assert_eq!(parse(&other), Err(WrongVersion(3)));
    }

    #[test]
    fn refusals_as_they_are_sent() {
        let mismatch = Denied::RpcMismatch { low: 2, high: 2 };
        let too_weak = Denied::Auth(5);
        for (denied, words) in [(mismatch, &[1, 0, 2, 2][..]), (too_weak, &[1, 1, 5])] {
            let expected = octets(words);
            let (sent, count) = denied.emit();
            assert_eq!(sent[..count], expected);
            assert_eq!(Denied::parse(&expected[4..]), Some(denied));
            for len in 0..expected.len() - 4 {
                assert_eq!(Denied::parse(&expected[4..4 + len]), None, "cut to {len}");
            }
        }
        assert_eq!(Denied::parse(&octets(&[2, 0, 0])), None);
    }
}
