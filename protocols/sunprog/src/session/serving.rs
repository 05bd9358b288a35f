//! A session that serves: one procedure, called by one peer.

use crate::protocol::{Shared, answer};
use crate::table::Served;
use crate::wire::{Accepted, STAT_OCTETS};
use alloc::rc::Rc;
use core::any::Any;
use xk_core::control::Describe;
use xk_core::object::{Closing, Refused};
use xk_core::reason::Class;
use xk_core::{Answer, Ask, Kernel, Message, Session, SessionRef, reason};
use xk_kit::net::ports::less_header;
use xk_kit::rpc::call::MyProcedure;
use xk_kit::rpc::call_layer::reply_with;
use xk_kit::rpc::onc::{MyProgram, ProcedureName, auth_stat};

pub(crate) struct Serving {
    pub(crate) shared: Rc<Shared>,
    pub(crate) key: u64,
    pub(crate) lower: SessionRef,
    pub(crate) served: Rc<Served>,
    pub(crate) name: ProcedureName,
}

impl Session for Serving {
    fn any(&self) -> Option<&dyn Any> {
        Some(self)
    }

    #[inline]
    fn call_pop(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let reply = if self.name.procedure == 0 {
            // The null procedure: no arguments, no results, no work (RFC 5531, section 8.1).
            return answer(cx, request, Accepted::Success, &reason::NOT_SUPPORTED);
        } else {
            match self.served.upper.call_demux(cx, this, request) {
                Ok(reply) => reply,
                // Of credentials another layer speaks, and of what is not for others nobody does.
                Err(refused)
                    if auth_stat(refused.reason).is_some()
                        || refused.reason.class == Class::NotMine =>
                {
                    return Err(refused);
                }
                Err(refused) => {
                    let accepted = self.shared.accepted(self.name, refused.reason);
                    return answer(cx, refused.message, accepted, refused.reason);
                }
            }
        };
        reply_with(cx, this, reply, &[0; STAT_OCTETS])
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let ProcedureName { program, version, procedure } = self.name;
        if let Some(question) = ask.get::<MyProcedure>() {
            question.number = procedure;
        } else if let Some(question) = ask.get::<MyProgram>() {
            *question = MyProgram { program, version };
        } else if let Some(question) = ask.get::<Describe>() {
            question.text = alloc::format!(
                "serves program {program} version {version} procedure {procedure} on {:?}",
                self.lower
            );
        } else {
            let answer = self.lower.control(cx, ask);
            if answer.is_answered() {
                less_header(ask, STAT_OCTETS);
            }
            return answer;
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, _: &Kernel, this: &SessionRef) -> Closing {
        let serving = &self.shared.serving;
        serving.release(&self.key, this);
        Closing::Done
    }
}
