//! Errors of operations.

use super::ProtocolId;
use crate::kernel::Kernel;
use crate::map::BindError;
use crate::message::{Message, NoBuffers};
use crate::participant::AddressError;
use crate::reason::Reason;
use crate::shepherd::WaitError;
use alloc::format;
use alloc::string::{String, ToString};
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

/// Outcome of a message that is handed up.
pub type Popped = Result<(), Refused>;
/// Outcome of a request that is handed up.
pub type Served = Result<Message, Refused>;

impl Refused {
    /// A refusal that is already counted, or that the caller counts.
    #[cold]
    pub fn new(message: Message, reason: &'static Reason) -> Self {
        Self { message, reason }
    }

    /// Puts a header back in front of the message, for the layer below to quote. Without a buffer
    /// for it the refusal goes on all the same; the pool has counted that.
    #[cold]
    pub fn quoting<const N: usize>(mut self, header: &[u8; N]) -> Self {
        let _ = self.message.push_array(header);
        self
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: {}", self.reason)
    }
}

/// Why a session did not take a message for sending. The message is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The session is closed.
    #[error("the session is closed")]
    Closed,
    /// Larger than the session carries: the question `max-packet` tells how much it does.
    #[error("the message is larger than the session carries")]
    TooBig,
    /// The pool has no buffer left within its bound.
    #[error("no buffers left")]
    NoBuffers,
    /// A queue below is full; later may do.
    #[error("a queue below is full")]
    QueueFull,
    /// No way to the peer.
    #[error("no route to the peer")]
    NoRoute,
    /// The peer does not answer or refuses (reported by the network, or address resolution failed).
    #[error("the peer is unreachable")]
    Unreachable,
    /// This session takes no messages this way, or lacks the destination.
    #[error("the session takes no messages this way")]
    NotSupported,
}

impl PushError {
    /// A later repetition would fare no better.
    pub fn is_final(self) -> bool {
        match self {
            Self::Closed | Self::TooBig | Self::Unreachable | Self::NotSupported => true,
            Self::NoBuffers | Self::QueueFull | Self::NoRoute => false,
        }
    }
}

/// Cause for which the layer that waited for a reply got none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallCause {
    /// The session was closed, before or during the call.
    #[error("the session was closed")]
    Closed,
    /// The caller took it back.
    #[error("the call was cancelled")]
    Cancelled,
    /// No sign of life from the peer, or no reply before the call's deadline.
    #[error("timed out {}", tried(*tries))]
    TimedOut {
        /// Times that the request was sent.
        tries: u32,
    },
    /// The peer has rebooted since the request was sent: whether it was executed is not known.
    #[error("the server has rebooted; the call may have been executed")]
    Rebooted,
    /// The peer refused the call; it was not executed, or not to its end.
    #[error("the peer refused the call: {}{}", .0.reason, supported(.0.versions))]
    Rejected(Rejection),
    /// The octets that came as a reply are none.
    #[error("the reply is malformed")]
    BadReply,
    /// The bound on shepherds is reached, or the caller runs on none.
    #[error("no shepherd left to wait")]
    NoShepherds,
    /// The request could not be sent.
    #[error("the request was not sent: {0}")]
    Push(PushError),
    /// The network says that nothing takes requests there: the peer's port is unreachable, or
    /// refuses streams. The request was not executed when it was sent last.
    #[error("nobody takes calls there: the port is unreachable")]
    NobodyThere,
    /// This session is not of the rpc realm.
    #[error("the session takes no calls")]
    NotSupported,
}

fn tried(tries: u32) -> String {
    match tries {
        0 => "before the request was sent".into(),
        1 => "after 1 try".into(),
        _ => format!("after {tries} tries"),
    }
}

fn supported(versions: Option<(u32, u32)>) -> String {
    let all = versions.map(|(low, high)| format!(" (it has versions {low} to {high})"));
    all.unwrap_or_default()
}

/// Refusal of a call by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Why.
    pub reason: &'static Reason,
    /// The lowest and the highest that it supports, where a version is wrong.
    pub versions: Option<(u32, u32)>,
}

