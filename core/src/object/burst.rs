//! Bursts: several messages handed over at once, for the price of one indirect call a layer.
//!
//! A wire that finds more than one frame delivers them as a [`Burst`]. Every layer looks at the
//! headers of the messages that wait in it, takes as many as belong to one session for a *run*, and
//! hands the run up in one call, with the octets of its own header added to those that the receiver
//! will not see ([`Burst::behind`]). Nothing is changed in the messages: a layer that takes one
//! ([`Burst::next`]) gets it with all those octets off. So whatever of a burst has not been taken
//! can go back to its wire as it came. It does so when the shepherd that carries the burst blocks,
//! and when the session that a run goes through is closed on the way; then it is delivered again,
//! in order, by the shepherd that leads the loop.
//!
//! Downwards a burst is an [`Outgoing`]: each layer puts its header in front of every message, and
//! hands all of them on.

use super::burst_slots_unsafe::{Glance, Slots};
use super::{Refused, SessionRef};
use crate::kernel::Kernel;
use crate::message::Message;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use arrayvec::ArrayVec;
use core::cell::{Cell, RefCell};

/// Most messages of one burst.
pub const BURST_MAX: usize = 32;

/// Messages on their way down together, first to last. See [`SessionRef::push_burst`].
pub type Outgoing = ArrayVec<Message, BURST_MAX>;

/// Messages on their way up together: a run of those that wait in a burst, less the headers of the
/// layers below.
///
/// All views of a burst take from the same place: what the layer above has taken is gone for the
/// layer below too.
#[derive(Clone, Copy)]
pub struct Burst<'a> {
    slots: &'a Slots,
    /// The run ends before this place.
    end: usize,
    /// Octets of lower headers in front of each message.
    front: usize,
}

impl<'a> Burst<'a> {
    /// Number of messages that are left to take.
    #[inline(always)]
    pub fn len(self) -> usize {
        self.end.saturating_sub(self.slots.next())
    }

    /// True if no message is left to take.
    #[inline(always)]
    pub fn is_empty(self) -> bool {
        self.slots.next() >= self.end
    }

    /// True if messages are left that came through the session `lower`. If that was closed
    /// meanwhile (by the taker of the last one, say), they go back to their wire, because each may
    /// belong to another session now. For the head of the loop in which a protocol takes a burst
    /// apart.
    #[inline(always)]
    pub fn goes_on(self, lower: &SessionRef) -> bool {
        if self.is_empty() {
            return false;
        }
        if lower.head().is_closed() {
            self.give_back();
            return false;
        }
        true
    }

    /// Number of messages that have been taken from the whole burst so far.
    #[inline(always)]
    pub fn taken(self) -> usize {
        self.slots.taken()
    }

    /// Takes the next message, without the headers of the layers below.
    #[inline(always)]
    #[allow(clippy::should_implement_trait, reason = "a view, not an iterator")]
    pub fn next(self) -> Option<Message> {
        let at = self.slots.next();
        if at >= self.end {
            return None;
        }
        self.slots.set_next(at + 1);
        let mut message = self.slots.replace(at, None)?;
        if !message.strip_in_place(self.front) {
            // A layer that went behind a header has seen it.
            let _ = message.strip(self.front);
        }
        Some(message)
    }

    /// The next message, if what is left came through the session `lower` all the same; see
    /// [`goes_on`](Self::goes_on).
    #[inline(always)]
    pub fn next_through(self, lower: &SessionRef) -> Option<Message> {
        if lower.head().is_closed() {
            self.give_back();
            return None;
        }
        self.next()
    }

    /// Sends the rest of the whole burst back to its wire.
    #[cold]
    fn give_back(self) {
        if !self.is_empty() {
            self.slots.give_back();
        }
    }

    /// Shows the first `N` octets of the message that is `nth` from the next one; `None` if there
    /// is none, or if they do not lie together. What cannot be looked at here is for
    /// [`next`](Self::next) and the way of single messages.
    #[inline(always)]
    pub fn peek<const N: usize>(self, nth: usize) -> Option<Glance<N>> {
        self.slots.peek(self.slots.next() + nth, self.front)
    }

