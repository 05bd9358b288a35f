//! Messages that went up, kept in case the other side refuses one.

use core::time::Duration;
use xk_core::{Kernel, Message, ProtocolRef, Time};

use crate::port::Port;

/// Messages that are kept in case the other side refuses one.
const KEPT_MAX: usize = 64;
/// Time for which they are kept; the sender is told of no later refusal.
const KEPT_FOR: Duration = Duration::from_secs(1);

/// A message that went up.
pub(crate) struct Kept {
    number: u32,
    /// Handle of the message's session.
    handle: u32,
    since: Time,
    message: Message,
}

impl Port {
    /// The number of the next message that goes up.
    pub(crate) fn next_number(&self) -> u32 {
        self.gone_up.set(self.gone_up.get().wrapping_add(1));
        self.gone_up.get()
    }

    /// Keeps a message that went up through a session, for [`KEPT_FOR`] at most and as long as few
    /// come behind it: if the other side refuses it, the layers below find their headers in front
    /// of it.
    pub(crate) fn keep(&self, cx: &Kernel, number: u32, handle: u32, message: Message) {
        if !self.forgets.get() {
            let wire = self.wire.borrow();
            let tag = self.tag.get();
            let timer = wire.as_ref().map(|wire| cx.schedule_protocol(wire, KEPT_FOR, tag));
            if !matches!(timer, Some(Ok(_))) {
                return;
            }
            self.forgets.set(true);
        }
        let mut kept = self.kept.borrow_mut();
        let oldest = if kept.len() == KEPT_MAX { kept.pop_front() } else { None };
        kept.push_back(Kept { number, handle, since: cx.now(), message });
        drop(kept);
        drop(oldest);
    }

    /// A timer of the port's wire has gone off: releases what was kept for long.
    pub fn timeout(&self, cx: &Kernel, this: &ProtocolRef) {
        if self.replays.replace(false) {
            self.replay(cx);
        }
        let is_old = |kept: &mut Kept| cx.now().since(kept.since) >= KEPT_FOR;
        while self.kept.borrow_mut().pop_front_if(is_old).is_some() {}
        let is_left = !self.kept.borrow().is_empty();
        let timer = is_left.then(|| cx.schedule_protocol(this, KEPT_FOR, self.tag.get()));
        self.forgets.set(matches!(timer, Some(Ok(_))));
        if !self.forgets.get() {
            drop(self.kept.take());
        }
    }

    /// The message of this number, if it is kept.
    pub(crate) fn take_kept(&self, number: u32, handle: u32) -> Option<Message> {
        let mut kept = self.kept.borrow_mut();
        let at = kept.iter().position(|kept| (kept.number, kept.handle) == (number, handle))?;
        kept.remove(at).map(|kept| kept.message)
    }
}
