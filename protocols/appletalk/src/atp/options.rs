//! Options beside the data of a request or reply where these are datagrams: in BSD an `MT_CONTROL`
//! mbuf, in STREAMS the options of a `T_UNITDATA_REQ` or `T_UNITDATA_IND`. This form is xk's own;
//! it is on no wire.

use super::requester::Want;
use super::responder::Ticket;
use super::wire::ReleaseTimer;
use core::num::NonZeroU8;
use core::time::Duration;

/// Octets of the options.
pub const OPTIONS_OCTETS: usize = 12;

const EXACTLY_ONCE: u8 = 0x20;
const END_OF_MESSAGE: u8 = 0x10;

/// Role of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionKind {
    /// Down: begin a transaction. Up: execute it.
    Request,
    /// Down: the reply to a request that came up. Up: the reply to one that went down.
    Response,
    /// Up: no more is heard of a request that went down; the data are what arrived, as far as they
    /// are without a gap.
    Failed,
    /// Down: the request that came up is not executed, and may be when it comes again.
    Refused,
}

/// The options.
///
/// | octets | request down | request up | response |
/// | --- | --- | --- | --- |
/// | 0 | 1 | 1 | 2; 3 failed, up; 4 refused, down |
/// | 1 | 0x20 exactly once, low bits: release timer | as asked | down as in the request; up 0x10 EOM |
/// | 2-3 | a number of the user's, given back | the transaction | that of the request |
/// | 4-7 | user octets | user octets | user octets, of the first response |
/// | 8 | bitmap of the responses wanted | bitmap | down: as in the request; up: which arrived |
/// | 9 | how often it is sent, 0: without end | 0 | 0 |
/// | 10-11 | interval, in 100 ms; 0: 2 s | 0 | down: octets of data in a packet; 0: 578 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Role of the message.
    pub kind: OptionKind,
    /// Exactly once, with this release timer.
    pub once: Option<ReleaseTimer>,
    /// True in a response on its way up if the last packet said that it is the last.
    pub end_of_message: bool,
    /// Down in a request: the user's number, given back with the reply. Up in a request, and down
    /// in its response: the transaction.
    pub number: u16,
    /// The user octets.
    pub user: [u8; 4],
    /// The responses wanted, or those that arrived.
    pub bitmap: u8,
    /// Times that a request is sent; 0 for without end.
    pub tries: u8,
    /// The interval of a request in 100 ms, or the octets of data in a packet of the response.
    pub amount: u16,
}

/// Why octets are no options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// There are not twelve octets.
    #[error("not twelve octets")]
    Length,
    /// A kind that means nothing.
    #[error("neither request nor response")]
    Kind,
}

impl Options {
    /// A request to be executed as this says; `number` comes back with the reply.
    #[must_use]
    pub fn request(want: &Want, number: u16) -> Self {
        let tenths = u16::try_from(want.interval.as_millis() / 100).unwrap_or(u16::MAX);
        Self {
            kind: OptionKind::Request,
            once: want.once,
            end_of_message: false,
            number,
            user: want.user,
            bitmap: want.bitmap,
            tries: want.tries.map_or(0, NonZeroU8::get),
            amount: tenths.max(1),
        }
    }

    /// Options that a request on its way down asks for.
    #[must_use]
    pub fn want(&self) -> Want {
        let interval = match self.amount {
            0 => Want::DEFAULT.interval,
            tenths => Duration::from_millis(100 * u64::from(tenths)),
        };
        Want {
            once: self.once,
            user: self.user,
            bitmap: self.bitmap,
            tries: NonZeroU8::new(self.tries),
            interval,
        }
    }

    /// A request that goes up.
    #[must_use]
    pub fn asked<A>(ticket: &Ticket<A>, user: [u8; 4]) -> Self {
        Self {
            kind: OptionKind::Request,
            once: ticket.once,
            end_of_message: false,
            number: ticket.tid,
            user,
            bitmap: ticket.bitmap,
            tries: 0,
            amount: 0,
        }
    }

