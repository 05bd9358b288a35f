//! The protocol object: opens, demultiplexes, answers requests.

use crate::session::{EchoSession, Key, owner, put_header, sum};
use crate::wire::{HEADER_LEN, Header, TIMES_LEN, Times, echo_reply};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use xk_core::control::{ListMaps, ListSessions, Question};
use xk_core::graph::{Build, BuildError};
use xk_core::map::Map;
use xk_core::object::{OpenError, PushError, Refused, SessionTable};
use xk_core::reason::{self, Reason};
use xk_core::{Answer, Ask, Kernel, Message, Participants, Protocol, ProtocolRef};
use xk_core::{SessionRef, Upper};
use xk_kit::answers::{self, Allowance};
use xk_kit::control::{MyHost, NetworkError, PeerHost, RegisterErrorProtocol, SendError};
use xk_kit::net::talkers::{Source, Talkers};

/// Why it drops messages, besides the reasons that all protocols share.
pub mod reasons {
    use xk_core::reason::{Class, Reason};

    /// An echo request or the like to more than one host (RFC 1122, section 3.2.2.6).
    pub static BROADCAST: Reason = Reason::new("broadcast request", Class::NotMine);
    /// A type that is known, but neither needed nor answered here.
    pub static IGNORED: Reason = Reason::new("ignored type", Class::NotMine);
    /// A type or code that is not known (RFC 1122, section 3.2.2).
    pub static UNKNOWN_TYPE: Reason = Reason::new("unknown type", Class::NotMine);
    /// A reply that no session waits for.
    pub static UNMATCHED_REPLY: Reason = Reason::new("unmatched reply", Class::NotMine);
    /// An error that the layer below has no use for.
    pub static UNMATCHED_ERROR: Reason = Reason::new("unmatched error", Class::NotMine);
    /// An error about a later fragment: nobody can tell whose it was.
    pub static LATER_FRAGMENT: Reason = Reason::new("error about a later fragment", Class::NotMine);
    /// The layer below did not take an answer.
    pub static NOT_SENT: Reason = Reason::new("not sent", Class::Exhausted);
    /// An error not sent because nobody may be told about such a packet (RFC 1122, section 3.2.2).
    pub static NOT_TOLD: Reason = Reason::new("sender not to be told", Class::NotMine);
    /// An error or answer not sent because there were too many before (RFC 1812, section 4.3.2.8).
    pub static RATE_LIMITED: Reason = Reason::new("rate limited", Class::Exhausted);
}

/// A session below whose local host is a broadcast or group carries this number.
const TAG_CAST: u32 = 1;
/// How many sessions below are kept for telling senders of errors.
const KEPT_MAX: usize = 16;

/// What it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IcmpFigures {
    /// Echo and time stamp requests answered.
    pub requests_answered: u64,
    /// Errors sent.
    pub errors_sent: u64,
    /// Errors received and passed on.
    pub errors_received: u64,
}

impl Question for IcmpFigures {
    const NAME: &'static str = "icmp-figures";
}

/// What protocol and sessions share.
pub(crate) struct Shared {
    pub(crate) lower: ProtocolRef,
    pub(crate) sessions: SessionTable<Key>,
    /// The session of each upper protocol on each session below.
    pub(crate) owners: Map<(u64, u32), SessionRef>,
    broadcast_echo: bool,
    timestamp: bool,
    /// How many errors may be sent to a host.
    pub(crate) limit: Allowance,
    /// How many requests of a host may be answered, if not all.
    answers: Option<Allowance>,
    /// The hosts whose messages were dropped.
    talkers: Talkers,
    kept: RefCell<VecDeque<SessionRef>>,
    figures: Cell<IcmpFigures>,
}

/// One instance.
pub struct Icmp {
    pub(crate) shared: Rc<Shared>,
}

/// Builds it from its place in a graph.
///
/// # Errors
/// [`BuildError::Lower`] if the graph gives it nothing to stand on.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let (cx, params) = (build.cx, build.params);
    let key = cx.secret();
    let sessions_max = params.number("sessions_max", 1024usize).min(65_536);
    let limit =
        Allowance::new(params.number("errors_per_second", 16), params.number("errors_burst", 50));
    let per_second = params.number("answers_per_second", 0);
    let answers =
        (per_second > 0).then(|| Allowance::new(per_second, params.number("answers_burst", 1000)));
    build.add(Icmp {
        shared: Rc::new(Shared {
            lower: build.lower(0)?,
            sessions: SessionTable::new(key, sessions_max),
            owners: Map::new(key, sessions_max),
            broadcast_echo: params.flag("broadcast_echo"),
            timestamp: params.flag("timestamp"),
            limit,
            answers,
            talkers: Talkers::read(params),
            kept: RefCell::default(),
            figures: Cell::default(),
        }),
    })
}

