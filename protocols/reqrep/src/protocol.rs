//! The layer. Each session below has a conversation, which calls, serves, or both. Each further
//! protocol that calls through the same session has one more.

use crate::calls::Calls;
use crate::client;
use crate::dupcache::{DupCache, Source};
use crate::gather::{Gatherings, TOO_MANY_CALLS};
use crate::server::{self, NOT_A_SERVER};
use crate::wire::{HEADER_OCTETS, Header, Kind};
use alloc::string::String;
use core::cell::{Cell, OnceCell};
use core::time::Duration;
use xk_core::graph::{Build, BuildError};
use xk_core::object::{CallError, OpenError, PushError, Refused, SessionId};
use xk_core::reason::{self, Class};
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Participants, ProtocolRef, Reason, SessionRef, Time,
    Upper,
};
use xk_kit::answers::{self, Allowance, is_proved};
use xk_kit::control::{
    IsGroup, MinPacket, NetworkError, NetworkErrorKind, OptPacket, PeerHost, PeerPort, max_packet,
};
use xk_kit::layer::{Arrival, Bounds, Conversation, Layer, Layered};
use xk_kit::net::stream::{CarriesRecords, StreamError, StreamEvent, StreamNotice, StreamSpace};
use xk_kit::rpc::call::{CallOptions, CancelCall, Gather, GathersReplies, LargestReply};
use xk_kit::rpc::callers;
use xk_kit::rpc::server::OfferingServers;

/// A reply for which no call waits: it came twice, or late, or its number was guessed.
pub static NO_CALL: Reason = Reason::new("no such call", Class::NotMine);

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
    /// The wait that follows `wait`, between two transmissions of a request.
    pub(crate) fn longer(&self, wait: Duration) -> Duration {
        let max = self.wait_max.max(self.first_wait);
        wait.saturating_mul(2).min(max)
    }
}

/// One instance of the layer.
pub struct ReqRep {
    pub(crate) settings: Settings,
    pub(crate) calls: Calls,
    pub(crate) gatherings: Gatherings,
    pub(crate) dupcache: Option<DupCache>,
    pub(crate) unproved: Allowance,
    /// Number of replies held back since the last report of them, and the time of that report.
    pub(crate) held: Cell<(u64, Option<Time>)>,
    /// Number of requests that are being executed.
    pub(crate) executing: Cell<usize>,
    pub(crate) server: OfferingServers,
}

/// Settings and state of one conversation.
pub struct Association {
    /// Name of the peer in the cache of replies. If the peer is a host, the name outlives the
    /// session below.
    pub(crate) source: Source,
    /// Name of the peer in the allowance of answers to unproved sources; `None` if the peer has
    /// proved its address.
    pub(crate) unproved: Option<u64>,
    /// The largest message that the layer below sends in one packet, in octets.
    pub(crate) whole_max: usize,
    /// Whether the layer below carries records and repeats lost octets by itself.
    pub(crate) carries_records: bool,
    /// Whether the layer below may add octets to a short message. Then headers have the message's
    /// length.
    pub(crate) marks: bool,
    /// Whether the peer is a broadcast or group. Not set if a message began the conversation,
    /// because a message comes from one host.
    to_many: OnceCell<bool>,
    /// Whether the calls under way were told that the peer's port is not in use; the layer below
    /// will say so once more, to the next push.
    pub(crate) told: Cell<bool>,
}

impl Association {
    #[inline]
    pub(crate) fn is_to_many(&self) -> bool {
        self.to_many.get() == Some(&true)
    }

    /// The header of a message of `octets` octets.
    #[inline]
    pub(crate) fn header(&self, xid: u32, kind: Kind, octets: usize) -> [u8; HEADER_OCTETS] {
        let header = Header { xid, kind };
        match self.marks {
            true => header.emit_marked(octets),
            false => header.emit(),
        }
    }
}

/// A conversation.
pub(crate) type Own = Conversation<ReqRep, HEADER_OCTETS>;
type All = Layered<ReqRep, HEADER_OCTETS>;

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
    let (max, octets_max) = (settings.dupcache, settings.dupcache_octets);
    let layer = ReqRep {
        settings,
        calls: Calls::new(settings.calls_max),
        gatherings: Gatherings::default(),
        dupcache: (max > 0).then(|| DupCache::new(cx, max, octets_max)),
        unproved: Allowance::new(settings.unproved_rate as u64, settings.unproved_burst as u64),
        held: Cell::default(),
        executing: Cell::new(0),
        server: OfferingServers::default(),
    };
    let bounds = Bounds::sessions(settings.sessions_max);
    let layered = Layered::new(cx.secret(), lower, bounds, layer);
    cx.add_protocol(crate::ENTRY.kind, name, layered)
}

/// A stream without records keeps no message together.
fn is_bare_stream(cx: &Kernel, lower: &SessionRef) -> bool {
    lower.ask(cx, CarriesRecords).is_none() && lower.ask(cx, StreamSpace::default()).is_some()
}

/// Whether short messages may arrive through a session with octets added.
fn may_add_octets(cx: &Kernel, lower: &SessionRef) -> bool {
    let min = lower.ask(cx, MinPacket::default());
    min.is_some_and(|min| min.octets as usize > HEADER_OCTETS)
}

