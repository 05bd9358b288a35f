//! The caller's side: the calls that wait for replies, and what reminds members of them.

use crate::protocol::{Own, Settings, aside};
use crate::replies::{Outcome, Replies, Verdict};
use crate::wire::{CALL, Header, REMINDER, is_before};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::object::{CallCause, CallError, PushError, SessionId};
use xk_core::reason::{Class, Reason};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{Kernel, Message, SessionRef, Time, reason};
use xk_kit::group::{Aside, MemberState, Want};
use xk_kit::rpc::call::{CallOptions, Gather};

/// No call waits for the reply.
pub(crate) static NO_CALL: Reason = Reason::new("no such call", Class::NotMine);
/// The member has replied, or was not asked.
pub(crate) static REPEATED_REPLY: Reason = Reason::new("repeated reply", Class::NotMine);
/// As many calls wait as may.
pub(crate) static TOO_MANY_CALLS: Reason = Reason::new("too many calls", Class::Exhausted);
/// Fewer members are left than replies are wanted.
pub(crate) static TOO_FEW: Reason = Reason::new("too few members", Class::Exhausted);

/// Largest number of calls of one session that wait.
pub(crate) const CALLS_MAX: usize = 64;
/// Time after the deadline in which replies that came before it can still be asked for.
const KEPT: Duration = Duration::from_secs(10);

/// One call.
struct Call {
    session: SessionId,
    /// The conversation.
    lower: SessionId,
    procedure: u32,
    number: u32,
    tag: u64,
    until: Time,
    tries: Cell<u32>,
    replies: RefCell<Replies<Message>>,
    /// Signalled for each change; closed at the end.
    changed: Semaphore,
    /// The reason why the call has ended before it had its replies.
    end: Cell<Option<CallCause>>,
}

/// All calls of one protocol.
#[derive(Default)]
pub(crate) struct Calls {
    all: RefCell<Vec<Rc<Call>>>,
    last: Cell<Option<u32>>,
}

/// The members that are masked out, as bits.
fn gone(own: &Own, cx: &Kernel) -> u64 {
    let is_masked = |index: &u8| {
        let asked = own.lower().ask(cx, MemberState { index: *index, ..MemberState::default() });
        asked.is_some_and(|state| state.is_masked)
    };
    (0..own.state.members).filter(is_masked).fold(0, |gone, index| gone | 1 << index)
}

impl Calls {
    fn find(&self, is: impl Fn(&Call) -> bool) -> Option<Rc<Call>> {
        self.all.borrow().iter().find(|call| is(call)).cloned()
    }

    fn forget(&self, call: &Rc<Call>) {
        self.all.borrow_mut().retain(|other| !Rc::ptr_eq(other, call));
    }

    /// Notes a call that begins; `None` if as many wait as may.
    fn begin(
        &self,
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        want: Want,
        options: CallOptions,
    ) -> Option<Rc<Call>> {
        let mut all = self.all.borrow_mut();
        // Replies that nothing has fetched.
        all.retain(|call| cx.now() < call.until.after(KEPT));
        if all.iter().filter(|call| call.session == this.id()).count() >= CALLS_MAX {
            return None;
        }
        // The first is by chance: a caller that starts again finds no replies to others.
        let by_chance = || cx.random().next_u32();
        let number = self.last.get().map_or_else(by_chance, |last| last.wrapping_add(1));
        self.last.set(Some(number));
        let asked = (u64::MAX >> (64 - own.state.members.max(1))) & !(1 << own.state.me);
        let call = Rc::new(Call {
            session: this.id(),
            lower: own.lower().id(),
            procedure: own.state.procedure,
            number,
            tag: options.tag,
            until: options.deadline,
            tries: Cell::new(1),
            replies: RefCell::new(Replies::new(want, asked)),
            changed: Semaphore::new(0),
            end: Cell::new(None),
        });
        all.push(Rc::clone(&call));
        Some(call)
    }

