//! Places for calls: a fixed number, each for one call at a time. Calls without one wait.

use crate::rpc::call::CallOptions;
use crate::rpc::wait_queue::WaitQueue;
use alloc::boxed::Box;
use core::cell::Cell;
use core::ops::Deref;
use xk_core::object::{CallCause, SessionId};
use xk_core::{Kernel, SessionRef};

/// One place, with the layer's own state of it.
pub struct Place<T> {
    index: u16,
    /// A call has it.
    busy: Cell<bool>,
    /// Number of calls when it was last given up; 0: never used.
    used: Cell<u64>,
    /// The last call on it failed: the server may still be at work on it.
    suspect: Cell<bool>,
    own: T,
}

impl<T> Deref for Place<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.own
    }
}

/// All places of a client.
pub struct Places<T> {
    list: Box<[Place<T>]>,
    /// Calls that wait for a place, by its number.
    queue: WaitQueue<u16>,
    /// Counts places given up.
    clock: Cell<u64>,
    /// Number of calls that had to wait for a place.
    waits: Cell<u64>,
}

impl<T> Places<T> {
    /// So many places, at least one.
    pub fn new(count: u16, mut make: impl FnMut(u16) -> T) -> Self {
        let place = |index| Place {
            index,
            busy: Cell::new(false),
            used: Cell::new(0),
            suspect: Cell::new(false),
            own: make(index),
        };
        Self {
            list: (0..count.max(1)).map(place).collect(),
            queue: WaitQueue::default(),
            clock: Cell::new(0),
            waits: Cell::new(0),
        }
    }

    /// The place with this number.
    #[inline(always)]
    pub fn get(&self, index: u16) -> Option<&Place<T>> {
        self.list.get(usize::from(index))
    }

    /// All places.
    pub fn iter(&self) -> impl Iterator<Item = &Place<T>> {
        self.list.iter()
    }

    /// Number of places, of busy ones, and of calls that had to wait for one.
    pub fn figures(&self) -> (usize, usize, u64) {
        let busy = self.list.iter().filter(|place| place.busy.get()).count();
        (self.list.len(), busy, self.waits.get())
    }

    /// A place for a call of `session`: that with the number `hint` if it is free and `suits`, as
    /// one does that was last used with the same server; else another one such; else one never
    /// used, else the one used longest ago, which `adopt` is called with. Waits if all are busy.
    ///
    /// # Errors
    /// Why there is none: the call's deadline has passed, or it was taken back.
    #[inline(always)]
    pub fn take(
        &self,
        cx: &Kernel,
        hint: u16,
        session: &SessionRef,
        options: Option<CallOptions>,
        (suits, adopt): (impl Fn(&T) -> bool, impl FnOnce(&T)),
    ) -> Result<&Place<T>, CallCause> {
        if let Some(place) = self.get(hint)
            && !place.busy.get()
            && !place.suspect.get()
            && suits(place)
            && place.used.get() != 0
        {
            place.busy.set(true);
            return Ok(place);
        }
        let place = self.choose(cx, session, options, suits)?;
        adopt(place);
        Ok(place)
    }

    #[cold]
    #[inline(never)]
    fn choose(
        &self,
        cx: &Kernel,
        session: &SessionRef,
        options: Option<CallOptions>,
        suits: impl Fn(&T) -> bool,
    ) -> Result<&Place<T>, CallCause> {
        let rank = |place: &&Place<T>| {
            let kind = match (place.suspect.get(), place.used.get()) {
                (true, _) => 3,
                (_, 0) => 1,
                _ if suits(place) => 0,
                _ => 2,
            };
            (kind, place.used.get())
        };
        let free = self.list.iter().filter(|place| !place.busy.get());
        let place = match free.min_by_key(rank) {
            Some(place) => place,
            None => {
                self.waits.set(self.waits.get() + 1);
                let pass_on = |index| self.pass_on(cx, index);
                let index = self.queue.wait(cx, session.id(), options, pass_on)?;
                self.get(index).ok_or(CallCause::Closed)?
            }
        };
        place.busy.set(true);
        Ok(place)
    }

    /// Gives a place up: to the call that waits longest, else it is free. One whose call has failed
    /// is used last.
    #[inline(always)]
    pub fn give_up(&self, cx: &Kernel, place: &Place<T>, failed: bool) {
        self.clock.set(self.clock.get() + 1);
        place.used.set(self.clock.get());
        place.suspect.set(failed);
        if self.queue.is_empty() {
            place.busy.set(false);
        } else {
            self.pass_on(cx, place.index);
        }
    }

    #[cold]
    fn pass_on(&self, cx: &Kernel, index: u16) {
        if let Some(place) = self.queue.grant(cx, index).and_then(|index| self.get(index)) {
            place.busy.set(false);
        }
    }

    /// Ends the waits of the calls of a session with this tag (any, if it is 0); false if there are
    /// none.
    pub fn end_waits(&self, cx: &Kernel, session: SessionId, tag: u64, why: CallCause) -> bool {
        self.queue.end(cx, why, |s, t| s == session && (tag == 0 || t == tag))
    }
}
