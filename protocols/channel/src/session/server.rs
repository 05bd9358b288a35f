//! The server's side: one channel of one client, with the call that is executed on it, and the
//! reply that the client may ask for again.

use super::state::{ChannelState, Phase, admit};
use super::{ChannelEnd, LATE, take_header};
use crate::table::{Key, Path, SWEEP, Table, count};
use crate::wire::{
    HEADER_OCTETS, Header, Kind, REPLY, REQUEST, SERVER, end_of, flags_of, is_newer, names_of,
    payload_of,
};
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use core::time::Duration;
use xk_core::object::{Closing, PushError, Refused, SessionSlot};
use xk_core::reason::{self, Class, Reason};
use xk_core::{Answer, Ask, Kernel, Message, ProtocolRef, Session, SessionRef};
use xk_kit::control::PeerProved;
use xk_kit::rpc::call_layer::less;
use xk_kit::rpc::codes::code_of;
use xk_kit::rpc::incarnation::TICKET;

/// Time without a packet of the client after which it is asked for its acknowledgement; doubled
/// with each question.
const PROBE_AFTER: Duration = Duration::from_secs(2);
/// Largest number of such questions.
const PROBES_MAX: u8 = 4;
/// Time for which the reply is kept after the last question. Every client gives up earlier without
/// an answer (after eight times five seconds), so a client that still wants the reply gets it.
const KEPT_FOR: Duration = Duration::from_secs(60);
/// Largest number of requests of one channel in execution: the last one, and one that the client
/// gave up.
const RUNNING_MAX: u8 = 2;

/// The client has gone on to another call before this one was executed.
pub(crate) static ABANDONED: Reason = Reason::new("abandoned call", Class::Bad);
/// A request of a client that gives up requests faster than they are executed.
pub(crate) static IMPATIENT: Reason = Reason::new("too many abandoned calls", Class::Exhausted);
/// A reply that was never acknowledged.
pub(crate) static UNACKNOWLEDGED: Reason = Reason::new("unacknowledged reply", Class::Bad);

pub(crate) struct ServerSession {
    pub(crate) end: ChannelEnd,
    /// The layer itself, for the sweep's timer.
    protocol: ProtocolRef,
    upper: ProtocolRef,
    pub(crate) state: ChannelState,
    /// The session below through which the client was heard last.
    lower: SessionSlot,
    /// Whether this session holds `lower`: from a request until its reply is acknowledged.
    holds: Cell<bool>,
    path: Cell<Path>,
}

impl ServerSession {
    pub(crate) fn new(
        cx: &Kernel,
        table: &Rc<Table>,
        (protocol, upper): (&ProtocolRef, &ProtocolRef),
        (key, state): (Key, ChannelState),
        lower: &SessionRef,
    ) -> Self {
        Self {
            end: ChannelEnd::new(table, key, Kind::Reply),
            protocol: protocol.clone(),
            upper: upper.clone(),
            state,
            lower: SessionSlot::new(Some(lower.clone())),
            holds: Cell::new(false),
            path: Cell::new(Path::of(cx, lower)),
        }
    }

    /// Sends a packet without payload; `error` is the code of a refusal.
    #[cold]
    fn send(&self, cx: &Kernel, kind: Kind, sequence: u32, error: u16) {
        if let Some(lower) = self.lower.get() {
            let (to, marks) = ((&lower, self.protocol.id()), self.path.get().marks);
            self.end.send(cx, to, marks, (kind, sequence, error));
        }
    }

    /// Sends a reply's octets.
    #[inline(always)]
    fn push_reply(&self, cx: &Kernel, mut reply: Message, sequence: u32) -> Result<(), PushError> {
        let len = reply.len();
        let flags = REPLY | self.path.get().mark(len);
        self.end.put(&mut reply, flags, sequence, None)?;
        let lower = self.lower.get().ok_or(PushError::Closed)?;
        lower.push(cx, reply)?;
        if len > self.path.get().whole_max {
            self.end.note_kept(cx, &lower);
        }
        Ok(())
    }

