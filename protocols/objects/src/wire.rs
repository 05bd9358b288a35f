//! The octets of all three protocols, in network order.
//!
//! ```text
//! front     version 1, kind, 0, 0                                    a request of `objloc`
//! ask       front, object (8)
//! answer    version 1, state, 0, 0, count (4), host (16)             to an ask
//! request   version 1, 0, operation (2), count (4), object (8)       of `objinv`
//! reply     version 1, status, 0, 0                                  an answer follows: not here
//! move      version 1, kind, 0, 0, count (4), object (8), boot (4)   a request of `objmove`
//! verdict   version 1, verdict, 0, 0
//! ```
//!
//! A host is sixteen octets, an IPv4 address behind `::ffff:`; zeros are none.

use crate::places::{Known, Place};
use xk_core::{HostAddr, Reason};
use xk_kit::rpc::call::SYSTEM_ERROR;
use xk_kit::rpc::codes::reason_of_status;

/// The only version.
pub const VERSION: u8 = 1;

xk_kit::header! {
    /// Beginning of every message.
    pub struct Front {
        /// Always [`VERSION`].
        pub version: u8,
        /// Kind of a request, status of a reply.
        pub kind: u8,
        /// Zero.
        pub zero: u16,
    }
}

/// Kind of a request of `objloc`: what follows is for the protocol above.
pub const CARRY: u8 = 0;
/// Kind of a request of `objloc`: where is the object?
pub const ASK: u8 = 1;
/// Kind of a request of `objloc`: is the object here? Another host gives no reply.
pub const ASK_HOLDER: u8 = 2;

impl Front {
    /// The front of this kind.
    #[must_use]
    pub const fn of(kind: u8) -> Self {
        Self { version: VERSION, kind, zero: 0 }
    }

    /// The kind, if it is a front.
    #[must_use]
    pub fn kind_in(octets: &[u8; Self::OCTETS]) -> Option<u8> {
        let front = Self::parse(octets);
        (front == Self::of(front.kind)).then_some(front.kind)
    }
}

xk_kit::header! {
    /// The header of an invocation.
    pub struct Request {
        /// Always [`VERSION`].
        pub version: u8,
        /// Zero.
        pub zero: u8,
        /// The operation.
        pub operation: u16,
        /// Count of the place for which the caller takes the host.
        pub count: u32,
        /// The object.
        pub eid: u64,
    }
}

/// Status of a reply: the operation was executed, and its results follow.
pub const EXECUTED: u8 = 0;
/// Status of a reply: not executed, for the object is elsewhere; an answer follows.
pub const ELSEWHERE: u8 = 1;
/// The reason of a status above [`ELSEWHERE`].
#[must_use]
pub fn reason_of(status: u8) -> &'static Reason {
    reason_of_status(status).unwrap_or(&SYSTEM_ERROR)
}

xk_kit::header! {
    /// A question for an object.
    pub struct Question {
        /// Always [`VERSION`].
        pub version: u8,
        /// [`ASK`] or [`ASK_HOLDER`].
        pub kind: u8,
        /// Zero.
        pub zero: u16,
        /// The object.
        pub eid: u64,
    }
}

xk_kit::header! {
    /// An answer: what a host knows of an object.
    pub struct Told {
        /// Always [`VERSION`].
        pub version: u8,
        /// Knowledge: none, here, coming, away.
        pub state: u8,
        /// Zero.
        pub zero: u16,
        /// Count of the place.
        pub count: u32,
        /// The host where the object is, if it is away.
        pub host: u128,
    }
}

impl Told {
    /// The answer that says this.
    #[must_use]
    pub fn of(known: Known) -> Self {
        let (state, Place { host, count }) = match known {
            Known::Nothing => (0, Place::default()),
            Known::Here(place) => (1, Place { host: HostAddr::UNSPECIFIED, ..place }),
            Known::Coming(place) => (2, Place { host: HostAddr::UNSPECIFIED, ..place }),
            Known::Away(place) => (3, place),
        };
        let host = u128::from_be_bytes(host.to_parts().0);
        Self { version: VERSION, state, zero: 0, count, host }
    }

    /// The knowledge of the host `from`; `None` if it is no answer.
    #[must_use]
    pub fn known(self, from: HostAddr) -> Option<Known> {
        let Self { version: VERSION, state, zero: 0, count, host } = self else { return None };
        let host = HostAddr::from_parts((host.to_be_bytes(), 0));
        match state {
            0 => Some(Known::Nothing),
            1 => Some(Known::Here(Place { host: from, count })),
            2 => Some(Known::Coming(Place { host: from, count })),
            3 if !host.is_unspecified() && !host.is_group() => {
                Some(Known::Away(Place { host, count }))
            }
            _ => None,
        }
    }
}

xk_kit::header! {
    /// The header of a request about a move.
    pub struct Moving {
        /// Always [`VERSION`].
        pub version: u8,
        /// Kind of the request.
        pub kind: u8,
        /// Zero.
        pub zero: u16,
        /// Count of the new place.
        pub count: u32,
        /// The object.
        pub eid: u64,
        /// The run of the host that the object leaves.
        pub boot: u32,
    }
}

/// Kind of a request about a move: keep this object, whose image follows, but do not use it yet.
pub const OFFER: u8 = 1;
/// Kind of a request about a move: the object is yours.
pub const TAKE: u8 = 2;
/// Kind of a request about a move: is the object mine?
pub const WHOSE: u8 = 3;

/// Verdict: yes; what was asked for is done, or the object is the asker's.
pub const YES: u8 = 0;
/// Verdict: no.
pub const NO: u8 = 1;
/// Verdict: not yet known.
pub const LATER: u8 = 2;
/// Verdict: the host has been started again since, and does not know.
pub const FORGOTTEN: u8 = 3;

impl Moving {
    /// A request of this kind about the move of an object to a place with this count.
    #[must_use]
    pub const fn of(kind: u8, (eid, count): (u64, u32), boot: u32) -> Self {
        Self { version: VERSION, kind, zero: 0, count, eid, boot }
    }
}

#[cfg(test)]
mod tests;