impl Shared {
    pub(crate) fn figure(&self, change: impl FnOnce(&mut IcmpFigures)) {
        let mut figures = self.figures.get();
        change(&mut figures);
        self.figures.set(figures);
    }

    /// Takes a place among the answers of this moment, if there is one.
    fn may_answer(&self, cx: &Kernel, lower: &SessionRef) -> bool {
        let limit = self.answers.as_ref();
        limit.is_none_or(|limit| limit.take(cx, answers::source(cx, lower), 1))
    }

    /// An identifier that no session on `lower` has, and that no other peer can foretell.
    fn free_id(&self, cx: &Kernel, lower: &SessionRef) -> Option<u16> {
        let start = cx.random().next_u16();
        (0..=u16::MAX)
            .map(|n| start.wrapping_add(n))
            .find(|id| self.sessions.get(&(lower.id().0, *id)).is_none())
    }

    /// Keeps a session below, opened for an error, open for a while: the next hop may still have to
    /// be found, and the next error is likely to go the same way.
    pub(crate) fn keep(&self, cx: &Kernel, session: SessionRef) {
        let spare = {
            let mut kept = self.kept.borrow_mut();
            if kept.contains(&session) {
                Some(session)
            } else {
                kept.push_back(session);
                (kept.len() > KEPT_MAX).then(|| kept.pop_front()).flatten()
            }
        };
        if let Some(spare) = spare {
            spare.close(cx);
        }
    }
}

impl Protocol for Icmp {
    fn start(&self, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        let lower = &self.shared.lower;
        let any = Participants::local(xk_core::Part::Any);
        let _ = lower.open_enable(cx, Upper::new(this), any)?;
        // A lower layer that reports no errors has no use for it.
        let _ = lower.ask(cx, RegisterErrorProtocol { protocol: this.clone() });
        Ok(())
    }

    fn open(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let shared = &self.shared;
        let lower = shared.lower.open(cx, Upper::new(this), participants)?;
        let owner = owner(&lower, upper.receiver.id());
        if let Some(session) = shared.owners.get(&owner) {
            session.hold();
            lower.close(cx);
            return Ok(session);
        }
        let Some(id) = shared.free_id(cx, &lower) else {
            lower.close(cx);
            return Err(OpenError::Full);
        };
        let key = (lower.id().0, id);
        let body = EchoSession {
            shared: Rc::clone(shared),
            key,
            owner,
            lower,
            upper: upper.receiver.clone(),
            sequence: Cell::new(0),
        };
        let session = shared.sessions.open(cx, this, upper.receiver, key, body)?;
        let bound = shared.owners.bind(owner, session.clone());
        bound.inspect_err(|_| session.close(cx))?;
        Ok(session)
    }

    fn open_done(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        lower: &SessionRef,
        mut participants: Participants,
    ) -> Result<(), &'static Reason> {
        let local = participants.local_mut().ok().and_then(|p| p.pop_host().ok());
        let own = MyHost { host: core::net::Ipv4Addr::UNSPECIFIED };
        let own = lower.ask(cx, own).map(|q| q.host);
        // The local host of such a session is not the one that it sends from.
        if let (Some(local), Some(own)) = (local.and_then(|l| l.value()), own)
            && local != own
        {
            lower.head().set_tag(TAG_CAST);
        }
        Ok(())
    }

    fn demux(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        message: Message,
    ) -> Result<(), Refused> {
        self.take(cx, this, lower, message).inspect_err(|refused| {
            let host = core::net::Ipv4Addr::UNSPECIFIED;
            if let Some(peer) = lower.ask(cx, PeerHost { host }) {
                let source = Source::Host(peer.host);
                self.shared.talkers.count(source, refused.reason);
            }
        })
    }

    fn control(&self, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        let shared = &self.shared;
        if shared.talkers.answer(this, ask) {
            return Answer::Answered;
        }
        if let Some(question) = ask.get::<SendError>() {
            self.send_error(cx, this, question);
        } else if let Some(question) = ask.get::<NetworkError>() {
            self.report_echo_error(cx, question);
        } else if let Some(question) = ask.get::<IcmpFigures>() {
            *question = shared.figures.get();
        } else if let Some(question) = ask.get::<ListSessions>() {
            question.add(&shared.sessions);
        } else if let Some(question) = ask.get::<ListMaps>() {
            question.maps.push(("active", shared.sessions.stats()));
            question.maps.push(("owners", shared.owners.stats()));
        } else {
            return shared.lower.control(cx, ask);
        }
        Answer::Answered
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        Some(&self.shared.lower)
    }

    fn stop(&self, _: &Kernel, _: &ProtocolRef) {
        self.shared.sessions.clear();
        self.shared.owners.clear();
        self.shared.talkers.clear();
        drop(self.shared.kept.take());
    }
}