/// Kind and number of a message with so many octets behind the header, and how many of these are
/// its own.
#[inline]
fn parse(
    octets: &[u8; HEADER_OCTETS],
    marks: bool,
    there: usize,
) -> Result<(Header, usize), &'static Reason> {
    let parsed = match marks {
        true => Header::parse_marked(octets),
        false => Header::parse(octets).map(|header| (header, there)),
    };
    match parsed {
        Ok((_, own)) if own > there => Err(&reason::TRUNCATED),
        parsed => parsed.map_err(|_| &reason::MALFORMED),
    }
}

impl Layer<HEADER_OCTETS> for ReqRep {
    /// By [`callers`].
    type Key = u32;
    type State = Association;

    const CARRIES_CALLS: bool = true;

    fn key_of(_: &[u8; HEADER_OCTETS]) -> u32 {
        callers::FIRST
    }

    /// The layer below refuses what is too long.
    fn octets_max(&self, _: &Kernel, _: &SessionRef, _: u32) -> usize {
        usize::MAX
    }

    fn begin(&self, cx: &Kernel, lower: &SessionRef, _: u32) -> Association {
        let host = lower.ask(cx, PeerHost::default()).map(|q| q.host);
        let port = lower.ask(cx, PeerPort::default()).map_or(0, |q| q.port);
        Association {
            source: match host {
                Some(host) => (host, u64::from(port)),
                None => (HostAddr::UNSPECIFIED, lower.id().0),
            },
            unproved: (!is_proved(cx, lower)).then(|| answers::source(cx, lower)),
            whole_max: lower.ask(cx, OptPacket::default()).map_or(0, |opt| opt.octets as usize),
            carries_records: lower.ask(cx, CarriesRecords).is_some(),
            marks: may_add_octets(cx, lower),
            to_many: OnceCell::new(),
            told: Cell::new(false),
        }
    }

    #[inline]
    fn deliver(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        octets: &[u8; HEADER_OCTETS],
        mut message: Message,
    ) -> Result<(), Refused> {
        let (Header { xid, kind }, octets) = match parse(octets, own.state.marks, message.len()) {
            Ok(parsed) => parsed,
            Err(why) => return Err(this.refuse(cx, message, why)),
        };
        message.truncate(octets);
        match kind {
            Kind::Reply => {
                let answered = own.all.layer.answer(cx, own.lower().id(), xid, message);
                answered.map_err(|(reply, why)| this.refuse(cx, reply, why))
            }
            Kind::Call => server::serve(own, cx, this, xid, message),
        }
    }

    #[inline]
    fn call(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let options = CallOptions::take(&mut request);
        if own.state.is_to_many()
            && let Some(what) = request.remove_attribute::<Gather>()
            && let Some(options) = options
        {
            return client::gather(own, cx, this, what, options, request);
        }
        let tag = options.map_or(0, |options| options.tag);
        let calls = &own.all.layer.calls;
        let Some(call) = calls.begin(cx, this.id(), own.lower().id(), tag) else {
            this.discard(cx, request, &TOO_MANY_CALLS);
            return Err(PushError::QueueFull.into());
        };
        let xid = call.xid();
        let header = own.state.header(xid, Kind::Call, request.len());
        let result = match request.push_array(&header) {
            Ok(()) => client::converse(own, cx, &call, request, options),
            Err(_) => Err(PushError::NoBuffers.into()),
        };
        calls.end(&call);
        result
    }

    fn open(
        all: &All,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let mut to_many = false;
        let session = callers::open(all, cx, this, upper.receiver, ends, |lower| {
            if is_bare_stream(cx, lower) {
                return Err(OpenError::NotSupported);
            }
            let host = lower.ask(cx, PeerHost::default()).map(|q| q.host);
            to_many = IsGroup::ask(cx, &all.lower, host);
            Ok(())
        })?;
        if let Some(own) = session.body::<Own>().filter(|_| !session.head().is_passive()) {
            let _ = own.state.to_many.set(to_many);
        }
        Ok(session)
    }

    fn servers(&self) -> Option<&OfferingServers> {
        Some(&self.server)
    }

    /// One protocol serves.
    fn offer(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: &mut Participants,
    ) -> Result<u64, OpenError> {
        Ok(0)
    }