    /// Releases the reply; the client has it, or wants it no more.
    #[inline(always)]
    fn free_reply(&self, cx: &Kernel) {
        self.state.reply.borrow_mut().clear();
        if self.end.kept.get() != 0 {
            self.end.free_kept(cx, self.lower.get().as_ref());
        }
    }

    /// Executes a new request and sends the reply, unless the client has begun another call.
    #[inline(always)]
    fn execute(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        request: Message,
        sequence: u32,
    ) -> Result<(), Refused> {
        let state = &self.state;
        self.free_reply(cx);
        if state.phase.replace(Phase::Executing) == Phase::Idle {
            // Until the reply is acknowledged, neither this session nor the one below may be
            // evicted.
            this.hold();
            self.hold_lower();
        }
        state.is_fresh.set(false);
        state.sequence.set(sequence);
        state.code.set(0);
        state.running.set(state.running.get() + 1);
        let epoch = state.epoch.get();
        count(&self.end.table.tally.executed);
        let result = self.upper.call_demux(cx, this, request);
        state.running.set(state.running.get() - 1);
        if state.sequence.get() != sequence
            || state.epoch.get() != epoch
            || state.phase.get() != Phase::Executing
            || this.head().is_closed()
        {
            self.abandon(cx, this, result);
            return Ok(());
        }
        match result {
            Ok(reply) => self.reply(cx, this, reply, sequence),
            Err(refused) => self.refuse(cx, refused, sequence),
        }
        Ok(())
    }

    /// Drops a reply for which the client no longer waits.
    #[cold]
    fn abandon(&self, cx: &Kernel, this: &SessionRef, result: Result<Message, Refused>) {
        count(&self.end.table.tally.abandoned);
        let (Ok(message) | Err(Refused { message, .. })) = result;
        this.discard(cx, message, &ABANDONED);
    }

    #[inline(always)]
    fn reply(&self, cx: &Kernel, this: &SessionRef, reply: Message, sequence: u32) {
        // Without a buffer for the copy the reply goes out once, and no more.
        let _ = self.state.reply.borrow_mut().save(&reply);
        self.keep_reply(cx);
        if let Err(error) = self.push_reply(cx, reply, sequence) {
            self.reply_failed(cx, this, error, sequence);
        }
    }

    /// Counts the reply as dropped.
    #[cold]
    fn discard_reply(&self, cx: &Kernel, this: &SessionRef, why: &'static Reason) {
        let reply = self.state.reply.borrow_mut().take(cx.pool());
        if let Some(reply) = reply {
            this.discard(cx, reply, why);
        }
    }

    /// Handles a reply that could not be sent. If it never can be, the client gets a refusal.
    #[cold]
    fn reply_failed(&self, cx: &Kernel, this: &SessionRef, error: PushError, sequence: u32) {
        if let PushError::TooBig | PushError::NotSupported = error {
            self.discard_reply(cx, this, &reason::TOO_BIG);
            let code = code_of(&reason::TOO_BIG);
            self.state.code.set(code);
            self.send(cx, Kind::Refusal, sequence, code);
        }
    }

    /// Tells the client why the protocol above refused its request.
    #[cold]
    fn refuse(&self, cx: &Kernel, refused: Refused, sequence: u32) {
        let code = code_of(refused.reason);
        drop(refused);
        self.state.code.set(code);
        self.keep_reply(cx);
        self.send(cx, Kind::Refusal, sequence, code);
    }

    /// Keeps the reply from now on until it is acknowledged.
    #[inline(always)]
    fn keep_reply(&self, cx: &Kernel) {
        let state = &self.state;
        state.phase.set(Phase::Replied);
        state.since.set(cx.now());
        state.probes.set(0);
        if !self.end.table.sweeps.get() {
            self.begin_sweep(cx);
        }
    }

    #[cold]
    fn begin_sweep(&self, cx: &Kernel) {
        let timer = cx.schedule_protocol(&self.protocol, SWEEP, 0);
        // Without a timer now, the next reply sets it.
        self.end.table.sweeps.set(timer.is_ok());
    }

