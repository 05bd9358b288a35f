//! The sessions of a layer of authentication: one above for each below.

use crate::control::PeerHost;
use crate::onc::CarriesCredentials;
use core::cell::RefCell;
use core::net::Ipv4Addr;
use xk_core::control::{ListMaps, ListSessions, QuestionInfo};
use xk_core::object::{OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Participants, ProtocolRef, Session, SessionRef, reason,
};

/// The questions that every layer of authentication answers.
pub const QUESTIONS: &[QuestionInfo] = &[
    QuestionInfo {
        name: "carries-credentials",
        meaning: "it does",
    },
    QuestionInfo {
        name: "list-sessions",
        meaning: "one per session below and, for calls, protocol above",
    },
    QuestionInfo {
        name: "list-maps",
        meaning: "calling: session below and protocol above; serving: session below",
    },
];

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
}

impl Sessions {
    /// None yet, and at most `max` in either direction.
    #[must_use]
    pub fn new(boot_key: [u64; 2], max: usize) -> Self {
        Self {
            calling: SessionTable::new(boot_key, max),
            serving: SessionTable::new(boot_key, max),
            server: RefCell::default(),
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
            lower.close(cx);
            session.hold();
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
        if self.calling.get(key).as_ref() == Some(session) {
            self.calling.unbind(key);
        }
    }

    /// Whether `upper` may serve: only one may.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if another does.
    pub fn may_serve(&self, upper: &ProtocolRef) -> Result<(), OpenError> {
        match &*self.server.borrow() {
            Some(server) if server != upper => Err(OpenError::InUse),
            _ => Ok(()),
        }
    }

    /// `upper` serves from now on.
    pub fn serves(&self, upper: &ProtocolRef) {
        let before = self.server.borrow_mut().replace(upper.clone());
        drop(before);
    }

    /// Nobody serves any more.
    pub fn serves_no_more(&self) {
        drop(self.server.take());
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
        if self.serving.get(&key).as_ref() == Some(session) {
            self.serving.unbind(&key);
        }
    }

    /// What every layer of authentication answers, [`QUESTIONS`]; `None` for other questions.
    pub fn answer(&self, this: &ProtocolRef, ask: &mut Ask<'_>) -> Option<Answer> {
        if let Some(question) = ask.get::<CarriesCredentials>() {
            return Some(match question.who == this.id() {
                true => Answer::Answered,
                false => Answer::Unknown,
            });
        }
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
        self.serves_no_more();
    }
}
