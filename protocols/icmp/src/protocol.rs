//! The layer: a conversation is one upper protocol's pings to one host; requests are answered.

use crate::errors::{report_echo_error, send_error, take_error};
use crate::wire::{HEADER_LEN, Header, Query, TIMES_LEN, Times, echo_reply};
use alloc::collections::VecDeque;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use xk_core::graph::{Build, BuildError};
use xk_core::map::{Map, MapStats};
use xk_core::object::{OpenError, PushError, Refused};
use xk_core::question;
use xk_core::reason::{self, Reason};
use xk_core::{Answer, Ask, Kernel, Message, Participants, ProtocolRef, SessionRef, Upper};
use xk_kit::answers::{self, Allowance};
use xk_kit::control::{MyHost, NetworkError, PeerHost, RegisterErrorProtocol, SendError};
use xk_kit::layer::{Arrival, Conversation, Layer, Layered};
use xk_kit::net::drop_sources::Source;
use xk_kit::net::ports::Choices;
use xk_kit::{Checksum, Turns};

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
    /// An error about a later fragment: it does not say whose it was.
    pub static LATER_FRAGMENT: Reason = Reason::new("error about a later fragment", Class::NotMine);
    /// The layer below did not take an answer.
    pub static NOT_SENT: Reason = Reason::new("not sent", Class::Exhausted);
    /// An error not sent because no sender may be told about such a packet (RFC 1122, section
    /// 3.2.2).
    pub static NOT_TOLD: Reason = Reason::new("sender not to be told", Class::NotMine);
    /// An error or answer not sent because there were too many before (RFC 1812, section 4.3.2.8).
    pub static RATE_LIMITED: Reason = Reason::new("rate limited", Class::Exhausted);
}

/// A session below whose local host is a broadcast or group carries this number.
const TAG_CAST: u32 = 1;
/// Sessions below that are kept for telling senders of errors.
const KEPT_MAX: usize = 16;

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IcmpFigures {
    /// Echo and time stamp requests answered.
    pub requests_answered: u64,
    /// Errors sent.
    pub errors_sent: u64,
    /// Errors received and passed on.
    pub errors_received: u64,
}

question!(IcmpFigures { requests_answered, errors_sent, errors_received }, "icmp-figures", Ask);

/// One instance.
pub struct Icmp {
    /// The identifier of each upper protocol's pings through each session below.
    owners: Map<(u64, u32), u16>,
    choices: Choices,
    /// Opens under way.
    opening: Turns<(u64, u32)>,
    broadcast_echo: bool,
    timestamp: bool,
    /// Allowance of errors for a host.
    pub(crate) limit: Allowance,
    /// Allowance of answers for a host, if not all requests are answered.
    answers: Option<Allowance>,
    kept: RefCell<VecDeque<SessionRef>>,
    figures: Cell<IcmpFigures>,
}

/// The protocol object.
pub(crate) type Pings = Layered<Icmp, HEADER_LEN>;
type Pinging = Conversation<Icmp, HEADER_LEN>;

/// Builds it from its place in a graph.
pub fn build(build: &mut Build<'_>) -> Result<ProtocolRef, BuildError> {
    let limit = Allowance::new(build.int("errors_per_second")?, build.int("errors_burst")?);
    let per_second = build.int("answers_per_second")?;
    let burst = build.int("answers_burst")?;
    let answers = (per_second > 0).then(|| Allowance::new(per_second, burst));
    let icmp = Icmp {
        owners: Map::new(build.cx.secret(), build.int("sessions_max")?),
        choices: Choices::default(),
        opening: Turns::default(),
        broadcast_echo: build.flag("broadcast_echo")?,
        timestamp: build.flag("timestamp")?,
        limit,
        answers,
        kept: RefCell::default(),
        figures: Cell::default(),
    };
    Layered::build(build, icmp)
}

/// The sum over a message.
pub(crate) fn sum(message: &Message) -> Checksum {
    let mut sum = Checksum::new();
    for slice in message.slices() {
        sum.add(slice.octets);
    }
    sum
}

/// The header of a message, checksum included.
pub(crate) fn header_of(header: Header, message: &Message) -> [u8; HEADER_LEN] {
    let mut octets = [0; HEADER_LEN];
    header.emit(sum(message), &mut octets);
    octets
}

impl Layer<HEADER_LEN> for Icmp {
    /// Type, code and identifier as they lie in a message: of a reply type and code are 0, so that
    /// the key of a session is its identifier.
    type Key = u32;
    /// The number of the last request.
    type State = Cell<u16>;

    const NO_RECEIVER: &'static Reason = &reasons::UNMATCHED_REPLY;

