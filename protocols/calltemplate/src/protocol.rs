//! The protocol object: opens, enables, and passes requests to the session that they belong to.

use crate::session::{Calling, Serving};
use crate::wire::HEADER_OCTETS;
use alloc::rc::Rc;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_kit::between::Sessions;
use xk_kit::ports::less_header;

/// One instance of the layer.
pub struct Calltemplate {
    lower: ProtocolRef,
    sessions: Rc<Sessions>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let sessions_max = build.params.number("sessions_max", 4096);
    build.add(Calltemplate {
        lower: build.lower(0)?,
        sessions: Rc::new(Sessions::new(build.cx.secret(), sessions_max)),
    })
}

impl Protocol for Calltemplate {
    // We receive, under the number of whoever stands on us: that is how the peer's layer below finds the peer's layer above.
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let lower = self.lower.open(cx, upper.through(this), participants)?;
        let sessions = &self.sessions;
        sessions.open(cx, this, upper.receiver, lower, |key, lower| {
            Ok(Calling::new(Rc::clone(sessions), key, lower))
        })
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        self.sessions.enable(upper.receiver, || {
            self.lower
                .open_enable(cx, upper.through(this), participants)
        })
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.lower.open_disable(cx, enable);
        self.sessions.disable();
    }

    // The first request through a session below makes ours, which takes this one and those after it.
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let sessions = &self.sessions;
        sessions.call_demux(cx, this, lower, request, |served| {
            Serving::new(Rc::clone(sessions), served)
        })
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(answer) = self.sessions.answer(ask) {
            return answer;
        }
        let answer = self.lower.control(cx, ask);
        if answer.is_answered() {
            less_header(ask, HEADER_OCTETS);
        }
        answer
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    // Sessions refer to the protocols around us, and those to us: only letting go ends that.
    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.sessions.clear();
    }
}
