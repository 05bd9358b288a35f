//! Frames: one operation each, in octets.
//!
//! | octet | size | field |
//! | --- | --- | --- |
//! | 0 | 1 | operation ([`Op`]) |
//! | 1 | 1 | how many attributes follow the header: 0 to 4, each a key of 4 octets and its value of 24 |
//! | 2 | 2 | 0 |
//! | 4 | 4 | first number: a session's handle or a request's tag, as the operation says |
//! | 8 | 4 | second number, as the operation says |
//! | 12 | 4 | the user that is charged for it ([`Payer::encode`]); 0 to and from one that is not trusted |
//!
//! Numbers are little-endian. Behind that come the fields of the operation, or a message's octets.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::Deref;
use xk_core::Message;
use xk_core::message::{ATTRIBUTE_OCTETS, ATTRIBUTES_MAX};
use xk_core::object::Payer;

/// Octets of the header.
pub(crate) const HEADER_OCTETS: usize = 16;
/// Room in front of a frame that comes, in octets.
pub const HEADROOM: usize = 128;
/// Octets of an attribute.
const ATTRIBUTE_ALL: usize = 4 + ATTRIBUTE_OCTETS;
/// Octets that layers may have taken off a message and not found again.
const LEFT_OFF_MAX: usize = 64;
/// The most octets that stand in front of the fields or the octets of a message.
pub(crate) const OVERHEAD_MAX: usize = HEADER_OCTETS + ATTRIBUTES_MAX * ATTRIBUTE_ALL;

/// First octet of an [`Op::Answer`], if no layer knows the question.
pub(crate) const UNKNOWN: u8 = 0;
/// The answer follows.
pub(crate) const ANSWERED: u8 = 1;
/// The question was lost.
pub(crate) const LOST_QUESTION: u8 = 2;
/// The answer follows, and is the same for as long as the session lives.
pub(crate) const LASTS: u8 = 3;

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal,)*) => {
        /// Operation of a frame. "Down" comes from the side of the upper protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Op { $($(#[doc = $doc])* $name = $number,)* }

        impl Op {
            /// The operation of this number.
            pub(crate) fn of(number: u8) -> Option<Self> {
                match number {
                    $( $number => Some(Self::$name), )*
                    _ => None,
                }
            }
        }
    };
}

operations! {
    /// Down: open. Tag, lower protocol; receiver, selector, participants.
    Open = 1,
    /// Up: what came of it. Tag, handle; an error, or the facts of the session.
    Opened = 2,
    /// Down: enable. Tag, lower protocol; receiver, selector, participants.
    Enable = 3,
    /// Up: what came of it. Tag; an error or the enable's number.
    Enabled = 4,
    /// Down: withdraw an enable. Lower protocol; receiver, the enable's number.
    Disable = 5,
    /// Up: a session was made for an enable. Handle, receiver; lower protocol, source,
    /// participants, facts.
    OpenDone = 6,
    /// Down: what was made is wanted. Handle.
    Wanted = 7,
    /// Down: what was made is not wanted. Handle; the reason.
    Unwanted = 8,
    /// Down: a session has a holder again. Handle.
    Hold = 9,
    /// Down: a session has no holder any more, and may stay as an idle one. Handle, how many opens
    /// of it were answered.
    Ease = 10,
    /// Down: the last holder released it. Handle, how many opens of it the other side has answered.
    Close = 11,
    /// Up: a session has ended. Handle.
    Gone = 12,
    /// Down: a message. Handle.
    Push = 13,
    /// Up: a message. Handle, its number.
    Demux = 14,
    /// Up: a message pushed was not taken. Handle; the error.
    Failed = 15,
    /// Down: a message that came up was refused. Handle, its number; the reason.
    Refused = 16,
    /// Down: a request of the rpc realm. Handle, tag.
    Call = 17,
    /// Up: a request of the rpc realm. Handle, tag.
    CallUp = 18,
    /// Both ways: the reply. Tag.
    Return = 19,
    /// Both ways: there is no reply. Tag; the error of a call, or the reason of a refusal.
    NoReturn = 20,
    /// Both ways: a question to a protocol. Tag (0: no answer is waited for), protocol; key, layers
    /// that passed it up, fields.
    AskProtocol = 21,
    /// Down: a question to a session. Tag (or 0), handle; as above.
    AskSession = 22,
    /// Both ways: the answer. Tag; whether it is answered, fields.
    Answer = 23,
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The operation.
    pub(crate) op: Op,
    /// The first number.
    pub(crate) first: u32,
    /// The second number.
    pub(crate) second: u32,
    /// The user that is charged for it, if one is.
    pub(crate) payer: Option<Payer>,
}

/// A header and the attributes behind it, in octets.
#[derive(Clone)]
pub(crate) struct Head {
    octets: [u8; OVERHEAD_MAX],
    len: usize,
}

impl Deref for Head {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.octets[..self.len]
    }
}

impl Header {
    /// Header of an operation with these numbers.
    pub(crate) fn new(op: Op, first: u32, second: u32) -> Self {
        Self { op, first, second, payer: None }
    }

