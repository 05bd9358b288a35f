//! A session: the conversation with one peer, through one session below. It calls, or serves, or
//! both.

use crate::calls::{Call, Data, Origin, Outcome};
use crate::protocol::{Shared, less_request};
use crate::wire::{self, HEADER_OCTETS};
use alloc::rc::Rc;
use alloc::string::String;
use core::time::Duration;
use xk_appletalk::atp::{
    Arrived, BeginError, DATA_OCTETS_MAX, Due, Header, Heard, Kind, OptionKind, Options, Packet,
    ReplyError, Segments, Ticket, Unheard, Verdict, Want,
};
use xk_core::object::{CallCause, CallError, Closing, PushError, Refused};
use xk_core::reason::{self, Class, Reason};
use xk_core::shepherd::WaitError;
use xk_core::{
    Answer, Ask, Kernel, Message, Participant, Participants, ProtocolRef, Session, SessionRef,
};
use xk_kit::asks::HEADROOM;
use xk_kit::control::max_packet;
use xk_kit::net::appletalk::now;
use xk_kit::rpc::call::{BUSY, CallOptions, CancelCall, Transaction};
use xk_kit::rpc::call_layer::less;
use xk_kit::rpc::callers::{self, Key};

/// A response or a release that belongs to no transaction: it came late, or its number was guessed.
pub static NO_TRANSACTION: Reason = Reason::new("no such transaction", Class::NotMine);
/// A response that is there already, or was not asked for.
pub static REPEATED_RESPONSE: Reason = Reason::new("repeated response", Class::NotMine);
/// A request that is being executed came again.
pub static REPEATED_REQUEST: Reason = Reason::new("repeated request", Class::NotMine);
/// A request, where no protocol serves.
pub static NOT_A_SERVER: Reason = Reason::new("not a server", Class::NotMine);
/// As many calls wait as may.
pub static TOO_MANY_CALLS: Reason = Reason::new("too many calls", Class::Exhausted);
/// As many requests are remembered as may be.
pub static TOO_MANY_REMEMBERED: Reason = Reason::new("too many remembered", Class::Exhausted);
/// A request in the name of a host that was sent too much that it did not release.
pub static UNRELEASED: Reason = Reason::new("too much unreleased", Class::Exhausted);
/// A reply of more than eight packets, or of more than the requester takes.
pub static REPLY_TOO_BIG: Reason = Reason::new("reply too big", Class::Bad);
/// A reply that comes after its transaction has ended.
pub static LATE_REPLY: Reason = Reason::new("late reply", Class::NotMine);

/// One conversation.
pub(crate) struct Association {
    shared: Rc<Shared>,
    lower: SessionRef,
    upper: ProtocolRef,
    key: Key,
    origin: Origin,
    /// Our own end, of a session that was opened from above.
    local: Option<Participant>,
    /// Octets of data in a packet, at most.
    data_octets: usize,
}

impl Association {
    /// A conversation through the session `lower`, by this key, opened from above with this local
    /// end, or begun by a request.
    pub(crate) fn new(
        cx: &Kernel,
        shared: &Rc<Shared>,
        upper: &ProtocolRef,
        (lower, key): (&SessionRef, Key),
        local: Option<Participant>,
    ) -> Self {
        let below = max_packet(cx, lower, u32::MAX) as usize;
        Self {
            shared: Rc::clone(shared),
            lower: lower.clone(),
            upper: upper.clone(),
            key,
            origin: shared.origin(lower),
            local,
            data_octets: below.saturating_sub(HEADER_OCTETS).clamp(1, DATA_OCTETS_MAX),
        }
    }

    /// Sends a packet of a machine's.
    #[inline]
    fn send(&self, cx: &Kernel, packet: Packet<Origin, Data>) -> Result<(), PushError> {
        send(cx, &self.lower, packet)
    }

    /// Sends the responses of a reply. What the layer below does not take it has counted, and the
    /// requester asks for again.
    fn send_all(&self, cx: &Kernel, packets: Segments<Origin, Data>) {
        for packet in packets {
            let _ = self.send(cx, packet);
        }
    }

    /// Options of this call: the caller's, or else the graph's.
    fn want(&self, request: &mut Message) -> Want {
        match request.has_attributes().then(|| request.remove_attribute::<Transaction>()).flatten()
        {
            Some(Transaction(octets)) => match Options::parse(&octets) {
                Ok(options) => options.want(),
                Err(_) => self.shared.settings.usual(),
            },
            None => self.shared.settings.usual(),
        }
    }