    fn offer(
        &self,
        _: &Kernel,
        _: &ProtocolRef,
        _: Upper<'_>,
        _: &mut Participants,
    ) -> Result<u64, OpenError> {
        // Requests are answered here.
        Err(OpenError::NotSupported)
    }

    #[inline(always)]
    fn key_of(&[kind, code, _, _, a, b, ..]: &[u8; HEADER_LEN]) -> u32 {
        u32::from_be_bytes([kind, code, a, b])
    }

    fn begin(&self, _: &Kernel, _: &SessionRef, _: u32) -> Cell<u16> {
        Cell::new(0)
    }

    fn header(&self, own: &Pinging, message: &Message) -> Option<[u8; HEADER_LEN]> {
        let sequence = own.state.get().wrapping_add(1);
        own.state.set(sequence);
        let query = Query { id: own.key as u16, sequence };
        Some(header_of(Header::EchoRequest(query), message))
    }

    /// The checksum is looked at in one place.
    fn is_plain(&self, _: &Pinging, _: &[u8; HEADER_LEN], _: &Message, _: usize) -> bool {
        false
    }

    fn examine(
        &self,
        _: &Pinging,
        header: &[u8; HEADER_LEN],
        message: &mut Message,
    ) -> Result<(), &'static Reason> {
        let mut whole = Checksum::new();
        whole.add(header);
        whole.join(sum(message));
        if whole.is_valid() { Ok(()) } else { Err(&reason::BAD_CHECKSUM) }
    }

    fn end(own: &Pinging, _: &Kernel, this: &SessionRef) {
        // One that another open was quicker than was never bound.
        let owners = &own.all.layer.owners;
        let owner = (own.lower().id().0, own.upper.id().0);
        let is_bound = own.all.find(own.lower(), own.key).as_ref() == Some(this);
        if is_bound && owners.get(&owner).map(u32::from) == Some(own.key) {
            owners.unbind(&owner);
        }
    }

    fn describe(&self, own: &Pinging) -> String {
        alloc::format!("echo id {}, last request {}", own.key, own.state.get())
    }

    fn start(all: &Pings, cx: &Kernel, this: &ProtocolRef) -> Result<(), OpenError> {
        all.enable(cx, this)?;
        // A lower layer that reports no errors has no use for it.
        let _ = all.lower.ask(cx, RegisterErrorProtocol { protocol: this.clone() });
        Ok(())
    }

    fn open(
        all: &Pings,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: Upper<'_>,
        ends: Participants,
    ) -> Result<SessionRef, OpenError> {
        let lower = all.lower.open(cx, Upper::new(this), ends)?;
        let opened = open_through(all, cx, this, upper.receiver, &lower);
        opened.inspect_err(|_| lower.close(cx))
    }

    fn open_done(
        _: &Pings,
        Arrival { cx, lower, .. }: Arrival<'_>,
        mut ends: Participants,
    ) -> Result<(), &'static Reason> {
        let local = ends.local_mut().ok().and_then(|p| p.pop_host().ok());
        let own = lower.ask(cx, MyHost::default()).map(|q| q.host);
        // The local host of such a session is not the one that it sends from.
        if let (Some(local), Some(own)) = (local.and_then(|l| l.value()), own)
            && local != own
        {
            lower.head().set_tag(TAG_CAST);
        }
        Ok(())
    }

    fn first(
        all: &Pings,
        at: Arrival<'_>,
        octets: &[u8; HEADER_LEN],
        message: Message,
    ) -> Result<(), Refused> {
        let (icmp, lower) = (&all.layer, at.lower);
        let refuse = |message, why| all.refuse(at, Some(octets), message, why);
        if !sum(&message).is_valid() {
            return refuse(message, &reason::BAD_CHECKSUM);
        }
        let cast = lower.head().tag() == TAG_CAST;
        let header = Header::parse(octets);
        let request = matches!(header, Ok(Header::EchoRequest(_) | Header::TimestampRequest(_)));
        if request && !icmp.may_answer(at.cx, lower) {
            return refuse(message, &reasons::RATE_LIMITED);
        }
        match header {
            Ok(Header::EchoRequest(_)) if !cast || icmp.broadcast_echo => {
                answer_echo(all, at, *octets, message)
            }
            Ok(Header::TimestampRequest(query)) if !cast && icmp.timestamp => {
                answer_timestamp(all, at, octets, Header::TimestampReply(query), message)
            }
            Ok(Header::EchoReply(_)) => refuse(message, Self::NO_RECEIVER),
            Ok(Header::EchoRequest(_) | Header::TimestampRequest(_)) if cast => {
                refuse(message, &reasons::BROADCAST)
            }
            Ok(header) if header.is_error() => take_error(all, at, octets, header, message),
            Ok(_) => refuse(message, &reasons::IGNORED),
            Err(_) => refuse(message, &reasons::UNKNOWN_TYPE),
        }
    }

    fn control(all: &Pings, cx: &Kernel, this: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<SendError>() {
            send_error(all, cx, this, question);
        } else if let Some(question) = ask.get::<NetworkError>() {
            report_echo_error(all, cx, question);
        } else if let Some(question) = ask.get::<IcmpFigures>() {
            *question = all.layer.figures.get();
        } else {
            return all.answer(cx, ask);
        }
        Answer::Answered
    }

    fn map(&self) -> Option<(&'static str, MapStats)> {
        Some(("owners", self.owners.stats()))
    }

    fn source(at: Arrival<'_>, _: Option<&[u8; HEADER_LEN]>) -> Option<Source> {
        at.lower.ask(at.cx, PeerHost::default()).map(|peer| Source::Host(peer.host))
    }

    fn stop(&self) {
        self.owners.clear();
        drop(self.kept.take());
    }
}

