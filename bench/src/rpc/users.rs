//! Who stands on the measured protocols in one process: a caller, and a procedure.

use crate::cable::HEADROOM;
use std::cell::Cell;
use std::rc::Rc;
use xk_core::object::{CallError, Refused};
use xk_core::{Kernel, Message, Participants, Protocol, ProtocolRef, Reason, SessionRef, reason};

/// The procedure that answers nothing, and sends back what is no call.
pub(crate) struct Procedure;

impl Protocol for Procedure {
    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        lower.hold();
        Ok(())
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        // One that does not go is missed by whoever asked.
        let _ = lower.push(cx, message);
        Ok(())
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        message: Message,
    ) -> Result<Message, Refused> {
        if message.is_empty() {
            return Ok(message);
        }
        match cx.pool().alloc(HEADROOM, 0) {
            Ok(reply) => Ok(reply),
            Err(_) => Err(this.refuse(message, &reason::NO_BUFFERS)),
        }
    }
}

/// Counts what comes back that is no reply.
#[derive(Clone, Default)]
pub(crate) struct Asker(pub(crate) Rc<Cell<u64>>);

impl Protocol for Asker {
    #[inline]
    fn demux(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: &SessionRef,
        _: Message,
    ) -> Result<(), Refused> {
        self.0.set(self.0.get() + 1);
        Ok(())
    }
}

/// A request of these octets.
#[inline]
pub(crate) fn request(cx: &Kernel, octets: &[u8]) -> Option<Message> {
    cx.pool().copy_from(HEADROOM, octets).ok()
}

/// One call.
///
/// # Errors
/// [`CallError`].
#[inline]
pub(crate) fn call(cx: &Kernel, session: &SessionRef, octets: &[u8]) -> Result<(), CallError> {
    let message = request(cx, octets).ok_or(xk_core::object::PushError::NoBuffers)?;
    session.call(cx, message).map(drop)
}
