//! A session: one upper protocol's end of a conversation through one lower session.

use crate::wire::{HEADER_OCTETS, Header, MESSAGE_OCTETS_MAX};
use alloc::rc::Rc;
use core::cell::Cell;
use core::num::NonZeroU8;
use xk_core::control::{Describe, Question};
use xk_core::object::{Closing, PushError, Refused, SessionTable};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef, reason};
use xk_kit::control::{MaxPacket, OptPacket};

/// The key that a message is demultiplexed by: the lower session and the type number.
pub(crate) type Key = (u64, u8);

/// Asked of a session: how many messages of the peer never came, or came too late to be waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Missing {
    /// Messages.
    pub messages: u64,
}

impl Question for Missing {
    const NAME: &'static str = "template-missing";
}

pub(crate) struct TemplateSession {
    sessions: Rc<SessionTable<Key>>,
    lower: SessionRef,
    upper: ProtocolRef,
    number: NonZeroU8,
    /// The sequence number of the next message sent.
    next: Cell<u32>,
    /// The sequence number that the peer's next message should have; none before its first.
    expected: Cell<Option<u32>>,
    missing: Cell<u64>,
}

impl TemplateSession {
    pub(crate) fn new(
        sessions: Rc<SessionTable<Key>>,
        number: NonZeroU8,
        upper: ProtocolRef,
        lower: SessionRef,
    ) -> Self {
        Self {
            sessions,
            lower,
            upper,
            number,
            next: Cell::new(0),
            expected: Cell::new(None),
            missing: Cell::new(0),
        }
    }

    /// Counts what was skipped before this message. Numbers wrap around, so that a greater one is one less than half
    /// the circle ahead (RFC 1982 section 3.2).
    #[inline]
    fn note(&self, sequence: u32) {
        let skipped = sequence.wrapping_sub(self.expected.get().unwrap_or(sequence));
        if skipped <= i32::MAX as u32 {
            self.missing.set(self.missing.get() + u64::from(skipped));
            self.expected.set(Some(sequence.wrapping_add(1)));
        }
    }
}

impl Session for TemplateSession {
    #[inline]
    fn push(&self, cx: &Kernel, _: &SessionRef, mut message: Message) -> Result<(), PushError> {
        let Ok(length) = u16::try_from(message.len()) else {
            return Err(PushError::TooBig {
                max: MESSAGE_OCTETS_MAX as u32,
            });
        };
        let sequence = self.next.get();
        let header = Header {
            number: self.number,
            length,
            sequence,
        };
        message
            .push_array(&header.emit())
            .map_err(|_| PushError::NoBuffers)?;
        self.next.set(sequence.wrapping_add(1));
        self.lower.push(cx, message).map_err(for_the_layer_above)
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        // `demux` has brought the header together and checked it.
        let Some(octets) = message.pop_array::<HEADER_OCTETS>().copied() else {
            return Err(this.refuse(cx, message, &reason::TRUNCATED));
        };
        if let Ok(header) = Header::parse(&octets, message.len()) {
            self.note(header.sequence);
        }
        self.upper.demux(cx, this, message)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Missing>() {
            question.messages = self.missing.get();
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<Describe>() {
            let (number, missing) = (self.number, self.missing.get());
            question.text = alloc::format!("template > {number}, {missing} missing");
            return Answer::Answered;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            let _ = ask.answer::<MaxPacket>(|q| q.octets = less_header(q.octets));
            let _ = ask.answer::<OptPacket>(|q| q.octets = less_header(q.octets));
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let key = (self.lower.id().0, self.number.get());
        self.sessions.release(&key, this);
        // What was opened for it is closed with it; one that a message made holds the lower one
        // only while it is held.
        if !this.head().is_passive() {
            self.lower.close(cx);
        }
        Closing::Done
    }
}

/// How much of the lower layer's largest message is left for the layer above, in octets.
fn less_header(octets: u32) -> u32 {
    octets
        .saturating_sub(HEADER_OCTETS as u32)
        .min(MESSAGE_OCTETS_MAX as u32)
}

/// What the layer below answers counts our header.
#[cold]
fn for_the_layer_above(error: PushError) -> PushError {
    match error {
        PushError::TooBig { max } => PushError::TooBig {
            max: less_header(max),
        },
        other => other,
    }
}
