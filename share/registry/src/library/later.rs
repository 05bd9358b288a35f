//! What is sent and asked of a conversation while it is on its way, to be done where it arrives.

use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};
use xk_core::object::PushError;
use xk_core::{Ask, Kernel, Message, SessionRef};
use xk_kit::net::stream::{StreamAbort, StreamConsumed, StreamSet, StreamShutdown, StreamSpace};

/// Settings that wait at most.
const SETTINGS_MAX: usize = 16;
/// Octets that are sent meanwhile and wait at most; one message more than that may. So many times
/// as much sent before, and nothing waits: the buffer that it comes to has room.
const OCTETS_MAX: usize = 16 << 10;
const BEFORE_FACTOR: usize = 16;

#[derive(Default)]
pub(super) struct Later {
    /// Octets that were sent where the conversation began.
    sent_before: Cell<usize>,
    pushed: RefCell<VecDeque<Message>>,
    pushed_octets: Cell<usize>,
    set: RefCell<VecDeque<StreamSet>>,
    consumed: Cell<u32>,
    is_shut: Cell<bool>,
    is_aborted: Cell<bool>,
    pub(super) is_closed: Cell<bool>,
    /// The protocol above waits for room.
    pub(super) wants_room: Cell<bool>,
}

impl Later {
    /// Notes octets that are sent where the conversation began.
    pub(super) fn note_sent(&self, octets: usize) {
        self.sent_before.set(self.sent_before.get().saturating_add(octets));
    }

    /// Nothing may wait: the conversation brings octets that wait to be sent, perhaps as many as
    /// its buffer holds.
    pub(super) fn leave_no_room(&self) {
        self.sent_before.set(usize::MAX);
    }

    /// How much may wait.
    fn room(&self) -> usize {
        let has_room = self.sent_before.get() < BEFORE_FACTOR * OCTETS_MAX;
        if has_room { OCTETS_MAX } else { 0 }
    }

    /// Keeps a message, or gives it back where there is no room.
    pub(super) fn push(&self, message: Message) -> Result<(), Message> {
        if self.pushed_octets.get() >= self.room() {
            self.wants_room.set(true);
            return Err(message);
        }
        self.pushed_octets.set(self.pushed_octets.get() + message.len());
        self.pushed.borrow_mut().push_back(message);
        Ok(())
    }

    /// Keeps what is asked; false if the question is none that can wait.
    pub(super) fn ask(&self, ask: &mut Ask<'_>) -> bool {
        if let Some(question) = ask.get::<StreamSpace>() {
            question.octets = self.room().saturating_sub(self.pushed_octets.get()) as u32;
            self.wants_room.set(true);
        } else if let Some(question) = ask.get::<StreamConsumed>() {
            self.consumed.set(self.consumed.get().saturating_add(question.octets));
        } else if ask.get::<StreamShutdown>().is_some() {
            self.is_shut.set(true);
        } else if ask.get::<StreamAbort>().is_some() {
            self.is_aborted.set(true);
        } else if let Some(question) = ask.get::<StreamSet>() {
            let mut set = self.set.borrow_mut();
            question.taken = set.len() < SETTINGS_MAX;
            if question.taken {
                set.push_back(*question);
            }
        } else {
            return false;
        }
        true
    }

    /// Sends to `lower` what was sent meanwhile, what is sent while this blocks included.
    ///
    /// # Errors
    /// That of the first message that it does not take; the others are still there.
    pub(super) fn send(&self, cx: &Kernel, lower: &SessionRef) -> Result<(), PushError> {
        for set in self.set.take() {
            let _ = lower.ask(cx, set);
        }
        loop {
            let next = self.pushed.borrow_mut().pop_front();
            let Some(message) = next else {
                self.pushed_octets.set(0);
                return Ok(());
            };
            lower.push(cx, message)?;
        }
    }

    /// Asks `lower` what was asked meanwhile, once all is sent.
    pub(super) fn put(&self, cx: &Kernel, lower: &SessionRef) {
        let octets = self.consumed.take();
        if octets > 0 {
            let _ = lower.ask(cx, StreamConsumed { octets });
        }
        if self.is_shut.take() {
            let _ = lower.ask(cx, StreamShutdown);
        }
        if self.is_aborted.take() {
            let _ = lower.ask(cx, StreamAbort);
        }
    }

    /// The messages that were not sent.
    pub(super) fn take_pushed(&self) -> VecDeque<Message> {
        self.pushed.take()
    }
}