impl Rejection {
    /// A refusal for this reason.
    pub fn new(reason: &'static Reason) -> Self {
        Self { reason, versions: None }
    }
}

/// Why a call brought no reply, and which layer says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct CallError {
    /// Why.
    pub cause: CallCause,
    /// The protocol that gave up. [`SessionRef::call`](super::SessionRef::call) fills it in on the
    /// way up.
    pub layer: Option<ProtocolId>,
}

impl CallError {
    /// This error, with `layer` as the protocol that says so, unless one below has said so.
    #[cold]
    #[must_use]
    pub fn at(self, layer: ProtocolId) -> Self {
        Self { layer: self.layer.or(Some(layer)), ..self }
    }

    /// A refusal by the peer.
    pub fn rejected(reason: &'static Reason) -> Self {
        CallCause::Rejected(Rejection::new(reason)).into()
    }

    /// The error with the layer's name in front: `channel: timed out after 8 tries`.
    pub fn describe(&self, cx: &Kernel) -> String {
        match self.layer.and_then(|layer| cx.name_of(layer)) {
            Some(layer) => format!("{layer}: {}", self.cause),
            None => self.cause.to_string(),
        }
    }
}

impl From<CallCause> for CallError {
    fn from(cause: CallCause) -> Self {
        Self { cause, layer: None }
    }
}

impl From<PushError> for CallError {
    fn from(error: PushError) -> Self {
        CallCause::Push(error).into()
    }
}

impl From<NoBuffers> for CallError {
    fn from(_: NoBuffers) -> Self {
        PushError::NoBuffers.into()
    }
}

impl From<WaitError> for CallError {
    /// Cause of a wait that ended without its signal; a timeout, for a layer that does not count
    /// its tries.
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::TimedOut => CallCause::TimedOut { tries: 1 },
            WaitError::Interrupted => CallCause::Cancelled,
            WaitError::Closed => CallCause::Closed,
            WaitError::NoShepherds | WaitError::NotOnShepherd => CallCause::NoShepherds,
        }
        .into()
    }
}

/// Why a session or an enable was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The protocol does not offer this operation.
    #[error("the protocol does not offer this operation")]
    NotSupported,
    /// A participant does not fit.
    #[error("{0}")]
    Address(#[from] AddressError),
    /// The number table has no number for the upper protocol on this lower one.
    #[error("no type number for this upper protocol")]
    NoTypeNumber,
    /// The participants are taken by another.
    #[error("the participants are in use")]
    InUse,
    /// No way to the peer.
    #[error("no route to the peer")]
    NoRoute,
    /// A bound is reached: sessions, enables, ports or timers.
    #[error("a bound is reached")]
    Full,
    /// The protocol lacks something it needs below.
    #[error("a lower protocol is missing")]
    NoLower,
    /// The pool has no buffer left within its bound.
    #[error("no buffers left")]
    NoBuffers,
    /// The operation was not granted to the upper protocol, which lies in another address space.
    #[error("it is not granted")]
    NotPermitted,
    /// A question on which it depends was lost; later may do.
    #[error("a question to a layer below was lost; try again")]
    NoAnswer,
}

/// Error of a push for which a session below had to be opened first.
impl From<OpenError> for PushError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NoBuffers => Self::NoBuffers,
            OpenError::Full => Self::QueueFull,
            _ => Self::NoRoute,
        }
    }
}

/// Error of a push that is a call below.
impl From<CallCause> for PushError {
    fn from(cause: CallCause) -> Self {
        match cause {
            CallCause::Push(error) => error,
            CallCause::Closed | CallCause::Cancelled => Self::Closed,
            CallCause::NoShepherds => Self::QueueFull,
            CallCause::NotSupported => Self::NotSupported,
            CallCause::TimedOut { .. }
            | CallCause::Rebooted
            | CallCause::Rejected(_)
            | CallCause::NobodyThere
            | CallCause::BadReply => Self::Unreachable,
        }
    }
}

impl From<BindError> for OpenError {
    fn from(error: BindError) -> Self {
        match error {
            BindError::Exists => Self::InUse,
            BindError::Full => Self::Full,
        }
    }
}
