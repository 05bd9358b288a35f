//! The client half (RFC 1045, section 4): a transaction of an entity, and the packets for it.

use crate::blocks::{HEADROOM, Incoming, Taken, push};
use crate::entities::{Line, STEP};
use crate::reasons::{FORGED_DELIVERY, LATE, NO_ENTITY, NO_TRANSACTION, reason_of};
use crate::session::VmtpSession;
use crate::shared::{ALIVE_MAX, At, BUSY_WAITS, GROUP_REST, Shared, TRIES_MAX, peer_of};
use crate::tables::{self, ClientAction, ClientEvent, ClientState};
use crate::wire::{
    APG, BLOCK_OCTETS, DGM, Entity, Header, NER, NSR, RESPONSE, ROUND, SDA, USER_OCTETS, blocks_of,
    code, gap_bits, padded, round_of,
};
use core::time::Duration;
use xk_core::object::{CallCause, CallError, PushError, Refused};
use xk_core::shepherd::WaitError;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, Time};
use xk_kit::answers::is_for_one;
use xk_kit::net::attribute::Peer;
use xk_kit::rpc::call::{self, CallOptions};

/// Times in a row that a busy server is asked again.
const BUSY_MAX: u32 = 8;

impl VmtpSession {
    /// Sends the request of an entity that is the caller's: all of it, or, of one that is long, the
    /// first group.
    #[inline]
    pub(crate) fn transmit(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        line: &Line,
        mut request: Message,
        flags: u32,
    ) -> Result<(), PushError> {
        let (blocks, checks) = (self.path.blocks, self.shared.config.checksum);
        line.gap.set(self.gap.get());
        let len = request.len();
        let mut header = self.header(line, len, flags);
        line.step(ClientEvent::Send);
        if len == USER_OCTETS {
            request = into_user_data(cx, &request, &mut header)?;
        }
        if len <= blocks as usize * BLOCK_OCTETS {
            if flags & DGM == 0 {
                line.out.save(header, &request)?;
            }
            let data = request.len();
            let header = header.with_data(blocks_of(data), padded(data));
            return push(cx, &self.lower, &header, request, checks);
        }
        line.out.put(header, request);
        let protocol = this.protocol(cx);
        self.shared.send(cx, protocol.as_ref(), line, line.out.blocks(), 0)
    }

    /// The header of the packets of a request, less what is a packet's own.
    #[inline]
    fn header(&self, line: &Line, len: usize, flags: u32) -> Header {
        let mut header = self.template;
        header.client = line.id.get();
        header.transaction = line.transaction.get();
        header.control |= gap_bits(line.gap.get());
        header.code |= flags;
        header.user[6] = len as u32;
        header
    }

    /// Waits for the response, and sends again what seems to be lost.
    #[inline]
    pub(crate) fn await_response(
        &self,
        cx: &Kernel,
        line: &Line,
        options: Option<CallOptions>,
        first: Duration,
    ) -> Result<Message, CallError> {
        let waited = line.pending.wait(cx, first);
        if let Ok(Some(outcome)) = waited {
            return outcome;
        }
        self.persist(cx, line, options, waited)
    }

