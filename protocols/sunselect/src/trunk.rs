//! The sessions below that lead to one peer, shared by all procedures called there.
//!
//! A layer below that has any number of calls under way gives one session. Of a layer that has one
//! at a time, such as `channel`, there are as many as calls that were under way at once.

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{CallCause, CallError, OpenError};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{Answer, Ask, Kernel, Message, Participants, ProtocolRef, SessionRef, Upper};
use xk_kit::rpc::call::{CallOptions, CallsAtOnce, CancelCall};

struct Line {
    session: SessionRef,
    busy: bool,
}

/// The sessions below to one peer.
pub(crate) struct Trunk {
    pub(crate) id: u64,
    /// Names both ends.
    pub(crate) ends: String,
    participants: Participants,
    first: SessionRef,
    /// Free lines and those that may yet be opened; `None` if one line takes any number of calls.
    places: Option<Semaphore>,
    lines: RefCell<Vec<Line>>,
    /// How many sessions above call over it.
    pub(crate) users: Cell<usize>,
    /// Those who wait for a line and were cancelled, and how often anybody was.
    cancelled: RefCell<Vec<u64>>,
    cancels: Cell<u64>,
    waiting: RefCell<Vec<u64>>,
}

impl Trunk {
    /// Opens the first session on `lower`.
    pub(crate) fn open(
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &ProtocolRef,
        participants: Participants,
        (id, ends): (u64, String),
        lines_max: u32,
    ) -> Result<Rc<Self>, OpenError> {
        let first = lower.open(cx, Upper::new(this), participants.clone())?;
        let one = first.ask(cx, CallsAtOnce::default()).is_some_and(|q| q.calls <= 1);
        let line = Line { session: first.clone(), busy: false };
        Ok(Rc::new(Self {
            id,
            ends,
            participants,
            first,
            places: one.then(|| Semaphore::new(lines_max.max(1))),
            lines: RefCell::new(alloc::vec![line]),
            users: Cell::new(0),
            cancelled: RefCell::default(),
            cancels: Cell::new(0),
            waiting: RefCell::default(),
        }))
    }

    /// The session that answers questions.
    pub(crate) fn first(&self) -> &SessionRef {
        &self.first
    }

    /// Calls over a line.
    #[inline]
    pub(crate) fn call(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError> {
        match &self.places {
            None => self.first.call(cx, request),
            Some(places) => self.call_on_free(cx, places, (lower, this), request),
        }
    }

    fn call_on_free(
        &self,
        cx: &Kernel,
        places: &Semaphore,
        (lower, this): (&ProtocolRef, &SessionRef),
        request: Message,
    ) -> Result<Message, CallError> {
        if !places.try_wait() {
            let options = request.attribute::<CallOptions>();
            self.wait_for_place(cx, places, options)?;
        }
        let result = self.take(cx, lower, this).and_then(|session| {
            let result = session.call(cx, request);
            self.give_back(&session);
            result
        });
        cx.signal(places);
        result
    }

    /// Waits until a line is free, as long as the caller wants to.
    fn wait_for_place(
        &self,
        cx: &Kernel,
        places: &Semaphore,
        options: Option<CallOptions>,
    ) -> Result<(), CallError> {
        let tag = options.map_or(0, |options| options.tag);
        self.waiting.borrow_mut().push(tag);
        let result = loop {
            let cancels = self.cancels.get();
            let forever = core::time::Duration::MAX;
            let time = match CallOptions::clip(options, cx.now(), forever) {
                Some(time) if time == forever => None,
                Some(time) => Some(time),
                None => break Err(CallCause::TimedOut { tries: 0 }.into()),
            };
            match cx.wait(places, time) {
                // Taken back in the very moment a line was free: for the next one.
                Ok(()) if self.is_cancelled(tag) => {
                    cx.signal(places);
                    break Err(CallCause::Cancelled.into());
                }
                Ok(()) => break Ok(()),
                Err(WaitError::TimedOut) if self.is_cancelled(tag) => {
                    break Err(CallCause::Cancelled.into());
                }
                Err(WaitError::TimedOut) => break Err(CallCause::TimedOut { tries: 0 }.into()),
                // Somebody was cancelled: if it was another, wait on.
                Err(WaitError::Interrupted)
                    if self.cancels.get() != cancels && !self.is_cancelled(tag) => {}
                Err(error) => break Err(error.into()),
            }
        };
        let mut waiting = self.waiting.borrow_mut();
        if let Some(at) = waiting.iter().position(|other| *other == tag) {
            waiting.swap_remove(at);
        }
        result
    }

    /// Whether the call with this tag was taken back; once.
    fn is_cancelled(&self, tag: u64) -> bool {
        let mut cancelled = self.cancelled.borrow_mut();
        let found = cancelled.iter().position(|other| *other == tag);
        found.map(|at| cancelled.swap_remove(at)).is_some()
    }

    /// A line that nobody uses: there is one, or there is room for a new one.
    fn take(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        this: &SessionRef,
    ) -> Result<SessionRef, CallError> {
        let is_free = |line: &&mut Line| !line.busy && !line.session.head().is_closed();
        if let Some(line) = self.lines.borrow_mut().iter_mut().find(is_free) {
            line.busy = true;
            return Ok(line.session.clone());
        }
        let own = this.protocol(cx).ok_or(CallCause::Closed)?;
        let opened = lower.open(cx, Upper::new(&own), self.participants.clone());
        let session = opened.map_err(|_| CallError::from(CallCause::Closed))?;
        let mut lines = self.lines.borrow_mut();
        lines.retain(|line| line.busy || !line.session.head().is_closed());
        lines.push(Line { session: session.clone(), busy: true });
        Ok(session)
    }

    fn give_back(&self, session: &SessionRef) {
        let mut lines = self.lines.borrow_mut();
        if let Some(line) = lines.iter_mut().find(|line| line.session == *session) {
            line.busy = false;
        }
    }

    /// Takes a call back, wherever it waits.
    pub(crate) fn cancel(&self, cx: &Kernel, ask: &mut Ask<'_>) -> Answer {
        let Some(tag) = ask.get::<CancelCall>().map(|question| question.tag) else {
            return Answer::Unknown;
        };
        let lines = self.lines.borrow();
        let sessions: Vec<SessionRef> = lines.iter().map(|line| line.session.clone()).collect();
        drop(lines);
        if sessions.iter().any(|session| session.control(cx, ask).is_answered()) {
            return Answer::Answered;
        }
        let Some(places) = &self.places else {
            return Answer::Unknown;
        };
        if tag == 0 || !self.waiting.borrow().contains(&tag) {
            return Answer::Unknown;
        }
        self.cancelled.borrow_mut().push(tag);
        self.cancels.set(self.cancels.get() + 1);
        places.interrupt_all(cx.shepherds());
        Answer::Answered
    }

    /// Forgets its sessions without closing them; for a protocol's `stop`.
    pub(crate) fn forget(&self) {
        let lines = self.lines.take();
        drop(lines);
    }

    /// Lets go of what it holds below.
    pub(crate) fn close(&self, cx: &Kernel) {
        for line in self.lines.take() {
            line.session.close(cx);
        }
    }
}