impl Icmp {
    /// Takes a message that has arrived.
    fn take(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        if let Err(error) = message.pull_up(HEADER_LEN) {
            return Err(this.refuse(message, error.into()));
        }
        if !sum(&message).is_valid() {
            return Err(this.refuse(message, &reason::BAD_CHECKSUM));
        }
        let Some(octets) = message.peek::<HEADER_LEN>() else {
            return Err(this.refuse(message, &reason::TRUNCATED));
        };
        let cast = lower.head().tag() == TAG_CAST;
        let header = Header::parse(octets);
        let request = matches!(header, Ok(Header::EchoRequest(_) | Header::TimestampRequest(_)));
        if request && !self.shared.may_answer(cx, lower) {
            return Err(this.refuse(message, &reasons::RATE_LIMITED));
        }
        match header {
            Ok(Header::EchoRequest(_)) if !cast || self.shared.broadcast_echo => {
                self.answer_echo(cx, this, lower, message)
            }
            Ok(Header::TimestampRequest(query)) if !cast && self.shared.timestamp => {
                let header = Header::TimestampReply(query);
                self.answer_timestamp(cx, this, lower, header, message)
            }
            Ok(Header::EchoReply(query)) => {
                let session = self.shared.sessions.get(&(lower.id().0, query.id));
                match session {
                    Some(session) if message.strip(HEADER_LEN) => session.pop(cx, message),
                    _ => Err(this.refuse(message, &reasons::UNMATCHED_REPLY)),
                }
            }
            Ok(Header::EchoRequest(_) | Header::TimestampRequest(_)) if cast => {
                Err(this.refuse(message, &reasons::BROADCAST))
            }
            Ok(header) if header.is_error() => self.take_error(cx, this, lower, header, message),
            Ok(_) => Err(this.refuse(message, &reasons::IGNORED)),
            Err(_) => Err(this.refuse(message, &reasons::UNKNOWN_TYPE)),
        }
    }

    /// Sends an echo request back as a reply: its type and checksum change, the payload stays where
    /// it is.
    fn answer_echo(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let Some(octets) = message.peek::<HEADER_LEN>() else {
            return Err(this.refuse(message, &reason::TRUNCATED));
        };
        let mut octets = *octets;
        if echo_reply(&mut octets).is_none() || !message.strip(HEADER_LEN) {
            return Err(this.refuse(message, &reason::MALFORMED));
        }
        let sent = message
            .push_array(&octets)
            .map_err(|_| PushError::NoBuffers)
            .and_then(|()| lower.push(cx, message));
        self.note_answer(this, sent);
        Ok(())
    }

    fn answer_timestamp(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        header: Header,
        mut message: Message,
    ) -> Result<(), Refused> {
        let mut octets = [0; HEADER_LEN + TIMES_LEN];
        let whole = message.copy_to(0, &mut octets) == octets.len();
        let Some(times) = octets.last_chunk::<TIMES_LEN>().filter(|_| whole) else {
            return Err(this.refuse(message, &reason::TRUNCATED));
        };
        // RFC 792: the high bit says that this is not the time of day.
        let now_ms = cx.now().as_ms() as u32 | 0x8000_0000;
        let mut reply = [0; TIMES_LEN];
        let times = Times { receive_ms: now_ms, transmit_ms: now_ms, ..Times::parse(times) };
        times.emit(&mut reply);
        message.truncate(octets.len());
        if !message.strip(octets.len()) {
            return Err(this.refuse(message, &reason::TRUNCATED));
        }
        let sent = message
            .push_array(&reply)
            .map_err(|_| PushError::NoBuffers)
            .and_then(|()| put_header(&mut message, header))
            .and_then(|()| lower.push(cx, message));
        self.note_answer(this, sent);
        Ok(())
    }

    fn note_answer(&self, this: &ProtocolRef, sent: Result<(), PushError>) {
        match sent {
            Ok(()) => self.shared.figure(|f| f.requests_answered += 1),
            Err(PushError::NoBuffers) => this.head().drops().count(&reason::NO_BUFFERS),
            Err(_) => this.head().drops().count(&reasons::NOT_SENT),
        }
    }
}
