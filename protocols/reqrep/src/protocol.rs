//! The protocol object: opens, enables, demultiplexes.

use crate::calls::Calls;
use crate::dupcache::DupCache;
use crate::gather::Gatherings;
use crate::session::{Association, NO_CALL, NOT_A_SERVER, may_add_octets};
use crate::wire::{HEADER_OCTETS, Header, Kind};
use alloc::rc::Rc;
use core::cell::Cell;
use core::time::Duration;
use xk_core::control::{ListMaps, ListSessions};
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, SessionRef, Upper,
    reason,
};
use xk_kit::answers::Allowance;
use xk_kit::control::{NetworkError, NetworkErrorKind};
use xk_kit::net::stream::{CarriesRecords, StreamError, StreamEvent, StreamNotice, StreamSpace};
use xk_kit::rpc::call_layer::less;
use xk_kit::rpc::server::OfferingServers;

/// How it waits, and its bounds.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The time before a request is sent again first.
    pub first_wait: Duration,
    /// The longest time between two sendings.
    pub wait_max: Duration,
    /// How long a call lasts at most.
    pub total: Duration,
    /// How many calls may wait at once.
    pub calls_max: usize,
    /// How many requests may be executed at once.
    pub requests_max: usize,
    /// How many peers it knows.
    pub sessions_max: usize,
    /// Of how many requests the reply is kept.
    pub dupcache: usize,
    /// Octets of those replies, at most; the oldest go first.
    pub dupcache_octets: usize,
    /// How many hosts' replies to one request to many are taken.
    pub replies_max: usize,
    /// Octets in a second, to each peer that has proved nothing, of replies more than three times
    /// as long as their requests.
    pub unproved_rate: usize,
    /// Octets of those at once.
    pub unproved_burst: usize,
}

impl Settings {
    /// The time until a request is sent once more that was sent so long ago.
    pub(crate) fn longer(&self, wait: Duration) -> Duration {
        let max = self.wait_max.max(self.first_wait);
        wait.saturating_mul(2).min(max)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            first_wait: Duration::from_secs(1),
            wait_max: Duration::from_secs(8),
            total: Duration::from_secs(30),
            calls_max: 16_384,
            requests_max: 1024,
            sessions_max: 16_384,
            dupcache: 0,
            dupcache_octets: 4 << 20,
            replies_max: 1024,
            unproved_rate: 64 << 10,
            unproved_burst: 128 << 10,
        }
    }
}

/// What protocol and sessions share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// By the session below.
    pub(crate) sessions: SessionTable<u64>,
    pub(crate) calls: Calls,
    pub(crate) gatherings: Gatherings,
    pub(crate) dupcache: Option<DupCache>,
    pub(crate) unproved: Allowance,
    /// How many requests are being executed.
    pub(crate) executing: Cell<usize>,
    pub(crate) server: OfferingServers,
}

/// One instance of the layer.
pub struct ReqRep {
    lower: ProtocolRef,
    shared: Rc<Shared>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on, or a time is 0.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (params, usual) = (build.params, Settings::default());
    let settings = Settings {
        first_wait: params.duration("first_wait", usual.first_wait),
        wait_max: params.duration("wait_max", usual.wait_max),
        total: params.duration("total", usual.total),
        calls_max: params.number("calls_max", usual.calls_max),
        requests_max: params.number("requests_max", usual.requests_max),
        sessions_max: params.number("sessions_max", usual.sessions_max),
        dupcache: params.number("dupcache", usual.dupcache),
        dupcache_octets: params.octets("dupcache_octets", usual.dupcache_octets),
        replies_max: params.number("replies_max", usual.replies_max),
        unproved_rate: params.octets("unproved_rate", usual.unproved_rate),
        unproved_burst: params.octets("unproved_burst", usual.unproved_burst),
    };
    if settings.first_wait.is_zero() {
        return Err(BuildError::Param {
            name: "first_wait",
            index: 0,
            expected: "more than no time".into(),
        });
    }
    Ok(add(build.cx, build.name, build.lower(0)?, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, settings: Settings) -> ProtocolRef {
    let key = cx.secret();
    let (max, octets_max) = (settings.dupcache, settings.dupcache_octets);
    let dupcache = (max > 0).then(|| DupCache::new(cx, max, octets_max));
    let shared = Rc::new(Shared {
        settings,
        sessions: SessionTable::new(key, settings.sessions_max),
        calls: Calls::new(settings.calls_max),
        gatherings: Gatherings::default(),
        dupcache,
        unproved: Allowance::new(settings.unproved_rate as u64, settings.unproved_burst as u64),
        executing: Cell::new(0),
        server: OfferingServers::default(),
    });
    cx.add_protocol(crate::ENTRY.kind, name, ReqRep { lower, shared })
}

/// A stream without records keeps no message together.
fn is_bare_stream(cx: &Kernel, lower: &SessionRef) -> bool {
    lower.ask(cx, CarriesRecords).is_none() && lower.ask(cx, StreamSpace::default()).is_some()
}

impl Protocol for ReqRep {
    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let local = participants.local_mut()?;
        if local.is_empty() {
            local.push(Part::Any);
        }
        let lower = self.lower.open(cx, Upper::new(this), participants)?;
        if is_bare_stream(cx, &lower) {
            lower.close(cx);
            return Err(OpenError::NotSupported);
        }
        let (upper, below) = (upper.receiver, Some(&self.lower));
        let association = Association::new(cx, &self.shared, upper, &lower, below);
        let (sessions, key) = (&self.shared.sessions, lower.id().0);
        sessions.open(cx, this, upper, key, association)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut participants: Participants,
    ) -> Result<Enable, OpenError> {
        let local = participants.local_mut()?;
        self.shared.server.enable(cx, &self.lower, (this, upper), (0, local))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.server.disable(cx, &self.lower, enable);
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        _: Participants,
    ) -> Result<(), &'static xk_core::Reason> {
        if is_bare_stream(cx, lower) {
            return Err(&reason::NOT_SUPPORTED);
        }
        Ok(())
    }

