//! The protocol object: opens, enables, demultiplexes.

use crate::calls::Calls;
use crate::dupcache::DupCache;
use crate::gather::Gatherings;
use crate::session::{Association, NOT_A_SERVER, may_add_octets, take_header};
use crate::wire::{HEADER_OCTETS, Header, Kind};
use alloc::rc::Rc;
use core::cell::Cell;
use core::time::Duration;
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participants, Protocol, ProtocolRef, SessionRef, Time,
    Upper, reason,
};
use xk_kit::answers::Allowance;
use xk_kit::control::{NetworkError, NetworkErrorKind};
use xk_kit::net::stream::{CarriesRecords, StreamError, StreamEvent, StreamNotice, StreamSpace};
use xk_kit::rpc::call_layer::less;
use xk_kit::rpc::callers::{self, Key};
use xk_kit::rpc::server::OfferingServers;

xk_core::settings! {
    /// Parameters of the graph: waits and bounds.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        first_wait: Duration = duration(Duration::from_secs(1),
            "the time before a request is sent again first"),
        wait_max: Duration = duration(Duration::from_secs(8),
            "the longest time between two sendings"),
        total: Duration = duration(Duration::from_secs(30), "how long a call lasts at most"),
        calls_max: usize = int(1..=1_048_576, 16_384, "how many calls may wait at once"),
        requests_max: usize = int(1..=1_048_576, 1024, "how many requests may be executed at once"),
        sessions_max: usize = int(1..=16_777_216, 16_384,
            "how many peers it knows; idle ones are evicted for new ones"),
        dupcache: usize = int(0..=1_048_576, 0,
            "of how many requests the reply is kept; 0 for none. NFS wants 128"),
        dupcache_octets: usize = octets(4 << 20,
            "octets of those replies, at most; the oldest go first, and one that is larger is not \
             kept"),
        replies_max: usize = int(1..=65_536, 1024,
            "how many hosts' replies to one request to many are taken"),
        unproved_rate: usize = octets(64 << 10,
            "octets a second, to each host that has proved nothing, of replies more than three \
             times as long as their requests; 0 for none; raise it where all that can send are \
             trusted"),
        unproved_burst: usize = octets(128 << 10, "octets of long replies to such a host at once"),
    }
}

impl Settings {
    /// The time until a request is sent once more that was sent so long ago.
    pub(crate) fn longer(&self, wait: Duration) -> Duration {
        let max = self.wait_max.max(self.first_wait);
        wait.saturating_mul(2).min(max)
    }
}

/// Shared state of protocol and sessions.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// By the session below, and those of further protocols above by these.
    pub(crate) sessions: SessionTable<Key>,
    pub(crate) calls: Calls,
    pub(crate) gatherings: Gatherings,
    pub(crate) dupcache: Option<DupCache>,
    pub(crate) unproved: Allowance,
    /// Replies that were held back since it was said last, and when that was.
    pub(crate) held: Cell<(u64, Option<Time>)>,
    /// Number of requests that are being executed.
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
    let settings = Settings::read(build)?;
    if settings.first_wait.is_zero() {
        return Err(BuildError::param("first_wait", "more than no time"));
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
        held: Cell::default(),
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
        participants.check_one_peer()?;
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
        let sessions = &self.shared.sessions;
        let key = callers::key(sessions, &lower, upper);
        let association = Association::new(cx, &self.shared, upper, (&lower, key), below);
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
        if let Some(session) = self.shared.sessions.get(&callers::first(lower)) {
            return session.pop(cx, message);
        }
        self.demux_first(cx, this, lower, message)
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
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

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("sessions", &self.shared.sessions);
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
    /// A message that there is no first session for: a call makes one, for a protocol that serves;
    /// a reply may be for the calls of a further one.
    #[cold]
    fn demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let (octets, message) = this.header(message)?;
        let marks = may_add_octets(cx, lower);
        let parsed = match marks {
            true => Header::parse_marked(&octets).map(|(header, _)| header),
            false => Header::parse(&octets),
        };
        match parsed {
            Ok(Header { kind: Kind::Call, .. }) => {}
            Ok(Header { kind: Kind::Reply, xid }) => {
                let mut reply = message;
                return match take_header(&mut reply, &octets, marks) {
                    Ok(_) => self.shared.answer(cx, lower.id(), xid, reply),
                    Err(why) => Err((reply, why)),
                }
                .map_err(|(reply, why)| this.refuse(reply, why));
            }
            Err(_) => return Err(this.refuse(message, &reason::MALFORMED)),
        }
        let Some((upper, _)) = self.shared.server.get(0) else {
            return Err(this.refuse(message, &NOT_A_SERVER));
        };
        let make = || {
            let ends = (lower, callers::first(lower));
            let association = Association::new(cx, &self.shared, &upper, ends, None);
            (association, Participants::default())
        };
        let (key, source) = (callers::first(lower), lower.head().source());
        match self.shared.sessions.accept(cx, this, &upper, key, source, make) {
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
        if !is_final {
            return Answer::Unknown;
        }
        let xid = error.start.first_chunk().map(|octets| u32::from_be_bytes(*octets));
        let session = self.shared.sessions.get(&callers::first(lower));
        let session = session.filter(|session| !session.head().is_passive());
        if let Some(association) = session.as_ref().and_then(SessionRef::body::<Association>) {
            association.unreachable(cx, xid);
            return Answer::Answered;
        }
        match self.shared.calls.refuse(cx, lower.id(), xid) {
            true => Answer::Answered,
            false => Answer::Unknown,
        }
    }

    /// Something has happened to the stream below a session.
    fn stream_notice(&self, cx: &Kernel, notice: &StreamNotice) {
        let is_gone = matches!(
            notice.event,
            StreamEvent::Failed(_) | StreamEvent::Closed | StreamEvent::EndOfStream
        );
        if !is_gone {
            return;
        }
        let (lower, first) = (notice.session.id(), callers::first(&notice.session));
        let session = self.shared.sessions.get(&first);
        if let Some(session) = session.filter(|session| session.head().is_passive()) {
            self.shared.sessions.unbind(&first);
            session.abort(cx);
        }
        if notice.event == StreamEvent::Failed(StreamError::Refused) {
            self.shared.calls.refuse(cx, lower, None);
        } else {
            self.shared.calls.lose(cx, lower);
        }
    }
}