    /// Ends a call whose reply is acknowledged or given up: the channel may be evicted from now on.
    fn rest(&self, cx: &Kernel, this: &SessionRef) {
        self.free_reply(cx);
        if self.state.phase.replace(Phase::Idle) != Phase::Idle {
            this.close(cx);
        }
    }

    /// Sends the reply again. A reply of several packets goes only if the client has said that it
    /// is missing.
    #[cold]
    fn reply_again(&self, cx: &Kernel, is_missing: bool) {
        let state = &self.state;
        let (sequence, code) = (state.sequence.get(), state.code.get());
        state.since.set(cx.now());
        state.probes.set(0);
        if code != 0 {
            return self.send(cx, Kind::Refusal, sequence, code);
        }
        let Some(len) = state.reply.borrow().len() else {
            return;
        };
        let is_small = len <= self.path.get().whole_max;
        let is_collecting = || self.lower.get().is_some_and(|l| self.end.is_collecting(cx, &l));
        if !is_small && (!is_missing || is_collecting()) {
            return self.send(cx, Kind::Probe, sequence, 0);
        }
        count(&self.end.table.tally.replies_again);
        let copy = state.reply.borrow().again(cx.pool());
        if let Ok(Some(copy)) = copy {
            // If it does not go now, the client asks again.
            let _ = self.push_reply(cx, copy, sequence);
        }
    }

    /// Asks a silent client for its acknowledgement, and in the end gives up; called by the sweep.
    /// Returns whether a reply is kept.
    pub(crate) fn look_after(&self, cx: &Kernel, this: &SessionRef) -> bool {
        let state = &self.state;
        if state.phase.get() != Phase::Replied {
            return false;
        }
        let probes = state.probes.get();
        let is_due = |after: Duration| cx.now() >= state.since.get().after(after);
        if probes < PROBES_MAX {
            if is_due(PROBE_AFTER * (1 << probes)) {
                state.probes.set(probes + 1);
                state.since.set(cx.now());
                self.send(cx, Kind::Probe, state.sequence.get(), 0);
            }
            return true;
        }
        if !is_due(KEPT_FOR) {
            return true;
        }
        self.discard_reply(cx, this, &UNACKNOWLEDGED);
        self.rest(cx, this);
        false
    }

