//! The layer: a conversation for each session below, which calls, or serves, or both; and one for
//! each further protocol that calls through the same session.

use crate::calls::{Call, Data, Origin, Spare};
use crate::client::{self, NO_TRANSACTION, TOO_MANY_CALLS};
use crate::server::{self, NOT_A_SERVER};
use crate::wire::HEADER_OCTETS;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, OnceCell, RefCell};
use xk_appletalk::atp::{
    BeginError, Bounds, DATA_OCTETS_MAX, Header, Kind, Limits, Options, RESPONSES_MAX, Requester,
    Responder, Want, bitmap_of,
};
use xk_core::graph::{Build, BuildError};
use xk_core::map::MapStats;
use xk_core::object::{CallCause, CallError, OpenError, PushError, Refused};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, PeerName, ProtocolRef, Reason,
    Secret, SessionRef, Upper, question, reason,
};
use xk_kit::layer::{self, Arrival, Conversation, Layer, Layered};
use xk_kit::net::appletalk::now;
use xk_kit::rpc::call::{CallOptions, CancelCall, UsualTransaction};
use xk_kit::rpc::callers;
use xk_kit::rpc::server::OfferingServers;

/// Limits of a reply; only a protocol of transactions knows, whose options go with each call
/// ([`Transaction`](xk_kit::rpc::call::Transaction)).
#[derive(Clone, Copy, Debug, Default)]
pub struct Transactions {
    /// Packets of a reply, at most.
    pub responses_max: u32,
}

question!(Transactions { responses_max }, "transactions", Fact);

xk_appletalk::atp_settings! {
    /// Parameters of the graph: the options of a call that has none itself, and bounds.
    #[derive(Clone, Copy, Debug)]
    pub struct Settings {
        responses: usize = int(0..=8, 8, "packets of a reply, at most"),
        calls_max: usize = int(1..=16_384, 1024, "how many calls may wait at once"),
        requests_max: usize = int(1..=1_048_576, 1024, "how many requests may be executed at once"),
        sessions_max: usize = int(1..=16_777_216, 16_384,
            "how many peers it knows; idle ones are evicted for new ones"),
        remembered: usize = int(1..=65_536, 1024,
            "how many requests that are executed exactly once are remembered; others wait"),
        remembered_host: usize = int(1..=65_536, 256, "how many of them may be one host's"),
        remembered_octets: usize = octets(4 << 20, "octets of their replies"),
        unreleased: u32 = int(0..=1_000_000, 1024,
            "how many packets a second a host is sent, beyond the first of each reply, that it did \
             not release; 0: no bound"),
    }
}

impl Settings {
    /// Options of a call that has none itself.
    pub(crate) fn usual(&self) -> Want {
        Want { bitmap: bitmap_of(self.responses), ..self.want() }
    }
}

/// One instance of the layer.
pub struct Atp {
    pub(crate) settings: Settings,
    /// Borrowed for one step of the machine at a time, and never while a layer below sends.
    pub(crate) requester: RefCell<Requester<Origin, Data, Rc<Call>>>,
    pub(crate) responder: RefCell<Responder<Origin, Data>>,
    pub(crate) spare: Spare,
    /// Number of requests that are being executed.
    pub(crate) executing: Cell<usize>,
    server: OfferingServers,
    /// Participants enabled below: a server's number is its place here.
    offered: RefCell<Vec<Participant>>,
    /// Names peers.
    secret: Secret,
    /// Whether the timer of the release timers is set.
    is_armed: Cell<bool>,
}

/// Both ends of one conversation.
pub struct Association {
    pub(crate) origin: Origin,
    /// Our own end, of a session that was opened from above.
    pub(crate) local: OnceCell<Participant>,
}

/// A conversation.
pub(crate) type Own = Conversation<Atp, HEADER_OCTETS>;
type All = Layered<Atp, HEADER_OCTETS>;

impl Atp {
    /// The server that a session below was made for.
    fn server_of(&self, lower: &SessionRef) -> Option<ProtocolRef> {
        let number = lower.head().tag().checked_sub(1)?;
        self.server.get(number).map(|(server, _)| server)
    }

    /// The protocol that serves at this local participant.
    pub(crate) fn server_at(&self, local: &Participant) -> Option<ProtocolRef> {
        self.server.get(self.number_for(local)?).map(|(server, _)| server)
    }

