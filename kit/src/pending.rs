//! An answer that a shepherd waits for; used again and again, so that a call allocates nothing.

use core::cell::Cell;
use core::time::Duration;
use xk_core::Kernel;
use xk_core::object::SessionId;
use xk_core::shepherd::{Semaphore, WaitError};

/// One call or search, which ends with a `T`.
pub struct Pending<T> {
    session: Cell<SessionId>,
    tag: Cell<u64>,
    waits: Cell<bool>,
    outcome: Cell<Option<T>>,
    done: Semaphore,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self {
            session: Cell::new(SessionId(0)),
            tag: Cell::new(0),
            waits: Cell::new(false),
            outcome: Cell::new(None),
            done: Semaphore::new(0),
        }
    }
}

impl<T> Pending<T> {
    /// One that has begun, of no session.
    pub fn begun() -> Self {
        Self { waits: Cell::new(true), ..Self::default() }
    }

    /// Begins a call of this session, of this name for
    /// [`CancelCall`](crate::rpc::call::CancelCall).
    #[inline]
    pub fn begin(&self, session: SessionId, tag: u64) {
        self.session.set(session);
        self.tag.set(tag);
        self.waits.set(true);
    }

    /// True until the call is [finished](Self::finish).
    #[inline]
    pub fn waits(&self) -> bool {
        self.waits.get()
    }

    /// Whether it is this session's call, with this tag if one is given.
    pub fn is(&self, session: SessionId, tag: Option<u64>) -> bool {
        self.session.get() == session && tag.is_none_or(|tag| self.tag.get() == tag)
    }

    /// Wakes the caller with the outcome, unless there is one.
    #[inline]
    pub fn finish(&self, cx: &Kernel, outcome: T) {
        if self.waits.replace(false) {
            self.outcome.set(Some(outcome));
            cx.signal(&self.done);
        }
    }

    /// Wakes the caller without an outcome.
    pub fn wake(&self, cx: &Kernel) {
        cx.signal(&self.done);
    }

    /// Waits for the outcome, at most as long as `limit` says; `None` if the caller was woken for
    /// another reason.
    ///
    /// # Errors
    /// Why the wait is over.
    #[inline(always)]
    pub fn wait(
        &self,
        cx: &Kernel,
        limit: impl Into<Option<Duration>>,
    ) -> Result<Option<T>, WaitError> {
        cx.wait(&self.done, limit.into()).map(|()| self.take())
    }

    /// Takes the outcome, if it is there.
    #[inline]
    pub fn take(&self) -> Option<T> {
        self.outcome.take()
    }

    /// Ends it: what comes from now on is for another call.
    #[inline]
    pub fn end(&self) {
        self.waits.set(false);
        // A signal that came too late must not end another call's wait.
        while self.done.try_wait() {}
        drop(self.outcome.take());
    }
}

impl<T: Clone> Pending<T> {
    /// Returns the outcome, which stays for others that wait; `None` to a caller that may not wait.
    pub fn get(&self, cx: &Kernel) -> Option<T> {
        if self.waits() && cx.wait(&self.done, None).is_ok() {
            // The next one that waits goes on, too.
            cx.signal(&self.done);
        }
        let outcome = self.take();
        self.outcome.set(outcome.clone());
        outcome
    }
}
