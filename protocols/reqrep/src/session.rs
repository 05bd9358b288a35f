//! A session: the conversation with one peer, through one session below. It calls, or serves, or
//! both.

use crate::calls::{Call, State};
use crate::dupcache::{Known, Source};
use crate::protocol::Shared;
use crate::wire::{HEADER_OCTETS, Header, Kind};
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use xk_core::object::{CallCause, CallError, Closing, PushError, Refused, SessionId};
use xk_core::reason::{self, Class, Reason};
use xk_core::shepherd::WaitError;
use xk_core::{
    Answer, Ask, HostAddr, Kernel, Message, Participants, ProtocolRef, Session, SessionRef,
};
use xk_kit::answers::{self, AskerProved, UNPROVED, is_proved};
use xk_kit::control::{IsGroup, MinPacket, OptPacket, PeerHost, PeerPort, max_packet};
use xk_kit::net::notice;
use xk_kit::net::stream::CarriesRecords;
use xk_kit::rpc::call::{BUSY, CallOptions, CancelCall, Gather, GathersReplies, LargestReply};
use xk_kit::rpc::call_layer::less;
use xk_kit::rpc::callers::{self, Key};
use xk_kit::rpc::retransmit::SavedMessage;

/// A reply to no call that waits: it came twice, or late, or its number was guessed.
pub static NO_CALL: Reason = Reason::new("no such call", Class::NotMine);
/// A call, at a host that only calls.
pub static NOT_A_SERVER: Reason = Reason::new("not a server", Class::NotMine);
/// A request that is being executed came again.
pub static REPEATED: Reason = Reason::new("repeated request", Class::NotMine);
/// As many calls wait as may.
pub static TOO_MANY_CALLS: Reason = Reason::new("too many calls", Class::Exhausted);

/// The least time between two notices that replies are held back.
const NOTICES_EVERY: Duration = Duration::from_secs(60);

/// One conversation.
pub(crate) struct Association {
    shared: Rc<Shared>,
    lower: SessionRef,
    upper: ProtocolRef,
    key: Key,
    /// Names the peer for the cache of replies, beyond the life of the session below where it has a
    /// host.
    source: Source,
    /// Names the peer for what may be sent to it; `None` if it has proved that it gets what is
    /// sent.
    unproved: Option<u64>,
    /// The largest message that the layer below sends in one packet, in octets.
    whole_max: usize,
    /// The layer below repeats by itself what needs to be repeated.
    carries_records: bool,
    /// The layer below may add octets to a short message, so that headers say how many are the
    /// message's.
    marks: bool,
    /// The peer is many hosts.
    is_to_many: bool,
    /// The calls under way have heard from the network that none is there; the layer below says
    /// so once more to the next push.
    told: Cell<bool>,
}

impl Shared {
    /// Takes a reply that has come through the session `lower`, for whichever call it is.
    #[inline]
    pub(crate) fn answer(
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

/// Takes the header off a message, and what is behind its end.
#[inline]
pub(crate) fn take_header(
    message: &mut Message,
    octets: &[u8; HEADER_OCTETS],
    marks: bool,
) -> Result<Header, &'static Reason> {
    let there = message.len() - HEADER_OCTETS;
    let parsed = match marks {
        true => Header::parse_marked(octets),
        false => Header::parse(octets).map(|header| (header, there)),
    };
    let (header, own) = parsed.map_err(|_| &reason::MALFORMED)?;
    if own > there {
        return Err(&reason::TRUNCATED);
    }
    let _ = message.strip(HEADER_OCTETS);
    message.truncate(own);
    Ok(header)
}

/// Whether short messages may arrive through a session with octets added.
pub(crate) fn may_add_octets(cx: &Kernel, lower: &SessionRef) -> bool {
    let min = lower.ask(cx, MinPacket::default());
    min.is_some_and(|min| min.octets as usize > HEADER_OCTETS)
}

impl Association {
    /// The network says that no protocol takes what was sent: the request with this number, or all
    /// if that is not known.
    pub(crate) fn unreachable(&self, cx: &Kernel, xid: Option<u32>) {
        self.told.set(true);
        self.shared.calls.refuse(cx, self.lower.id(), xid);
    }

    /// The header in front of a message of so many octets.
    #[inline]
    fn header(&self, xid: u32, kind: Kind, message_octets: usize) -> [u8; HEADER_OCTETS] {
        let header = Header { xid, kind };
        match self.marks {
            true => header.emit_marked(message_octets),
            false => header.emit(),
        }
    }

