//! Why packets are dropped, and what the codes of responses mean.

use crate::wire::{Error, code};
use xk_core::Reason;
use xk_core::reason::{self, Class};
use xk_kit::rpc::call;

/// For a client or a server that this host does not have.
pub static NO_ENTITY: Reason = Reason::new("no such entity", Class::NoProtocol);
/// Blocks that are not in the packet, that the segment does not have, or that contradict others.
pub static FORGED_DELIVERY: Reason = Reason::new("forged delivery mask", Class::Bad);
/// A request older than the current one, or one that asks for nothing and was there already.
pub static REPLAYED: Reason = Reason::new("replayed transaction", Class::NotMine);
/// A response or a notice for a transaction that is over, or never was.
pub static NO_TRANSACTION: Reason = Reason::new("stray transaction", Class::NotMine);
/// A response of a server that has answered, or of one too many.
pub static LATE: Reason = Reason::new("one response too many", Class::NotMine);
/// A request that was forwarded as often as may be.
pub static LOOPED: Reason = Reason::new("forwarded too often", Class::Prohibited);
/// Part of a secure transaction, which is not supported.
pub static SECURE: Reason = Reason::new("security not supported", Class::Prohibited);
/// A request for which there is no record to be had.
pub static NO_RECORD: Reason = Reason::new("no free record", Class::Exhausted);
/// A request whose client says that it is not its current one, or says nothing.
pub static UNVERIFIED: Reason = Reason::new("not the client's transaction", Class::Bad);
/// A request that stayed incomplete.
pub static UNFINISHED: Reason = Reason::new("unfinished request", Class::Exhausted);
/// A response of a transaction that its client has given up.
pub static ABORTED: Reason = Reason::new("transaction aborted", Class::NotMine);
/// An operation of the manager that is not known here.
pub static UNKNOWN_OPERATION: Reason = Reason::new("unknown operation", Class::NotMine);
/// The message is too long for the other side: it takes one packet group.
pub static NO_STREAM: Reason = Reason::new("streaming not supported", Class::Prohibited);

/// The reason to count a bad packet under.
pub(crate) fn of_wire(error: Error) -> &'static Reason {
    match error {
        Error::Version => &reason::NOT_SUPPORTED,
        Error::Length => &reason::BAD_LENGTH,
        Error::Checksum => &reason::BAD_CHECKSUM,
        Error::Reserved => &reason::MALFORMED,
        Error::Delivery => &FORGED_DELIVERY,
    }
}

/// Response codes and what they mean to a caller.
const CODES: [(u32, &Reason); 13] = [
    (code::USER, &call::SYSTEM_ERROR),
    (code::BUSY, &call::BUSY),
    (code::NONEXISTENT_ENTITY, &NO_ENTITY),
    (code::SECURITY_NOT_SUPPORTED, &SECURE),
    (code::STREAMING_NOT_SUPPORTED, &NO_STREAM),
    (code::USER + 1, &call::NO_PROCEDURE),
    (code::USER + 2, &call::BAD_ARGUMENTS),
    (code::USER + 3, &call::NO_PROGRAM),
    (code::USER + 4, &call::NO_VERSION),
    (code::USER + 5, &call::BAD_CREDENTIALS),
    (code::USER + 6, &reason::TOO_BIG),
    (code::USER + 7, &reason::PROHIBITED),
    (code::USER + 8, &LOOPED),
];

/// The code by which a client is told a reason.
pub(crate) fn code_of(reason: &Reason) -> u32 {
    let found = CODES.iter().find(|(_, known)| **known == *reason);
    found.map_or(code::USER, |(code, _)| *code)
}

/// The reason of a code.
pub(crate) fn reason_of(code: u32) -> &'static Reason {
    let found = CODES.iter().find(|(known, _)| *known == code);
    found.map_or(&call::SYSTEM_ERROR, |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_comes_back_as_its_reason() {
        for (code, reason) in CODES {
            assert_eq!((code_of(reason), reason_of(code)), (code, reason));
        }
        assert_eq!(reason_of(0x77), &call::SYSTEM_ERROR);
        assert_eq!(code_of(&reason::CLOSED), code::USER);
    }
}
