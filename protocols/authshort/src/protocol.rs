//! The protocol object: stands beside the layer of whole credentials, and upon it.

use crate::session::{Calling, CallingKey, Serving};
use crate::wire::Shorthand;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use core::time::Duration;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef, SessionRef, Upper, reason,
};
use xk_kit::auth::IssueShorthand;
use xk_kit::control::PeerHost;
use xk_kit::onc::CarriesCredentials;

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
    pub(crate) calling: SessionTable<CallingKey>,
    /// By the session below.
    pub(crate) serving: SessionTable<u64>,
}

/// One instance of the layer.
pub struct AuthShort {
    select: ProtocolRef,
    whole: ProtocolRef,
    shared: Rc<Shared>,
    server: RefCell<Option<ProtocolRef>>,
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
    let key = cx.boot_key();
    let shared = Rc::new(Shared {
        lifetime: settings.lifetime,
        calling: SessionTable::new(key, settings.sessions_max),
        serving: SessionTable::new(key, settings.sessions_max),
    });
    let body = AuthShort {
        select,
        whole,
        shared,
        server: RefCell::default(),
        enabled: RefCell::default(),
        enables_made: Cell::new(0),
    };
    cx.add_protocol(crate::ENTRY.kind, name, body)
}

impl AuthShort {
    #[cold]
    fn call_demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        let Some(upper) = self.server.borrow().clone() else {
            return Err(this.refuse(request, &reason::NO_PROTOCOL));
        };
        let host = Ipv4Addr::UNSPECIFIED;
        let body = Serving {
            shared: Rc::clone(&self.shared),
            lower: lower.clone(),
            upper: upper.clone(),
            peer: lower.ask(cx, PeerHost { host }).map(|q| q.host),
            is_short: lower.head().protocol() == self.select.id(),
        };
        let session = cx.new_passive_session(this, &upper, body);
        let bound = self.shared.serving.bind(cx, lower.id().0, session.clone());
        if let Err(full) = bound {
            session.abort(cx);
            return Err(this.refuse(request, full));
        }
        if let Err(unwanted) = upper.open_done(cx, &session, Participants::default()) {
            session.abort(cx);
            return Err(this.refuse(request, unwanted));
        }
        session.call_pop(cx, request)
    }
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
        let key = (whole.id().0, upper.receiver.id().0);
        if let Some(session) = self.shared.calling.get(&key) {
            // The session holds the lower ones already.
            whole.close(cx);
            session.hold();
            return Ok(session);
        }
        let short = match self.select.open(cx, Upper::new(this), participants) {
            Ok(short) => short,
            Err(error) => {
                whole.close(cx);
                return Err(error);
            }
        };
        let body = Calling {
            shared: Rc::clone(&self.shared),
            key,
            whole,
            short,
            shorthand: RefCell::default(),
        };
        let session = cx.new_session(this, upper.receiver, body);
        match self.shared.calling.bind(cx, key, session.clone()) {
            Ok(()) => Ok(session),
            Err(_) => {
                session.abort(cx);
                Err(OpenError::Full)
            }
        }
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        let server = self.server.borrow().clone();
        if server.is_some_and(|server| server != *upper.receiver) {
            return Err(OpenError::InUse);
        }
        let own = Upper::new(this);
        let upon = self.whole.open_enable(cx, own, participants.clone())?;
        let beside = match self.select.open_enable(cx, own, participants) {
            Ok(beside) => beside,
            Err(error) => {
                self.whole.open_disable(cx, upon);
                return Err(error);
            }
        };
        *self.server.borrow_mut() = Some(upper.receiver.clone());
        let number = self.enables_made.get();
        self.enables_made.set(number + 1);
        self.enabled.borrow_mut().insert(number, (beside, upon));
        Ok(Enable(number))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        let gone = self.enabled.borrow_mut().remove(&enable.0);
        let Some((beside, upon)) = gone else {
            return;
        };
        self.select.open_disable(cx, beside);
        self.whole.open_disable(cx, upon);
        if self.enabled.borrow().is_empty() {
            drop(self.server.take());
        }
    }

    #[inline]
    fn call_demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
    ) -> Result<Message, Refused> {
        match self.shared.serving.get(&lower.id().0) {
            Some(session) => session.call_pop(cx, request),
            None => self.call_demux_first(cx, this, lower, request),
        }
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<CarriesCredentials>() {
            return if question.who == this.id() {
                Answer::Answered
            } else {
                Answer::Unknown
            };
        }
        if let Some(question) = ask.get::<IssueShorthand>() {
            if question.who != this.id() {
                return Answer::Unknown;
            }
            let shorthand = Shorthand {
                user: question.caller.user,
                group: question.caller.group,
                given_s: cx.now().as_ns() / 1_000_000_000,
            };
            question.octets = shorthand.emit(cx, question.peer);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&shared.calling);
            question.add(&shared.serving);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("calling", shared.calling.stats()));
            question.maps.push(("serving", shared.serving.stats()));
            return Answer::Answered;
        }
        self.whole.control(cx, ask)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.whole)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.shared.calling.clear();
        self.shared.serving.clear();
        drop(self.server.take());
        self.enabled.borrow_mut().clear();
    }
}