    /// A conversation that was opened from above through `below`, or, without that, one that a
    /// message began: no host that is many sends.
    pub(crate) fn new(
        cx: &Kernel,
        shared: &Rc<Shared>,
        upper: &ProtocolRef,
        (lower, key): (&SessionRef, Key),
        below: Option<&ProtocolRef>,
    ) -> Self {
        let host = lower.ask(cx, PeerHost::default()).map(|q| q.host);
        let port = lower.ask(cx, PeerPort::default()).map_or(0, |q| q.port);
        let source = match host {
            Some(host) => (host, u64::from(port)),
            None => (HostAddr::UNSPECIFIED, lower.id().0),
        };
        Self {
            shared: Rc::clone(shared),
            lower: lower.clone(),
            upper: upper.clone(),
            key,
            source,
            unproved: (!is_proved(cx, lower)).then(|| answers::source(cx, lower)),
            whole_max: lower.ask(cx, OptPacket::default()).map_or(0, |opt| opt.octets as usize),
            carries_records: lower.ask(cx, CarriesRecords).is_some(),
            marks: may_add_octets(cx, lower),
            is_to_many: below.is_some_and(|below| IsGroup::ask(cx, below, host)),
            told: Cell::new(false),
        }
    }

    /// Pushes a request, or what is `kept` of it, if the layer below fails the first push for what
    /// is known already.
    fn send(&self, cx: &Kernel, kept: &SavedMessage, request: Message) -> Result<(), PushError> {
        let pushed = self.lower.push(cx, request);
        if !self.told.replace(false) || pushed != Err(PushError::Unreachable) {
            return pushed;
        }
        match kept.again(cx.pool()) {
            Ok(Some(request)) => self.lower.push(cx, request),
            _ => pushed,
        }
    }

    /// Sends the request until a reply comes or the time is over.
    fn converse(
        &self,
        cx: &Kernel,
        call: &Call,
        mut request: Message,
        options: Option<CallOptions>,
    ) -> Result<Message, CallError> {
        let settings = &self.shared.settings;
        if let Some(options) = options
            && request.len() > self.whole_max
        {
            // It may have to wait below, whenever it is sent. There is room: they were taken off
            // it.
            let _ = request.set_attribute(options);
        }
        let mut left = settings.total;
        let mut wait = settings.first_wait;
        let mut tries = 0;
        let no_buffers = |_| CallError::from(PushError::NoBuffers);
        let mut kept = SavedMessage::new();
        kept.save(&request).map_err(no_buffers)?;
        let mut next = Some(request);
        loop {
            if CallOptions::clip(options, cx.now(), left).is_none() {
                return Err(CallCause::TimedOut { tries }.into());
            }
            if let Some(request) = next
                && let Err(error) = self.send(cx, &kept, request)
                && (tries == 0 || error.is_final())
            {
                return Err(error.into());
            }
            tries += 1;
            match self.await_reply(cx, call, options, &mut wait, &mut left) {
                Wait::Over(result) => return result,
                Wait::Again => next = kept.again(cx.pool()).map_err(no_buffers)?,
                Wait::TimedOut => return Err(CallCause::TimedOut { tries }.into()),
            }
        }
    }

    /// Waits until the reply is there, or the request is to be sent again.
    fn await_reply(
        &self,
        cx: &Kernel,
        call: &Call,
        options: Option<CallOptions>,
        wait: &mut Duration,
        left: &mut Duration,
    ) -> Wait {
        loop {
            let own = (*wait).min(*left);
            let Some(time) = CallOptions::clip(options, cx.now(), own) else {
                return Wait::TimedOut;
            };
            let begun = cx.now();
            let waited = cx.wait(&call.done, Some(time));
            match waited {
                Ok(()) => match call.state() {
                    State::Answered => {
                        let bad = || CallCause::BadReply.into();
                        return Wait::Over(call.take_reply().ok_or_else(bad));
                    }
                    State::Cancelled => return Wait::Over(Err(CallCause::Cancelled.into())),
                    State::Refused => {
                        return Wait::Over(Err(CallCause::NobodyThere.into()));
                    }
                    State::Closed | State::Free => {
                        return Wait::Over(Err(CallCause::Closed.into()));
                    }
                    State::Waiting => {
                        // The stream broke. Sent over a new one at once, but not again and again.
                        *left = left.saturating_sub(cx.now().since(begun));
                        if *wait == self.shared.settings.first_wait && call.take_lost() {
                            *wait = self.shared.settings.longer(*wait);
                            return Wait::Again;
                        }
                    }
                },
                Err(WaitError::TimedOut) => {
                    // Not by the clock: a timer that could not be set ends a wait at once.
                    *left = left.saturating_sub(time);
                    if left.is_zero() || time < own {
                        return Wait::TimedOut;
                    }
                    *wait = self.shared.settings.longer(*wait);
                    if !self.carries_records || call.take_lost() {
                        return Wait::Again;
                    }
                }
                Err(error) => return Wait::Over(Err(error.into())),
            }
        }
    }

