//! Requests under way to the other side, each with the shepherd that waits for its answer.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{CallCause, CallError, OpenError, ProtocolId, PushError, SessionId};
use xk_core::{Kernel, Message, ProtocolRef, Reason, SessionRef, reason};
use xk_kit::{Handles, Pending};

use crate::frame::Header;

/// The most requests that one side has under way.
pub const WAITS_MAX: usize = 256;

/// The reason under which a message counts that did not go.
pub(crate) fn reason_of(error: PushError) -> &'static Reason {
    match error {
        PushError::Closed => &reason::CLOSED,
        PushError::NoBuffers => &reason::NO_BUFFERS,
        PushError::TooBig => &reason::TOO_BIG,
        _ => &reason::QUEUE_FULL,
    }
}

/// The error of an open that got no answer.
pub(crate) fn unopened(error: CallError) -> OpenError {
    match error.cause {
        CallCause::Closed => OpenError::NoLower,
        CallCause::Push(PushError::NoBuffers) => OpenError::NoBuffers,
        _ => OpenError::Full,
    }
}

/// Result of a request.
pub(crate) enum Answered {
    /// This frame: its header, and its fields or message.
    Frame(Header, Message),
    /// The proxy of the session that was opened, held for the opener.
    Session(Result<SessionRef, OpenError>),
}

/// The protocol and the receiver of a session that is opened.
pub(crate) type Opens = Option<(ProtocolId, ProtocolRef)>;

/// One request under way.
#[derive(Default)]
pub(crate) struct Wait {
    /// Finished when the answer is there.
    pub(crate) answer: Pending<Answered>,
    /// For a request that opens a session.
    opens: RefCell<Opens>,
}

impl Wait {
    /// For a request that opens a session: the protocol and the receiver.
    pub(crate) fn opens(&self) -> Opens {
        self.opens.borrow().clone()
    }
}

/// All requests of one side.
#[derive(Default)]
pub(crate) struct Waits {
    /// By tag; the other side may answer late, so that a place has many uses before one comes back.
    all: Handles<Rc<Wait>, 16>,
    /// Requests that are over, to be used again.
    spare: RefCell<Vec<Rc<Wait>>>,
    were_answered: Cell<bool>,
}

impl Waits {
    /// Begins one request more, and returns its tag; `None` at the bound. Allocates nothing as long
    /// as no more are under way than before.
    pub(crate) fn begin(&self, opens: Opens) -> Option<(u32, Rc<Wait>)> {
        let wait = self.spare.borrow_mut().pop().unwrap_or_default();
        let tag = self.all.enter(WAITS_MAX, |_| Rc::clone(&wait))?;
        wait.answer.begin(SessionId(0), 0);
        drop(wait.opens.replace(opens));
        Some((tag, wait))
    }

    /// The request of this tag, if it is under way and has no answer yet.
    pub(crate) fn find(&self, tag: u32) -> Option<Rc<Wait>> {
        self.all.get(tag).filter(|wait| wait.answer.waits())
    }

    /// The request with this tag is over, whether it was answered or not.
    pub(crate) fn end(&self, tag: u32) {
        if let Some(wait) = self.all.leave(tag) {
            wait.answer.end();
            drop(wait.opens.take());
            self.spare.borrow_mut().push(wait);
        }
    }

    /// Gives a request its answer.
    pub(crate) fn answer(&self, cx: &Kernel, wait: &Wait, answer: Answered) {
        wait.answer.finish(cx, answer);
        self.were_answered.set(true);
    }

    /// True if one was answered since this was asked last.
    pub(crate) fn were_answered(&self) -> bool {
        self.were_answered.replace(false)
    }

    /// All that are under way, for the end.
    pub(crate) fn all(&self) -> Vec<Rc<Wait>> {
        self.all.all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_of_one_request() {
        let waits = Waits::default();
        let (first, wait) = waits.begin(None).unwrap();
        assert!(waits.find(first ^ 1 << 16).is_none(), "of another use of the place");
        assert!(waits.find(first).is_some());
        wait.answer.end();
        assert!(waits.find(first).is_none(), "answered once");
        waits.end(first);
        waits.end(first);
        let (second, _) = waits.begin(None).unwrap();
        assert!(second != first && waits.find(first).is_none());
    }

    #[test]
    fn requests_are_bounded() {
        let waits = Waits::default();
        let tags: Vec<u32> = (0..WAITS_MAX).map(|_| waits.begin(None).unwrap().0).collect();
        assert!(waits.begin(None).is_none());
        tags.iter().for_each(|tag| waits.end(*tag));
        assert!(waits.begin(None).is_some() && waits.all().len() == 1);
    }
}
