//! Calls to many hosts: one request, the replies of all that answer until the deadline (RFC 5531,
//! section 8.4.2).
//!
//! A gathering lasts from its first call to its deadline, also between calls: its timer sends the
//! request again, and replies wait in it until they are asked for. A call for the next reply that
//! comes too late fails.

use crate::protocol::{NO_CALL, Settings};
use crate::wire::HEADER_OCTETS;
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::object::{CallCause, CallError, PushError, SessionId};
use xk_core::reason::{Class, Reason};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{HostAddr, Kernel, Message, SessionRef, Time};
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::CallOptions;
use xk_kit::rpc::retransmit::SavedMessage;

/// A host has replied already: it got the request twice, or the network doubled the reply.
pub static REPEATED_REPLY: Reason = Reason::new("repeated reply", Class::NotMine);
/// The largest number of gatherings is there already.
pub static TOO_MANY_CALLS: Reason = Reason::new("too many calls", Class::Exhausted);
/// The largest number of hosts has replied already.
pub static TOO_MANY_REPLIES: Reason = Reason::new("too many replies", Class::Exhausted);

/// Largest number of gatherings at once.
const GATHERINGS_MAX: usize = 64;
/// Time after the deadline in which replies that came before it can still be asked for.
const KEPT: Duration = Duration::from_secs(10);

/// One request to many hosts, and its replies.
pub(crate) struct Gathering {
    session: SessionId,
    /// The session below, through which replies come.
    lower: SessionId,
    tag: u64,
    xid: u32,
    until: Time,
    /// The time until the request is sent again.
    wait: Cell<Duration>,
    tries: Cell<u32>,
    request: RefCell<SavedMessage>,
    /// The hosts that have replied.
    hosts: RefCell<Vec<HostAddr>>,
    /// Replies that were not asked for yet.
    replies: RefCell<VecDeque<Message>>,
    /// Signalled for each reply; closed at the end.
    changed: Semaphore,
    /// The reason why no further reply will come.
    end: Cell<Option<CallCause>>,
}

impl Gathering {
    fn is(&self, session: SessionId, xid: u32) -> bool {
        self.session == session && self.xid == xid
    }

    fn finish(&self, cx: &Kernel, why: CallCause) {
        if self.end.get().is_none() {
            self.end.set(Some(why));
            self.request.borrow_mut().clear();
            self.changed.close(cx.shepherds());
        }
    }