    /// Judges a packet whose boot id or ticket is not the one known here. `Ok` if the packet is of
    /// the client nevertheless.
    #[cold]
    fn admit(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        header: &Header,
    ) -> Result<(), &'static Reason> {
        let is_asked = matches!(header.kind, Kind::Request | Kind::Probe);
        let challenge = |ticket| {
            if is_asked {
                self.send(cx, Kind::Nack, header.sequence, ticket);
            }
        };
        admit(cx, &self.end.table, self.end.key.0, header, challenge)?;
        if self.state.forget_unless(header.boot) {
            this.close(cx);
        }
        self.state.boot.set(header.boot);
        self.state.ticket.set(header.error & TICKET);
        Ok(())
    }

    /// Takes any packet, without its header.
    fn take(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        let state = &self.state;
        let sequence = header.sequence;
        let is_known =
            state.boot.get() == header.boot && state.ticket.get() == header.error & TICKET;
        if !is_known && let Err(why) = self.admit(cx, this, header) {
            return Err(this.refuse(cx, message, why));
        }
        if state.is_new(sequence) {
            return self.take_new(cx, this, header, message);
        }
        if sequence != state.sequence.get() {
            return Err(this.refuse(cx, message, &LATE));
        }
        match (header.kind, state.phase.get()) {
            (Kind::Request | Kind::Probe, Phase::Executing) => {
                self.send(cx, Kind::Ack, sequence, 0);
            }
            (Kind::Request | Kind::Probe, Phase::Replied) => self.reply_again(cx, false),
            (Kind::Nack, Phase::Replied) => self.reply_again(cx, true),
            _ => return Err(this.refuse(cx, message, &LATE)),
        }
        Ok(())
    }

    /// Takes a packet whose number comes after that of the last request.
    fn take_new(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        let (state, sequence) = (&self.state, header.sequence);
        match header.kind {
            Kind::Request => {
                if state.running.get() >= RUNNING_MAX {
                    return Err(this.refuse(cx, message, &IMPATIENT));
                }
                if header.please_ack {
                    self.send(cx, Kind::Ack, sequence, 0);
                }
                self.execute(cx, this, message, sequence)
            }
            Kind::Probe => {
                self.send(cx, Kind::Nack, sequence, 0);
                Ok(())
            }
            // Replies up to the one before are there.
            Kind::Ack if !state.is_fresh.get() && state.phase.get() == Phase::Replied => {
                self.rest(cx, this);
                Ok(())
            }
            _ => Err(this.refuse(cx, message, &LATE)),
        }
    }

    #[inline(never)]
    fn pop_other(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        match take_header(&mut message) {
            Ok(header) => self.take(cx, this, &header, message),
            Err(why) => Err(this.refuse(cx, message, why)),
        }
    }

    /// Sends replies through another session below, through which the client was just heard.
    pub(crate) fn move_to(&self, cx: &Kernel, lower: &SessionRef) {
        if self.lower.has(lower) {
            return;
        }
        let Ok(path) = cx.unless_lost(|| Path::of(cx, lower)) else {
            return;
        };
        let held = self.holds.get();
        self.ease_lower(cx);
        drop(self.lower.replace(Some(lower.clone())));
        if held {
            self.hold_lower();
        }
        self.path.set(path);
        self.end.kept.set(0);
    }

    fn hold_lower(&self) {
        if !self.holds.replace(true)
            && let Some(lower) = self.lower.get()
        {
            lower.hold();
        }
    }

    fn ease_lower(&self, cx: &Kernel) {
        if self.holds.replace(false)
            && let Some(lower) = self.lower.get()
        {
            lower.ease(cx);
        }
    }
}

impl Session for ServerSession {
    /// The header is still in front.
    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        let state = &self.state;
        if let Some(octets) = message.peek_in_place::<HEADER_OCTETS>()
            && flags_of(octets) == REQUEST | SERVER
            && end_of(octets) == (state.ticket.get(), state.boot.get())
            && state.phase.get() != Phase::Executing
            && let sequence = names_of(octets).2
            && is_newer(sequence, state.sequence.get())
            && !state.is_fresh.get()
        {
            let len = payload_of(octets).unwrap_or(message.len() - HEADER_OCTETS);
            if len + HEADER_OCTETS <= message.len() {
                message.strip_in_place(HEADER_OCTETS);
                message.truncate(len);
                return self.execute(cx, this, message, sequence);
            }
        }
        self.pop_other(cx, this, message)
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let ((host, number, channel), ChannelState { sequence, phase, .. }) =
            (self.end.key, &self.state);
        let of = alloc::format!("channel {} of {host}, number {number}", channel as u16);
        Some(alloc::format!("{of}, call {}, {:?}", sequence.get(), phase.get()))
    }

    fn control(&self, cx: &Kernel, _: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if ask.get::<PeerProved>().is_some() {
            // A request without our ticket makes no channel.
        } else {
            let Some(lower) = self.lower.get() else {
                return Answer::Unknown;
            };
            return less(lower.control(cx, ask), ask, HEADER_OCTETS);
        }
        Answer::Answered
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        let bound = self.end.table.sessions.get(&self.end.key);
        let is_bound = bound.is_some_and(|bound| bound == *this);
        if is_bound && self.state.phase.get() == Phase::Idle && !this.head().is_aborted() {
            // Kept, so that duplicates are known for what they are, until its table needs the room.
            self.ease_lower(cx);
            return Closing::Idle;
        }
        self.end.table.sessions.release(&self.end.key, this);
        self.free_reply(cx);
        if !self.state.is_fresh.get() {
            // Later packets of this client on this channel could not be distinguished from those
            // of executed calls, so they are challenged.
            self.end.table.clients.forget(self.end.key.0);
        }
        self.ease_lower(cx);
        drop(self.lower.take());
        Closing::Done
    }
}
