//! The protocol object: opens, enables, and passes requests to the session that they belong to.

use crate::session::{Calling, Serving};
use crate::wire::HEADER_OCTETS;
use alloc::rc::Rc;
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_kit::between::Sessions;
use xk_kit::ports::less_header;

/// What the graph says.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a call waits at most.
    pub wait_max: Duration,
    /// A request with less time left is not begun.
    pub time_min: Duration,
}

/// What protocol and sessions share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) sessions: Sessions,
}

/// One instance of the layer.
pub struct Deadline {
    lower: ProtocolRef,
    shared: Rc<Shared>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let wait_max = build.params.duration("wait_max", Duration::ZERO);
    let settings = Settings {
        wait_max: match wait_max {
            Duration::ZERO => Duration::MAX,
            some => some,
        },
        time_min: build.params.duration("time_min", Duration::from_micros(1)),
    };
    let sessions_max = build.params.number("sessions_max", 4096);
    build.add(Deadline {
        lower: build.lower(0)?,
        shared: Rc::new(Shared {
            settings,
            sessions: Sessions::new(build.cx.secret(), sessions_max),
        }),
    })
}

impl Protocol for Deadline {
    // We receive, under the number of whoever stands on us: that is how the peer's layer below finds the peer's layer above.
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let lower = self.lower.open(cx, upper.through(this), participants)?;
        let sessions = &self.shared.sessions;
        sessions.open(cx, this, upper.receiver, lower, |key, lower| {
            Ok(Calling::new(Rc::clone(&self.shared), key, lower))
        })
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        self.shared.sessions.enable(upper.receiver, || {
            self.lower
                .open_enable(cx, upper.through(this), participants)
        })
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.lower.open_disable(cx, enable);
        self.shared.sessions.disable();
    }

    // The first request through a session below makes ours, which takes this one and those after it.
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let sessions = &self.shared.sessions;
        sessions.call_demux(cx, this, lower, request, |served| {
            Serving::new(Rc::clone(&self.shared), served)
        })
    }

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(answer) = self.shared.sessions.answer(ask) {
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
        self.shared.sessions.clear();
    }
}
