//! The protocol object: opens, enables, demultiplexes.

use crate::calls::{Call, Data, Origin, Spare};
use crate::session::{Association, NO_TRANSACTION, NOT_A_SERVER};
use crate::wire;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use xk_appletalk::atp::{
    Bounds, Header, Kind, Limits, Options, RESPONSES_MAX, Requester, Responder, Want, bitmap_of,
};
use xk_core::control::Tables;
use xk_core::graph::{Build, BuildError};
use xk_core::kernel::Timer;
use xk_core::map::MapStats;
use xk_core::object::{Enable, OpenError, Refused, SessionTable};
use xk_core::{
    Answer, Ask, Kernel, Message, Part, Participant, Participants, PeerName, Protocol, ProtocolRef,
    Reason, Secret, SessionRef, Upper, question, reason,
};
use xk_kit::net::appletalk::now;
use xk_kit::rpc::call::UsualTransaction;
use xk_kit::rpc::call_layer::less;
use xk_kit::rpc::callers::{self, Key};
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

/// Shared state of protocol and sessions.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    /// By the session below, and those of further protocols above by these.
    pub(crate) sessions: SessionTable<Key>,
    /// Borrowed for one step of the machine at a time, and never while a layer below sends.
    pub(crate) requester: RefCell<Requester<Origin, Data, Rc<Call>>>,
    pub(crate) responder: RefCell<Responder<Origin, Data>>,
    pub(crate) spare: Spare,
    /// Number of requests that are being executed.
    pub(crate) executing: Cell<usize>,
    pub(crate) server: OfferingServers,
    /// Participants enabled below: a server's number is its place here.
    offered: RefCell<Vec<Participant>>,
    /// Names peers.
    secret: Secret,
    /// Timer of the release timers.
    timer: Cell<Option<Timer>>,
}

impl Shared {
    /// The server that a session below was made for.
    pub(crate) fn server_of(&self, lower: &SessionRef) -> Option<ProtocolRef> {
        let number = lower.head().tag().checked_sub(1)?;
        self.server.get(number).map(|(server, _)| server)
    }

    /// The protocol that serves at this local participant.
    pub(crate) fn server_at(&self, local: &Participant) -> Option<ProtocolRef> {
        self.server.get(self.offer_for(local)?).map(|(server, _)| server)
    }

    /// Whether this protocol serves at this local participant.
    pub(crate) fn serves(&self, upper: &ProtocolRef, local: &Participant) -> bool {
        let offered = self.offered.borrow();
        let serves = |at| self.server.get(at).is_some_and(|(server, _)| server == *upper);
        let mut all = (0..).zip(offered.iter());
        all.any(|(at, offer)| fits(offer, local) && serves(at))
    }