    /// Counts the messages from the next one on that belong together. It ends at one for which
    /// `fits` is false, given the number before it and what [`peek`](Self::peek) shows of it, or of
    /// which `peek` shows nothing.
    #[inline(always)]
    pub fn count_while<const N: usize>(self, fits: impl FnMut(usize, Glance<N>) -> bool) -> usize {
        self.slots.count_while(self.end, self.front, fits)
    }

    /// Shows a whole message, the `nth` from the next one, with the headers of the layers below
    /// still in front: so many octets as the second argument says. It is not in the burst
    /// meanwhile.
    #[inline(always)]
    pub fn look<R>(self, nth: usize, see: impl FnOnce(&mut Message, usize) -> R) -> Option<R> {
        let at = self.slots.next() + nth;
        let mut message = self.slots.replace(at, None)?;
        let seen = see(&mut message, self.front);
        let before = self.slots.replace(at, Some(message));
        debug_assert!(before.is_none(), "the place was free");
        core::mem::forget(before);
        Some(seen)
    }

    /// The first `count` messages of these.
    #[inline(always)]
    #[must_use]
    pub fn first(self, count: usize) -> Self {
        let end = self.end.min(self.slots.next() + count);
        Self { end, ..self }
    }

    /// These messages without their first `octets` octets, which all of them have.
    #[inline(always)]
    #[must_use]
    pub fn behind(self, octets: usize) -> Self {
        let front = self.front + octets;
        Self { front, ..self }
    }
}

/// Messages that a wire has received and not delivered yet, in a queue that every shepherd sees: if
/// one blocks in a delivery, the next goes on with the rest.
#[derive(Default)]
pub struct Arrivals {
    queue: Rc<RefCell<VecDeque<Message>>>,
    /// The places of the last burst, for the next.
    spare: Cell<Option<Rc<Slots>>>,
}

impl Arrivals {
    /// Number of waiting messages.
    pub fn len(&self) -> usize {
        self.queue.borrow().len()
    }

    /// True if none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.borrow().is_empty()
    }

    /// Lets a wire put messages behind those that wait.
    pub fn queue_mut(&self) -> core::cell::RefMut<'_, VecDeque<Message>> {
        self.queue.borrow_mut()
    }

    /// Takes the message that waits longest.
    pub fn pop_front(&self) -> Option<Message> {
        self.queue.borrow_mut().pop_front()
    }

    /// Releases all that wait.
    pub fn clear(&self) {
        let waiting = self.queue.take();
        drop(waiting);
    }

    /// Passes up through the wire's session what waits, at most `count` messages and no more than
    /// one burst. Answers how many were taken: 0 only if none waits. A refusal ends here; the
    /// refuser has counted it.
    ///
    /// A loop that calls it ends once [`Kernel::must_leave`] says so.
    pub fn deliver(&self, cx: &Kernel, session: &SessionRef, count: usize) -> usize {
        let count = count.min(self.len());
        if count == 0 {
            return 0;
        }
        if count > 1 {
            return self.deliver_burst(cx, session, count);
        }
        self.deliver_one(cx, session)
    }

    #[inline(never)]
    fn deliver_burst(&self, cx: &Kernel, session: &SessionRef, count: usize) -> usize {
        // An observer sees every message by itself.
        if cx.gate() != 0 || cx.carries_burst() || session.head().is_closed() {
            return self.deliver_one(cx, session);
        }
        let slots = self.spare.take();
        let slots = slots.unwrap_or_else(|| Rc::new(Slots::new(Rc::clone(&self.queue))));
        slots.fill(&mut self.queue.borrow_mut(), count.min(BURST_MAX));
        cx.begin_burst(&slots);
        let burst = Burst { slots: &slots, end: slots.end(), front: 0 };
        while burst.goes_on(session) {
            drop(session.pop_burst(cx, burst));
        }
        cx.end_burst(&slots);
        let taken = burst.taken();
        self.spare.set(Some(slots));
        taken
    }

    #[inline]
    fn deliver_one(&self, cx: &Kernel, session: &SessionRef) -> usize {
        let Some(message) = self.pop_front() else {
            return 0;
        };
        if let Err(refused) = session.pop(cx, message) {
            drop::<Refused>(refused);
        }
        1
    }
}
