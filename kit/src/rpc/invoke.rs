//! Operations on virtual machines, as programs in SR have them: invoked by call or by send,
//! executed at once or when a guard permits, answered early, or forwarded. `sr` answers these
//! questions; the protocols above it ask them, and answer [`Guard`].
//!
//! An operation is a procedure of the rpc realm, and a request without [`Invocation`] is a call.

use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing};
use xk_core::participant::Label;
use xk_core::question;

/// Label of the number of a virtual machine.
pub const MACHINE: Label = Label::new("vm");

/// Way in which an operation is invoked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// The caller waits for the reply.
    #[default]
    Call = 1,
    /// The caller goes on once the invocation is queued. The reply is dropped.
    Send = 2,
    /// A call, one of several that a process makes at one time.
    CoCall = 3,
    /// A send, one of several that a process makes at one time.
    CoSend = 4,
}

impl Manner {
    /// The manner with this number on the wire.
    #[must_use]
    pub fn of(number: u8) -> Option<Self> {
        [Self::Call, Self::Send, Self::CoCall, Self::CoSend]
            .into_iter()
            .find(|manner| *manner as u8 == number)
    }

    /// Whether a reply is waited for.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(self, Self::Call | Self::CoCall)
    }
}

/// An invocation. On the way up an attribute of each request: the manner, and a number that no
/// other invocation has which is being executed here. On the way down an attribute
///
/// - of a request with number 0, for its manner; the reply to a send is empty;
/// - of a request with the number of an invocation: that one is forwarded, and the caller gets its
///   reply from the operation that is called. The reply to the request is empty, and what the
///   server replies later is dropped;
/// - of a message that a server pushes to the session that the invocation came from: the reply,
///   before the operation is at its end. What it replies at its end is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invocation {
    /// Manner of the invocation.
    pub manner: Manner,
    /// Number of the invocation, or 0.
    pub number: u32,
}

impl Attribute for Invocation {
    const KEY: u32 = xk_core::name_key("invocation");
    const CROSSES: Crossing = Crossing::BOTH;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[..4].copy_from_slice(&self.number.to_be_bytes());
        octets[4] = self.manner as u8;
        octets
    }

    fn decode([a, b, c, d, manner, ..]: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let manner = Manner::of(manner).unwrap_or_default();
        Self { manner, number: u32::from_be_bytes([a, b, c, d]) }
    }
}

/// Asked upwards, of the protocol that serves an operation: may this invocation be executed now,
/// and before which others? One that does not answer executes all invocations as they come. The
/// question must change nothing, for it may be asked again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The operation.
    pub operation: u32,
    /// The first octets of the arguments; zeros behind their end.
    pub arguments: [u8; 16],
    /// Octets of the arguments.
    pub octets: u32,
    /// Out: whether it may be executed now (SR's `st`).
    pub may: bool,
    /// Out: its rank (SR's `by`): of those that may, the one with the smallest is executed first,
    /// and of equal ones the oldest.
    pub by: i64,
}

question!(Guard { operation, arguments, octets, may, by }, "guard", Ask, upward);

/// Told by a protocol above: its guards may permit what they did not, for a reason other than the
/// end of an operation, after which they are asked anyway.
#[derive(Clone, Copy, Debug, Default)]
pub struct AskGuards;

question!(AskGuards {}, "ask-guards", Tell);

/// Told by a protocol above: one of its processes begins or ends. A program is idle only if each
/// process that has begun waits for a reply.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessRuns {
    /// Whether it begins.
    pub begins: bool,
}

question!(ProcessRuns { begins }, "process-runs", Tell);

/// Asked by a protocol above: has the program ended, on all its machines, since nothing in it could
/// go on?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramEnded {
    /// Out: whether it has.
    pub has_ended: bool,
}

question!(ProgramEnded { has_ended }, "program-ended", Ask);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invocation_survives_another_address_space() {
        for manner in [Manner::Call, Manner::Send, Manner::CoCall, Manner::CoSend] {
            let invocation = Invocation { manner, number: 0x0102_0304 };
            assert_eq!(Invocation::decode(invocation.encode()), invocation);
            assert_eq!(Manner::of(manner as u8), Some(manner));
        }
        assert_eq!((Manner::of(0), Manner::of(5)), (None, None));
    }
}
