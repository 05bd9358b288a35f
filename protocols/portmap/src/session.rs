//! A session that finds the port of its program at the first call, and again after it was not
//! there.

use crate::client::{Asking, procedure_at};
use crate::protocol::Shared;
use alloc::rc::Rc;
use alloc::string::String;
use xk_core::object::{CallCause, CallError, Closing, PushError, SessionSlot};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, ProtocolRef, Session,
    SessionRef, Upper,
};
use xk_kit::rpc::call::{CallOptions, CancelCall, NO_PROGRAM, NO_VERSION};
use xk_kit::rpc::onc::ProcedureName;

/// The protocol above, and a hash of both participants.
pub(crate) type Key = (u32, u64, u64);

pub(crate) struct Resolver {
    pub(crate) shared: Rc<Shared>,
    pub(crate) this: ProtocolRef,
    pub(crate) key: Key,
    pub(crate) name: ProcedureName,
    /// Our end, with what the layer below is to see of it.
    pub(crate) local: Participant,
    /// The participant below the peer's port.
    pub(crate) host: Participant,
    /// The session to the port, once it is known.
    pub(crate) lower: SessionSlot,
    pub(crate) asking: Asking,
}

impl Resolver {
    /// Asks for the port and opens a session to it.
    #[cold]
    fn resolve(&self, cx: &Kernel, options: Option<CallOptions>) -> Result<SessionRef, CallError> {
        let ProcedureName { program, version, procedure } = self.name;
        let client = &self.shared.client;
        let wanted = (program, version);
        let waiting = (&self.asking, options);
        let found = client.find(cx, &self.this, &self.host, wanted, waiting)?;
        let port = found.ok_or(CallError::rejected(&NO_PROGRAM))?;
        let rest = self.host.clone().with(Part::port(port));
        let peer = procedure_at(rest, program, version, procedure);
        let participants = Participants::pair(self.local.clone(), peer);
        let opened = client
            .lower
            .open(cx, Upper::new(&self.this), participants)
            .map_err(|_| CallError::from(PushError::NoRoute))?;
        // Another call may have been faster.
        if let Some(present) = self.lower.get() {
            opened.close(cx);
            return Ok(present);
        }
        drop(self.lower.replace(Some(opened.clone())));
        Ok(opened)
    }

    /// Releases a session to a port where the program is no more.
    #[cold]
    fn forget(&self, cx: &Kernel, gone: &SessionRef) {
        if self.lower.has(gone) {
            self.lower.close(cx);
        }
    }
}

/// Whether the program may be at another port by now.
fn may_have_moved(error: &CallError) -> bool {
    match error.cause {
        CallCause::TimedOut { .. } | CallCause::Rebooted | CallCause::Closed => true,
        CallCause::Push(_) => true,
        CallCause::Rejected(rejection) => {
            *rejection.reason == NO_PROGRAM || *rejection.reason == NO_VERSION
        }
        _ => false,
    }
}

impl Session for Resolver {
    fn call(&self, cx: &Kernel, _: &SessionRef, request: Message) -> Result<Message, CallError> {
        let lower = match self.lower.get() {
            Some(lower) => lower,
            None => self.resolve(cx, request.attribute())?,
        };
        // A call that finds the program gone releases the session, but ends no other call.
        lower.hold();
        let result = lower.call(cx, request);
        if let Err(error) = &result
            && may_have_moved(error)
        {
            self.forget(cx, &lower);
        }
        lower.close(cx);
        result
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let is_known = if self.lower.is_some() { "known" } else { "not known" };
        Some(alloc::format!("{} at {}, its port {is_known}", self.name, self.host))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if self.name.answer(ask) {
            return Answer::Answered;
        }
        if ask.get::<CancelCall>().is_some() {
            let asking = self.asking.borrow().clone();
            if asking.iter().any(|one| one.control(cx, ask).is_answered()) {
                return Answer::Answered;
            }
        }
        match self.lower.get() {
            Some(lower) => lower.control(cx, ask),
            None => self.shared.client.lower.control(cx, ask),
        }
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.shared.sessions.release(&self.key, this);
        self.lower.close(cx);
        Closing::Done
    }
}
