//! Why packets are dropped, and what the codes of error replies mean.

use crate::wire::Error;
use xk_core::Reason;
use xk_core::reason::{self, Class};
use xk_kit::rpc::call;

/// The packet is of another boot of the peer than the conversation.
pub static WRONG_BOOT: Reason = Reason::new("wrong boot id", Class::NotMine);
/// A call older than the one that the channel is at, one already answered and acknowledged, or a
/// packet that was there already and asks for nothing.
pub static REPLAYED: Reason = Reason::new("replayed", Class::Bad);
/// For a channel that the host does not have.
pub static UNKNOWN_CHANNEL: Reason = Reason::new("unknown channel", Class::Bad);
/// A fragment that cannot be one, or that contradicts those before it.
pub static FORGED_FRAGMENT: Reason = Reason::new("forged fragment", Class::Bad);
/// For no call under way: late, or of no call at all.
pub static NO_CALL: Reason = Reason::new("no such call", Class::NotMine);
/// The packet answers a packet that its receiver has sent again meanwhile.
pub static LATE: Reason = Reason::new("late answer", Class::NotMine);
/// No server process was free for the request: it was told so.
pub static NO_PROCESS: Reason = Reason::new("no free process", Class::Exhausted);
/// The client has given up on the call that the process still executes, and called again.
pub static STUCK: Reason = Reason::new("stuck", Class::Exhausted);
/// A reply that no call waits for any more.
pub static SUPPRESSED: Reason = Reason::new("reply suppressed", Class::NotMine);
/// A request that stayed incomplete.
pub static INCOMPLETE: Reason = Reason::new("incomplete", Class::Exhausted);

/// The reason to count a bad packet under.
pub(crate) fn of_wire(error: Error) -> &'static Reason {
    match error {
        Error::Truncated => &reason::TRUNCATED,
        Error::Flags => &reason::MALFORMED,
        Error::TooBig => &reason::TOO_BIG,
        Error::Fragment => &FORGED_FRAGMENT,
    }
}

/// Sprite's codes, of which the header has room for the low 16 bits (rpcTypes.h), then those that
/// Sprite does not know.
const CODES: [(u16, &Reason); 10] = [
    (0x0004, &call::SYSTEM_ERROR),
    (0x0000, &call::BAD_ARGUMENTS),
    (0x0005, &call::NO_PROCEDURE),
    (0x0007, &PARAMETERS_TOO_BIG),
    (0x0008, &reason::TOO_BIG),
    (0x000b, &call::BUSY),
    (0x8000, &call::NO_PROGRAM),
    (0x8001, &call::NO_VERSION),
    (0x8002, &call::BAD_CREDENTIALS),
    (0x8003, &reason::PROHIBITED),
];

/// The code of a negative acknowledgement (Sprite's NACK_ERROR).
pub(crate) const NACK_CODE: u16 = 0x000b;

pub(crate) static PARAMETERS_TOO_BIG: Reason = Reason::new("parameters too big", Class::Bad);

/// The code by which a client is told a reason; Sprite's INTERNAL for what it would make nothing
/// of.
pub(crate) fn code_of(reason: &Reason) -> u16 {
    let found = CODES.iter().find(|(_, known)| **known == *reason);
    found.map_or(CODES[0].0, |(code, _)| *code)
}

/// The reason of a code.
pub(crate) fn reason_of(code: u16) -> &'static Reason {
    let found = CODES.iter().find(|(known, _)| *known == code);
    found.map_or(&call::SYSTEM_ERROR, |(_, reason)| reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_comes_back_as_its_reason() {
        for (code, reason) in CODES {
            assert_eq!(code_of(reason), code);
            assert_eq!(reason_of(code), reason);
        }
        assert_eq!(reason_of(0x7777), &call::SYSTEM_ERROR);
        assert_eq!(code_of(&reason::CLOSED), 4);
    }
}
