//! Sessions of which the protocol above is being told: what comes through them meanwhile waits, so
//! that it does not overtake the message that made the session.
//!
//! A shepherd waits with each message. They go on one after the other, each once the one before has
//! handed its message up or blocks on the way, and until the last has gone on what arrives joins
//! the queue.

use super::SessionRef;
use crate::kernel::Kernel;
use crate::participant::Participants;
use crate::reason::{self, Reason};
use crate::shepherd::Semaphore;
use core::cell::Cell;

/// Messages that may wait until the protocol above has been told of a session.
pub const WAITING_MAX: u32 = 16;

/// One session of which the protocol above is being told.
pub(crate) struct Opening {
    /// The shepherd whose messages pass: the one that tells, and then each that has waited.
    turn: Cell<Option<u32>>,
    /// The protocol above has answered.
    is_told: Cell<bool>,
    waiting: Cell<u32>,
    semaphore: Semaphore,
}

impl Opening {
    fn new(cx: &Kernel) -> Self {
        Self {
            turn: Cell::new(cx.shepherds().current()),
            is_told: Cell::new(false),
            waiting: Cell::new(0),
            semaphore: Semaphore::new(0),
        }
    }

    /// True if this shepherd's message passes. Before the answer that is one which the protocol
    /// above itself causes while it is told, and behind it the one that made the session. A
    /// shepherd that leads the loop has since gone on to another message.
    fn passes(&self, cx: &Kernel) -> bool {
        let current = cx.shepherds().current();
        current == self.turn.get() && (!self.is_told.get() || cx.must_leave())
    }

    /// Waits for this shepherd's turn.
    fn wait(&self, cx: &Kernel) -> Result<(), &'static Reason> {
        if self.waiting.get() >= WAITING_MAX {
            return Err(&reason::QUEUE_FULL);
        }
        self.waiting.set(self.waiting.get() + 1);
        let waited = cx.wait(&self.semaphore, None);
        self.waiting.set(self.waiting.get() - 1);
        waited.map_err(|_| &reason::QUEUE_FULL)?;
        self.turn.set(cx.shepherds().current());
        Ok(())
    }

    /// Lets the next message go on; false if none waits.
    fn next(&self, cx: &Kernel) -> bool {
        let waits = self.waiting.get() > 0;
        if waits {
            cx.signal(&self.semaphore);
        }
        waits
    }
}

impl SessionRef {
    /// Tells `upper` by `open_done` of this session, which a message made; that message follows at
    /// once by [`pop`](Self::pop) or [`call_pop`](Self::call_pop). What else comes through the
    /// session meanwhile waits, and follows in the order of its arrival; what finds
    /// [`WAITING_MAX`] messages waiting is refused. So `upper` does not wait in its `open_done`
    /// for what comes through the session.
    ///
    /// # Errors
    /// The reason why `upper` does not want the session, which the caller then ends; what has
    /// waited is refused.
    pub fn announce(
        &self,
        cx: &Kernel,
        upper: &super::ProtocolRef,
        ends: Participants,
    ) -> Result<(), &'static Reason> {
        let opening = cx.begin_opening(self.id(), Opening::new(cx));
        self.set_opening(true);
        let told = upper.open_done(cx, self, ends);
        opening.is_told.set(true);
        self.go_on(cx, &opening);
        told
    }

    /// Lets the next message that waits go on; after the last none waits any more.
    fn go_on(&self, cx: &Kernel, opening: &Opening) {
        if !opening.next(cx) {
            cx.end_opening(self.id());
            self.set_opening(false);
        }
    }

    /// Waits until the protocol above knows of the session and has what came for it before.
    ///
    /// # Errors
    /// [`reason::QUEUE_FULL`] if so many wait that this cannot.
    #[cold]
    pub fn wait_until_open(&self, cx: &Kernel) -> Result<(), &'static Reason> {
        let Some(opening) = cx.opening(self.id()) else {
            return Ok(());
        };
        if opening.passes(cx) {
            return Ok(());
        }
        let waited = opening.wait(cx);
        if waited.is_ok() || opening.is_told.get() && opening.waiting.get() == 0 {
            self.go_on(cx, &opening);
        }
        waited
    }
}
