//! A session that calls: one procedure of one peer, for one protocol above.

use crate::protocol::Shared;
use crate::wire::{Accepted, FAILED_OCTETS_MAX, STAT_OCTETS};
use alloc::rc::Rc;
use xk_core::object::{CallCause, CallError, Closing, Rejection};
use xk_core::{Answer, Ask, Kernel, Message, Session, SessionRef, reason};
use xk_kit::rpc::call_layer::bad_reply;

/// The session below and the protocol above.
pub(crate) type Key = (u64, u32);

pub(crate) struct Calling {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: Key,
    pub(crate) lower: SessionRef,
}

/// What an accepted reply that is not all zeros in front says.
#[cold]
fn failed(cx: &Kernel, this: &SessionRef, reply: Message) -> CallError {
    let mut octets = [0; FAILED_OCTETS_MAX];
    let count = reply.copy_to(0, &mut octets);
    let accepted = octets.get(..count).and_then(Accepted::parse);
    let Some((accepted, reason)) = accepted.and_then(|a| Some((a, a.reason()?))) else {
        return bad_reply(cx, this, reply, &reason::MALFORMED);
    };
    let versions = match accepted {
        Accepted::Mismatch { low, high } => Some((low, high)),
        _ => None,
    };
    CallCause::Rejected(Rejection { reason, versions }).into()
}

impl Session for Calling {
    #[inline]
    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError> {
        let mut reply = self.lower.call(cx, request)?;
        if reply.peek_in_place::<STAT_OCTETS>() == Some(&[0; STAT_OCTETS])
            && reply.strip_in_place(STAT_OCTETS)
        {
            return Ok(reply);
        }
        let mut stat = [0xff; STAT_OCTETS];
        if reply.copy_to(0, &mut stat) == STAT_OCTETS
            && stat == [0; STAT_OCTETS]
            && reply.strip(STAT_OCTETS)
        {
            return Ok(reply);
        }
        Err(failed(cx, this, reply))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        // A call adds nothing to what the layers below add.
        self.lower.control(cx, ask)
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let calling = &self.shared.calling;
        calling.release(&self.key, this);
        self.lower.close(cx);
        Closing::Done
    }
}
