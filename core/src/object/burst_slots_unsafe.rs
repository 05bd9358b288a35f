//! The places of a burst's messages.

use super::burst::BURST_MAX;
use crate::message::Message;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell, UnsafeCell};

/// Part of a message that [`Burst::peek`](super::Burst::peek) shows.
#[derive(Clone, Copy, Debug)]
pub struct Glance<const N: usize> {
    /// First octets of the message.
    pub octets: [u8; N],
    /// Length of the message in octets.
    pub len: usize,
    /// Whether there are attributes on it.
    pub has_attributes: bool,
}

/// The messages of a burst. Those from `next` to `end` are there, the others are none. A place
/// before `next` is taken, so that all views see the burst end when what is left goes
/// back.
pub(crate) struct Slots {
    messages: [UnsafeCell<Option<Message>>; BURST_MAX],
    next: Cell<usize>,
    end: Cell<usize>,
    /// Number of messages that went back; they count as gone, but not as taken.
    returned: Cell<usize>,
    /// The queue that gets back the messages that are not taken.
    home: Rc<RefCell<VecDeque<Message>>>,
}

impl Slots {
    pub(super) fn new(home: Rc<RefCell<VecDeque<Message>>>) -> Self {
        Self {
            messages: [const { UnsafeCell::new(None) }; BURST_MAX],
            next: Cell::new(0),
            end: Cell::new(0),
            returned: Cell::new(0),
            home,
        }
    }

    /// The place of the first message that is not taken.
    #[inline(always)]
    pub(super) fn next(&self) -> usize {
        self.next.get()
    }

    /// Says that all before this place have been taken.
    #[inline(always)]
    pub(super) fn set_next(&self, next: usize) {
        self.next.set(next);
    }

    /// One place behind the last message.
    #[inline(always)]
    pub(super) fn end(&self) -> usize {
        self.end.get()
    }

    /// Number of messages that have been taken.
    #[inline(always)]
    pub(super) fn taken(&self) -> usize {
        self.next.get() - self.returned.get()
    }

    /// Puts a message into its place, or none; answers what was there. A place that does not exist
    /// takes nothing.
    #[inline(always)]
    pub(super) fn replace(&self, at: usize, message: Option<Message>) -> Option<Message> {
        let place = self.messages.get(at)?.get();
        // SAFETY: references into the places live in this file alone, here and in `peek`, and
        // neither runs any other code while one does. The cell stays on its thread (`UnsafeCell` is
        // not Sync).
        unsafe { core::mem::replace(&mut *place, message) }
    }

    /// Counts the messages from the next one on, up to the place `end`, for which `fits` is true of
    /// what [`peek`](Self::peek) shows.
    #[inline(always)]
    pub(super) fn count_while<const N: usize>(
        &self,
        end: usize,
        front: usize,
        mut fits: impl FnMut(usize, Glance<N>) -> bool,
    ) -> usize {
        let places = self.messages.get(self.next.get()..end).unwrap_or_default();
        let mut count = 0;
        for place in places {
            let Some(glance) = Self::glance(place, front) else {
                break;
            };
            if !fits(count, glance) {
                break;
            }
            count += 1;
        }
        count
    }

    /// A copy of `N` octets of a message from `front` on, how many it has from there, and whether
    /// it has attributes.
    #[inline(always)]
    pub(super) fn peek<const N: usize>(&self, at: usize, front: usize) -> Option<Glance<N>> {
        Self::glance(self.messages.get(at)?, front)
    }

    #[inline(always)]
    fn glance<const N: usize>(
        place: &UnsafeCell<Option<Message>>,
        front: usize,
    ) -> Option<Glance<N>> {
        let place = place.get();
        // SAFETY: as in `replace`; `peek_behind`, `len` and `has_attributes` only read, and nothing
        // borrowed leaves.
        let message = unsafe { (*place).as_ref() }?;
        Some(Glance {
            octets: *message.peek_behind(front)?,
            len: message.len() - front,
            has_attributes: message.has_attributes(),
        })
    }

    /// Fills the empty places with messages that wait, at most `count`.
    pub(super) fn fill(&self, queue: &mut VecDeque<Message>, count: usize) {
        let mut end = 0;
        for message in queue.drain(..count.min(BURST_MAX)) {
            message.prefetch();
            drop(self.replace(end, Some(message)));
            end += 1;
        }
        self.next.set(0);
        self.end.set(end);
        self.returned.set(0);
    }

    /// Sends what was not taken back to where it came from, to be delivered again.
    #[cold]
    pub(crate) fn give_back(&self) {
        let (next, end) = (self.next.get(), self.end.get());
        if next == end {
            return;
        }
        self.next.set(end);
        self.returned.set(end - next);
        let mut home = self.home.borrow_mut();
        for at in (next..end).rev() {
            if let Some(message) = self.replace(at, None) {
                home.push_front(message);
            }
        }
    }
}
