//! The header: 16 octets in network order.

use xk_core::reason::{self, Reason};

xk_kit::header! {
    /// The header.
    pub struct Header {
        /// [`CALL`], [`REPLY`] or [`REMINDER`].
        pub kind: u8,
        /// Zero.
        pub zero: u8,
        /// Why the call was refused that this is the reply to, by
        /// [`code_of`](xk_kit::rpc::codes::code_of); 0 if it was not.
        pub why: u16,
        /// Number of the call among those of its caller.
        pub call: u32,
        /// Number of the procedure.
        pub procedure: u32,
        /// Number of the first call of this caller that is not over; 0 in a reply.
        pub first: u32,
    }
}

/// Octets of the header.
pub const HEADER_OCTETS: usize = Header::OCTETS;

/// A request, which goes to all members in the order of the conversation.
pub const CALL: u8 = 1;
/// A reply, which goes to the caller, aside.
pub const REPLY: u8 = 2;
/// A caller lacks the reply of the member that it goes to, aside.
pub const REMINDER: u8 = 3;

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// [`reason::MALFORMED`].
    pub fn read(octets: &[u8; HEADER_OCTETS]) -> Result<Self, &'static Reason> {
        let header = Self::parse(octets);
        let is_sound = header.zero == 0
            && match header.kind {
                // No more calls may be under way than numbers tell apart.
                CALL | REMINDER => header.why == 0 && !is_before(header.call, header.first),
                REPLY => header.first == 0,
                _ => false,
            };
        is_sound.then_some(header).ok_or(&reason::MALFORMED)
    }
}

/// Whether a call began before another, by their numbers, which wrap.
pub(crate) const fn is_before(call: u32, other: u32) -> bool {
    call.wrapping_sub(other) > u32::MAX / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn real_octets() {
        let header = Header { kind: CALL, zero: 0, why: 0, call: 7, procedure: 3, first: 5 };
        let octets = [1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 5];
        assert_eq!((header.emit(), Header::read(&octets)), (octets, Ok(header)));
        for (at, octet) in [(0, 0), (0, 4), (1, 1), (3, 1), (15, 8), (0, REPLY)] {
            let mut other = octets;
            other[at] = octet;
            assert_eq!(Header::read(&other), Err(&reason::MALFORMED), "octet {at}");
        }
        assert!(is_before(u32::MAX, 0) && !is_before(0, 0) && !is_before(1, u32::MAX));
    }

    proptest! {
        #[test]
        fn what_is_read_comes_out_again(octets: [u8; HEADER_OCTETS]) {
            if let Ok(header) = Header::read(&octets) {
                prop_assert_eq!(header.emit(), octets);
            }
        }
    }
}