    /// Whether this protocol serves at this local participant.
    pub(crate) fn serves(&self, upper: &ProtocolRef, local: &Participant) -> bool {
        let offered = self.offered.borrow();
        let serves = |at| self.server.get(at).is_some_and(|(server, _)| server == *upper);
        let mut all = (0..).zip(offered.iter());
        all.any(|(at, offer)| fits(offer, local) && serves(at))
    }

    /// The number that is offered to this local participant: the most definite that fits.
    fn number_for(&self, local: &Participant) -> Option<u32> {
        let offered = self.offered.borrow();
        let definite = |offer: &Participant| offer.parts().filter(|p| **p != Part::Any).count();
        let all = offered.iter().enumerate();
        let served = all.filter(|(at, _)| self.server.get(*at as u32).is_some());
        let found = served.filter(|(_, offer)| fits(offer, local)).max_by_key(|(_, o)| definite(o));
        found.map(|(at, _)| at as u32)
    }

    /// True if another user than that of `upper` serves at this socket, whatever host its name has.
    fn is_anothers(&self, local: &Participant, upper: &ProtocolRef) -> bool {
        let payer = upper.head().payer();
        let is_anothers = |at: usize| {
            self.server.get(at as u32).is_some_and(|(server, _)| server.head().payer() != payer)
        };
        let offered = self.offered.borrow();
        let is_socket = matches!(local.top(), Some(Part::Number(..)));
        is_socket
            && (0..offered.len()).any(|at| offered[at].top() == local.top() && is_anothers(at))
    }

    /// A name for what these participants say, the first being our own, and this number.
    fn name(&self, participants: &Participants, number: u64) -> PeerName {
        let mut ends = Vec::from([number]);
        let mut host = Vec::new();
        for (at, participant) in participants.iter().enumerate() {
            ends.push(u64::MAX);
            for (depth, part) in participant.parts().enumerate() {
                let words = words(part);
                ends.extend(words);
                if at > 0 && (depth > 0 || participant.len() == 1) {
                    host.extend(words);
                }
            }
        }
        let (ends, host) = (self.secret.hash(&ends), self.secret.hash(&host) as u32);
        let [a, b, c, d, e, f, g, h] = ends.to_be_bytes();
        let [i, j, k, l] = host.to_be_bytes();
        PeerName::no_host([a, b, c, d, e, f, g, h, i, j, k, l])
    }

    /// The other end of a session below, by the name that it was given.
    fn origin(lower: &SessionRef) -> Origin {
        let Some([a, b, c, d, e, f, g, h, i, j, k, l]) = lower.head().peer().own() else {
            return Origin { ends: lower.id().0, host: 0 };
        };
        let ends = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Origin { ends, host: u32::from_be_bytes([i, j, k, l]) }
    }

    /// Sets the timer for what falls due in the responder, unless it is set.
    pub(crate) fn arm(&self, cx: &Kernel, this: &ProtocolRef) {
        let Some(due) = self.responder.borrow().due() else {
            return;
        };
        if !self.is_armed.get() {
            let delay = due.saturating_sub(now(cx));
            // Without a timer the next request tries again.
            self.is_armed.set(cx.schedule_protocol(this, delay, 0).is_ok());
        }
    }

    /// The number under which a local participant is enabled, or is to be.
    fn number_of(&self, local: &Participant) -> u32 {
        let mut offered = self.offered.borrow_mut();
        let known = offered.iter().position(|offer| offer == local);
        // One that serves no more leaves its place.
        let is_free = |at: &usize| self.server.get(*at as u32).is_none();
        let at = known.or_else(|| (0..offered.len()).find(is_free)).unwrap_or(offered.len());
        match offered.get_mut(at) {
            Some(place) => *place = local.clone(),
            None => offered.push(local.clone()),
        }
        at as u32
    }
}

/// Whether an offer is for this local participant; what either leaves open fits.
fn fits(offer: &Participant, local: &Participant) -> bool {
    let mut pairs = offer.parts().zip(local.parts());
    pairs.all(|(one, other)| *one == Part::Any || *other == Part::Any || one == other)
}

/// A part as words, so that no two parts are alike.
fn words(part: &Part) -> [u64; 4] {
    let text = |name: &str| {
        let octets = name.bytes().chain(core::iter::repeat(0)).take(16);
        octets.fold(0u128, |word, octet| word << 8 | u128::from(octet))
    };
    match part {
        Part::Any => [0; 4],
        Part::Number(label, number) => {
            let label = text(label.as_str());
            [1, (label >> 64) as u64, label as u64, *number]
        }
        Part::Ether([a, b, c, d, e, f]) => {
            [2, u64::from_be_bytes([0, 0, *a, *b, *c, *d, *e, *f]), 0, 0]
        }
        Part::Host(host) => {
            let [a, b, c] = host.words();
            [3, a, b, c]
        }
    }
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let settings = Settings::read(build)?;
    Ok(add(build.cx, build.name, build.lower(0)?, settings))
}

