//! The sessions: one that calls, with a shorthand when it has one; one that serves requests with shorthands, or passes on those
//! with whole credentials.

use crate::protocol::Shared;
use crate::wire::{Shorthand, returned};
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::time::Duration;
use xk_core::object::{CallCause, CallError, Closing, PushError, Refused};
use xk_core::{Answer, Ask, Kernel, Message, Reason, Session, SessionRef, reason};
use xk_kit::auth::{TakeShorthand, name_caller, pop_credential, pop_verifier};
use xk_kit::between::{CallingKey, Served};
use xk_kit::call::{Caller, CancelCall};
use xk_kit::onc::{
    AUTH_HEAD_OCTETS, AUTH_SHORT, AuthHead, BODY_MAX, EMPTY_AUTH, REJECTED_CREDENTIALS, auth_stat,
};
use xk_kit::ports::less_header;

pub(crate) struct Calling {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: CallingKey,
    /// Sends whole credentials.
    pub(crate) whole: SessionRef,
    /// Sends what this layer puts in front.
    pub(crate) short: SessionRef,
    /// The server's shorthand; empty if there is none.
    pub(crate) shorthand: RefCell<Vec<u8>>,
}

impl Calling {
    /// Puts the shorthand and an empty verifier in front.
    fn seal(&self, request: &mut Message) -> bool {
        let shorthand = self.shorthand.borrow();
        let padded = shorthand.len().next_multiple_of(4);
        let Ok(room) = request.push_header(2 * AUTH_HEAD_OCTETS + padded) else {
            return false;
        };
        let head = AuthHead {
            flavor: AUTH_SHORT,
            len: shorthand.len(),
        };
        room.fill(0);
        let parts = [&head.emit()[..], &shorthand];
        let from = parts.into_iter().flatten();
        for (to, from) in room.iter_mut().zip(from) {
            *to = *from;
        }
        true
    }

    /// Calls with a whole credential, and keeps the shorthand that may come with the reply.
    fn call_whole(&self, cx: &Kernel, request: Message) -> Result<Message, CallError> {
        let reply = self.whole.call(cx, request)?;
        if let Some(TakeShorthand { octets }) = self.whole.ask(cx, TakeShorthand::default())
            && octets.len() <= BODY_MAX
        {
            let mut kept = self.shorthand.borrow_mut();
            kept.clear();
            kept.extend_from_slice(returned(&octets));
        }
        Ok(reply)
    }
}

/// Whether the server says that the shorthand is no good. One that knows nothing of shorthands any more may say so as it
/// likes: that the flavor is too weak, or the credential bad.
fn is_rejected(error: &CallError) -> bool {
    match error.cause {
        CallCause::Rejected(rejection) => auth_stat(rejection.reason).is_some(),
        _ => false,
    }
}

impl Session for Calling {
    fn call(
        &self,
        cx: &Kernel,
        _: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        if self.shorthand.borrow().is_empty() {
            return self.call_whole(cx, request);
        }
        let kept = request.try_clone();
        let kept = kept.map_err(|_| CallError::from(PushError::NoBuffers))?;
        if !self.seal(&mut request) {
            return Err(PushError::NoBuffers.into());
        }
        let mut reply = match self.short.call(cx, request) {
            Ok(reply) => reply,
            Err(error) if is_rejected(&error) => {
                self.shorthand.borrow_mut().clear();
                return self.call_whole(cx, kept);
            }
            Err(error) => return Err(error),
        };
        match AuthHead::pop(&mut reply, |_, _| ()) {
            Ok(()) => Ok(reply),
            Err(_) => Err(CallCause::BadReply.into()),
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let answer = self.whole.control(cx, ask);
        if !answer.is_answered() && ask.get::<CancelCall>().is_some() {
            return self.short.control(cx, ask);
        }
        answer
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.whole)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.shared.sessions.closed(&self.key, this);
        self.whole.close(cx);
        self.short.close(cx);
        Closing::Done
    }
}

pub(crate) struct Serving {
    pub(crate) shared: Rc<Shared>,
    pub(crate) served: Served,
    /// Requests come with shorthands, not through the layer of whole credentials.
    pub(crate) is_short: bool,
}

impl Serving {
    /// Takes shorthand and verifier off a request, and notes who calls.
    fn judge(&self, cx: &Kernel, request: &mut Message) -> Result<(), &'static Reason> {
        let read = pop_credential(request, |_, body| {
            Shorthand::parse(&self.shared.seals, self.served.peer, body)
        });
        let shorthand = read?.ok_or(&REJECTED_CREDENTIALS)?;
        pop_verifier(request)?;
        let age_ms = (cx.now().as_ns() / 1_000_000).saturating_sub(shorthand.given_ms);
        if Duration::from_millis(age_ms) >= self.shared.lifetime {
            return Err(&REJECTED_CREDENTIALS);
        }
        let Shorthand { user, group, .. } = shorthand;
        let flavor = AUTH_SHORT;
        name_caller(
            request,
            Some(Caller {
                flavor,
                user,
                group,
            }),
        )
    }
}

impl Session for Serving {
    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, Refused> {
        if !self.is_short {
            return self.served.upper.call_demux(cx, this, request);
        }
        if let Err(why) = self.judge(cx, &mut request) {
            return Err(this.refuse(cx, request, why));
        }
        let mut reply = self.served.upper.call_demux(cx, this, request)?;
        match reply.push_array(&EMPTY_AUTH) {
            Ok(()) => Ok(reply),
            Err(_) => Err(this.refuse(cx, reply, &reason::NO_BUFFERS)),
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let answer = self.served.lower.control(cx, ask);
        if answer.is_answered() && self.is_short {
            less_header(ask, AUTH_HEAD_OCTETS);
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
