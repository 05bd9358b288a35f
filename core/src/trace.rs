//! Trace points: which object handed which message to which. One predictable branch when off.

use crate::kernel::Kernel;
use crate::message::Message;
use crate::object::{ProtocolId, ProtocolRef, SessionId, SessionRef};
use alloc::boxed::Box;

/// Operation of the uniform interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A message goes down into a session.
    Push,
    /// A request goes down into a session.
    Call,
    /// A message goes up into a session.
    Pop,
    /// A message goes up to a protocol.
    Demux,
    /// A request goes up to a protocol.
    CallDemux,
    /// A request goes up into a session.
    CallPop,
}

impl Operation {
    /// The operation's name.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Push => "push",
            Operation::Call => "call",
            Operation::Pop => "pop",
            Operation::Demux => "demux",
            Operation::CallDemux => "call_demux",
            Operation::CallPop => "call_pop",
        }
    }

    /// True for operations that move a message towards the wire.
    pub fn is_down(self) -> bool {
        matches!(self, Operation::Push | Operation::Call)
    }
}

/// A crossing of the edge between two protocols.
#[derive(Clone, Copy, Debug)]
pub struct Crossing<'a> {
    /// The operation.
    pub operation: Operation,
    /// The protocol above the edge.
    pub upper: ProtocolId,
    /// The protocol below the edge.
    pub lower: ProtocolId,
    /// The lower protocol's session.
    pub session: SessionId,
    /// The message.
    pub message: &'a Message,
}

/// Function of a [`PassiveOpens`], which gets the protocol above and the session.
type Told = dyn Fn(&Kernel, &ProtocolRef, &SessionRef);

/// A function that is told of each session that a message from outside has opened, once the
/// protocol above has taken it. The kernel's executor puts it beside the kernel.
pub struct PassiveOpens(pub Box<Told>);

/// Looks on. Set with [`Kernel::set_observer`](crate::kernel::Kernel::set_observer).
pub trait Observer {
    /// An operation begins. What it answers is handed to `leave`.
    fn enter(&self, crossing: Crossing<'_>) -> u64;

    /// The operation that `enter` gave this number to has ended.
    fn leave(&self, span: u64);
}