    /// A call to many hosts, or for the next reply to one.
    #[cold]
    fn gather(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        (what, options): (Gather, CallOptions),
        request: Message,
    ) -> Result<Message, CallError> {
        let Shared { gatherings, calls, settings, .. } = &*self.shared;
        match what {
            Gather::First => {
                let number = calls.number(cx);
                let header = (number, self.header(number, Kind::Call, request.len()));
                let sessions = (this, &self.lower);
                gatherings.begin(cx, sessions, (header, settings), request, options)
            }
            Gather::Next => gatherings.next(cx, this.id(), options.tag),
        }
    }

    /// Has a request executed above and sends the reply.
    fn serve(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        xid: u32,
        request: Message,
    ) -> Result<(), Refused> {
        let shared = &self.shared;
        // A reply would go to all.
        if self.is_to_many {
            return Err(this.refuse(cx, request, &NOT_A_SERVER));
        }
        let serves = || shared.server.get(0).is_some_and(|(server, _)| server == self.upper);
        if !this.head().is_passive() && !serves() {
            // One that calls was first.
            return match self.server(cx, this) {
                Ok(server) => match server.body::<Self>() {
                    Some(own) => own.serve(cx, &server, xid, request),
                    None => Err(this.refuse(cx, request, &NOT_A_SERVER)),
                },
                Err(why) => Err(this.refuse(cx, request, why)),
            };
        }
        if shared.executing.get() >= shared.settings.requests_max {
            return Err(this.refuse(cx, request, &BUSY));
        }
        if let Some(cache) = &shared.dupcache {
            return match cache.begin(cx, self.source, xid, &request) {
                Known::New(place) => self.execute(cx, this, xid, request, place),
                Known::InProgress => {
                    this.discard(cx, request, &REPEATED);
                    Ok(())
                }
                Known::Done(Some(reply)) => {
                    self.reply(cx, this, request.len() + HEADER_OCTETS, reply);
                    Ok(())
                }
                Known::Done(None) => Err(this.refuse(cx, request, &reason::NO_BUFFERS)),
            };
        }
        self.execute(cx, this, xid, request, None)
    }

    /// The session of the protocol that serves, over the session below that one that calls has
    /// opened.
    #[cold]
    fn server(&self, cx: &Kernel, this: &SessionRef) -> Result<SessionRef, &'static Reason> {
        let (shared, lower) = (&self.shared, &self.lower);
        let (upper, _) = shared.server.get(0).ok_or(&NOT_A_SERVER)?;
        let key = callers::own(lower, &upper);
        if let Some(session) = shared.sessions.get(&key) {
            return match session.head().is_passive() {
                true => Ok(session),
                false => Err(&NOT_A_SERVER),
            };
        }
        let protocol = this.protocol(cx).ok_or(&NOT_A_SERVER)?;
        let make = || (Self::new(cx, shared, &upper, (lower, key), None), Participants::default());
        shared.sessions.accept(cx, &protocol, &upper, key, lower.head().source(), make)
    }

    fn execute(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        xid: u32,
        request: Message,
        place: Option<u32>,
    ) -> Result<(), Refused> {
        let asked = request.len() + HEADER_OCTETS;
        let executing = &self.shared.executing;
        executing.set(executing.get() + 1);
        // What is in use is not evicted.
        this.hold();
        let result = self.upper.call_demux(cx, this, request);
        executing.set(executing.get() - 1);
        let reply = match result {
            Ok(mut reply) => {
                let header = self.header(xid, Kind::Reply, reply.len());
                match reply.push_array(&header) {
                    Ok(()) => Some(reply),
                    Err(_) => {
                        this.discard(cx, reply, &reason::NO_BUFFERS);
                        None
                    }
                }
            }
            // Counted above. The wire has no words for it.
            Err(refused) => {
                drop(refused);
                None
            }
        };
        if let (Some(place), Some(cache)) = (place, &self.shared.dupcache) {
            cache.end(place, reply.as_ref());
        }
        if let Some(reply) = reply {
            self.reply(cx, this, asked, reply);
        }
        this.ease(cx);
        Ok(())
    }