    /// Octets in front of a message: this header, and the message's attributes.
    pub(crate) fn before(self, message: &Message) -> Head {
        let mut octets = [0; OVERHEAD_MAX];
        let places = octets[HEADER_OCTETS..].chunks_exact_mut(ATTRIBUTE_ALL);
        let mut count = 0;
        for (place, (key, value)) in places.zip(message.attributes_encoded()) {
            let (first, rest) = place.split_at_mut(4);
            first.copy_from_slice(&key.to_le_bytes());
            rest.copy_from_slice(&value);
            count += 1;
        }
        octets[0] = self.op as u8;
        octets[1] = count as u8;
        octets[4..8].copy_from_slice(&self.first.to_le_bytes());
        octets[8..12].copy_from_slice(&self.second.to_le_bytes());
        octets[12..16].copy_from_slice(&Payer::encode(self.payer));
        Head { octets, len: HEADER_OCTETS + count * ATTRIBUTE_ALL }
    }

    /// Takes the header off a frame; what is left is the fields, or the message with its
    /// attributes. `None` if it is no frame.
    pub(crate) fn take(frame: &mut Message) -> Option<Self> {
        let header = *frame.pop_array::<HEADER_OCTETS>()?;
        let [op, count, 0, 0, a, b, c, d, e, f, g, h, payer @ ..] = header else {
            return None;
        };
        let first = u32::from_le_bytes([a, b, c, d]);
        let second = u32::from_le_bytes([e, f, g, h]);
        let header = Self { op: Op::of(op)?, first, second, payer: Payer::decode(payer) };
        if usize::from(count) > ATTRIBUTES_MAX {
            return None;
        }
        frame.clear_attributes();
        for _ in 0..count {
            let attribute = *frame.pop_array::<ATTRIBUTE_ALL>()?;
            let (key, value) = attribute.split_first_chunk::<4>()?;
            frame.set_attribute_encoded(u32::from_le_bytes(*key), value.try_into().ok()?).ok()?;
        }
        Some(header)
    }

    /// The header that was taken off this message, if it is of `op` and `first` and nothing was
    /// written over it. Layers above may have taken octets off that they did not find again. The
    /// message is as it was before.
    pub(crate) fn find(message: &mut Message, op: Op, first: u32) -> Option<Self> {
        (HEADER_OCTETS..OVERHEAD_MAX + LEFT_OFF_MAX).find_map(|taken| {
            if !message.uncover(taken) {
                return None;
            }
            let header = message.peek::<HEADER_OCTETS>().copied();
            let _ = message.strip(taken);
            let [kind, attributes, 0, 0, a, b, c, d, e, f, g, h, payer @ ..] = header? else {
                return None;
            };
            let is_it = Op::of(kind) == Some(op)
                && HEADER_OCTETS + usize::from(attributes) * ATTRIBUTE_ALL <= taken
                && u32::from_le_bytes([a, b, c, d]) == first;
            let second = u32::from_le_bytes([e, f, g, h]);
            is_it.then(|| Self { op, first, second, payer: Payer::decode(payer) })
        })
    }
}

/// The octets of a message, where they lie if they lie together.
pub(crate) fn octets_of(message: &Message) -> Cow<'_, [u8]> {
    match message.single_slice() {
        Some(octets) => octets.into(),
        None => message.octets().collect::<Vec<u8>>().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::Pool;
    use xk_core::message::PoolConfig;

    #[test]
    fn a_header_is_taken_and_found_again() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for attributes in 0..=ATTRIBUTES_MAX as u32 {
            let mut body = pool.copy_from(0, b"body").unwrap();
            for key in 0..attributes {
                body.set_attribute_encoded(key, [key as u8; ATTRIBUTE_OCTETS]).unwrap();
            }
            let payer = (attributes > 0).then(|| Payer::user(attributes));
            let header = Header { payer, ..Header::new(Op::Demux, 7, u32::MAX) };
            let mut octets = header.before(&body).to_vec();
            octets.extend(b"body");
            let frame = || pool.copy_from(HEADROOM, &octets).unwrap();
            let mut taken = frame();
            assert_eq!(Header::take(&mut taken), Some(header));
            assert!(taken.eq_octets(b"body"));
            assert!(taken.attributes_encoded().eq(body.attributes_encoded()));
            assert_eq!(Header::find(&mut taken, Op::Demux, 7), Some(header));
            assert_eq!(Header::find(&mut taken, Op::Demux, 8), None);
            assert!(taken.eq_octets(b"body"));
            for end in 0..octets.len() - 4 {
                let mut cut = pool.copy_from(HEADROOM, &octets[..end]).unwrap();
                assert_eq!(Header::take(&mut cut), None, "{end} octets are no frame");
            }
            for at in 0..4 {
                octets[at] ^= 0xff;
                let mut changed = pool.copy_from(HEADROOM, &octets).unwrap();
                assert_eq!(Header::take(&mut changed), None, "octet {at}");
                octets[at] ^= 0xff;
            }
        }
    }
}
