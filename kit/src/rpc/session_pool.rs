//! The sessions below that lead to one peer, shared by all procedures called there.
//!
//! Of a layer below whose sessions carry one call at a time, such as `channel`, there are as many
//! as calls were under way at once, up to a bound: they are opened when they are first needed, and
//! kept, and calls that find all in use wait. A layer below whose sessions take any number of
//! calls gives one.

use crate::rpc::call::{CallOptions, CallsAtOnce, CancelCall};
use crate::rpc::call_layer::CallLower;
use crate::rpc::wait_queue::WaitQueue;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_core::object::{CallCause, CallError, OpenError, PushError, SessionId, SessionSlot};
use xk_core::{Answer, Ask, Kernel, Message, Participants, ProtocolRef, SessionRef, Upper};

/// A call with a name, while a session below carries it.
struct Tagged {
    caller: SessionId,
    tag: u64,
    session: SessionRef,
}

/// A call on a session that several share: of which session above, and by which shepherd.
type Carried = (SessionId, Option<u32>);

/// The sessions below to one peer.
pub struct SessionPool {
    /// Number of the pool, which no other pool of the layer has or had.
    id: u64,
    lower: ProtocolRef,
    /// The layer that holds the sessions.
    upper: ProtocolRef,
    ends: Participants,
    sessions_max: usize,
    /// Number of sessions above that use the pool. Without any it keeps none below.
    users: Cell<u32>,
    /// The session that takes any number of calls.
    shared: Option<SessionRef>,
    idle: RefCell<Vec<SessionRef>>,
    /// Sessions that are open, or about to be.
    opened: Cell<usize>,
    /// Open sessions, in use or not. Each has the tag of the session above that used it last.
    sessions: RefCell<Vec<SessionRef>>,
    /// A call that [`shared`](Self::shared) carries.
    carried: Cell<Option<Carried>>,
    /// Further calls that it carries at the same time.
    carried_beside: RefCell<Vec<Carried>>,
    /// One of them, for questions.
    some: SessionSlot,
    /// Calls that wait for a session, or for the right to open one.
    queue: WaitQueue<Option<SessionRef>>,
    tagged: RefCell<Vec<Tagged>>,
}

/// The pools of one layer, by the participants that they were opened with.
pub struct SessionPools {
    pools: RefCell<BTreeMap<String, Rc<SessionPool>>>,
    pools_made: Cell<u64>,
    sessions_max: usize,
}

impl SessionPools {
    /// No pools yet; one has at most `sessions_max` sessions that carry one call at a time.
    #[must_use]
    pub fn new(sessions_max: usize) -> Self {
        let pools = RefCell::default();
        Self { pools, pools_made: Cell::new(0), sessions_max: sessions_max.max(1) }
    }

    /// The pool between these ends for one more user: the one there is, or a new one with its
    /// first session, so that a peer that cannot be had is known at once.
    ///
    /// # Errors
    /// What `lower` answers.
    pub fn open(
        &self,
        cx: &Kernel,
        lower: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Rc<SessionPool>, OpenError> {
        let name = ends.to_string();
        if let Some(pool) = self.find(&name) {
            return Ok(pool);
        }
        let first = lower.open(cx, upper, ends.clone())?;
        let is_alone = first.ask(cx, CallsAtOnce::default()).is_some_and(|q| q.calls <= 1);
        if let Some(pool) = self.find(&name) {
            // This one blocked, and another was faster.
            first.close(cx);
            return Ok(pool);
        }
        let id = self.pools_made.get();
        self.pools_made.set(id + 1);
        let pool = Rc::new(SessionPool {
            id,
            lower: lower.clone(),
            upper: upper.receiver.clone(),
            ends,
            sessions_max: self.sessions_max,
            users: Cell::new(1),
            shared: (!is_alone).then(|| first.clone()),
            idle: RefCell::new([first.clone()].into()),
            opened: Cell::new(1),
            sessions: RefCell::new([first.clone()].into()),
            carried: Cell::default(),
            carried_beside: RefCell::default(),
            some: SessionSlot::new(Some(first)),
            queue: WaitQueue::default(),
            tagged: RefCell::default(),
        });
        let before = self.pools.borrow_mut().insert(name, Rc::clone(&pool));
        drop(before);
        Ok(pool)
    }

    /// The pool of this name, with one user more, unless nothing can be called through it any more.
    fn find(&self, name: &str) -> Option<Rc<SessionPool>> {
        let pool = self.pools.borrow().get(name).cloned();
        let pool = pool.filter(|pool| !pool.is_over())?;
        pool.users.set(pool.users.get() + 1);
        Some(pool)
    }

    /// One user less. With the last the pool goes, and its sessions are closed.
    pub fn leave(&self, cx: &Kernel, pool: &Rc<SessionPool>) {
        pool.users.set(pool.users.get().saturating_sub(1));
        if pool.users.get() > 0 {
            return;
        }
        self.pools.borrow_mut().retain(|_, other| !Rc::ptr_eq(other, pool));
        drop(pool.some.take());
        let idle = pool.idle.take();
        pool.sessions.borrow_mut().retain(|session| !idle.contains(session));
        pool.opened.set(pool.opened.get().saturating_sub(idle.len()));
        for session in idle {
            session.close(cx);
        }
    }

    /// Releases everything, without closing; for a protocol's `stop`.
    pub fn clear(&self) {
        for pool in self.pools.take().into_values() {
            let calls = (pool.tagged.take(), pool.sessions.take());
            let kept = (pool.some.take(), pool.idle.take(), calls);
            drop(kept);
        }
    }
}

/// Ends a call whose session was closed meanwhile, and lets its shepherd wait again.
#[cold]
fn ended(
    cx: &Kernel,
    (_, shepherd): Carried,
    result: Result<Message, CallError>,
) -> Result<Message, CallError> {
    if let Some(shepherd) = shepherd {
        cx.shepherds().set_ending(shepherd, false);
    }
    result.map_err(|error| CallError { cause: CallCause::Closed, ..error })
}

/// Tag of a session below while it carries a call of this session.
fn tag_of(caller: SessionId) -> u32 {
    caller.0 as u32
}

impl SessionPool {
    /// True if nothing can be called through it any more.
    pub fn is_over(&self) -> bool {
        self.shared.as_ref().is_some_and(|session| session.head().is_closed())
    }