    /// The header of a request of this call, or of a reminder of it.
    fn header(&self, call: &Call, kind: u8) -> Header {
        let all = self.all.borrow();
        let others = all.iter().filter(|other| {
            (other.lower, other.procedure) == (call.lower, call.procedure)
                && is_before(other.number, call.number)
        });
        let before = others.map(|other| call.number.wrapping_sub(other.number)).max();
        let first = call.number.wrapping_sub(before.unwrap_or(0));
        let (number, procedure) = (call.number, call.procedure);
        Header { kind, zero: 0, why: 0, call: number, procedure, first }
    }

    /// Takes a reply that a member has sent through the session `lower`; gives it back with the
    /// reason if it is not wanted.
    pub(crate) fn answer(
        &self,
        cx: &Kernel,
        lower: SessionId,
        member: u8,
        header: &Header,
        mut reply: Message,
    ) -> Result<(), (Message, &'static Reason)> {
        let known = self.find(|call| {
            (call.lower, call.number, call.procedure) == (lower, header.call, header.procedure)
        });
        let Some(call) = known.filter(|call| call.end.get().is_none()) else {
            return Err((reply, &NO_CALL));
        };
        let _ = reply.remove_attribute::<Aside>();
        let (outcome, refusal) = match header.why {
            0 => (Ok(reply), None),
            why => (Err(xk_kit::rpc::codes::reason_of(why)), Some(reply)),
        };
        match (call.replies.borrow_mut().take(member, outcome), refusal) {
            (Ok(()), _) => {}
            (Err(Ok(reply)), _) | (Err(Err(_)), Some(reply)) => {
                return Err((reply, &REPEATED_REPLY));
            }
            (Err(Err(_)), None) => return Ok(()),
        }
        cx.signal(&call.changed);
        Ok(())
    }

    /// Has all calls of a conversation look which members are left.
    pub(crate) fn look(&self, own: &Own, cx: &Kernel) {
        let gone = gone(own, cx);
        for call in self.all.borrow().iter().filter(|call| call.lower == own.lower().id()) {
            call.replies.borrow_mut().set_gone(gone);
            cx.signal(&call.changed);
        }
    }

    /// Ends the calls of a session that `is` says true of; false if there are none.
    fn end(
        &self,
        cx: &Kernel,
        session: SessionId,
        why: CallCause,
        is: impl Fn(&Call) -> bool,
    ) -> bool {
        let is_meant = |call: &Call| call.session == session && is(call);
        let mut is_any = false;
        while let Some(call) = self.find(is_meant) {
            is_any = true;
            call.end.set(Some(why));
            call.changed.close(cx.shepherds());
            self.forget(&call);
        }
        is_any
    }

    /// Takes back the call with this tag; false if there is none.
    pub(crate) fn cancel(&self, cx: &Kernel, session: SessionId, tag: u64) -> bool {
        tag != 0 && self.end(cx, session, CallCause::Cancelled, |call| call.tag == tag)
    }

    /// Ends all calls of a session that is closed.
    pub(crate) fn close(&self, cx: &Kernel, session: SessionId) {
        self.end(cx, session, CallCause::Closed, |_| true);
    }

    /// Number of calls that wait, or whose replies may be fetched.
    pub(crate) fn len(&self) -> usize {
        self.all.borrow().len()
    }

    pub(crate) fn clear(&self) {
        drop(self.all.take());
    }
}

