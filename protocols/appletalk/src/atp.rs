//! ATP, the AppleTalk transaction protocol (Inside AppleTalk, second edition, chapter 9): its
//! octets, and the machines of both ends.
//!
//! The machines know no clock, no I/O and no buffers. Time comes in as a [`Duration`] since any
//! epoch, the same one each time; what is to be sent comes out as [`Packet`]s, so that no borrow of
//! a machine need last while a layer below sends. Payload is kept as the shell has it, by the trait
//! [`Payload`].
//!
//! [`Duration`]: core::time::Duration

mod hosts;
mod options;
mod payload;
mod requester;
mod responder;
mod settings;
mod slots;
mod wire;

pub use options::{OPTIONS_OCTETS, OptionKind, Options, OptionsError};
pub use payload::{Packet, Payload, Peer};
pub use requester::{
    Arrived, BeginError, Begun, Due, Heard, Limits, Part, Requester, Unheard, Want, bitmap_of,
};
pub use responder::{Bounds, ReplyError, Responder, Segments, Ticket, Verdict};
pub use wire::{
    DATA_OCTETS_MAX, HEADER_OCTETS, Header, HeaderError, Kind, REPLY_OCTETS_MAX, RESPONSES_MAX,
    ReleaseTimer,
};

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