    /// Sends the reply to a request of so many octets, if the peer may have it. If not, or
    /// if the layer below does not take it, that is counted, and the client asks again.
    fn reply(&self, cx: &Kernel, this: &SessionRef, asked: usize, mut reply: Message) {
        let allowance = &self.shared.unproved;
        let has_proved =
            reply.has_attributes() && reply.remove_attribute::<AskerProved>().is_some();
        let may_have = |source| allowance.may_answer(cx, source, asked, reply.len());
        if has_proved || self.unproved.is_none_or(may_have) {
            let _ = self.lower.push(cx, reply);
        } else {
            self.hold_back(cx, this, reply);
        }
    }

    /// Drops a reply that the peer may not have, and says so from time to time: the client sees but
    /// silence.
    #[cold]
    fn hold_back(&self, cx: &Kernel, this: &SessionRef, reply: Message) {
        let (octets, held) = (reply.len(), &self.shared.held);
        this.discard(cx, reply, &UNPROVED);
        let (count, since) = held.get();
        if since.is_some_and(|since| cx.now().since(since) < NOTICES_EVERY) {
            held.set((count + 1, since));
            return;
        }
        held.set((0, Some(cx.now())));
        let name = this.protocol(cx).map_or(String::new(), |protocol| protocol.name().into());
        let (peer, port) = self.source;
        notice::notice(cx, || {
            alloc::format!(
                "{name}: a reply of {octets} octets to {peer}, port {port}, was held back, and \
                 {count} more since the last such line: datagrams may be forged, and that client \
                 has proved nothing (see `xk help reqrep`)"
            )
        });
    }
}

/// End of a wait.
enum Wait {
    Over(Result<Message, CallError>),
    Again,
    TimedOut,
}

impl Session for Association {
    fn call(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let options = CallOptions::take(&mut request);
        if self.is_to_many
            && let Some(what) = request.remove_attribute::<Gather>()
            && let Some(options) = options
        {
            return self.gather(cx, this, (what, options), request);
        }
        let tag = options.map_or(0, |options| options.tag);
        let calls = &self.shared.calls;
        let Some(call) = calls.begin(cx, (this.id(), self.lower.id()), tag) else {
            this.discard(cx, request, &TOO_MANY_CALLS);
            return Err(PushError::QueueFull.into());
        };
        let xid = call.xid();
        let header = self.header(xid, Kind::Call, request.len());
        let result = match request.push_array(&header) {
            Ok(()) => self.converse(cx, &call, request, options),
            Err(_) => Err(PushError::NoBuffers.into()),
        };
        calls.end(&call);
        result
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        let octets = match message.peek_in_place::<HEADER_OCTETS>() {
            Some(octets) => *octets,
            None => match message.header() {
                Ok(octets) => octets,
                Err(error) => return Err(this.refuse(cx, message, error.into())),
            },
        };
        let Header { xid, kind } = match take_header(&mut message, &octets, self.marks) {
            Ok(header) => header,
            Err(why) => return Err(this.refuse(cx, message, why)),
        };
        match kind {
            Kind::Reply => {
                let answered = self.shared.answer(cx, self.lower.id(), xid, message);
                answered.map_err(|(reply, why)| this.refuse(cx, reply, why))
            }
            Kind::Call => self.serve(cx, this, xid, message),
        }
    }

    fn describe(&self, this: &SessionRef) -> Option<String> {
        let what = if this.head().is_passive() { "serves" } else { "calls" };
        let waiting = self.shared.calls.waiting() + self.shared.gatherings.len();
        Some(alloc::format!("{what} on {:?}, {waiting} calls wait", self.lower))
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<CancelCall>() {
            let tag = question.tag;
            let shared = &self.shared;
            let known = shared.calls.cancel(cx, this.id(), tag)
                || shared.gatherings.cancel(cx, this.id(), tag);
            return if known { Answer::Answered } else { Answer::Unknown };
        }
        if let Some(question) = ask.get::<LargestReply>() {
            let below = max_packet(cx, &self.lower, u32::MAX);
            question.octets = below.saturating_sub(HEADER_OCTETS as u32);
            return Answer::Answered;
        }
        if self.is_to_many && ask.get::<GathersReplies>().is_some() {
            return Answer::Answered;
        }
        less(self.lower.control(cx, ask), ask, HEADER_OCTETS)
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        if self.shared.sessions.rests(&self.key, this) {
            // It waits for the peer's next request.
            return Closing::Idle;
        }
        self.shared.calls.close(cx, this.id());
        self.shared.gatherings.close(cx, this.id());
        if !this.head().is_passive() {
            self.lower.close(cx);
        }
        Closing::Done
    }

    fn timeout(&self, cx: &Kernel, this: &SessionRef, token: u64) {
        let Shared { gatherings, settings, .. } = &*self.shared;
        gatherings.timeout(cx, (this, &self.lower), token as u32, settings);
    }
}
