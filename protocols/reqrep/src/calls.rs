//! The calls that wait for their replies.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{CallCause, SessionId};
use xk_core::{Kernel, Message};
use xk_kit::Pending;

/// One call; its place is used again and again.
pub(crate) struct Call {
    /// Woken without an outcome if the request is lost.
    pub(crate) pending: Pending<Result<Message, CallCause>>,
    is_free: Cell<bool>,
    xid: Cell<u32>,
    /// The session below, which replies come through.
    lower: Cell<SessionId>,
    /// The stream that carried the request has broken.
    lost: Cell<bool>,
}

impl Call {
    fn new() -> Self {
        Self {
            pending: Pending::default(),
            is_free: Cell::new(true),
            xid: Cell::new(0),
            lower: Cell::new(SessionId(0)),
            lost: Cell::new(false),
        }
    }

    pub(crate) fn xid(&self) -> u32 {
        self.xid.get()
    }

    /// Whether the stream that carried the request broke since the last look.
    pub(crate) fn take_lost(&self) -> bool {
        self.lost.replace(false)
    }
}

/// Number of places at first; as many again whenever half of them are taken.
const PLACES_MIN: usize = 64;

/// All calls of one protocol.
pub(crate) struct Calls {
    /// The calls by the lowest bits of their numbers; the length is a power of two.
    places: RefCell<Vec<Option<Rc<Call>>>>,
    /// The next place to try.
    next: Cell<u32>,
    waiting: Cell<usize>,
    max: usize,
}

impl Calls {
    /// None yet, at most `max` at once.
    pub(crate) fn new(max: usize) -> Self {
        let mut places = Vec::new();
        places.resize_with(PLACES_MIN, || None);
        Self {
            places: RefCell::new(places),
            next: Cell::new(0),
            waiting: Cell::new(0),
            max: max.max(1),
        }
    }

    /// Number of waiting calls.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.get()
    }

    fn place(&self, xid: u32) -> usize {
        xid as usize & (self.places.borrow().len() - 1)
    }

    /// The number of a request: the places in turn by its lowest bits, and for the rest what no
    /// server can predict of the requests to another one.
    pub(crate) fn number(&self, cx: &Kernel) -> u32 {
        let next = self.next.get();
        self.next.set(next.wrapping_add(1));
        let places = self.places.borrow().len() as u32;
        cx.random().next_u32() & !(places - 1) | next & (places - 1)
    }

    /// Begins a call of a session through one below, with a number of its own; `None` if there are
    /// as many as there may be.
    #[inline(always)]
    pub(crate) fn begin(
        &self,
        cx: &Kernel,
        session: SessionId,
        lower: SessionId,
        tag: u64,
    ) -> Option<Rc<Call>> {
        if self.waiting.get() >= self.max {
            return None;
        }
        if 2 * self.waiting.get() >= self.places.borrow().len() {
            self.grow();
        }
        // There is a free place, so this ends.
        loop {
            let xid = self.number(cx);
            let at = self.place(xid);
            let mut places = self.places.borrow_mut();
            let call = places.get_mut(at)?.get_or_insert_with(|| Rc::new(Call::new()));
            if !call.is_free.replace(false) {
                continue;
            }
            call.pending.begin(session, tag);
            call.xid.set(xid);
            call.lower.set(lower);
            self.waiting.set(self.waiting.get() + 1);
            return Some(Rc::clone(call));
        }
    }

    /// Twice as many places. Numbers that differ in the lowest bits differ in one bit more, too.
    #[cold]
    fn grow(&self) {
        let mut places = self.places.borrow_mut();
        let len = 2 * places.len();
        let mut more = Vec::new();
        more.resize_with(len, || None);
        for call in places.drain(..).flatten() {
            if let Some(place) = more.get_mut(call.xid.get() as usize & (len - 1)) {
                *place = Some(call);
            }
        }
        *places = more;
    }

    /// Ends a call, whatever has become of it.
    #[inline]
    pub(crate) fn end(&self, call: &Call) {
        call.is_free.set(true);
        call.lost.set(false);
        call.pending.end();
        self.waiting.set(self.waiting.get() - 1);
    }

    /// Takes a reply; gives it back if no call through this session below with this number waits
    /// for one.
    pub(crate) fn answer(
        &self,
        cx: &Kernel,
        lower: SessionId,
        xid: u32,
        reply: Message,
    ) -> Result<(), Message> {
        let at = self.place(xid);
        let places = self.places.borrow();
        match places.get(at) {
            Some(Some(call))
                if call.pending.waits() && call.xid.get() == xid && call.lower.get() == lower =>
            {
                call.pending.finish(cx, Ok(reply));
                Ok(())
            }
            _ => Err(reply),
        }
    }

    /// Ends the calls that `is` says true of; answers how many there were.
    fn finish(&self, cx: &Kernel, cause: CallCause, is: impl Fn(&Call) -> bool) -> usize {
        let places = self.places.borrow();
        let all = places.iter().flatten().filter(|call| call.pending.waits() && is(call));
        all.map(|call| call.pending.finish(cx, Err(cause))).count()
    }

    /// Takes the call with this tag back; false if there is none.
    pub(crate) fn cancel(&self, cx: &Kernel, session: SessionId, tag: u64) -> bool {
        let is = |call: &Call| call.pending.is(session, Some(tag));
        tag != 0 && self.finish(cx, CallCause::Cancelled, is) > 0
    }

    /// Ends all calls of a session that is closed.
    pub(crate) fn close(&self, cx: &Kernel, session: SessionId) {
        if self.waiting.get() > 0 {
            self.finish(cx, CallCause::Closed, |call| call.pending.is(session, None));
        }
    }

    /// No protocol of the peer takes the call with this number, or any through a session below if
    /// it is not known which. False if there is none.
    pub(crate) fn refuse(&self, cx: &Kernel, lower: SessionId, xid: Option<u32>) -> bool {
        self.finish(cx, CallCause::NobodyThere, |call| {
            call.lower.get() == lower && xid.is_none_or(|xid| call.xid.get() == xid)
        }) > 0
    }

    /// The stream below broke: calls through it that wait are sent again.
    pub(crate) fn lose(&self, cx: &Kernel, lower: SessionId) {
        for call in self.places.borrow().iter().flatten() {
            if call.lower.get() == lower && call.pending.waits() && !call.lost.replace(true) {
                call.pending.wake(cx);
            }
        }
    }
}
