//! Why a call, a service or a stack did not come about.

use std::fmt;
use xk_core::object::{CallCause, OpenError, PushError};
use xk_run::CALLS_QUEUED_MAX;
use xk_xdr::{DecodeError, EncodeError};

/// What went wrong, and which layer says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What went wrong.
    pub kind: ErrorKind,
    /// The node of the graph that gave up, if a layer did.
    pub layer: Option<String>,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The call brought no reply.
    Call(CallCause),
    /// A session or a service was not taken by the layer below.
    Open(OpenError),
    /// The arguments have no representation.
    Arguments(EncodeError),
    /// The reply is not what the procedure answers.
    Reply(DecodeError),
    /// The stack has ended, or its process was interrupted.
    Ended,
    /// As many calls wait to be made as may.
    Full,
    /// The deadline is over, and the stack's thread does not say so itself: something keeps it.
    Stuck,
    /// The graph has mistakes, the machine lacks what it needs, or what is asked does not fit the
    /// graph.
    Graph(String),
}

impl Error {
    /// Why the call brought no reply, if it was a call.
    pub fn cause(&self) -> Option<CallCause> {
        match self.kind {
            ErrorKind::Call(cause) => Some(cause),
            _ => None,
        }
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, layer: None }
    }
}

impl From<CallCause> for Error {
    fn from(cause: CallCause) -> Self {
        ErrorKind::Call(cause).into()
    }
}

/// The layer's name in front: `channel: timed out after 8 tries`.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = &self.layer {
            write!(f, "{layer}: ")?;
        }
        match &self.kind {
            ErrorKind::Call(
                cause @ (CallCause::Push(PushError::Unreachable) | CallCause::NobodyThere),
            ) => write!(f, "{cause}: is the server running?"),
            ErrorKind::Call(cause) => cause.fmt(f),
            ErrorKind::Open(error) => error.fmt(f),
            ErrorKind::Arguments(error) => write!(f, "the arguments: {error}"),
            ErrorKind::Reply(error) => write!(f, "the reply: {error}"),
            ErrorKind::Ended => f.write_str("the stack has ended"),
            ErrorKind::Full => write!(
                f,
                "{CALLS_QUEUED_MAX} calls wait to be made: wait for some of their replies first"
            ),
            ErrorKind::Stuck => f.write_str(
                "timed out while the stack's thread was kept: does a service of this stack block? `Call::elsewhere` is for that",
            ),
            ErrorKind::Graph(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}
