//! The two kinds of sessions: one calls, the other serves.

use crate::TOO_LATE;
use crate::protocol::Shared;
use crate::wire::{HEADER_OCTETS, Left, Status};
use alloc::rc::Rc;
use core::cell::Cell;
use core::time::Duration;
use xk_core::control::{Describe, Question};
use xk_core::object::{CallCause, CallError, Closing, PushError, Refused};
use xk_core::{Answer, Ask, Kernel, Message, Session, SessionRef, Time, reason};
use xk_kit::between::{CallingKey, Served};
use xk_kit::call::CallOptions;
use xk_kit::ports::less_header;

/// Asked of a session: what became of its calls, or of the requests that it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub calls: u64,
    /// Calls that timed out; requests that were executed until after their deadline.
    pub late: u64,
    /// Those that the server did not begin.
    pub not_begun: u64,
}

impl Question for Tally {
    const NAME: &'static str = "deadline-tally";
}

impl Tally {
    fn describe(self, what: &str, question: &mut Describe) {
        let Self {
            calls,
            late,
            not_begun,
        } = self;
        question.text = alloc::format!("{calls} {what}, {late} late, {not_begun} not begun");
    }
}

/// Changes what is in a cell.
fn count(tally: &Cell<Tally>, change: impl FnOnce(&mut Tally)) {
    let mut counted = tally.get();
    change(&mut counted);
    tally.set(counted);
}

/// Takes the header off the front of a message.
fn pop_header(message: &mut Message) -> Option<[u8; HEADER_OCTETS]> {
    // One that lies in several slices is brought together; one that is not all there stays as it is.
    let _ = message.pull_up(HEADER_OCTETS);
    message.pop_array::<HEADER_OCTETS>().copied()
}

/// A session that calls: one above for each below.
pub(crate) struct Calling {
    shared: Rc<Shared>,
    key: CallingKey,
    lower: SessionRef,
    tally: Cell<Tally>,
}

impl Calling {
    pub(crate) fn new(shared: Rc<Shared>, key: CallingKey, lower: SessionRef) -> Self {
        Self {
            shared,
            key,
            lower,
            tally: Cell::default(),
        }
    }

    /// Sends a request whose client waits until its deadline, or for `wait_max`.
    fn send(&self, cx: &Kernel, mut request: Message) -> Result<Message, CallError> {
        let options = request.attribute::<CallOptions>();
        let wait_max = self.shared.settings.wait_max;
        let Some(left) = CallOptions::clip(options, cx.now(), wait_max) else {
            return Err(CallCause::TimedOut { tries: 0 }.into());
        };
        if left == wait_max && left != Duration::MAX {
            let shorter = CallOptions {
                deadline: cx.now().after(left),
                tag: options.map_or(0, |options| options.tag),
            };
            request
                .set_attribute(shorter)
                .map_err(|_| PushError::NoBuffers)?;
        }
        let left = Left(Some(left).filter(|left| *left != Duration::MAX));
        request
            .push_array(&left.emit())
            .map_err(|_| PushError::NoBuffers)?;
        // This shepherd waits here. Others may call through this very session meanwhile.
        self.lower.call(cx, request)
    }
}

impl Session for Calling {
    fn call(&self, cx: &Kernel, this: &SessionRef, request: Message) -> Result<Message, CallError> {
        count(&self.tally, |tally| tally.calls += 1);
        let mut reply = self.send(cx, request).inspect_err(|error| {
            if matches!(error.cause, CallCause::TimedOut { .. }) {
                count(&self.tally, |tally| tally.late += 1);
            }
        })?;
        match pop_header(&mut reply).map(Status::parse) {
            Some(Some(Status::Executed)) => Ok(reply),
            Some(Some(Status::TooLate)) => {
                count(&self.tally, |tally| tally.not_begun += 1);
                Err(CallError::rejected(&TOO_LATE))
            }
            Some(None) => {
                this.discard(cx, reply, &reason::MALFORMED);
                Err(CallCause::BadReply.into())
            }
            None => {
                this.discard(cx, reply, &reason::TRUNCATED);
                Err(CallCause::BadReply.into())
            }
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Tally>() {
            *question = self.tally.get();
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<Describe>() {
            self.tally.get().describe("calls", question);
            return Answer::Answered;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, HEADER_OCTETS);
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.shared.sessions.closed(&self.key, this);
        self.lower.close(cx);
        Closing::Done
    }
}

/// A session that serves: what requests through one session below have in common.
pub(crate) struct Serving {
    shared: Rc<Shared>,
    served: Served,
    tally: Cell<Tally>,
}

impl Serving {
    pub(crate) fn new(shared: Rc<Shared>, served: Served) -> Self {
        Self {
            shared,
            served,
            tally: Cell::default(),
        }
    }

    /// Puts the status in front of a reply.
    fn reply(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut reply: Message,
        status: Status,
    ) -> Result<Message, Refused> {
        match reply.push_array(&status.emit()) {
            Ok(()) => Ok(reply),
            Err(_) => Err(this.refuse(cx, reply, &reason::NO_BUFFERS)),
        }
    }
}

impl Session for Serving {
    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        let Some(octets) = pop_header(&mut request) else {
            return Err(this.refuse(cx, request, &reason::TRUNCATED));
        };
        count(&self.tally, |tally| tally.calls += 1);
        let mut due = Time::MAX;
        if let Left(Some(left)) = Left::parse(octets) {
            if left < self.shared.settings.time_min {
                count(&self.tally, |tally| tally.not_begun += 1);
                let mut refused = this.refuse(cx, request, &TOO_LATE);
                refused.message.truncate(0);
                return self.reply(cx, this, refused.message, Status::TooLate);
            }
            due = cx.now().after(left);
            let options = CallOptions {
                deadline: due,
                tag: 0,
            };
            if request.set_attribute(options).is_err() {
                return Err(this.refuse(cx, request, &reason::NO_BUFFERS));
            }
        }
        // The procedure runs on this shepherd and may wait. What it refuses it has counted.
        let mut reply = self.served.upper.call_demux(cx, this, request)?;
        if cx.now() > due {
            count(&self.tally, |tally| tally.late += 1);
        }
        // A reply may be the request's own message; how that came says nothing about how it goes.
        if reply.has_attributes() {
            reply.remove_attribute::<CallOptions>();
        }
        self.reply(cx, this, reply, Status::Executed)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Tally>() {
            *question = self.tally.get();
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<Describe>() {
            self.tally.get().describe("requests", question);
            return Answer::Answered;
        }
        let answer = self.served.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, HEADER_OCTETS);
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.served.lower)
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        self.shared.sessions.forgotten(&self.served, this);
        Closing::Done
    }
}