    #[inline]
    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        if let Some(session) = self.shared.sessions.get(&lower.id().0) {
            return session.pop(cx, message);
        }
        self.demux_first(cx, this, lower, message)
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if let Some(question) = ask.get::<ListSessions>() {
            question.add(&shared.sessions);
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<ListMaps>() {
            question.add("sessions", shared.sessions.stats());
            return Answer::Answered;
        }
        if let Some(notice) = ask.get::<StreamNotice>() {
            if notice.session.head().protocol() == this.id() {
                return Answer::Unknown;
            }
            self.stream_notice(cx, notice);
            return Answer::Answered;
        }
        if let Some(error) = ask.get::<NetworkError>() {
            return self.network_error(cx, error);
        }
        less(self.lower.control(cx, ask), ask, HEADER_OCTETS)
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        let shared = &self.shared;
        shared.sessions.clear();
        shared.gatherings.clear();
        shared.server.clear();
        if let Some(dupcache) = &shared.dupcache {
            dupcache.clear();
        }
    }
}

impl ReqRep {
    /// A message from a peer of which nothing is known: only a call makes a session, and only for
    /// a protocol that serves.
    #[cold]
    fn demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let octets = match message.header() {
            Ok(octets) => octets,
            Err(error) => return Err(this.refuse(message, error.into())),
        };
        let parsed = match may_add_octets(cx, lower) {
            true => Header::parse_marked(&octets).map(|(header, _)| header),
            false => Header::parse(&octets),
        };
        match parsed.map(|header| header.kind) {
            Ok(Kind::Call) => {}
            Ok(Kind::Reply) => return Err(this.refuse(message, &NO_CALL)),
            Err(_) => return Err(this.refuse(message, &reason::MALFORMED)),
        }
        let Some((upper, _)) = self.shared.server.get(0) else {
            return Err(this.refuse(message, &NOT_A_SERVER));
        };
        let association = Association::new(cx, &self.shared, &upper, lower, None);
        let (key, ends) = (lower.id().0, Participants::default);
        let sessions = &self.shared.sessions;
        match sessions.accept(cx, this, &upper, key, association, ends) {
            Ok(session) => session.pop(cx, message),
            Err(why) => Err(this.refuse(message, why)),
        }
    }

    /// The network reports an error about something that was sent. That no protocol is there to
    /// take it ends the call at once; of whatever else it says the next repetition may find
    /// otherwise (RFC 1122, sections 4.1.3.3 and 4.2.3.9).
    fn network_error(&self, cx: &Kernel, error: &NetworkError) -> Answer {
        let Some(lower) = &error.session else {
            return Answer::Unknown;
        };
        let is_final = matches!(
            error.kind,
            NetworkErrorKind::PortUnreachable | NetworkErrorKind::ProtocolUnreachable
        );
        let session = self.shared.sessions.get(&lower.id().0);
        let Some(session) = session.filter(|session| is_final && !session.head().is_passive())
        else {
            return Answer::Unknown;
        };
        let [a, b, c, d, ..] = error.start;
        let xid = (error.start_len >= 4).then(|| u32::from_be_bytes([a, b, c, d]));
        if let Some(association) = session.body::<Association>() {
            association.unreachable(cx, &session, xid);
        }
        Answer::Answered
    }

    /// Something has happened to the stream below a session.
    fn stream_notice(&self, cx: &Kernel, notice: &StreamNotice) {
        let is_gone = matches!(
            notice.event,
            StreamEvent::Failed(_) | StreamEvent::Closed | StreamEvent::EndOfStream
        );
        let Some(session) = self.shared.sessions.get(&notice.session.id().0) else {
            return;
        };
        if !is_gone {
            return;
        }
        if session.head().is_passive() {
            self.shared.sessions.unbind(&notice.session.id().0);
            session.abort(cx);
        } else if notice.event == StreamEvent::Failed(StreamError::Refused) {
            self.shared.calls.refuse(cx, session.id(), None);
        } else {
            self.shared.calls.lose(cx, session.id());
        }
    }
}
