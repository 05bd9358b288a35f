//! The applications: one that serves and tells the model, and one in whose name calls are made.

use crate::executions::model::{Model, message};
use core::time::Duration;
use std::rc::Rc;
use xk_core::object::{OpenError, Popped, Refused};
use xk_core::shepherd::Semaphore;
use xk_core::{
    Kernel, Message, Participant, Participants, Protocol, ProtocolRef, SessionRef, Upper, reason,
};
use xk_kit::rpc::call::SYSTEM_ERROR;
use xk_testkit::kernel::{HEADROOM, octets};

/// Time that each call's procedure takes, by the call's number.
pub(crate) type Takes = Rc<dyn Fn(u64) -> Duration>;

/// Serves: notes the execution, takes its time, replies.
pub(crate) struct Server {
    pub(crate) lower: ProtocolRef,
    pub(crate) at: Participant,
    pub(crate) model: Rc<Model>,
    pub(crate) takes: Takes,
}

impl Protocol for Server {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let local = Participants::local(self.at.clone());
        self.lower.open_enable(cx, Upper::new(this), local).map(drop)
    }

    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        _: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let Some((number, back)) = self.execute(cx, &request) else {
            return Err(this.refuse(request, &SYSTEM_ERROR));
        };
        let reply = message(number, 2, back, 0);
        cx.pool().copy_from(HEADROOM, &reply).map_err(|_| this.refuse(request, &reason::NO_BUFFERS))
    }

    fn demux(&self, cx: &Kernel, this: &ProtocolRef, _: &SessionRef, message: Message) -> Popped {
        match self.execute(cx, &message) {
            Some(_) => Ok(()),
            None => Err(this.refuse(message, &SYSTEM_ERROR)),
        }
    }
}

impl Server {
    /// Tells the model and takes its time. Answers the call's number and the size of its reply.
    fn execute(&self, cx: &Kernel, request: &Message) -> Option<(u64, usize)> {
        let (number, back) = self.model.execute(&octets(request))?;
        let takes = (self.takes)(number);
        if !takes.is_zero() {
            let _ = cx.wait(&Semaphore::new(0), Some(takes));
        }
        Some((number, back))
    }
}

/// Calls, and serves nothing.
pub(crate) struct Client;

impl Protocol for Client {}
