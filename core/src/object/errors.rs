//! What an operation can answer besides success.

use crate::map::BindError;
use crate::message::Message;
use crate::participant::AddressError;
use crate::reason::Reason;
use core::fmt;

/// A message that was not taken, given back with the reason, so that the layer below can decide
/// whether its sender is to be told.
#[must_use]
pub struct Refused {
    /// The message, as it was handed over or less headers already stripped.
    pub message: Message,
    /// Why.
    pub reason: &'static Reason,
}

impl Refused {
    /// A refusal that is already counted, or that the caller counts.
    #[cold]
    pub fn new(message: Message, reason: &'static Reason) -> Self {
        Self { message, reason }
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: {}", self.reason)
    }
}

/// Why a session did not take a message for sending. The message is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The session is closed.
    Closed,
    /// Larger than the session carries; `max` octets would go.
    TooBig {
        /// The largest message, in octets.
        max: u32,
    },
    /// The pool has no buffer left within its bound.
    NoBuffers,
    /// A queue below is full; later may do.
    QueueFull,
    /// No way to the peer.
    NoRoute,
    /// The peer does not answer or refuses (reported by the network, or address resolution failed).
    Unreachable,
    /// This session takes no messages this way, or lacks the destination.
    NotSupported,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the session is closed"),
            Self::TooBig { max } => write!(f, "the message is larger than {max} octets"),
            Self::NoBuffers => f.write_str("no buffers left"),
            Self::QueueFull => f.write_str("a queue below is full"),
            Self::NoRoute => f.write_str("no route to the peer"),
            Self::Unreachable => f.write_str("the peer is unreachable"),
            Self::NotSupported => f.write_str("the session takes no messages this way"),
        }
    }
}

impl core::error::Error for PushError {}

/// Why a call brought no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The session was closed, before or during the call.
    Closed,
    /// No reply in time.
    TimedOut,
    /// The peer refused the call.
    Rejected,
    /// The bound on shepherds is reached, or the caller runs on none.
    NoShepherds,
    /// The request could not be sent.
    Push(PushError),
    /// This session is not of the rpc realm.
    NotSupported,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the session was closed"),
            Self::TimedOut => f.write_str("no reply in time"),
            Self::Rejected => f.write_str("the peer refused the call"),
            Self::NoShepherds => f.write_str("no shepherd left to wait"),
            Self::Push(e) => write!(f, "the request was not sent: {e}"),
            Self::NotSupported => f.write_str("the session takes no calls"),
        }
    }
}

impl core::error::Error for CallError {}

/// Why a session or an enable was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The protocol does not offer this operation.
    NotSupported,
    /// A participant does not fit.
    Address(AddressError),
    /// The number table has no number for the upper protocol on this lower one.
    NoTypeNumber,
    /// The participants are taken by somebody else.
    InUse,
    /// No way to the peer.
    NoRoute,
    /// A bound is reached: sessions, enables, ports or timers.
    Full,
    /// The protocol lacks something it needs below.
    NoLower,
    /// The pool has no buffer left within its bound.
    NoBuffers,
}

impl From<BindError> for OpenError {
    fn from(error: BindError) -> Self {
        match error {
            BindError::Exists => Self::InUse,
            BindError::Full => Self::Full,
        }
    }
}

impl From<AddressError> for OpenError {
    fn from(error: AddressError) -> Self {
        Self::Address(error)
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSupported => f.write_str("the protocol does not offer this operation"),
            Self::Address(e) => e.fmt(f),
            Self::NoTypeNumber => f.write_str("no type number for this upper protocol"),
            Self::InUse => f.write_str("the participants are in use"),
            Self::NoRoute => f.write_str("no route to the peer"),
            Self::Full => f.write_str("a bound is reached"),
            Self::NoLower => f.write_str("a lower protocol is missing"),
            Self::NoBuffers => f.write_str("no buffers left"),
        }
    }
}

impl core::error::Error for OpenError {}