/// The session of `upper` through `lower`, whose hold it takes over.
fn open_through(
    all: &Pings,
    cx: &Kernel,
    this: &ProtocolRef,
    upper: &ProtocolRef,
    lower: &SessionRef,
) -> Result<SessionRef, OpenError> {
    let owners = &all.layer.owners;
    let owner = (lower.id().0, upper.id().0);
    let _turn = all.layer.opening.take(cx, owner);
    if let Some(id) = owners.get(&owner)
        && let Some(session) = all.find(lower, id.into())
    {
        session.hold();
        lower.close(cx);
        return Ok(session);
    }
    // One that no session on `lower` has, and that no other peer can predict.
    let start = cx.random().next_u16();
    let ids = (0..=u16::MAX).map(|n| start.wrapping_add(n));
    let chosen = all.layer.choices.choose(ids, |id| all.find(lower, id.into()).is_none())?;
    let session = all.open_on(cx, this, upper, lower, chosen.number.into())?;
    // There are no more of them than sessions.
    let _ = owners.bind(owner, chosen.number);
    Ok(session)
}

/// Sends an echo request back as a reply: its type and checksum change, the payload stays where it
/// is.
fn answer_echo(
    all: &Pings,
    at: Arrival<'_>,
    mut octets: [u8; HEADER_LEN],
    mut message: Message,
) -> Result<(), Refused> {
    if echo_reply(&mut octets).is_none() || !message.strip(HEADER_LEN) {
        return all.refuse(at, Some(&octets), message, &reason::MALFORMED);
    }
    all.layer.answer_with(at, &octets, message);
    Ok(())
}

fn answer_timestamp(
    all: &Pings,
    at: Arrival<'_>,
    octets: &[u8; HEADER_LEN],
    reply: Header,
    mut message: Message,
) -> Result<(), Refused> {
    let mut whole = [0; HEADER_LEN + TIMES_LEN];
    let is_whole = message.copy_to(0, &mut whole) == whole.len();
    let Some(times) = whole.last_chunk::<TIMES_LEN>().filter(|_| is_whole) else {
        return all.refuse(at, Some(octets), message, &reason::TRUNCATED);
    };
    // RFC 792: the high bit says that this is not the time of day.
    let now_ms = at.cx.now().as_ms() as u32 | 0x8000_0000;
    let times = Times { receive_ms: now_ms, transmit_ms: now_ms, ..Times::parse(times) };
    let mut emitted = [0; TIMES_LEN];
    times.emit(&mut emitted);
    // Nothing is left of the request but its attributes, and room for what goes in front.
    message.truncate(whole.len());
    if !message.strip(whole.len()) || message.push_array(&emitted).is_err() {
        return all.refuse(at, Some(octets), message, &reason::NO_BUFFERS);
    }
    let header = header_of(reply, &message);
    all.layer.answer_with(at, &header, message);
    Ok(())
}

impl Icmp {
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

    /// Sends an answer back the way that the request came.
    fn answer_with(&self, at: Arrival<'_>, header: &[u8; HEADER_LEN], mut message: Message) {
        let sent = message
            .push_array(header)
            .map_err(|_| PushError::NoBuffers)
            .and_then(|()| at.lower.push(at.cx, message));
        match sent {
            Ok(()) => self.figure(|f| f.requests_answered += 1),
            Err(PushError::NoBuffers) => at.this.head().drops().count(&reason::NO_BUFFERS),
            Err(_) => at.this.head().drops().count(&reasons::NOT_SENT),
        }
    }

    /// The identifier of each session through `lower`.
    pub(crate) fn ids_through(&self, lower: &SessionRef) -> impl Iterator<Item = u16> {
        let through = lower.id().0;
        let all = self.owners.snapshot().into_iter();
        all.filter(move |((lower, _), _)| *lower == through).map(|(_, id)| id)
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
