//! The header: call or reply, which procedure, and how a call ended.
//!
//! ```text
//!  0        1        2        3        4        5
//! +--------+--------+--------+--------+--------+--------+
//! |  type  |  hops  |     command     | status |   0    |
//! +--------+--------+--------+--------+--------+--------+
//! ```
//!
//! "RPC in the x-Kernel", appendix, names the fields and says nothing of their values; octets 1 and
//! 5 are the compiler's padding there. Octet 1 of a call counts how often it was forwarded, which
//! is 0 for all that do not forward.

use xk_core::Reason;
use xk_core::reason::Class;
use xk_kit::rpc::codes::reason_of_status;

/// Octets of the header.
pub const HEADER_OCTETS: usize = 6;

/// The peer's status has no meaning here.
pub static STATUS_UNKNOWN: Reason = Reason::new("refused with an unknown status", Class::Exhausted);

/// Whether a message asks or answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Type {
    /// A request.
    Call = 1,
    /// The result of a call.
    Reply = 2,
}

/// Status of a call: it has none yet.
pub const STATUS_NONE: u8 = 0;
/// Status of a reply: the procedure was executed.
pub const STATUS_OK: u8 = 1;
/// Why a call was refused, by the status of its reply, which is not [`STATUS_OK`].
pub fn reason_of(status: u8) -> &'static Reason {
    reason_of_status(status).unwrap_or(&STATUS_UNKNOWN)
}

/// The header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether it asks or answers.
    pub kind: Type,
    /// Times that the call was forwarded.
    pub hops: u8,
    /// The procedure.
    pub command: u16,
    /// Result of the call.
    pub status: u8,
}

/// Octets that are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The type is neither of the two.
    Type,
    /// A call that has ended, or a reply to one that has not.
    Status,
}

impl Header {
    /// The header of a call.
    pub const fn call(command: u16) -> Self {
        Self { kind: Type::Call, hops: 0, command, status: STATUS_NONE }
    }

    /// The header of a reply.
    pub const fn reply(command: u16, status: u8) -> Self {
        Self { kind: Type::Reply, hops: 0, command, status }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`ParseError`].
    #[inline]
    pub fn parse(octets: &[u8; HEADER_OCTETS]) -> Result<Self, ParseError> {
        let [kind, hops, high, low, status, _] = *octets;
        let kind = match kind {
            1 => Type::Call,
            2 => Type::Reply,
            _ => return Err(ParseError::Type),
        };
        if (kind == Type::Call) != (status == STATUS_NONE) {
            return Err(ParseError::Status);
        }
        Ok(Self { kind, hops, command: u16::from_be_bytes([high, low]), status })
    }

    /// Writes the header.
    #[inline]
    pub const fn emit(self) -> [u8; HEADER_OCTETS] {
        let [high, low] = self.command.to_be_bytes();
        [self.kind as u8, self.hops, high, low, self.status, 0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xk_kit::rpc::codes::{STATUS_FAIL, STATUSES, status_of};

    #[test]
    fn a_null_call_and_its_replies() {
        // The end of the whole null call that the sheet derives from "RPC in the x-Kernel",
        // appendix: command 3.
        let call = [1, 0, 0, 3, 0, 0];
        assert_eq!(Header::parse(&call), Ok(Header::call(3)));
        assert_eq!(Header::call(3).emit(), call);
        assert_eq!(Header::reply(3, STATUS_OK).emit(), [2, 0, 0, 3, 1, 0]);
        assert_eq!(Header::parse(&[2, 0, 1, 0, 3, 0]), Ok(Header::reply(256, 3)));
    }

    #[test]
    fn what_is_none_is_told() {
        assert_eq!(Header::parse(&[0; 6]), Err(ParseError::Type));
        assert_eq!(Header::parse(&[3, 0, 0, 0, 1, 0]), Err(ParseError::Type));
        assert_eq!(Header::parse(&[1, 0, 0, 0, 1, 0]), Err(ParseError::Status));
        assert_eq!(Header::parse(&[2, 0, 0, 0, 0, 0]), Err(ParseError::Status));
    }

    #[test]
    fn a_reason_goes_as_a_status_and_comes_back() {
        for (status, reason) in STATUSES {
            assert_eq!(status_of(reason), status);
            assert_eq!(*reason_of(status), *reason);
        }
        assert_eq!(status_of(&xk_core::reason::TABLE_FULL), STATUS_FAIL);
        assert_eq!(*reason_of(200), STATUS_UNKNOWN);
    }

    proptest! {
        #[test]
        fn what_parses_comes_out_again(octets: [u8; HEADER_OCTETS]) {
            if let Ok(header) = Header::parse(&octets) {
                prop_assert_eq!(header.emit()[..5].to_vec(), octets[..5].to_vec());
                prop_assert_eq!(Header::parse(&header.emit()), Ok(header));
            }
        }
    }
}
