//! The two kinds of sessions: one calls, the other serves.

use crate::WRONG_VERSION;
use crate::wire::{HEADER_OCTETS, REQUEST, Reply, is_request};
use alloc::rc::Rc;
use core::cell::Cell;
use core::time::Duration;
use xk_core::control::{Describe, Question};
use xk_core::object::{CallCause, CallError, Closing, PushError, Refused};
use xk_core::{Answer, Ask, Kernel, Message, Session, SessionRef, reason};
use xk_kit::between::{CallingKey, Served, Sessions};
use xk_kit::ports::less_header;

/// Asked of a session that calls: how much of its calls' time was the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTime {
    /// Calls that were replied to.
    pub calls: u64,
    /// What the server took for them, all together.
    pub time: Duration,
}

impl Question for ServerTime {
    const NAME: &'static str = "calltemplate-server-time";
}

/// Takes the header off the front of a message.
fn pop_header(message: &mut Message) -> Option<[u8; HEADER_OCTETS]> {
    // One that lies in several slices is brought together; one that is not all there stays as it is.
    let _ = message.pull_up(HEADER_OCTETS);
    message.pop_array::<HEADER_OCTETS>().copied()
}

/// A session that calls: one above for each below.
pub(crate) struct Calling {
    sessions: Rc<Sessions>,
    key: CallingKey,
    lower: SessionRef,
    spent: Cell<ServerTime>,
}

impl Calling {
    pub(crate) fn new(sessions: Rc<Sessions>, key: CallingKey, lower: SessionRef) -> Self {
        Self {
            sessions,
            key,
            lower,
            spent: Cell::default(),
        }
    }
}

impl Session for Calling {
    fn call(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        request
            .push_array(&REQUEST)
            .map_err(|_| PushError::NoBuffers)?;
        // This shepherd waits here. Others may call through this very session meanwhile.
        let mut reply = self.lower.call(cx, request)?;
        let Some(octets) = pop_header(&mut reply) else {
            this.discard(cx, reply, &reason::TRUNCATED);
            return Err(CallCause::BadReply.into());
        };
        let ServerTime { calls, time } = self.spent.get();
        let took = Duration::from_micros(Reply::parse(octets).us.into());
        self.spent.set(ServerTime {
            calls: calls + 1,
            time: time + took,
        });
        Ok(reply)
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let ServerTime { calls, time } = self.spent.get();
        if let Some(question) = ask.get::<ServerTime>() {
            *question = self.spent.get();
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!("{calls} calls, the server took {time:?}");
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
        self.sessions.closed(&self.key, this);
        self.lower.close(cx);
        Closing::Done
    }
}

/// A session that serves: what requests through one session below have in common.
pub(crate) struct Serving {
    sessions: Rc<Sessions>,
    served: Served,
    requests: Cell<u64>,
}

impl Serving {
    pub(crate) fn new(sessions: Rc<Sessions>, served: Served) -> Self {
        Self {
            sessions,
            served,
            requests: Cell::new(0),
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
        match pop_header(&mut request) {
            Some(octets) if is_request(&octets) => {}
            Some(_) => return Err(this.refuse(cx, request, &WRONG_VERSION)),
            None => return Err(this.refuse(cx, request, &reason::TRUNCATED)),
        }
        self.requests.set(self.requests.get() + 1);
        let arrived = cx.now();
        // The procedure runs on this shepherd and may wait. What it refuses it has counted.
        let mut reply = self.served.upper.call_demux(cx, this, request)?;
        let header = Reply::after(cx.now() - arrived).emit();
        match reply.push_array(&header) {
            Ok(()) => Ok(reply),
            Err(_) => Err(this.refuse(cx, reply, &reason::NO_BUFFERS)),
        }
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!("{} requests", self.requests.get());
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
        self.sessions.forgotten(&self.served, this);
        Closing::Done
    }
}
