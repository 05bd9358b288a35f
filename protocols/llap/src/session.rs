//! A session: the way to one node.

use crate::protocol::Llap;
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use xk_core::object::{Closing, PushError, Refused};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef};
use xk_kit::machine::Running;
use xk_kit::rpc::call_layer::less;

pub(crate) struct LlapSession {
    shared: Rc<Running<Llap>>,
    node: u8,
    upper: ProtocolRef,
}

impl LlapSession {
    pub(crate) fn new(all: &Rc<Running<Llap>>, node: u8, upper: &ProtocolRef) -> Self {
        Self { shared: Rc::clone(all), node, upper: upper.clone() }
    }
}

impl Session for LlapSession {
    fn push(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), PushError> {
        self.shared.send(cx, this, self.node, message)
    }

    fn pop(&self, cx: &Kernel, this: &SessionRef, message: Message) -> Result<(), Refused> {
        self.upper.demux(cx, this, message)
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        Some(format!("node {}", self.node))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let answer = self.shared.lower.control(cx, ask);
        less(answer, ask, crate::wire::HEADER_OCTETS)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        if this.head().is_passive() && !this.head().is_aborted() {
            return Closing::Idle;
        }
        self.shared.waiting.leave(cx, this);
        self.shared.sessions.release(&u64::from(self.node), this);
        Closing::Done
    }
}
