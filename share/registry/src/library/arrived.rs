//! What arrives while a conversation is on its way: it goes up at the end of that, in order.

use alloc::collections::VecDeque;
use core::cell::{Cell, RefCell};
use xk_core::Message;

/// How many messages wait: more than a ring has slots.
const ARRIVED_MAX: usize = 4096;

/// The messages, the oldest first.
#[derive(Default)]
pub(super) struct Arrived {
    messages: RefCell<VecDeque<Message>>,
    is_handing_up: Cell<bool>,
}

impl Arrived {
    /// Whether messages that arrive now go behind others.
    pub(super) fn comes_first(&self) -> bool {
        self.is_handing_up.get() || !self.messages.borrow().is_empty()
    }

    /// Keeps a message, or gives it back where there is no room.
    pub(super) fn keep(&self, message: Message) -> Result<(), Message> {
        let mut messages = self.messages.borrow_mut();
        if messages.len() >= ARRIVED_MAX {
            return Err(message);
        }
        messages.push_back(message);
        Ok(())
    }

    /// Hands all to `up`, as long as `goes_on`.
    pub(super) fn hand_up(&self, goes_on: impl Fn() -> bool, mut up: impl FnMut(Message)) {
        if self.is_handing_up.replace(true) {
            return;
        }
        while goes_on() {
            let Some(message) = self.messages.borrow_mut().pop_front() else { break };
            up(message);
        }
        self.is_handing_up.set(false);
    }

    /// What has not gone up.
    pub(super) fn take(&self) -> VecDeque<Message> {
        self.messages.take()
    }
}