/// Adds one to a kernel, for programs that compose without a graph file.
pub fn add(cx: &Kernel, name: &str, lower: ProtocolRef, settings: Settings) -> ProtocolRef {
    let bounds = Bounds {
        transactions: settings.remembered,
        per_host: settings.remembered_host,
        octets: settings.remembered_octets,
        unreleased: settings.unreleased,
    };
    let limits = Limits { transactions: settings.calls_max };
    let layer = Atp {
        settings,
        requester: RefCell::new(Requester::new(limits, cx.random().next_u16())),
        responder: RefCell::new(Responder::new(bounds)),
        spare: Spare::default(),
        executing: Cell::new(0),
        server: OfferingServers::default(),
        offered: RefCell::default(),
        secret: cx.secret(),
        is_armed: Cell::new(false),
    };
    let bounds = layer::Bounds::sessions(settings.sessions_max);
    let layered = Layered::new(cx.secret(), lower, bounds, layer);
    cx.add_protocol(crate::ENTRY.kind, name, layered)
}

impl Layer<HEADER_OCTETS> for Atp {
    /// By [`callers`].
    type Key = u32;
    type State = Association;

    const OCTETS_MAX: usize = DATA_OCTETS_MAX;
    const CARRIES_CALLS: bool = true;

    fn key_of(_: &[u8; HEADER_OCTETS]) -> u32 {
        callers::FIRST
    }

    fn begin(&self, _: &Kernel, lower: &SessionRef, _: u32) -> Association {
        Association { origin: Self::origin(lower), local: OnceCell::new() }
    }

    #[inline]
    fn deliver(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        octets: &[u8; HEADER_OCTETS],
        message: Message,
    ) -> Result<(), Refused> {
        let Ok(header) = Header::parse(octets) else {
            return Err(this.refuse(cx, message, &reason::MALFORMED));
        };
        match header.kind {
            Kind::Response => {
                let ends = (own.lower(), own.state.origin);
                let heard = client::hear(&own.all.layer, cx, ends, &header, message);
                heard.map_err(|(data, why)| this.refuse(cx, data, why))
            }
            Kind::Request => server::serve(own, cx, this, &header, message),
            Kind::Release => {
                let (from, responder) = ((own.state.origin, 0), &own.all.layer.responder);
                match responder.borrow_mut().release(now(cx), from, header.tid) {
                    true => Ok(()),
                    false => Err(this.refuse(cx, message, &NO_TRANSACTION)),
                }
            }
        }
    }

    #[inline]
    fn call(
        own: &Own,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let layer = &own.all.layer;
        let options = CallOptions::take(&mut request);
        let want = client::want(own, &mut request);
        if request.len() > client::data_octets(own) {
            this.discard(cx, request, &reason::TOO_BIG);
            return Err(PushError::TooBig.into());
        }
        if CallOptions::clip(options, cx.now(), want.interval).is_none() {
            return Err(CallCause::TimedOut { tries: 0 }.into());
        }
        let call = layer.spare.take(this.id(), options.map_or(0, |options| options.tag));
        let (place, owner) = ((0, own.state.origin), Rc::clone(&call));
        let begun = layer.requester.borrow_mut().begin(now(cx), place, &want, Data(request), owner);
        let result = match begun {
            Ok((tid, packet)) => {
                let sent = client::send(cx, own.lower(), packet);
                let result = match sent {
                    // There is nothing to wait for.
                    Ok(()) if want.bitmap == 0 => client::empty(cx).map_err(CallError::from),
                    Ok(()) => {
                        let ended = client::converse(own, cx, tid, &call, options);
                        ended.and_then(client::reply_of)
                    }
                    Err(error) => Err(error.into()),
                };
                // It is over already if there is a reply.
                let cancelled = layer.requester.borrow_mut().cancel(tid);
                drop(cancelled);
                result
            }
            Err((BeginError::Full, Data(request), _)) => {
                this.discard(cx, request, &TOO_MANY_CALLS);
                Err(PushError::QueueFull.into())
            }
            Err((BeginError::TooBig, ..)) => Err(PushError::TooBig.into()),
            Err((BeginError::NoBuffers, ..)) => Err(PushError::NoBuffers.into()),
        };
        layer.spare.give(call);
        result
    }