/// Sends a request to all members, and waits for the replies that it wants.
pub(crate) fn call(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    mut request: Message,
) -> Result<Message, CallError> {
    let layer = &own.all.layer;
    let options = CallOptions::take(&mut request);
    let gather = request.remove_attribute::<Gather>().filter(|_| options.is_some());
    let want = request.remove_attribute().unwrap_or(layer.settings.want());
    if !own.state.calls {
        return Err(CallCause::NotSupported.into());
    }
    let tag = options.map_or(0, |options| options.tag);
    if gather == Some(Gather::Next) {
        let known = layer.calls.find(|call| call.session == this.id() && call.tag == tag);
        let call = known.ok_or(CallCause::TimedOut { tries: 0 })?;
        return next(own, cx, this, &call);
    }
    let left = CallOptions::clip(options, cx.now(), layer.settings.total);
    let left = left.ok_or(CallCause::TimedOut { tries: 0 })?;
    let options = CallOptions { deadline: cx.now().after(left), tag };
    if request.len() > own.octets_max {
        this.discard(cx, request, &reason::TOO_BIG);
        return Err(PushError::TooBig.into());
    }
    let Some(call) = layer.calls.begin(own, cx, this, want, options) else {
        this.discard(cx, request, &TOO_MANY_CALLS);
        return Err(PushError::QueueFull.into());
    };
    call.replies.borrow_mut().set_gone(gone(own, cx));
    let header = layer.calls.header(&call, CALL).emit();
    request.clear_attributes();
    // The layer below waits no longer, either.
    let pushed = match request.push_array(&header) {
        Ok(()) => {
            let _ = request.set_attribute(options);
            own.lower().push(cx, request)
        }
        Err(_) => Err(PushError::NoBuffers),
    };
    if let Err(error) = pushed {
        layer.calls.forget(&call);
        return match call.end.get() {
            Some(why) => Err(why.into()),
            None => Err(error.into()),
        };
    }
    if gather.is_some() {
        return next(own, cx, this, &call);
    }
    let outcome = wait(own, cx, this, &call, |replies| match replies.verdict() {
        Verdict::Waits => None,
        Verdict::Enough => replies.first().map(|(_, reply)| reply),
        Verdict::TooFew => Some(Err(&TOO_FEW)),
    });
    layer.calls.forget(&call);
    outcome
}

/// Waits for the next reply to a call that gathers them.
fn next(own: &Own, cx: &Kernel, this: &SessionRef, call: &Rc<Call>) -> Result<Message, CallError> {
    let mut is_over = false;
    let reply = wait(own, cx, this, call, |replies| match replies.take_next() {
        Some((_, reply)) => Some(reply),
        None if replies.verdict() == Verdict::Waits => None,
        None => {
            is_over = true;
            Some(Err(&TOO_FEW))
        }
    });
    match reply {
        // There is none any more.
        Err(_) if is_over => {
            own.all.layer.calls.forget(call);
            Err(CallCause::TimedOut { tries: call.tries.get() }.into())
        }
        reply => reply,
    }
}

/// Waits until `look` finds what is waited for, and reminds members that have not replied.
fn wait(
    own: &Own,
    cx: &Kernel,
    this: &SessionRef,
    call: &Call,
    mut look: impl FnMut(&mut Replies<Message>) -> Option<Outcome<Message>>,
) -> Result<Message, CallError> {
    let Settings { first_wait, wait_max, .. } = own.all.layer.settings;
    let (mut pause, mut left) = (first_wait, call.until.since(cx.now()));
    loop {
        if let Some(found) = look(&mut call.replies.borrow_mut()) {
            return found.map_err(CallError::rejected);
        }
        if let Some(why) = call.end.get() {
            return Err(why.into());
        }
        if left.is_zero() {
            return Err(CallCause::TimedOut { tries: call.tries.get() }.into());
        }
        let (begun, limit) = (cx.now(), pause.min(left));
        match cx.wait(&call.changed, Some(limit)) {
            Ok(()) | Err(WaitError::Closed) => left = left.saturating_sub(cx.now().since(begun)),
            Err(WaitError::TimedOut) => {
                // Not by the clock: a timer that could not be set ends a wait at once.
                left = left.saturating_sub(limit);
                pause = (2 * pause).min(wait_max.max(first_wait));
                remind(own, cx, this, call);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Asks the members that have not replied for their replies, and looks which are left.
fn remind(own: &Own, cx: &Kernel, this: &SessionRef, call: &Call) {
    let gone = gone(own, cx);
    call.replies.borrow_mut().set_gone(gone);
    let missing = call.replies.borrow().missing();
    call.tries.set(call.tries.get() + 1);
    let header = own.all.layer.calls.header(call, REMINDER);
    for member in (0..own.state.members).filter(|member| missing >> member & 1 == 1) {
        match cx.pool().empty(crate::protocol::HEADROOM) {
            // One that is lost is followed by others.
            Ok(message) => drop(aside(cx, own.lower(), member, header, message)),
            Err(_) => this.count_drop(cx, &reason::NO_BUFFERS),
        }
    }
}
