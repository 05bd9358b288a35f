//! A session: one upper protocol's pings to one host.

use crate::protocol::Shared;
use crate::wire::{HEADER_LEN, Header, Query};
use alloc::rc::Rc;
use core::cell::Cell;
use xk_core::control::Describe;
use xk_core::object::{Closing, ProtocolId, PushError, Refused};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef, reason};
use xk_kit::Checksum;
use xk_kit::net::ports::less_header;

/// The key that replies are demultiplexed by: the session below and the identifier.
pub(crate) type Key = (u64, u16);

pub(crate) struct EchoSession {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: Key,
    /// The session below and the upper protocol, by which an open finds this session.
    pub(crate) owner: (u64, u32),
    pub(crate) lower: SessionRef,
    pub(crate) upper: ProtocolRef,
    /// The number of the last request.
    pub(crate) sequence: Cell<u16>,
}

/// By what an open finds a session.
pub(crate) fn owner(lower: &SessionRef, upper: ProtocolId) -> (u64, u32) {
    (lower.id().0, upper.0)
}

/// The sum over a message.
pub(crate) fn sum(message: &Message) -> Checksum {
    let mut sum = Checksum::new();
    for slice in message.slices() {
        sum.add(slice.octets);
    }
    sum
}

/// Puts a header in front of a message, checksum included.
pub(crate) fn put_header(message: &mut Message, header: Header) -> Result<(), PushError> {
    let mut octets = [0; HEADER_LEN];
    header.emit(sum(message), &mut octets);
    message.push_array(&octets).map_err(|_| PushError::NoBuffers)
}

impl Session for EchoSession {
    #[inline]
    fn push(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        let query = Query { id: self.key.1, sequence };
        if let Err(error) = put_header(&mut message, Header::EchoRequest(query)) {
            this.discard(cx, message, &reason::NO_BUFFERS);
            return Err(error);
        }
        self.lower.push(cx, message)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Describe>() {
            let (id, sequence) = (self.key.1, self.sequence.get());
            question.text = alloc::format!("echo id {id}, last request {sequence}");
            return Answer::Answered;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, HEADER_LEN);
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        // Only what is bound: one that found the table full is not.
        self.shared.sessions.release(&self.key, this);
        if self.shared.owners.get(&self.owner).as_ref() == Some(this) {
            self.shared.owners.unbind(&self.owner);
        }
        self.lower.close(cx);
        Closing::Done
    }
}
