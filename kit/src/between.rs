//! The sessions of a layer of calls that leaves addresses alone: one above for each below.
//!
//! What such a layer does to requests and replies is what its own two kinds of sessions do, one that calls and one that serves.
//! Whose they are, how many there are, and who gets a request is kept here.

use crate::control::PeerHost;
use core::cell::{Cell, RefCell};
use core::net::Ipv4Addr;
use xk_core::Secret;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::object::{OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, ProtocolRef, Session, SessionRef, reason,
};

/// What a session that calls is known by: the session below and the protocol above.
pub type CallingKey = (u64, u32);

/// What a session that serves stands between.
pub struct Served {
    /// What the requests come through.
    pub lower: SessionRef,
    /// Who serves them.
    pub upper: ProtocolRef,
    /// Who sends them, if the layers below know.
    pub peer: Option<Ipv4Addr>,
}

/// All sessions of one layer, and who serves above it.
pub struct Sessions {
    calling: SessionTable<CallingKey>,
    /// By the session below.
    serving: SessionTable<u64>,
    server: RefCell<Option<ProtocolRef>>,
    /// How often it has enabled the layer.
    enables: Cell<usize>,
}

impl Sessions {
    /// None yet, and at most `max` in either direction.
    #[must_use]
    pub fn new(secret: Secret, max: usize) -> Self {
        Self {
            calling: SessionTable::new(secret, max),
            serving: SessionTable::new(secret, max),
            server: RefCell::default(),
            enables: Cell::new(0),
        }
    }

    /// The session of `upper` on `lower`, which was just opened: the one there is, or the one that `make` makes.
    ///
    /// # Errors
    /// That of `make`, which then has closed `lower`, or [`OpenError::Full`].
    pub fn open<S: Session + 'static>(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        lower: SessionRef,
        make: impl FnOnce(CallingKey, SessionRef) -> Result<S, OpenError>,
    ) -> Result<SessionRef, OpenError> {
        let key = (lower.id().0, upper.id().0);
        if let Some(session) = self.calling.get(&key) {
            // The session holds the lower one already.
            session.hold();
            lower.close(cx);
            return Ok(session);
        }
        let session = cx.new_session(this, upper, make(key, lower)?);
        match self.calling.bind(cx, key, session.clone()) {
            Ok(()) => Ok(session),
            Err(_) => {
                session.abort(cx);
                Err(OpenError::Full)
            }
        }
    }

    /// A session that calls is closed.
    pub fn closed(&self, key: &CallingKey, session: &SessionRef) {
        self.calling.release(key, session);
    }

    /// Has `upper` serve, which `below` tells the layers below. Only one may serve, and may enable as often as it likes.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another serves, or that of `below`.
    pub fn enable<T>(
        &self,
        upper: &ProtocolRef,
        below: impl FnOnce() -> Result<T, OpenError>,
    ) -> Result<T, OpenError> {
        if self.server.borrow().as_ref().is_some_and(|s| s != upper) {
            return Err(OpenError::InUse);
        }
        let enabled = below()?;
        self.enables.set(self.enables.get() + 1);
        let before = self.server.borrow_mut().replace(upper.clone());
        drop(before);
        Ok(enabled)
    }

    /// An enable is taken back; with the last one nobody serves any more.
    pub fn disable(&self) {
        self.enables.set(self.enables.get().saturating_sub(1));
        if self.enables.get() == 0 {
            drop(self.server.take());
        }
    }

    /// Passes a request into the session that it belongs to. The first through `lower` has `make` make it.
    ///
    /// # Errors
    /// As for [`xk_core::Protocol::call_demux`].
    #[inline]
    pub fn call_demux<S: Session + 'static>(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
        make: impl FnOnce(Served) -> S,
    ) -> Result<Message, Refused> {
        match self.serving.get(&lower.id().0) {
            Some(session) => session.call_pop(cx, request),
            None => self.call_demux_first(cx, this, lower, request, make),
        }
    }

    #[cold]
    fn call_demux_first<S: Session + 'static>(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        request: Message,
        make: impl FnOnce(Served) -> S,
    ) -> Result<Message, Refused> {
        let Some(upper) = self.server.borrow().clone() else {
            return Err(this.refuse(request, &reason::NO_PROTOCOL));
        };
        let host = Ipv4Addr::UNSPECIFIED;
        let body = make(Served {
            lower: lower.clone(),
            upper: upper.clone(),
            peer: lower.ask(cx, PeerHost { host }).map(|q| q.host),
        });
        let session = cx.new_passive_session(this, &upper, body);
        let bound = self.serving.bind(cx, lower.id().0, session.clone());
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

    /// A session that serves is closed.
    pub fn forgotten(&self, served: &Served, session: &SessionRef) {
        let key = served.lower.id().0;
        self.serving.release(&key, session);
    }

    /// Answers `list-sessions` and `list-maps`; `None` for other questions.
    pub fn answer(&self, ask: &mut Ask<'_>) -> Option<Answer> {
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&self.calling);
            question.add(&self.serving);
            return Some(Answer::Answered);
        }
        let question = ask.get::<ListMaps>()?;
        question.maps.push(("calling", self.calling.stats()));
        question.maps.push(("serving", self.serving.stats()));
        Some(Answer::Answered)
    }

    /// Forgets all, for a protocol's `stop`.
    pub fn clear(&self) {
        self.calling.clear();
        self.serving.clear();
        self.enables.set(0);
        drop(self.server.take());
    }
}
