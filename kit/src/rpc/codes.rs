//! Why a call was refused, as numbers in a reply: those of the layers whose documents have none. A
//! number that a client does not know is a `system error` to it, so that others may come.

use super::call::{
    BAD_ARGUMENTS, BAD_CREDENTIALS, BUSY, NO_PROCEDURE, NO_PROGRAM, NO_VERSION, SYSTEM_ERROR,
};
use xk_core::reason::{self, Class, Reason};

/// The reasons by number, from 1 on.
static REASONS: [&Reason; 9] = [
    &NO_PROCEDURE,
    &NO_PROGRAM,
    &NO_VERSION,
    &BAD_ARGUMENTS,
    &SYSTEM_ERROR,
    &BUSY,
    &BAD_CREDENTIALS,
    &reason::NO_PROTOCOL,
    &reason::TOO_BIG,
];

/// The number for a reason; for one without, that of its kind.
#[must_use]
pub fn code_of(why: &Reason) -> u16 {
    let place = |why: &Reason| REASONS.iter().position(|known| *known == why);
    let of_class = || match why.class {
        Class::NoPort | Class::NoProtocol => place(&NO_PROCEDURE),
        Class::Exhausted => place(&BUSY),
        Class::Prohibited => place(&BAD_CREDENTIALS),
        Class::Bad | Class::NotMine => place(&SYSTEM_ERROR),
    };
    place(why).or_else(of_class).unwrap_or(0) as u16 + 1
}

/// The reason for a number.
#[must_use]
pub fn reason_of(code: u16) -> &'static Reason {
    let place = usize::from(code).wrapping_sub(1);
    REASONS.get(place).copied().unwrap_or(&SYSTEM_ERROR)
}

/// The reasons with a number in one octet, as `select` and `objinv` have them.
pub const STATUSES: [(u8, &Reason); 7] = [
    (STATUS_FAIL, &SYSTEM_ERROR),
    (3, &NO_PROCEDURE),
    (4, &BUSY),
    (5, &BAD_ARGUMENTS),
    (6, &NO_PROGRAM),
    (7, &NO_VERSION),
    (8, &BAD_CREDENTIALS),
];

/// Number of a reason that has none of its own.
pub const STATUS_FAIL: u8 = 2;

/// The number in one octet for a reason.
#[must_use]
pub fn status_of(why: &Reason) -> u8 {
    let found = STATUSES.iter().find(|(_, known)| *known == why);
    found.map_or(STATUS_FAIL, |(status, _)| *status)
}

/// The reason of a number in one octet, if it has one.
#[must_use]
pub fn reason_of_status(status: u8) -> Option<&'static Reason> {
    STATUSES.iter().find(|(known, _)| *known == status).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_survive_the_wire() {
        for why in REASONS {
            assert_eq!(*reason_of(code_of(why)), *why);
        }
        assert_eq!(*reason_of(code_of(&reason::TABLE_FULL)), BUSY);
        assert_eq!(*reason_of(code_of(&reason::NO_PORT)), NO_PROCEDURE);
        assert_eq!(*reason_of(code_of(&reason::TRUNCATED)), SYSTEM_ERROR);
        for code in [0, 10, u16::MAX] {
            assert_eq!(*reason_of(code), SYSTEM_ERROR);
        }
    }
}