    /// Number of open sessions below.
    pub fn opened(&self) -> usize {
        self.opened.get()
    }

    /// Carries a request of the session `caller` and gives what comes back.
    ///
    /// # Errors
    /// [`CallError`].
    #[inline(always)]
    pub fn call(
        &self,
        cx: &Kernel,
        caller: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError> {
        if let Some(shared) = &self.shared {
            return self.call_shared(cx, caller, shared, request);
        }
        if request.has_attributes() {
            return self.call_with_options(cx, caller, request);
        }
        let session = self.take(cx, caller, || None)?;
        let result = session.call(cx, request);
        self.give_back(cx, session);
        result
    }

    /// A session for a call of `caller`: one that is free, or another.
    #[inline(always)]
    fn take(
        &self,
        cx: &Kernel,
        caller: &SessionRef,
        options: impl FnOnce() -> Option<CallOptions>,
    ) -> Result<SessionRef, CallError> {
        let idle = self.idle.borrow_mut().pop();
        let session = match idle {
            Some(session) => session,
            None => self.another(cx, caller, options())?,
        };
        session.head().set_tag(tag_of(caller.id()));
        Ok(session)
    }

    /// Carries a request by the session that takes any number of calls.
    #[inline(always)]
    fn call_shared(
        &self,
        cx: &Kernel,
        caller: &SessionRef,
        shared: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError> {
        let call = (caller.id(), cx.shepherds().current());
        let is_beside = self.carried.get().is_some();
        match is_beside {
            false => self.carried.set(Some(call)),
            true => self.carried_beside.borrow_mut().push(call),
        }
        let result = shared.call(cx, request);
        match is_beside {
            false => self.carried.set(None),
            true => self.forget(call),
        }
        match caller.head().is_closed() {
            false => result,
            true => ended(cx, call, result),
        }
    }

    #[cold]
    fn forget(&self, call: Carried) {
        let mut carried = self.carried_beside.borrow_mut();
        let place = carried.iter().position(|other| *other == call);
        place.map(|place| carried.swap_remove(place));
    }

    /// Ends the calls of a session that is closed.
    #[cold]
    pub fn end_calls(&self, cx: &Kernel, caller: SessionId) {
        self.queue.end(cx, CallCause::Closed, |session, _| session == caller);
        let end = |(of, shepherd): &Carried| match shepherd {
            Some(shepherd) if *of == caller => cx.shepherds().set_ending(*shepherd, true),
            _ => {}
        };
        self.carried.get().iter().for_each(end);
        self.carried_beside.borrow().iter().for_each(end);
        let is_busy = |session: &&SessionRef| {
            session.head().tag() == tag_of(caller) && !self.idle.borrow().contains(session)
        };
        let busy: Vec<_> = match &self.shared {
            None => self.sessions.borrow().iter().filter(is_busy).cloned().collect(),
            Some(_) => Vec::new(),
        };
        for session in busy {
            session.close(cx);
        }
    }

    #[inline(never)]
    fn call_with_options(
        &self,
        cx: &Kernel,
        caller: &SessionRef,
        request: Message,
    ) -> Result<Message, CallError> {
        let options = request.attribute::<CallOptions>();
        let tag = options.map_or(0, |options| options.tag);
        let session = self.take(cx, caller, || options)?;
        if tag != 0 {
            let caller = caller.id();
            self.tagged.borrow_mut().push(Tagged { caller, tag, session: session.clone() });
        }
        let result = session.call(cx, request);
        if tag != 0 {
            let mut tagged = self.tagged.borrow_mut();
            let place = tagged.iter().position(|call| call.session == session);
            let gone = place.map(|place| tagged.swap_remove(place));
            drop(tagged);
            drop(gone);
        }
        self.give_back(cx, session);
        result
    }

    /// Opens one more session if there may be one, else waits for one.
    #[inline(never)]
    fn another(
        &self,
        cx: &Kernel,
        caller: &SessionRef,
        options: Option<CallOptions>,
    ) -> Result<SessionRef, CallError> {
        let granted = if self.opened.get() < self.sessions_max {
            self.opened.set(self.opened.get() + 1);
            None
        } else {
            self.queue.wait(cx, caller.id(), options, |granted| self.pass_on(cx, granted))?
        };
        let session = granted.map_or_else(|| self.open_another(cx), Ok)?;
        if caller.head().is_closed() {
            self.give_back(cx, session);
            return Err(CallCause::Closed.into());
        }
        Ok(session)
    }

    /// Opens a session that is counted already.
    fn open_another(&self, cx: &Kernel) -> Result<SessionRef, CallError> {
        let opened = self.lower.open(cx, Upper::new(&self.upper), self.ends.clone());
        if let Ok(session) = &opened {
            self.sessions.borrow_mut().push(session.clone());
            if !self.some.is_some() {
                drop(self.some.replace(Some(session.clone())));
            }
        }
        opened.map_err(|error| {
            self.pass_on(cx, None);
            PushError::from(error).into()
        })
    }

    /// A call is over: its session goes to the call that waits longest, or is kept.
    #[inline(always)]
    fn give_back(&self, cx: &Kernel, session: SessionRef) {
        if session.head().is_closed() || self.users.get() == 0 {
            return self.drop_session(cx, session);
        }
        if self.queue.is_empty() {
            self.idle.borrow_mut().push(session);
        } else {
            self.pass_on(cx, Some(session));
        }
    }

    /// Gives a session, or without one the right to open one, to the call that waits longest.
    #[inline(never)]
    fn pass_on(&self, cx: &Kernel, granted: Option<SessionRef>) {
        match self.queue.grant(cx, granted) {
            Some(Some(session)) => self.idle.borrow_mut().push(session),
            Some(None) => self.opened.set(self.opened.get().saturating_sub(1)),
            None => {}
        }
    }

    /// Drops a session that is closed, or that no session above needs any more; the call that
    /// waits longest may open another in its place.
    #[cold]
    fn drop_session(&self, cx: &Kernel, session: SessionRef) {
        self.sessions.borrow_mut().retain(|other| *other != session);
        if self.some.has(&session) {
            drop(self.some.take());
        }
        if !session.head().is_closed() {
            session.close(cx);
        }
        self.pass_on(cx, None);
    }

    /// Takes back the call of `caller` with this tag, whether it waits here or a session carries
    /// it.
    fn cancel(&self, cx: &Kernel, caller: SessionId, tag: u64) -> Answer {
        if self.queue.cancel(cx, caller, tag) {
            return Answer::Answered;
        }
        let session = {
            let tagged = self.tagged.borrow();
            let mut calls = tagged.iter();
            let found = calls.find(|call| (call.caller, call.tag) == (caller, tag));
            found.map(|call| call.session.clone())
        };
        session.map_or(Answer::Unknown, |session| {
            session.control(cx, &mut Ask::new(&mut CancelCall { tag }))
        })
    }
}

impl CallLower for Rc<SessionPool> {
    type Shared = SessionPools;

    fn open(
        pools: &SessionPools,
        cx: &Kernel,
        lower: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<Self, OpenError> {
        pools.open(cx, lower, upper, ends)
    }

    fn id(&self) -> u64 {
        self.id
    }

    #[inline(always)]
    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError> {
        SessionPool::call(self, cx, this, request)
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let (Some(question), None) = (ask.get::<CancelCall>(), &self.shared) {
            return self.cancel(cx, this.id(), question.tag);
        }
        self.some.get().map_or(Answer::Unknown, |session| session.control(cx, ask))
    }

    fn end_calls(&self, cx: &Kernel, this: &SessionRef) {
        SessionPool::end_calls(self, cx, this.id());
    }

    fn session(&self) -> Option<&SessionRef> {
        self.shared.as_ref()
    }

    fn close(&self, pools: &SessionPools, cx: &Kernel) {
        pools.leave(cx, self);
    }

    fn clear(pools: &SessionPools) {
        pools.clear();
    }
}
