//! Frames: one operation each, in octets.
//!
//! | octet | size | field |
//! | --- | --- | --- |
//! | 0 | 1 | operation ([`Op`]) |
//! | 1 | 1 | how many attributes follow the header: 0 to 4, each a key of 4 octets and its value of 24 |
//! | 2 | 1 | how many octets stand in front of the message that were stripped on the way up |
//! | 3 | 1 | 0 |
//! | 4 | 4 | first number: a session's handle or a request's tag, as the operation says |
//! | 8 | 4 | second number, as the operation says |
//!
//! Numbers are little-endian. Behind that come the fields of the operation, or a message's octets.

use xk_core::message::{ATTRIBUTE_OCTETS, ATTRIBUTES_MAX, NoBuffers};
use xk_core::{Message, Pool};

/// Octets of the header.
pub(crate) const HEADER_OCTETS: usize = 12;
/// Room in front of a message that is made here.
pub(crate) const HEADROOM: usize = 128;
/// Octets of an attribute.
const ATTRIBUTE_ALL: usize = 4 + ATTRIBUTE_OCTETS;
/// The most octets that stand in front of the fields or the octets of a message.
pub(crate) const OVERHEAD_MAX: usize = HEADER_OCTETS + ATTRIBUTES_MAX * ATTRIBUTE_ALL;

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal,)*) => {
        /// What a frame asks for or tells. "Down" comes from the side of the upper protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Op { $($(#[doc = $doc])* $name = $number,)* }

        impl Op {
            /// That of this number.
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
    /// Up: a session was made for an enable. Handle, receiver; lower protocol, participants, facts.
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
    /// Down: the last holder let go. Handle, how many opens of it the other side has answered.
    Close = 11,
    /// Up: a session has ended. Handle.
    Gone = 12,
    /// Down: a message. Handle.
    Push = 13,
    /// Up: a message. Handle.
    Demux = 14,
    /// Up: a message pushed was not taken. Handle; the error.
    Failed = 15,
    /// Down: a message that came up was refused. Handle; the reason, its first octets.
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
    /// What it asks for or tells.
    pub(crate) op: Op,
    /// The first number.
    pub(crate) first: u32,
    /// The second number.
    pub(crate) second: u32,
    /// How many octets were stripped in front of the message.
    pub(crate) front: u8,
}

impl Header {
    /// Of an operation with these numbers.
    pub(crate) fn new(op: Op, first: u32, second: u32) -> Self {
        Self { op, first, second, front: 0 }
    }

    /// A frame of this header and these fields.
    ///
    /// # Errors
    /// [`NoBuffers`].
    pub(crate) fn frame(self, pool: &Pool, fields: &[u8]) -> Result<Message, NoBuffers> {
        let fields = pool.copy_from(OVERHEAD_MAX, fields)?;
        self.before(fields).map_err(|_| NoBuffers)
    }

    /// A frame of this header and a message, whose attributes become octets.
    ///
    /// # Errors
    /// The message without its attributes: there is no buffer for the header.
    pub(crate) fn before(self, mut message: Message) -> Result<Message, Message> {
        let mut octets = [0; OVERHEAD_MAX];
        let mut count = 0;
        for (place, (key, value)) in octets[HEADER_OCTETS..]
            .chunks_exact_mut(ATTRIBUTE_ALL)
            .zip(message.attributes_encoded())
        {
            let (first, rest) = place.split_at_mut(4);
            first.copy_from_slice(&key.to_le_bytes());
            rest.copy_from_slice(&value);
            count += 1;
        }
        octets[0] = self.op as u8;
        octets[1] = count as u8;
        octets[2] = self.front;
        octets[4..8].copy_from_slice(&self.first.to_le_bytes());
        octets[8..12].copy_from_slice(&self.second.to_le_bytes());
        message.clear_attributes();
        let len = HEADER_OCTETS + count * ATTRIBUTE_ALL;
        match message.push_header(len) {
            Ok(place) => place.copy_from_slice(&octets[..len]),
            Err(NoBuffers { .. }) => return Err(message),
        }
        Ok(message)
    }

    /// Takes the header off a frame; what is left is the fields, or the message with its
    /// attributes. `None` if it is no frame.
    pub(crate) fn take(frame: &mut Message) -> Option<Self> {
        let header = *frame.pop_array::<HEADER_OCTETS>()?;
        let [op, count, front, zero, a, b, c, d, e, f, g, h] = header;
        let header = Self {
            op: Op::of(op)?,
            first: u32::from_le_bytes([a, b, c, d]),
            second: u32::from_le_bytes([e, f, g, h]),
            front,
        };
        if zero != 0 || usize::from(count) > ATTRIBUTES_MAX {
            return None;
        }
        for _ in 0..count {
            let attribute = *frame.pop_array::<ATTRIBUTE_ALL>()?;
            let (key, value) = attribute.split_first_chunk::<4>()?;
            frame.set_attribute_encoded(u32::from_le_bytes(*key), value.try_into().ok()?).ok()?;
        }
        (usize::from(front) <= frame.len()).then_some(header)
    }
}