    fn open_done(
        _: &All,
        Arrival { cx, lower, .. }: Arrival<'_>,
        _: Participants,
    ) -> Result<(), &'static Reason> {
        match is_bare_stream(cx, lower) {
            true => Err(&reason::NOT_SUPPORTED),
            false => Ok(()),
        }
    }

    /// A call makes a session, for a protocol that serves; a reply may be for the calls of a
    /// further conversation.
    #[cold]
    fn first(
        all: &All,
        at: Arrival<'_>,
        octets: &[u8; HEADER_OCTETS],
        mut message: Message,
    ) -> Result<(), Refused> {
        let Arrival { cx, this, lower } = at;
        let there = message.len() - HEADER_OCTETS;
        let (Header { xid, kind }, own) = match parse(octets, may_add_octets(cx, lower), there) {
            Ok(parsed) => parsed,
            Err(why) => return Err(this.refuse(message, why)),
        };
        if kind == Kind::Reply {
            let _ = message.strip(HEADER_OCTETS);
            message.truncate(own);
            let answered = all.layer.answer(cx, lower.id(), xid, message);
            return answered.map_err(|(reply, why)| this.refuse(reply, why));
        }
        match all.layer.server.get(0) {
            Some((upper, _)) => all.accept(at, &upper, callers::FIRST, message),
            None => Err(this.refuse(message, &NOT_A_SERVER)),
        }
    }

    fn describe(&self, own: &Own) -> String {
        let what = if own.state.to_many.get().is_some() { "calls" } else { "serves" };
        let waiting = self.calls.waiting() + self.gatherings.len();
        alloc::format!("{what} on {:?}, {waiting} calls wait", own.lower())
    }

    fn control(all: &All, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(notice) = ask.get::<StreamNotice>() {
            if notice.session.head().protocol() == this.id() {
                return Answer::Unknown;
            }
            stream_notice(all, cx, notice);
            return Answer::Answered;
        }
        match ask.get::<NetworkError>() {
            Some(error) => network_error(all, cx, error),
            None => all.answer(cx, ask),
        }
    }

    fn session_control(own: &Own, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<CancelCall>() {
            let (layer, tag) = (&own.all.layer, question.tag);
            let known = layer.calls.cancel(cx, this.id(), tag)
                || layer.gatherings.cancel(cx, this.id(), tag);
            return if known { Answer::Answered } else { Answer::Unknown };
        }
        if let Some(question) = ask.get::<LargestReply>() {
            let below = max_packet(cx, own.lower(), u32::MAX);
            question.octets = below.saturating_sub(HEADER_OCTETS as u32);
            return Answer::Answered;
        }
        if own.state.is_to_many() && ask.get::<GathersReplies>().is_some() {
            return Answer::Answered;
        }
        own.answer(cx, ask)
    }

    fn timeout(own: &Own, cx: &Kernel, this: &SessionRef, token: u64) {
        let ReqRep { gatherings, settings, .. } = &own.all.layer;
        gatherings.timeout(cx, this, own.lower(), token as u32, settings);
    }

    fn end(own: &Own, cx: &Kernel, this: &SessionRef) {
        own.all.layer.calls.close(cx, this.id());
        own.all.layer.gatherings.close(cx, this.id());
    }

    fn stop(&self) {
        self.gatherings.clear();
        if let Some(dupcache) = &self.dupcache {
            dupcache.clear();
        }
    }
}

impl ReqRep {
    /// Takes a reply that has come through the session `lower`, for whichever call it is.
    #[inline]
    fn answer(
        &self,
        cx: &Kernel,
        lower: SessionId,
        xid: u32,
        reply: Message,
    ) -> Result<(), (Message, &'static Reason)> {
        match self.calls.answer(cx, lower, xid, reply) {
            Ok(()) => Ok(()),
            Err(reply) if self.gatherings.len() > 0 => {
                self.gatherings.answer(cx, (lower, xid), self.settings.replies_max, reply)
            }
            Err(reply) => Err((reply, &NO_CALL)),
        }
    }
}

/// The network reports an error about something that was sent. That no protocol is there to take it
/// ends the call at once; of whatever else it says the next repetition may find otherwise (RFC
/// 1122, sections 4.1.3.3 and 4.2.3.9).
fn network_error(all: &All, cx: &Kernel, error: &NetworkError) -> Answer {
    let is_final = matches!(
        error.kind,
        NetworkErrorKind::PortUnreachable | NetworkErrorKind::ProtocolUnreachable
    );
    let Some(lower) = error.session.as_ref().filter(|_| is_final) else {
        return Answer::Unknown;
    };
    // The request with this number, or all if that is not known.
    let xid = error.start.first_chunk().map(|octets| u32::from_be_bytes(*octets));
    let session = all.find(lower, callers::FIRST);
    let session = session.filter(|session| !session.head().is_passive());
    let own = session.as_ref().and_then(SessionRef::body::<Own>);
    if let Some(own) = own {
        own.state.told.set(true);
    }
    match all.layer.calls.refuse(cx, lower.id(), xid) || own.is_some() {
        true => Answer::Answered,
        false => Answer::Unknown,
    }
}

/// Something has happened to the stream below a session.
fn stream_notice(all: &All, cx: &Kernel, notice: &StreamNotice) {
    let is_gone = matches!(
        notice.event,
        StreamEvent::Failed(_) | StreamEvent::Closed | StreamEvent::EndOfStream
    );
    if !is_gone {
        return;
    }
    let session = all.find(&notice.session, callers::FIRST);
    if let Some(session) = session.filter(|session| session.head().is_passive()) {
        session.abort(cx);
    }
    let (calls, lower) = (&all.layer.calls, notice.session.id());
    if notice.event == StreamEvent::Failed(StreamError::Refused) {
        calls.refuse(cx, lower, None);
    } else {
        calls.lose(cx, lower);
    }
}
