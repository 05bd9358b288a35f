//! The protocol object: stands beside the layer of whole credentials, and upon it.

use crate::session::{Calling, Serving};
use crate::wire::Shorthand;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::Secret;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper,
};
use xk_kit::auth::{self, IssueShorthand};
use xk_kit::between::Sessions;

/// How long a shorthand is good, and bounds.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a shorthand is good.
    pub lifetime: Duration,
    /// How many sessions it holds for either direction.
    pub sessions_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(3600),
            sessions_max: 16_384,
        }
    }
}

/// What protocol and sessions share.
pub(crate) struct Shared {
    pub(crate) lifetime: Duration,
    /// What shorthands are sealed with.
    pub(crate) seals: Secret,
    pub(crate) sessions: Sessions,
}

/// One instance of the layer.
pub struct AuthShort {
    select: ProtocolRef,
    whole: ProtocolRef,
    shared: Rc<Shared>,
    /// What was enabled below for each enable: beside, and upon.
    enabled: RefCell<BTreeMap<u64, (Enable, Enable)>>,
    enables_made: Cell<u64>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph does not give it two to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (params, usual) = (build.params, Settings::default());
    let settings = Settings {
        lifetime: params.duration("lifetime", usual.lifetime),
        sessions_max: params.number("sessions_max", usual.sessions_max),
    };
    let (select, whole) = (build.lower(0)?, build.lower(1)?);
    Ok(add(build.cx, build.name, (select, whole), settings))
}

/// Adds one to a kernel, for programs that compose without a graph file. It stands on the layer of selection and that of whole
/// credentials.
pub fn add(
    cx: &Kernel,
    name: &str,
    (select, whole): (ProtocolRef, ProtocolRef),
    settings: Settings,
) -> ProtocolRef {
    let shared = Rc::new(Shared {
        lifetime: settings.lifetime,
        seals: cx.secret(),
        sessions: Sessions::new(cx.secret(), settings.sessions_max),
    });
    let body = AuthShort {
        select,
        whole,
        shared,
        enabled: RefCell::default(),
        enables_made: Cell::new(0),
    };
    cx.add_protocol(crate::ENTRY.kind, name, body)
}

impl Protocol for AuthShort {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let whole = self
            .whole
            .open(cx, Upper::new(this), participants.clone())?;
        let sessions = &self.shared.sessions;
        sessions.open(cx, this, upper.receiver, whole, |key, whole| {
            match self.select.open(cx, Upper::new(this), participants) {
                Ok(short) => Ok(Calling {
                    shared: Rc::clone(&self.shared),
                    key,
                    whole,
                    short,
                    shorthand: RefCell::default(),
                }),
                Err(error) => {
                    whole.close(cx);
                    Err(error)
                }
            }
        })
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let own = Upper::new(this);
        let both = self.shared.sessions.enable(upper.receiver, || {
            let upon = self.whole.open_enable(cx, own, participants.clone())?;
            let beside = self.select.open_enable(cx, own, participants);
            beside
                .map(|beside| (beside, upon))
                .inspect_err(|_| self.whole.open_disable(cx, upon))
        })?;
        let number = self.enables_made.get();
        self.enables_made.set(number + 1);
        self.enabled.borrow_mut().insert(number, both);
        Ok(Enable(number))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        let gone = self.enabled.borrow_mut().remove(&enable.0);
        let Some((beside, upon)) = gone else {
            return;
        };
        self.select.open_disable(cx, beside);
        self.whole.open_disable(cx, upon);
        self.shared.sessions.disable();
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let sessions = &self.shared.sessions;
        sessions.call_demux(cx, this, lower, request, |served| Serving {
            shared: Rc::clone(&self.shared),
            is_short: served.lower.head().protocol() == self.select.id(),
            served,
        })
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(answer) = auth::answer(&self.shared.sessions, this, ask) {
            return answer;
        }
        if let Some(question) = ask.get::<IssueShorthand>() {
            if question.who != this.id() {
                return Answer::Unknown;
            }
            let shorthand = Shorthand {
                user: question.caller.user,
                group: question.caller.group,
                given_ms: cx.now().as_ns() / 1_000_000,
            };
            question.octets = shorthand.emit(&self.shared.seals, question.peer);
            return Answer::Answered;
        }
        self.whole.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.whole)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.shared.sessions.clear();
        self.enabled.borrow_mut().clear();
    }
}
