//! Echo (Inside AppleTalk, chapter 6): one octet, then what comes back unchanged.

/// Octets in front of the data.
pub const HEADER_LEN: usize = 1;
/// Octets of data at most.
pub const DATA_LEN_MAX: usize = crate::ddp::DATA_LEN_MAX - HEADER_LEN;

/// Function of an echo packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// To be sent back.
    Request = 1,
    /// Sent back.
    Reply = 2,
}

/// Error of an echo packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing is in it.
    #[error("shorter than its header")]
    Truncated,
    /// Neither request nor reply.
    #[error("function {0}")]
    Function(u8),
}

impl Function {
    /// Reads the first octet.
    ///
    /// # Errors
    /// [`Error::Function`].
    pub const fn parse(octet: u8) -> Result<Self, Error> {
        match octet {
            1 => Ok(Self::Request),
            2 => Ok(Self::Reply),
            other => Err(Error::Function(other)),
        }
    }
}

/// Splits a packet into its function and what is echoed.
///
/// # Errors
/// [`Error`].
pub fn split(octets: &[u8]) -> Result<(Function, &[u8]), Error> {
    let (first, data) = octets.split_first().ok_or(Error::Truncated)?;
    Ok((Function::parse(*first)?, data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::hex;

    #[test]
    fn packets() {
        assert_eq!(split(&hex("01 70696e67")), Ok((Function::Request, &b"ping"[..])));
        assert_eq!(split(&hex("02 70696e672d6c74")), Ok((Function::Reply, &b"ping-lt"[..])));
        assert_eq!(split(&[2]), Ok((Function::Reply, &[][..])));
        assert_eq!(split(&[]), Err(Error::Truncated));
        for octet in (0..=255).filter(|octet| !(1..=2).contains(octet)) {
            assert_eq!(split(&[octet, 1]), Err(Error::Function(octet)));
        }
        let both = [Function::Request, Function::Reply];
        assert!(both.iter().all(|function| Function::parse(*function as u8) == Ok(*function)));
    }
}