    /// The options of the response, from those of the request that came up.
    #[must_use]
    pub fn response(&self, user: [u8; 4]) -> Self {
        Self { kind: OptionKind::Response, user, amount: 0, ..*self }
    }

    /// Request that a response on its way down answers: that of `peer` to `socket`.
    #[must_use]
    pub fn ticket<A>(&self, peer: A, socket: u8) -> Ticket<A> {
        Ticket { peer, socket, tid: self.number, once: self.once, bitmap: self.bitmap }
    }

    /// Reads options.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn parse(octets: &[u8]) -> Result<Self, OptionsError> {
        let octets: &[u8; OPTIONS_OCTETS] = octets.try_into().map_err(|_| OptionsError::Length)?;
        let [kind, flags, n0, n1, u0, u1, u2, u3, bitmap, tries, a0, a1] = *octets;
        let kind = match kind {
            1 => OptionKind::Request,
            2 => OptionKind::Response,
            3 => OptionKind::Failed,
            4 => OptionKind::Refused,
            _ => return Err(OptionsError::Kind),
        };
        Ok(Self {
            kind,
            once: (flags & EXACTLY_ONCE != 0).then(|| ReleaseTimer::from_bits(flags)),
            end_of_message: flags & END_OF_MESSAGE != 0,
            number: u16::from_be_bytes([n0, n1]),
            user: [u0, u1, u2, u3],
            bitmap,
            tries,
            amount: u16::from_be_bytes([a0, a1]),
        })
    }

    /// Writes them.
    #[must_use]
    pub fn emit(&self) -> [u8; OPTIONS_OCTETS] {
        let kind = match self.kind {
            OptionKind::Request => 1,
            OptionKind::Response => 2,
            OptionKind::Failed => 3,
            OptionKind::Refused => 4,
        };
        let once = self.once.map_or(0, |timer| EXACTLY_ONCE | timer.bits());
        let flags = once | if self.end_of_message { END_OF_MESSAGE } else { 0 };
        let ([n0, n1], [a0, a1]) = (self.number.to_be_bytes(), self.amount.to_be_bytes());
        let [u0, u1, u2, u3] = self.user;
        [kind, flags, n0, n1, u0, u1, u2, u3, self.bitmap, self.tries, a0, a1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_are_twelve_octets_at_fixed_places() {
        let want = Want {
            once: Some(ReleaseTimer::TwoMinutes),
            user: *b"user",
            bitmap: 7,
            tries: NonZeroU8::new(5),
            interval: Duration::from_secs(2),
        };
        let options = Options::request(&want, 0x1234);
        let octets = [1, 0x22, 0x12, 0x34, b'u', b's', b'e', b'r', 7, 5, 0, 20];
        assert_eq!(options.emit(), octets);
        assert_eq!(Options::parse(&octets), Ok(options));
        assert_eq!(options.want(), want);
        for len in 0..OPTIONS_OCTETS {
            assert_eq!(Options::parse(&octets[..len]), Err(OptionsError::Length));
        }
        assert_eq!(Options::parse(&[1; 13]), Err(OptionsError::Length));
        assert_eq!(Options::parse(&[0; 12]), Err(OptionsError::Kind));
    }

    #[test]
    fn a_response_names_its_request() {
        let ticket = Ticket { peer: 9, socket: 128, tid: 77, once: None, bitmap: 3 };
        let up = Options::asked(&ticket, [1; 4]);
        let down = Options::parse(&up.response([2; 4]).emit()).unwrap();
        assert_eq!((down.kind, down.user), (OptionKind::Response, [2; 4]));
        assert_eq!(down.ticket(9, 128), ticket);
    }

    proptest! {
        #[test]
        fn what_is_read_is_read_again(octets: [u8; 12]) {
            if let Ok(options) = Options::parse(&octets) {
                prop_assert_eq!(Options::parse(&options.emit()), Ok(options));
            }
        }
    }
}