    #[cold]
    #[inline(never)]
    fn persist(
        &self,
        cx: &Kernel,
        line: &Line,
        options: Option<CallOptions>,
        mut waited: Result<Option<Result<Message, CallError>>, WaitError>,
    ) -> Result<Message, CallError> {
        let deadline = options.map_or(Time::MAX, |options| options.deadline);
        let mut tries = 1;
        loop {
            match waited {
                Ok(Some(outcome)) => return outcome,
                // Woken: a reply to one of several servers.
                Ok(None) => {
                    if let Some(reply) = line.next_reply() {
                        return Ok(reply);
                    }
                }
                Err(WaitError::TimedOut) if cx.now() >= deadline => {
                    return Err(CallCause::TimedOut { tries }.into());
                }
                Err(WaitError::TimedOut) if cx.now() < line.due.get() => {}
                Err(WaitError::TimedOut) => {
                    tries += 1;
                    if !self.timed_out(cx, line) {
                        return Err(CallCause::TimedOut { tries: tries - 1 }.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
            let until = line.due.get().min(deadline);
            waited = line.pending.wait(cx, until.since(cx.now()));
        }
    }

    /// The timer of a transaction has gone off; false if it has failed.
    fn timed_out(&self, cx: &Kernel, line: &Line) -> bool {
        let is_last = line.retries.get() + 1 >= TRIES_MAX;
        if is_last && line.gathers.get().is_some() {
            // Others have answered, or will until the deadline.
            line.due.set(Time::MAX);
            return true;
        }
        let event = match is_last {
            true => ClientEvent::Exhausted,
            false => ClientEvent::Timeout,
        };
        let action = line.step(event);
        line.retries.set(line.retries.get() + 1);
        match action {
            ClientAction::Resend => {
                let timers = self.look_at_timers(cx);
                let wait =
                    (line.wait.get() * 2).clamp(timers.small, timers.max.max(line.wait.get()));
                line.wait.set(wait);
                line.due.set(cx.now().after(wait));
                self.shared.ask_server(cx, line);
            }
            ClientAction::AskMissing => {
                line.due.set(cx.now().after(GROUP_REST * (1 << line.retries.get().min(6))));
                self.shared.ask_missing(cx, line);
            }
            _ => return false,
        }
        true
    }
}

/// Puts the octets of a message into the header, which has no segment then.
pub(crate) fn into_user_data(
    cx: &Kernel,
    message: &Message,
    header: &mut Header,
) -> Result<Message, PushError> {
    let mut octets = [0; USER_OCTETS];
    message.copy_to(0, &mut octets);
    header.set_user_octets(&octets);
    cx.pool().empty(HEADROOM).map_err(|_| PushError::NoBuffers)
}

impl Shared {
    /// Sends blocks of a request: at once, or with gaps.
    pub(crate) fn send(
        &self,
        cx: &Kernel,
        this: Option<&ProtocolRef>,
        line: &Line,
        mask: u32,
        control: u32,
    ) -> Result<(), PushError> {
        let Some(lower) = line.lower.get() else {
            return Err(PushError::Closed);
        };
        line.sent.set(cx.now());
        let gap = this.map_or(Duration::ZERO, |_| Self::gap_time(line.gap.get()));
        let ways = (self.config.checksum, gap);
        line.out.send(cx, &lower, (mask, line.blocks.get()), control, ways)?;
        if let Some(this) = this {
            self.watch(cx, this, line.out.due());
        }
        Ok(())
    }

    /// Sends a request of one packet again; of a longer one a header alone, by which the server
    /// tells what it lacks.
    fn ask_server(&self, cx: &Kernel, line: &Line) {
        line.next_round();
        let mask = match line.out.is_long(line.blocks.get()) {
            true => 0,
            false => line.out.blocks(),
        };
        // What does not go is as good as lost.
        let _ = self.send(cx, None, line, mask, APG);
    }

    /// Tells the server which blocks of its response are there.
    fn ask_missing(&self, cx: &Kernel, line: &Line) {
        let Some(lower) = line.lower.get() else { return };
        let Some(first) = line.incoming.first() else { return };
        // A response that the server does not keep comes again with its request alone.
        if first.has(DGM) {
            self.ask_server(cx, line);
        } else {
            let transaction = first.transaction.wrapping_add(line.incoming.group());
            let first = Header { transaction, ..first };
            self.notify_server(cx, &lower, &first, line.incoming.held(), code::RETRY);
        }
    }

    /// The way of almost every response: all is well, in one packet, to a request that was sent
    /// once. Its entity.
    #[inline(always)]
    pub(crate) fn response_at_once(&self, header: &Header, data: usize) -> Option<&Line> {
        let line = self.entities.of(header.client)?;
        let is_plain = header.code & !DGM == SDA
            && header.control & (NSR | NER | APG) == 0
            && header.is_whole(data)
            && header.transaction == line.transaction.get()
            && line.state.get() == ClientState::Awaiting
            && line.round.get() == 0
            && line.gathers.get().is_none();
        is_plain.then_some(line)
    }

    /// A response packet; `data` lies between its header and its checksum.
    #[inline(never)]
    pub(crate) fn response(&self, at: At<'_>, data: Message) -> Result<(), Refused> {
        let At { cx, this, lower, header } = at;
        let line = self.entities.of(header.client);
        if !line.is_some_and(|line| line.lower.has(lower))
            && let Err(why) = is_for_one(cx, lower)
        {
            return Err(this.refuse(data, why));
        }
        let Some(line) = line else {
            if header.wants_answer() {
                self.notify_server(cx, lower, header, 0, code::NONEXISTENT_ENTITY);
            }
            return Err(this.refuse(data, &NO_ENTITY));
        };
        let group = header.transaction.wrapping_sub(line.transaction.get());
        if !line.waits() || group >= STEP {
            if header.wants_answer() {
                self.notify_server(cx, lower, header, 0, code::RESPONSE_DISCARDED);
            }
            return Err(this.refuse(data, &NO_TRANSACTION));
        }
        if line.gathers.get().is_some() {
            return self.gathered(at, line, data);
        }
        let incoming = &line.incoming;
        let is_first = line.state.get() == ClientState::Awaiting;
        if is_first {
            if line.round.get() != 0 {
                line.answered(cx, header.control);
            }
            incoming.begin(&Header { transaction: line.transaction.get(), ..*header });
            line.retries.set(0);
        }
        let taken = match incoming.take(header, data) {
            Ok(taken) => taken,
            Err(_) => {
                this.head().drops().count(&FORGED_DELIVERY);
                return Ok(());
            }
        };
        let event = match taken {
            Taken::Whole => ClientEvent::Whole,
            _ => ClientEvent::Part,
        };
        let action = line.step(event);
        if header.wants_answer() && (taken == Taken::Whole || incoming.is_before(header)) {
            self.notify_server(cx, lower, header, u32::MAX, code::OK);
        }
        if action == ClientAction::Deliver {
            let outcome = outcome(cx, header, incoming);
            line.finish(cx, outcome);
            return Ok(());
        }
        if !line.lower.has(lower) {
            // Another server answers: the request was passed on.
            drop(line.lower.replace(Some(lower.clone())));
        }
        if is_first || matches!(taken, Taken::New | Taken::Group) {
            line.retries.set(0);
            line.due.set(cx.now().after(GROUP_REST));
        }
        if is_first {
            // The caller waits for longer than that.
            line.pending.wake(cx);
        }
        Ok(())
    }

    /// A response to a request for several.
    #[cold]
    fn gathered(&self, at: At<'_>, line: &Line, data: Message) -> Result<(), Refused> {
        let At { cx, this, lower, header } = at;
        let peer = match peer_of(cx, lower) {
            Ok(peer) => Peer { host: peer.host(), port: 0 },
            Err(why) => return Err(this.refuse(data, why)),
        };
        let Some(parts) = line.response_of(header.server) else {
            return Err(this.refuse(data, &LATE));
        };
        if parts.first().is_none() {
            parts.begin(&Header { transaction: line.transaction.get(), ..*header });
        }
        let taken = parts.take(header, data);
        if header.wants_answer() && matches!(taken, Ok(Taken::Whole | Taken::Group)) {
            self.notify_server(cx, lower, header, u32::MAX, code::OK);
        }
        match taken {
            Ok(Taken::Whole) => {
                // An error of one server is none of the others'.
                if let Ok(mut reply) = outcome(cx, header, &parts) {
                    // A message that came from below has room for it.
                    let _ = reply.set_attribute(peer);
                    line.replied(cx, header.server, reply);
                }
            }
            Ok(_) => {}
            Err(_) => this.head().drops().count(&FORGED_DELIVERY),
        }
        Ok(())
    }

    /// A server's manager tells what has come of a request.
    pub(crate) fn client_notified(&self, at: At<'_>) -> bool {
        let At { cx, this, header: notice, .. } = at;
        let [_, _, control, _, transaction, delivery, code] = notice.user;
        let line = self.entities.of(notice.user_entity(0));
        // Of several servers each may lack parts; that one has the request says nothing of others.
        let is_retry = matches!(code, code::RETRY | code::RETRY_ALL);
        let is_meant = |line: &&Line| line.waits() && (is_retry || line.gathers.get().is_none());
        let Some(line) = line.filter(is_meant) else {
            return false;
        };
        if transaction != line.out.transaction() {
            return false;
        }
        let event = match code {
            code::OK => ClientEvent::Ok,
            code::RETRY | code::RETRY_ALL => ClientEvent::Retry,
            code::BUSY => ClientEvent::Busy,
            _ => ClientEvent::Refused,
        };
        let (state, action) = tables::client(line.state.get(), event);
        // A round is answered once, and each answer used once: duplicates do not multiply.
        let is_late = round_of(control) != line.round.get() & 7;
        if is_late && action != ClientAction::Rest {
            return true;
        }
        if action == ClientAction::Rest {
            line.answered(cx, control);
        }
        let is_refused = matches!(action, ClientAction::BackOff | ClientAction::Fail);
        if is_refused && !self.entities.is_first(line, notice.client) {
            // Another incarnation of the server may have executed what this one refuses.
            line.finish(cx, Err(CallCause::Rebooted.into()));
            return true;
        }
        line.state.set(state);
        match action {
            ClientAction::Rest => self.acknowledged(cx, this, line),
            ClientAction::SendMissing => {
                line.next_round();
                // As long as the server has more of it than before; of several servers each lacks
                // other blocks, and the deadline ends it.
                let is_more = delivery & !line.delivered.get() != 0;
                line.delivered.set(line.delivered.get() | delivery);
                line.retries.set(if is_more { 0 } else { line.retries.get() + 1 });
                let tries = line.retries.get();
                if tries >= TRIES_MAX && line.gathers.get().is_none() {
                    line.finish(cx, Err(CallCause::TimedOut { tries }.into()));
                    return true;
                }
                line.due.set(cx.now().after(line.wait.get()));
                let mask = match code {
                    code::RETRY => line.out.blocks() & !delivery,
                    _ => line.out.blocks(),
                };
                // More than an eighth is missing: what was sent was too much at a time (RFC 1045,
                // section 2.5.6). A packet that is lost alone says nothing of that.
                if delivery != 0 && mask.count_ones() * 8 > line.out.blocks().count_ones() {
                    line.gap.set(line.gap.get().saturating_mul(2).max(1));
                }
                let _ = self.send(cx, Some(this), line, mask, 0);
            }
            ClientAction::BackOff => {
                line.next_round();
                line.refusals.set(line.refusals.get() + 1);
                if line.refusals.get() >= BUSY_MAX {
                    line.finish(cx, Err(CallError::rejected(&call::BUSY)));
                    return true;
                }
                line.retries.set(0);
                let wait = BUSY_WAITS.0 * (1 << (line.refusals.get() - 1).min(3));
                line.due.set(cx.now().after(wait.min(BUSY_WAITS.1)));
            }
            ClientAction::Fail => {
                let error = match code {
                    // The server knew the groups before, and has forgotten them.
                    code::NO_RUN_RECORD | code::BAD_TRANSACTION_ID | code::RESPONSE_DISCARDED => {
                        CallCause::Rebooted.into()
                    }
                    code => CallError::rejected(reason_of(code)),
                };
                line.finish(cx, Err(error));
            }
            _ => {}
        }
        true
    }

    /// The server has the group that was sent.
    fn acknowledged(&self, cx: &Kernel, this: &ProtocolRef, line: &Line) {
        line.retries.set(0);
        if line.out.is_run() && line.out.next_group() {
            line.delivered.set(0);
            line.due.set(cx.now().after(line.wait.get()));
            let _ = self.send(cx, Some(this), line, line.out.blocks(), 0);
        } else {
            let wait = (line.wait.get() * 2).min(ALIVE_MAX.max(line.wait.get()));
            line.wait.set(wait);
            line.due.set(cx.now().after(wait));
        }
    }

    /// A server's manager asks for the transaction of an entity.
    pub(crate) fn probed(&self, cx: &Kernel, lower: &SessionRef, probe: &Header) {
        let asked = probe.user_entity(2);
        let line = self.entities.of(asked);
        let (code, transaction) = match line {
            Some(line) if line.waits() => match self.entities.is_first(line, probe.client) {
                true => (code::OK, line.transaction.get()),
                false => {
                    line.finish(cx, Err(CallCause::Rebooted.into()));
                    (code::OK, line.transaction.get().wrapping_add(STEP))
                }
            },
            Some(line) if line.is_datagram.get() => (code::OK, line.transaction.get()),
            Some(line) => (code::OK, line.transaction.get().wrapping_add(STEP)),
            None => (code::NONEXISTENT_ENTITY, 0),
        };
        let header = Header {
            control: RESPONSE | probe.control & ROUND,
            server: Entity::MANAGERS,
            code,
            user: [transaction, 0, 0, 0, 0, 0, 0],
            domain: self.config.domain << 16,
            delivery: 0,
            ..*probe
        };
        self.push_bare(cx, lower, &header);
    }
}

/// Result of a call whose response is whole.
#[inline]
fn outcome(cx: &Kernel, header: &Header, incoming: &Incoming) -> Result<Message, CallError> {
    let whole = incoming.finish(cx);
    match header.plain_code() {
        code::OK => {
            let Some(whole) = whole else { return Err(PushError::NoBuffers.into()) };
            if header.has(SDA) {
                return Ok(whole);
            }
            let octets = header.user_octets();
            cx.pool().copy_from(HEADROOM, &octets).map_err(|_| PushError::NoBuffers.into())
        }
        code => Err(CallError::rejected(reason_of(code))),
    }
}