    /// Waits until all responses are there, and sends the request again meanwhile.
    fn converse(
        &self,
        cx: &Kernel,
        (tid, call): (u16, &Call),
        options: Option<CallOptions>,
    ) -> Result<(u8, Arrived<Data>), CallError> {
        let requester = &self.shared.requester;
        let mut tries = 1;
        loop {
            let due = requester.borrow().due_of(tid);
            // Over, so that the signal is there.
            let own = due.map_or(Duration::MAX, |due| due.saturating_sub(now(cx)));
            let Some(time) = CallOptions::clip(options, cx.now(), own) else {
                return Err(CallCause::TimedOut { tries }.into());
            };
            let begun = cx.now();
            match cx.wait(&call.done, Some(time)) {
                Ok(()) => match call.take() {
                    Outcome::Done { wanted, arrived, release } => {
                        // The caller itself sends it, so that nothing of a call is under way when
                        // it has its reply.
                        if let Some(packet) = release {
                            let _ = self.send(cx, packet);
                        }
                        return Ok((wanted, arrived));
                    }
                    Outcome::Ended(cause) => return Err(cause.into()),
                    Outcome::Waiting => {}
                },
                Err(WaitError::TimedOut) => {
                    // Without a timer a wait is over at once, and would be again and again.
                    if time < own || cx.now().since(begun) < time {
                        return Err(CallCause::TimedOut { tries }.into());
                    }
                    let due = requester.borrow_mut().expire(tid, now(cx));
                    match due {
                        Some(Due::Again(packet)) => {
                            tries += 1;
                            if let Err(error) = self.send(cx, packet)
                                && error.is_final()
                            {
                                return Err(error.into());
                            }
                        }
                        Some(Due::Failed { .. }) => {
                            return Err(CallCause::TimedOut { tries }.into());
                        }
                        None => {}
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The reply of a call, with what goes beside it.
    fn reply_of((wanted, arrived): (u8, Arrived<Data>)) -> Result<Message, CallError> {
        let beside = Options {
            kind: OptionKind::Response,
            once: None,
            end_of_message: arrived.end_of_message,
            number: 0,
            user: arrived.user(),
            bitmap: arrived.bitmap(),
            tries: 0,
            amount: 0,
        };
        let Some(Data(mut reply)) = arrived.join(wanted) else {
            return Err(CallCause::BadReply.into());
        };
        reply.clear_attributes();
        // There is room: they were taken off it.
        let _ = reply.set_attribute(Transaction(beside.emit()));
        Ok(reply)
    }

    /// A request has come.
    fn serve(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        header: &Header,
        request: Message,
    ) -> Result<(), Refused> {
        let shared = &self.shared;
        if let Some(local) = &self.local
            && !shared.serves(&self.upper, local)
        {
            // One that calls was first.
            return match self.server(cx, this, local) {
                Ok(server) if server != *this => match server.body::<Self>() {
                    Some(own) => own.serve(cx, &server, header, request),
                    None => Err(this.refuse(cx, request, &NOT_A_SERVER)),
                },
                Ok(_) => Err(this.refuse(cx, request, &NOT_A_SERVER)),
                Err(why) => Err(this.refuse(cx, request, why)),
            };
        }
        if request.len() > DATA_OCTETS_MAX {
            return Err(this.refuse(cx, request, &reason::MALFORMED));
        }
        if shared.executing.get() >= shared.settings.requests_max {
            return Err(this.refuse(cx, request, &BUSY));
        }
        let verdict = shared.responder.borrow_mut().request(now(cx), (self.origin, 0), header);
        match verdict {
            Verdict::Execute(ticket) => {
                if ticket.once.is_some()
                    && let Some(protocol) = this.protocol(cx)
                {
                    shared.arm(cx, &protocol);
                }
                self.execute(cx, this, &ticket, header.user, request);
                Ok(())
            }
            Verdict::Repeat(packets) => {
                self.send_all(cx, packets);
                Ok(())
            }
            Verdict::InProgress => {
                this.discard(cx, request, &REPEATED_REQUEST);
                Ok(())
            }
            Verdict::Full => Err(this.refuse(cx, request, &TOO_MANY_REMEMBERED)),
            Verdict::Unreleased => Err(this.refuse(cx, request, &UNRELEASED)),
        }
    }

    /// The session of the protocol that serves at this end, over the session below that one that
    /// calls has opened.
    #[cold]
    fn server(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        local: &Participant,
    ) -> Result<SessionRef, &'static Reason> {
        let (shared, lower) = (&self.shared, &self.lower);
        let upper = shared.server_at(local).ok_or(&NOT_A_SERVER)?;
        let key = callers::own(lower, &upper);
        if let Some(session) = shared.sessions.get(&key) {
            return Ok(session);
        }
        let protocol = this.protocol(cx).ok_or(&NOT_A_SERVER)?;
        let make = || {
            let association = Self::new(cx, shared, &upper, (lower, key), None);
            (association, Participants::default())
        };
        shared.sessions.accept(cx, &protocol, &upper, key, lower.head().source(), make)
    }

    /// Has a request executed above, and sends the reply.
    fn execute(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        ticket: &Ticket<Origin>,
        user: [u8; 4],
        mut request: Message,
    ) {
        let shared = &self.shared;
        let asked = Options::asked(ticket, user);
        if request.set_attribute(Transaction(asked.emit())).is_err() {
            shared.responder.borrow_mut().refuse(ticket);
            this.discard(cx, request, &reason::NO_BUFFERS);
            return;
        }
        shared.executing.set(shared.executing.get() + 1);
        // What is in use is not evicted.
        this.hold();
        let result = self.upper.call_demux(cx, this, request);
        shared.executing.set(shared.executing.get() - 1);
        match result {
            Ok(reply) => self.reply(cx, this, ticket, reply),
            // Counted above. The wire has no words for it.
            Err(refused) => {
                drop(refused);
                shared.responder.borrow_mut().refuse(ticket);
            }
        }
        this.ease(cx);
    }

    fn reply(&self, cx: &Kernel, this: &SessionRef, ticket: &Ticket<Origin>, mut reply: Message) {
        let beside = reply.remove_attribute::<Transaction>();
        reply.clear_attributes();
        let beside = beside.and_then(|Transaction(octets)| Options::parse(&octets).ok());
        let beside = beside.filter(|beside| beside.kind == OptionKind::Response);
        let user = beside.map_or([0; 4], |beside| beside.user);
        let octets = match beside.map_or(0, |beside| usize::from(beside.amount)) {
            0 => self.data_octets,
            octets => octets.min(self.data_octets),
        };
        let mut responder = self.shared.responder.borrow_mut();
        let sent = responder.reply(now(cx), ticket, (user, octets), Data(reply));
        drop(responder);
        // Without a reply it is remembered as under way, and is executed no second time.
        match sent {
            Ok(packets) => self.send_all(cx, packets),
            Err((why, Data(reply))) => this.discard(
                cx,
                reply,
                match why {
                    ReplyError::TooBig => &REPLY_TOO_BIG,
                    ReplyError::NoBuffers => &reason::NO_BUFFERS,
                    ReplyError::Unknown | ReplyError::Repeated => &LATE_REPLY,
                },
            ),
        }
    }

    /// A response has come.
    #[inline]
    fn hear(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        header: &Header,
        data: Message,
    ) -> Result<(), Refused> {
        let ends = (&self.lower, self.origin);
        let heard = self.shared.hear(cx, ends, header, data);
        heard.map_err(|(data, why)| this.refuse(cx, data, why))
    }

    /// Ends calls of this session: those with this tag, or all. Whether there are any.
    fn end(&self, cx: &Kernel, this: &SessionRef, tag: Option<u64>, cause: CallCause) -> bool {
        let mut is_any = false;
        loop {
            let mut requester = self.shared.requester.borrow_mut();
            let found = requester.find(|call| call.is(this.id(), tag));
            let Some((call, _)) = found.and_then(|tid| requester.cancel(tid)) else {
                return is_any;
            };
            drop(requester);
            call.finish(cx, Outcome::Ended(cause));
            is_any = true;
        }
    }
}

impl Shared {
    /// Takes a response that has come through the session `lower`, for whichever call it is.
    #[inline]
    pub(crate) fn hear(
        &self,
        cx: &Kernel,
        (lower, origin): (&SessionRef, Origin),
        header: &Header,
        data: Message,
    ) -> Result<(), (Message, &'static Reason)> {
        let from = (origin, 0);
        let heard = self.requester.borrow_mut().response(now(cx), from, header, Data(data));
        match heard {
            Ok(Heard::Kept(again)) => {
                if let Some(packet) = again {
                    let _ = send(cx, lower, packet);
                }
                Ok(())
            }
            Ok(Heard::Done { owner, wanted, arrived, release }) => {
                owner.finish(cx, Outcome::Done { wanted, arrived, release });
                Ok(())
            }
            Err((Unheard::Unknown, Data(data))) => Err((data, &NO_TRANSACTION)),
            Err((Unheard::Repeated, Data(data))) => Err((data, &REPEATED_RESPONSE)),
            Err((Unheard::TooBig, Data(data))) => Err((data, &reason::MALFORMED)),
        }
    }
}

/// Sends a packet of a machine's.
#[inline]
fn send(cx: &Kernel, lower: &SessionRef, packet: Packet<Origin, Data>) -> Result<(), PushError> {
    let mut message = match packet.data {
        Some(Data(message)) => message,
        None => empty(cx)?,
    };
    message.push_array(&packet.header.emit()).map_err(|_| PushError::NoBuffers)?;
    lower.push(cx, message)
}

/// A message without octets.
fn empty(cx: &Kernel) -> Result<Message, PushError> {
    cx.pool().empty(HEADROOM).map_err(|_| PushError::NoBuffers)
}

impl Session for Association {
    fn call(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let shared = &self.shared;
        let options = CallOptions::take(&mut request);
        let want = self.want(&mut request);
        if request.len() > self.data_octets {
            this.discard(cx, request, &reason::TOO_BIG);
            return Err(PushError::TooBig.into());
        }
        if CallOptions::clip(options, cx.now(), want.interval).is_none() {
            return Err(CallCause::TimedOut { tries: 0 }.into());
        }
        let call = shared.spare.take(this.id(), options.map_or(0, |options| options.tag));
        let (place, owner) = ((0, self.origin), Rc::clone(&call));
        let begun =
            shared.requester.borrow_mut().begin(now(cx), place, &want, Data(request), owner);
        let result = match begun {
            Ok((tid, packet)) => {
                let sent = self.send(cx, packet);
                let result = match sent {
                    // There is nothing to wait for.
                    Ok(()) if want.bitmap == 0 => empty(cx).map_err(CallError::from),
                    Ok(()) => {
                        let ended = self.converse(cx, (tid, &call), options);
                        ended.and_then(Self::reply_of)
                    }
                    Err(error) => Err(error.into()),
                };
                // It is over already if there is a reply.
                let cancelled = shared.requester.borrow_mut().cancel(tid);
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
        shared.spare.give(call);
        result
    }

    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        let header = match wire::strip(&mut message) {
            Ok(header) => header,
            Err(why) => return Err(this.refuse(cx, message, why)),
        };
        match header.kind {
            Kind::Response => self.hear(cx, this, &header, message),
            Kind::Request => self.serve(cx, this, &header, message),
            Kind::Release => {
                let from = (self.origin, 0);
                match self.shared.responder.borrow_mut().release(now(cx), from, header.tid) {
                    true => Ok(()),
                    false => Err(this.refuse(cx, message, &NO_TRANSACTION)),
                }
            }
        }
    }

    fn describe(&self, this: &SessionRef) -> Option<String> {
        let what = if this.head().is_passive() { "serves" } else { "calls" };
        let waiting = self.shared.requester.borrow().len();
        Some(alloc::format!("{what} on {:?}, {waiting} calls wait", self.lower))
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(question) = ask.get::<CancelCall>() {
            let tag = question.tag;
            let known = tag != 0 && self.end(cx, this, Some(tag), CallCause::Cancelled);
            return if known { Answer::Answered } else { Answer::Unknown };
        }
        less_request(less(self.lower.control(cx, ask), ask, HEADER_OCTETS), ask)
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        if self.shared.sessions.rests(&self.key, this) {
            // It waits for the peer's next request.
            return Closing::Idle;
        }
        self.end(cx, this, None, CallCause::Closed);
        if !this.head().is_passive() {
            self.lower.close(cx);
        }
        Closing::Done
    }
}