    /// The number that is offered to this local participant: the most definite that fits.
    fn offer_for(&self, local: &Participant) -> Option<u32> {
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
    pub(crate) fn origin(&self, lower: &SessionRef) -> Origin {
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
        if self.timer.get().is_some() {
            return;
        }
        let delay = due.saturating_sub(now(cx));
        // Without a timer the next request tries again.
        self.timer.set(cx.schedule_protocol(this, delay, 0).ok());
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

/// One instance of the layer.
pub struct Atp {
    lower: ProtocolRef,
    shared: Rc<Shared>,
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
    let shared = Rc::new(Shared {
        settings,
        sessions: SessionTable::new(cx.secret(), settings.sessions_max),
        requester: RefCell::new(Requester::new(limits, cx.random().next_u16())),
        responder: RefCell::new(Responder::new(bounds)),
        spare: Spare::default(),
        executing: Cell::new(0),
        server: OfferingServers::default(),
        offered: RefCell::default(),
        secret: cx.secret(),
        timer: Cell::new(None),
    });
    cx.add_protocol(crate::ENTRY.kind, name, Atp { lower, shared })
}

impl Protocol for Atp {
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
        let local = local.clone();
        if self.shared.is_anothers(&local, upper.receiver) {
            return Err(OpenError::InUse);
        }
        let lower = self.lower.open(cx, Upper::new(this), participants.clone())?;
        if lower.head().peer() == PeerName::UNKNOWN {
            // Our own end may be any, so that the participants alone do not name it.
            lower.head().set_peer(self.shared.name(&participants, lower.id().0));
        }
        let upper = upper.receiver;
        let sessions = &self.shared.sessions;
        let key = callers::key(sessions, &lower, upper);
        let association = Association::new(cx, &self.shared, upper, (&lower, key), Some(local));
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
        if local.is_empty() {
            local.push(Part::Any);
        }
        if self.shared.is_anothers(local, upper.receiver) {
            return Err(OpenError::InUse);
        }
        // What no other serves is the host's own.
        if local.top() == Some(&Part::Any) && upper.receiver.head().payer().is_some() {
            return Err(OpenError::NotPermitted);
        }
        let number = {
            let mut offered = self.shared.offered.borrow_mut();
            let known = offered.iter().position(|offer| offer == local);
            known.unwrap_or_else(|| {
                // One that serves no more leaves its place.
                let free =
                    (0..offered.len()).find(|at| self.shared.server.get(*at as u32).is_none());
                match free.and_then(|at| offered.get_mut(at).map(|place| (at, place))) {
                    Some((at, place)) => {
                        *place = local.clone();
                        at
                    }
                    None => {
                        offered.push(local.clone());
                        offered.len() - 1
                    }
                }
            })
        };
        self.shared.server.enable(cx, &self.lower, (this, upper), (number as u32, local))
    }

    fn open_disable(&self, cx: &Kernel, _: &ProtocolRef, enable: Enable) {
        self.shared.server.disable(cx, &self.lower, enable);
    }

    fn open_done(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        mut participants: Participants,
    ) -> Result<(), &'static Reason> {
        let head = lower.head();
        if participants.len() > 1 {
            head.set_peer(self.shared.name(&participants, 0));
        }
        let any = Participant::of(Part::Any);
        let local = participants.local_mut().map_or(any, |local| local.clone());
        let number = self.shared.offer_for(&local).ok_or(&NOT_A_SERVER)?;
        head.set_tag(number + 1);
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

    fn control(&self, cx: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<Transactions>() {
            question.responses_max = RESPONSES_MAX as u32;
            return Answer::Answered;
        }
        if let Some(usual) = ask.get::<UsualTransaction>() {
            usual.octets = Options::request(&self.shared.settings.usual(), 0).emit();
            return Answer::Answered;
        }
        less_request(less(self.lower.control(cx, ask), ask, wire::HEADER_OCTETS), ask)
    }

    fn tables(&self, tables: &mut Tables<'_>) {
        tables.sessions("sessions", &self.shared.sessions);
        let entries = self.shared.responder.borrow().len();
        tables.map("remembered", MapStats { entries, ..MapStats::default() });
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.lower)
    }

    fn timeout(&self, cx: &Kernel, this: &ProtocolRef, _: u64) {
        self.shared.timer.set(None);
        self.shared.responder.borrow_mut().poll(now(cx));
        self.shared.arm(cx, this);
    }

    fn stop(&self, cx: &Kernel, _: &ProtocolRef) {
        let shared = &self.shared;
        cx.cancel(shared.timer.take());
        shared.sessions.clear();
        shared.server.clear();
        shared.offered.borrow_mut().clear();
        shared.responder.borrow_mut().clear();
    }
}

impl Atp {
    /// A packet that there is no first session for: a request makes one, for a protocol that
    /// serves; what else comes may be for the calls of a further one.
    #[cold]
    fn demux_first(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        let (octets, message) = this.header::<{ wire::HEADER_OCTETS }>(message)?;
        match Header::parse(&octets) {
            Ok(Header { kind: Kind::Request, .. }) => {}
            Ok(header @ Header { kind: Kind::Response, .. }) => {
                let (shared, mut data) = (&self.shared, message);
                let _ = data.strip(wire::HEADER_OCTETS);
                let heard = shared.hear(cx, (lower, shared.origin(lower)), &header, data);
                return heard.map_err(|(data, why)| this.refuse(data, why));
            }
            Ok(_) => return Err(this.refuse(message, &NO_TRANSACTION)),
            Err(_) => return Err(this.refuse(message, &reason::MALFORMED)),
        }
        let Some(upper) = self.shared.server_of(lower) else {
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
}

/// Holds what is said of sizes to those of a request.
pub(crate) fn less_request(answer: Answer, ask: &mut Ask<'_>) -> Answer {
    use xk_appletalk::atp::DATA_OCTETS_MAX;
    use xk_kit::control::{MaxPacket, OptPacket};
    if let Some(question) = ask.get::<MaxPacket>() {
        question.octets = question.octets.min(DATA_OCTETS_MAX as u32);
    } else if let Some(question) = ask.get::<OptPacket>() {
        question.octets = question.octets.min(DATA_OCTETS_MAX as u32);
    }
    answer
}