    fn open(
        all: &All,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        mut ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let local = callers::local(&mut ends)?.clone();
        if all.layer.is_anothers(&local, upper.receiver) {
            return Err(OpenError::InUse);
        }
        let named = ends.clone();
        let session = callers::open(all, cx, this, upper.receiver, ends, |lower| {
            if lower.head().peer() == PeerName::UNKNOWN {
                // Our own end may be any, so that the participants alone do not name it.
                lower.head().set_peer(all.layer.name(&named, lower.id().0));
            }
            Ok(())
        })?;
        if let Some(own) = session.body::<Own>().filter(|_| !session.head().is_passive()) {
            let _ = own.state.local.set(local);
        }
        Ok(session)
    }

    fn servers(&self) -> Option<&OfferingServers> {
        Some(&self.server)
    }

    fn offer(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        ends: &mut Participants,
    ) -> Result<u64, OpenError> {
        let local = callers::local(ends)?;
        if self.is_anothers(local, upper.receiver) {
            return Err(OpenError::InUse);
        }
        // What no other serves is the host's own.
        if local.top() == Some(&Part::Any) && upper.receiver.head().payer().is_some() {
            return Err(OpenError::NotPermitted);
        }
        Ok(self.number_of(local).into())
    }

    fn open_done(
        all: &All,
        Arrival { lower, .. }: Arrival<'_>,
        mut ends: Participants,
    ) -> Result<(), &'static Reason> {
        let head = lower.head();
        if ends.len() > 1 {
            head.set_peer(all.layer.name(&ends, 0));
        }
        let any = Participant::of(Part::Any);
        let local = ends.local_mut().map_or(any, |local| local.clone());
        let number = all.layer.number_for(&local).ok_or(&NOT_A_SERVER)?;
        head.set_tag(number + 1);
        Ok(())
    }

    /// A request makes a session, for a protocol that serves; a response may be for the calls of a
    /// further conversation.
    #[cold]
    fn first(
        all: &All,
        at: Arrival<'_>,
        octets: &[u8; HEADER_OCTETS],
        mut message: Message,
    ) -> Result<(), Refused> {
        let Arrival { cx, this, lower } = at;
        let why = match Header::parse(octets) {
            Ok(Header { kind: Kind::Request, .. }) => match all.layer.server_of(lower) {
                Some(upper) => return all.accept(at, &upper, callers::FIRST, message),
                None => &NOT_A_SERVER,
            },
            Ok(header @ Header { kind: Kind::Response, .. }) => {
                let _ = message.strip(HEADER_OCTETS);
                let ends = (lower, Self::origin(lower));
                let heard = client::hear(&all.layer, cx, ends, &header, message);
                return heard.map_err(|(data, why)| this.refuse(data, why));
            }
            Ok(_) => &NO_TRANSACTION,
            Err(_) => &reason::MALFORMED,
        };
        Err(this.refuse(message, why))
    }

    fn describe(&self, own: &Own) -> String {
        let what = if own.state.local.get().is_some() { "calls" } else { "serves" };
        let waiting = self.requester.borrow().len();
        alloc::format!("{what} on {:?}, {waiting} calls wait", own.lower())
    }

    fn control(all: &All, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Transactions>() {
            question.responses_max = RESPONSES_MAX as u32;
        } else if let Some(usual) = ask.get::<UsualTransaction>() {
            usual.octets = Options::request(&all.layer.settings.usual(), 0).emit();
        } else {
            return all.answer(cx, ask);
        }
        Answer::Answered
    }

    fn session_control(own: &Own, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        let Some(tag) = ask.get::<CancelCall>().map(|question| question.tag) else {
            return own.answer(cx, ask);
        };
        match tag != 0 && client::end(own, cx, this, Some(tag), CallCause::Cancelled) {
            true => Answer::Answered,
            false => Answer::Unknown,
        }
    }

    fn map(&self) -> Option<(&'static str, MapStats)> {
        let entries = self.responder.borrow().len();
        Some(("remembered", MapStats { entries, ..MapStats::default() }))
    }

    fn timer(all: &All, cx: &Kernel, this: &ProtocolRef) {
        all.layer.is_armed.set(false);
        all.layer.responder.borrow_mut().poll(now(cx));
        all.layer.arm(cx, this);
    }

    fn end(own: &Own, cx: &Kernel, this: &SessionRef) {
        client::end(own, cx, this, None, CallCause::Closed);
    }

    fn stop(&self) {
        self.offered.borrow_mut().clear();
        self.responder.borrow_mut().clear();
    }
}
