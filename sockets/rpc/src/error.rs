//! Why a call, a service or a stack did not come about.

use xk_core::object::{CallCause, OpenError, PushError};
use xk_run::CALLS_QUEUED_MAX;
use xk_xdr::{DecodeError, EncodeError};

/// An error, and the layer that reports it. Its text begins with the layer's name: `channel: timed
/// out after 8 tries`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{kind}", .layer.as_ref().map(|layer| format!("{layer}: ")).unwrap_or_default())]
pub struct Error {
    /// Kind of the error.
    pub kind: ErrorKind,
    /// The node of the graph that gave up, if a layer did.
    pub layer: Option<String>,
}

/// Kind of an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ErrorKind {
    /// The call brought no reply.
    #[error("{}{}", .0, hint(.0))]
    Call(CallCause),
    /// The layer below refused a session or a service.
    #[error("{0}")]
    Open(OpenError),
    /// The arguments cannot be encoded.
    #[error("the arguments: {0}")]
    Arguments(EncodeError),
    /// The reply is not of the procedure's type.
    #[error("the reply: {0}")]
    Reply(DecodeError),
    /// The stack has ended, or its process was interrupted.
    #[error("the stack has ended")]
    Ended,
    /// Too many calls are waiting.
    #[error("{} calls wait to be made: wait for some of their replies first", CALLS_QUEUED_MAX)]
    Full,
    /// The deadline is over, and the stack's thread does not say so itself: something keeps it.
    #[error(
        "timed out while the stack's thread was kept: does a service of this stack block? `Call::elsewhere` is for that"
    )]
    Stuck,
    /// The graph has mistakes, the machine lacks something that it needs, or the request does not
    /// fit the graph.
    #[error("{0}")]
    Graph(String),
}

fn hint(cause: &CallCause) -> &'static str {
    match cause {
        CallCause::Push(PushError::Unreachable) | CallCause::NobodyThere => {
            ": is the server running?"
        }
        _ => "",
    }
}

impl Error {
    /// The reason why a call brought no reply, if this is the error of a call.
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