    /// Waits for the next reply.
    fn next(&self, cx: &Kernel) -> Result<Message, CallError> {
        loop {
            let reply = self.replies.borrow_mut().pop_front();
            if let Some(reply) = reply {
                return Ok(reply);
            }
            if let Some(why) = self.end.get() {
                return Err(why.into());
            }
            match cx.wait(&self.changed, None) {
                // The end, or the signal of a reply that another call has taken.
                Ok(()) | Err(WaitError::Closed) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Time until the timer has to go off.
    fn pause(&self, now: Time) -> Duration {
        self.wait.get().min(self.until.since(now))
    }
}

/// All gatherings of one protocol.
#[derive(Default)]
pub(crate) struct Gatherings(RefCell<Vec<Rc<Gathering>>>);

impl Gatherings {
    /// Number of gatherings.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Sends a request of `session` through `lower`, and returns the first reply.
    pub(crate) fn begin(
        &self,
        cx: &Kernel,
        (session, lower): (&SessionRef, &SessionRef),
        ((xid, header), settings): ((u32, [u8; HEADER_OCTETS]), &Settings),
        mut request: Message,
        options: CallOptions,
    ) -> Result<Message, CallError> {
        let late = || CallError::from(CallCause::TimedOut { tries: 0 });
        let left = CallOptions::clip(Some(options), cx.now(), settings.total).ok_or_else(late)?;
        if self.len() >= GATHERINGS_MAX {
            session.discard(cx, request, &TOO_MANY_CALLS);
            return Err(PushError::QueueFull.into());
        }
        let no_buffers = |_| CallError::from(PushError::NoBuffers);
        request.push_array(&header).map_err(no_buffers)?;
        let mut kept = SavedMessage::new();
        kept.save(&request).map_err(no_buffers)?;
        let gathering = Rc::new(Gathering {
            session: session.id(),
            lower: lower.id(),
            tag: options.tag,
            xid,
            until: cx.now().after(left),
            wait: Cell::new(settings.first_wait),
            tries: Cell::new(1),
            request: RefCell::new(kept),
            hosts: RefCell::default(),
            replies: RefCell::default(),
            changed: Semaphore::new(0),
            end: Cell::new(None),
        });
        let armed = cx.schedule(session, gathering.pause(cx.now()), xid.into());
        armed.map_err(|_| CallError::from(PushError::QueueFull))?;
        // If the push fails the timer finds no gathering, and does nothing.
        self.0.borrow_mut().push(Rc::clone(&gathering));
        if let Err(error) = lower.push(cx, request) {
            self.forget(&gathering);
            return Err(error.into());
        }
        self.next_of(cx, &gathering)
    }

    /// Returns the next reply to the request of `session` with this tag.
    pub(crate) fn next(
        &self,
        cx: &Kernel,
        session: SessionId,
        tag: u64,
    ) -> Result<Message, CallError> {
        let known = self.find(|one| one.session == session && one.tag == tag);
        match known {
            Some(gathering) => self.next_of(cx, &gathering),
            None => Err(CallCause::TimedOut { tries: 0 }.into()),
        }
    }

    fn next_of(&self, cx: &Kernel, gathering: &Rc<Gathering>) -> Result<Message, CallError> {
        let next = gathering.next(cx);
        if next.is_err() && gathering.end.get().is_some() {
            self.forget(gathering);
        }
        next
    }

    fn find(&self, is: impl Fn(&Gathering) -> bool) -> Option<Rc<Gathering>> {
        self.0.borrow().iter().find(|one| is(one)).cloned()
    }

    fn forget(&self, gathering: &Rc<Gathering>) {
        self.0.borrow_mut().retain(|other| !Rc::ptr_eq(other, gathering));
    }

    /// Takes a reply; gives it back with the reason if it is not wanted.
    pub(crate) fn answer(
        &self,
        cx: &Kernel,
        (lower, xid): (SessionId, u32),
        replies_max: usize,
        reply: Message,
    ) -> Result<(), (Message, &'static Reason)> {
        let known =
            self.find(|one| one.lower == lower && one.xid == xid && one.end.get().is_none());
        // A reply without its sender's name does not come from a session with many hosts.
        let (Some(gathering), Some(from)) = (known, reply.attribute::<Peer>()) else {
            return Err((reply, &NO_CALL));
        };
        let mut hosts = gathering.hosts.borrow_mut();
        if hosts.contains(&from.host) {
            return Err((reply, &REPEATED_REPLY));
        }
        if hosts.len() >= replies_max {
            return Err((reply, &TOO_MANY_REPLIES));
        }
        hosts.push(from.host);
        gathering.replies.borrow_mut().push_back(reply);
        cx.signal(&gathering.changed);
        Ok(())
    }

    /// Sends the request again, or ends the gathering, when its timer has gone off.
    pub(crate) fn timeout(
        &self,
        cx: &Kernel,
        session: &SessionRef,
        lower: &SessionRef,
        xid: u32,
        settings: &Settings,
    ) {
        let Some(gathering) = self.find(|one| one.is(session.id(), xid)) else {
            return;
        };
        let is_over = gathering.end.get().is_some();
        if is_over {
            return self.forget(&gathering);
        }
        let tries = gathering.tries.get();
        let over = CallCause::TimedOut { tries };
        if cx.now() >= gathering.until {
            gathering.finish(cx, over);
            if cx.schedule(session, KEPT, xid.into()).is_err() {
                self.forget(&gathering);
            }
            return;
        }
        // If there is no buffer, or the push fails, the next repetition may succeed.
        let again = gathering.request.borrow().again(cx.pool());
        if let Ok(Some(again)) = again {
            gathering.tries.set(tries + 1);
            let _ = lower.push(cx, again);
        }
        gathering.wait.set(settings.longer(gathering.wait.get()));
        let armed = cx.schedule(session, gathering.pause(cx.now()), xid.into());
        if armed.is_err() {
            gathering.finish(cx, over);
            self.forget(&gathering);
        }
    }

    /// Ends the gatherings of a session for which `is` is true; false if there is none.
    fn end(
        &self,
        cx: &Kernel,
        session: SessionId,
        why: CallCause,
        is: impl Fn(&Gathering) -> bool,
    ) -> bool {
        let is_meant = |one: &Gathering| one.session == session && is(one);
        let mut found = false;
        while let Some(gathering) = self.find(is_meant) {
            found |= gathering.end.get().is_none();
            gathering.finish(cx, why);
            self.forget(&gathering);
        }
        found
    }

    /// Cancels the gathering with this tag; false if there is none.
    pub(crate) fn cancel(&self, cx: &Kernel, session: SessionId, tag: u64) -> bool {
        tag != 0 && self.end(cx, session, CallCause::Cancelled, |one| one.tag == tag)
    }

    /// Ends all gatherings of a session that is closed.
    pub(crate) fn close(&self, cx: &Kernel, session: SessionId) {
        self.end(cx, session, CallCause::Closed, |_| true);
    }

    /// Removes all gatherings, for the protocol's `stop`.
    pub(crate) fn clear(&self) {
        let gone = self.0.take();
        drop(gone);
    }
}
