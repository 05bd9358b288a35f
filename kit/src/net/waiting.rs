//! Messages on their way down that wait until their layer knows where they go, and the timer that
//! its machine is looked at by.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::kernel::Timer;
use xk_core::{Kernel, Message, ProtocolRef, Reason, SessionRef, reason};

use super::appletalk::now;

/// Messages that wait, each with the session that it came down through and what it waits for. Of
/// those beyond a bound the oldest give way, counted at their sessions.
pub struct Waiting<T = ()> {
    list: RefCell<VecDeque<(SessionRef, T, Message)>>,
    max: usize,
    session_max: usize,
}

impl<T> Waiting<T> {
    /// Room for so many messages in all, and for so many of one session.
    #[must_use]
    pub fn new(max: usize, session_max: usize) -> Self {
        Self { list: RefCell::default(), max, session_max }
    }

    /// Keeps a message.
    pub fn keep(&self, cx: &Kernel, session: &SessionRef, what: T, message: Message) {
        let surplus = {
            let mut list = self.list.borrow_mut();
            let is_own = |waits: &(SessionRef, T, Message)| waits.0 == *session;
            let surplus = if list.iter().filter(|waits| is_own(waits)).count() >= self.session_max {
                list.iter().position(is_own).and_then(|oldest| list.remove(oldest))
            } else if list.len() >= self.max {
                list.pop_front()
            } else {
                None
            };
            list.push_back((session.clone(), what, message));
            surplus
        };
        if let Some((session, _, message)) = surplus {
            session.discard(cx, message, &reason::QUEUE_FULL);
        }
    }

    /// Takes those that are meant, in their order.
    pub fn take(&self, is_meant: impl Fn(&SessionRef, &T) -> bool) -> Vec<(SessionRef, Message)> {
        let mut list = self.list.borrow_mut();
        let (taken, kept): (Vec<_>, Vec<_>) =
            list.drain(..).partition(|(session, what, _)| is_meant(session, what));
        *list = kept.into();
        taken.into_iter().map(|(session, _, message)| (session, message)).collect()
    }

    /// Drops those that are meant, counted at their sessions.
    pub fn discard(
        &self,
        cx: &Kernel,
        why: &'static Reason,
        is_meant: impl Fn(&SessionRef, &T) -> bool,
    ) {
        for (session, message) in self.take(is_meant) {
            session.discard(cx, message, why);
        }
    }

    /// Drops what waits in a session that closes.
    pub fn leave(&self, cx: &Kernel, of: &SessionRef) {
        if !self.list.borrow().is_empty() {
            self.discard(cx, &reason::CLOSED, |session, _| session == of);
        }
    }

    /// Number of waiting messages.
    pub fn len(&self) -> usize {
        self.list.borrow().len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all; for a protocol's `stop`.
    pub fn clear(&self) {
        drop(self.list.take());
    }
}

/// The one timer of a protocol whose machine says when it is due next.
#[derive(Default)]
pub struct Alarm(Cell<Option<(Timer, Duration)>>);

impl Alarm {
    /// Has the timer of `this` go off at this time, unless it does so earlier. Without a timer,
    /// which is counted, what comes next tries again.
    pub fn set(&self, cx: &Kernel, this: &ProtocolRef, next: Duration, token: u64) {
        if let Some((timer, at)) = self.0.take() {
            if at <= next {
                return self.0.set(Some((timer, at)));
            }
            cx.cancel(timer);
        }
        match cx.schedule_protocol(this, next.saturating_sub(now(cx)), token) {
            Ok(timer) => self.0.set(Some((timer, next))),
            Err(_) => this.head().drops().count(&reason::TABLE_FULL),
        }
    }

    /// Notes that the timer went off.
    pub fn went_off(&self) {
        self.0.set(None);
    }

    /// Takes it back.
    pub fn cancel(&self, cx: &Kernel) {
        cx.cancel(self.0.take().map(|(timer, _)| timer));
    }
}
