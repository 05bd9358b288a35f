//! A session: one upper protocol's end of a conversation through one lower session.

use crate::protocol::Table;
use crate::wire::{HEADER_OCTETS, Header};
use alloc::rc::Rc;
use xk_core::control::Describe;
use xk_core::object::{Burst, Closing, Outgoing, PushError, Refused};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef};
use xk_kit::ports::less_header;

/// The key that a message is demultiplexed by: the lower session and the type number.
pub(crate) type Key = (u64, u32);

pub(crate) struct NullSession {
    pub(crate) table: Rc<Table>,
    pub(crate) key: Key,
    pub(crate) lower: SessionRef,
    pub(crate) upper: ProtocolRef,
    /// The header of every message sent here.
    pub(crate) template: [u8; HEADER_OCTETS],
}

impl NullSession {
    /// A message whose headroom is used up, or another's.
    #[inline(never)]
    fn push_reserved(&self, cx: &Kernel, mut message: Message) -> Result<(), PushError> {
        message
            .push_array(&self.template)
            .map_err(|_| PushError::NoBuffers)?;
        self.lower.push(cx, message)
    }
}

impl Session for NullSession {
    #[inline]
    fn push(&self, cx: &Kernel, _: &SessionRef, mut message: Message) -> Result<(), PushError> {
        if message.push_in_place(&self.template) {
            return self.lower.push(cx, message);
        }
        self.push_reserved(cx, message)
    }

    fn push_burst(
        &self,
        cx: &Kernel,
        _: &SessionRef,
        burst: &mut Outgoing,
    ) -> Result<(), PushError> {
        let prepare = |message: &mut Message| message.push_in_place(&self.template);
        let other = |message| self.push_reserved(cx, message);
        self.lower.push_prepared(cx, burst, prepare, other)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn pop_burst(&self, cx: &Kernel, this: &SessionRef, burst: Burst<'_>) -> Result<(), Refused> {
        self.upper.demux_burst(cx, this, burst)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!("{}", Header::parse(&self.template));
            return Answer::Answered;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, HEADER_OCTETS);
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.table.sessions.release(&self.key, this);
        if !this.head().is_passive() {
            self.lower.close(cx);
        }
        Closing::Done
    }
}
