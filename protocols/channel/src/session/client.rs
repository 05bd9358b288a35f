//! The client's side: one channel, and the call that is made on it.

use super::{ChannelEnd, LATE, take_header};
use crate::table::{Key, Path, Table, count};
use crate::wire::{
    HEADER_OCTETS, Header, Kind, PLSACK, REPLY, REQUEST, SERVER, end_of, flags_of, is_newer,
    names_of, payload_of,
};
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use xk_core::message::Message;
use xk_core::object::{CallCause, CallError, Closing, PushError, Refused};
use xk_core::reason::{self, Class, Reason};
use xk_core::shepherd::{Semaphore, WaitError};
use xk_core::{Answer, Ask, Kernel, Session, SessionRef};
use xk_kit::rpc::call::{CallOptions, CallsAtOnce, CancelCall};
use xk_kit::rpc::call_layer::less;
use xk_kit::rpc::codes::reason_of;
use xk_kit::rpc::incarnation::{SentUnder, Server, Verdict};
use xk_kit::rpc::retransmit::SavedMessage;
use xk_kit::rpc::wait_queue::WaitQueue;

/// The first wait for a request that goes in one packet.
pub(crate) const WAIT_SHORT: Duration = Duration::from_millis(100);
/// The first wait for one that takes several packets below, and what each of them adds.
pub(crate) const WAIT_LONG: Duration = Duration::from_millis(500);
/// See [`WAIT_LONG`].
pub(crate) const WAIT_PER_PACKET: Duration = Duration::from_millis(10);
/// The longest wait.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(5);
/// Times that a request is sent, or asked about, without a sign of life.
pub(crate) const TRIES_MAX: u32 = 8;
/// Times that one call is sent again because the server asked for it, by a challenge or because the
/// call is unknown there.
const RESENDS_MAX: u8 = 32;

/// An answer that no server that was called can have given.
pub(crate) static STRAY: Reason = Reason::new("stray answer", Class::Bad);
/// The server asks for a request again and again.
pub(crate) static INSATIABLE: Reason = Reason::new("asked too often", Class::Bad);

/// Result of a call.
type Outcome = Result<Message, CallCause>;

pub(crate) struct ClientSession {
    end: ChannelEnd,
    lower: SessionRef,
    server: Rc<Server>,
    path: Path,
    /// Sequence number of the present or last call.
    sequence: Cell<u32>,
    waits: Cell<bool>,
    /// Whether the last call was answered, and the answer not acknowledged.
    owes_ack: Cell<bool>,
    under: Cell<SentUnder>,
    /// The request, as long as it may have to be sent again.
    request: RefCell<SavedMessage>,
    /// The request went at least once, so that the server may have it.
    was_sent: Cell<bool>,
    /// The server has said that it lives, since the last look.
    lives: Cell<bool>,
    resends: Cell<u8>,
    outcome: Cell<Option<Outcome>>,
    done: Semaphore,
    /// One call at a time.
    busy: Cell<bool>,
    /// Calls that wait for their turn.
    queue: WaitQueue<()>,
    /// The call's name for [`CancelCall`], or 0.
    tag: Cell<u64>,
}

impl ClientSession {
    pub(crate) fn new(
        table: &Rc<Table>,
        key: Key,
        (lower, path): (SessionRef, Path),
        sequence: u32,
    ) -> Self {
        Self {
            server: table.servers.of(key.0),
            end: ChannelEnd::new(table, key, Kind::Request),
            path,
            lower,
            sequence: Cell::new(sequence),
            waits: Cell::new(false),
            owes_ack: Cell::new(false),
            under: Cell::default(),
            request: RefCell::default(),
            was_sent: Cell::new(false),
            lives: Cell::new(false),
            resends: Cell::new(0),
            outcome: Cell::new(None),
            done: Semaphore::new(0),
            busy: Cell::new(false),
            queue: WaitQueue::default(),
            tag: Cell::new(0),
        }
    }

    /// Sends the request itself.
    #[inline(always)]
    fn push_request(
        &self,
        cx: &Kernel,
        mut request: Message,
        flags: u16,
        ticket: u16,
    ) -> Result<(), PushError> {
        let len = request.len();
        let flags = flags | self.path.mark(len);
        self.end.put(&mut request, flags, self.sequence.get(), Some(ticket))?;
        self.lower.push(cx, request)?;
        self.was_sent.set(true);
        if len > self.path.whole_max {
            self.end.note_kept(cx, &self.lower);
        }
        Ok(())
    }

    /// Sends a packet about the call, or one that was made before, without payload.
    #[cold]
    fn send(&self, cx: &Kernel, this: &SessionRef, kind: Kind, sequence: u32) {
        let to = (&self.lower, this.head().protocol());
        self.end.send(cx, to, self.path.marks, (kind, sequence, self.server.ticket()));
    }

    /// The whole call, it being this one's turn.
    #[inline(always)]
    fn converse(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
        options: Option<CallOptions>,
    ) -> Outcome {
        let len = request.len();
        if len > self.path.max {
            return Err(CallCause::Push(PushError::TooBig));
        }
        if let Some(options) = options
            && len > self.path.whole_max
        {
            // It may have to wait below, whenever it is sent. There is room: they were taken off
            // it.
            let _ = request.set_attribute(options);
        }
        let saved = self.request.borrow_mut().save(&request);
        saved.map_err(|_| CallCause::Push(PushError::NoBuffers))?;
        self.sequence.set(self.sequence.get().wrapping_add(1));
        count(&self.end.table.tally.calls);
        let mut under = SentUnder::default();
        // One that was never sent cannot have outlived its server.
        let ticket = self.server.ticket_for(&mut under).unwrap_or(0);
        self.under.set(under);
        self.waits.set(true);
        if ticket == 0 && len > self.path.whole_max {
            // To a server that is going to ask for the ticket, an empty packet will do.
            self.send(cx, this, Kind::Probe, self.sequence.get());
        } else {
            let sent = self.push_request(cx, request, REQUEST | SERVER, ticket);
            sent.or_else(Self::may_come_to_pass).map_err(CallCause::Push)?;
        }
        self.await_outcome(cx, this, len, options)
    }

    /// Judges an error of a push: `Ok` if it is tried again later.
    #[cold]
    fn may_come_to_pass(error: PushError) -> Result<(), PushError> {
        match error {
            PushError::QueueFull | PushError::NoBuffers => Ok(()),
            error => Err(error),
        }
    }

    #[inline(always)]
    fn await_outcome(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        len: usize,
        options: Option<CallOptions>,
    ) -> Outcome {
        // In a stack that carries it there and back at once, it is here.
        if self.done.try_wait()
            && let Some(outcome) = self.outcome.take()
        {
            return outcome;
        }
        // Most replies come to the first try of a packet without a deadline: on their way nothing
        // is kept of what comes after it.
        if options.is_some() || len > self.path.whole_max {
            return self.await_longer(cx, this, len, options, None);
        }
        let waited = cx.wait(&self.done, Some(WAIT_SHORT));
        match self.take_outcome(waited) {
            Some(outcome) => outcome,
            None => self.await_longer(cx, this, len, None, Some(waited)),
        }
    }

    /// Takes the call's result, if it has ended.
    #[inline(always)]
    fn take_outcome(&self, waited: Result<(), WaitError>) -> Option<Outcome> {
        let outcome = self.outcome.take()?;
        // The signal may have come after the wait was over.
        let _ = waited.is_err() && self.done.try_wait();
        Some(outcome)
    }

    /// Waits, from the end of the first wait on if that is given, and tries again.
    #[inline(never)]
    fn await_longer(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        len: usize,
        options: Option<CallOptions>,
        mut first: Option<Result<(), WaitError>>,
    ) -> Outcome {
        // A step function ("RPC in the x-Kernel", section 3.2): the layer below may need time for
        // the pieces of a large message.
        let packets = self.path.packets(len);
        let mut wait = match packets {
            1 => WAIT_SHORT,
            _ => WAIT_LONG + WAIT_PER_PACKET * packets as u32,
        };
        let (mut tries, mut silent, mut works) = (1, 1, false);
        loop {
            let Some(limit) = CallOptions::clip(options, cx.now(), wait) else {
                return Err(CallCause::TimedOut { tries });
            };
            let waited = first.take().unwrap_or_else(|| cx.wait(&self.done, Some(limit)));
            if let Some(outcome) = self.take_outcome(waited) {
                return outcome;
            }
            match waited {
                Ok(()) | Err(WaitError::TimedOut) => {}
                Err(error) => return Err(CallError::from(error).cause),
            }
            if limit < wait {
                // The caller's deadline, and not ours.
                continue;
            }
            if self.lives.replace(false) {
                // It works on it: from now on only whether it lives is of interest.
                (silent, works, wait) = (0, true, WAIT_MAX);
                continue;
            }
            if silent >= TRIES_MAX {
                return Err(CallCause::TimedOut { tries });
            }
            (tries, silent) = (tries + 1, silent + 1);
            wait = (2 * wait).min(WAIT_MAX);
            self.remind(cx, this, packets == 1 && !works);
        }
    }

    /// Nothing was heard for a time: sends the request again, or asks after it.
    #[cold]
    fn remind(&self, cx: &Kernel, this: &SessionRef, whole: bool) {
        if whole || !self.was_sent.get() && self.server.ticket() != 0 {
            self.resend(cx, PLSACK);
        } else if self.server.ticket_for(&mut self.under.get()).is_err() {
            // Another call has learned that the server to which this one was sent is no more.
            self.finish(cx, Err(CallCause::Rebooted));
        } else {
            self.send(cx, this, Kind::Probe, self.sequence.get());
        }
    }

    /// Sends the request again, whole.
    #[cold]
    fn resend(&self, cx: &Kernel, flags: u16) {
        let mut under = self.under.get();
        let Ok(ticket) = self.server.ticket_for(&mut under) else {
            return self.finish(cx, Err(CallCause::Rebooted));
        };
        let Some(len) = self.request.borrow().len() else {
            return;
        };
        if ticket == 0 && len > self.path.whole_max {
            return;
        }
        self.under.set(under);
        count(&self.end.table.tally.resends);
        let copy = self.request.borrow().again(cx.pool());
        if let Ok(Some(copy)) = copy {
            // What does not go now is sent again after a time.
            let _ = self.push_request(cx, copy, REQUEST | SERVER | flags, ticket);
        }
    }

    /// The server has not got the request: sends it again, unless it is still collecting its
    /// pieces.
    #[cold]
    fn send_missing(&self, cx: &Kernel, this: &SessionRef) {
        if self.end.is_collecting(cx, &self.lower) {
            return self.send(cx, this, Kind::Probe, self.sequence.get());
        }
        self.resend(cx, PLSACK);
    }

    /// The call is over; its caller is told.
    #[inline(always)]
    fn finish(&self, cx: &Kernel, outcome: Outcome) {
        if !self.waits.replace(false) {
            return;
        }
        self.owes_ack.set(outcome.is_ok());
        drop(self.outcome.replace(Some(outcome)));
        cx.signal(&self.done);
    }

    /// Releases what the call held.
    #[inline(always)]
    fn leave(&self, cx: &Kernel) {
        self.waits.set(false);
        self.was_sent.set(false);
        self.lives.set(false);
        self.resends.set(0);
        self.tag.set(0);
        self.request.borrow_mut().clear();
        if self.end.kept.get() != 0 {
            self.end.free_kept(cx, Some(&self.lower));
        }
        if self.queue.is_empty() {
            self.busy.set(false);
        } else {
            self.pass_on(cx);
        }
    }

    /// Gives the turn to the call that waits longest.
    #[cold]
    fn pass_on(&self, cx: &Kernel) {
        if self.queue.grant(cx, ()).is_some() {
            self.busy.set(false);
        }
    }

    /// Takes a call back; false if it is none of this channel's.
    fn cancel(&self, cx: &Kernel, this: &SessionRef, tag: u64) -> bool {
        if tag != 0 && self.tag.get() == tag && self.waits.get() {
            self.finish(cx, Err(CallCause::Cancelled));
            return true;
        }
        self.queue.cancel(cx, this.id(), tag)
    }

    /// A packet of the call that is under way, other than a plain reply.
    #[cold]
    fn take(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        let under = self.under.get();
        let verdict = match header.kind {
            Kind::Nack if header.error != 0 => {
                self.server.challenged(under, header.boot, header.error)
            }
            _ => self.server.heard(under, header.boot),
        };
        match (verdict, header.kind) {
            (Verdict::Stray, _) => return Err(this.refuse(cx, message, &STRAY)),
            (Verdict::Rebooted, _) => self.finish(cx, Err(CallCause::Rebooted)),
            (_, Kind::Reply) => {
                if header.please_ack {
                    self.owes_ack.set(false);
                    self.send(cx, this, Kind::Ack, header.sequence.wrapping_add(1));
                }
                self.finish(cx, Ok(message));
                return Ok(());
            }
            (_, Kind::Refusal) => {
                if header.please_ack {
                    self.send(cx, this, Kind::Ack, header.sequence.wrapping_add(1));
                }
                let rejection = xk_core::object::Rejection::new(reason_of(header.error));
                self.finish(cx, Err(CallCause::Rejected(rejection)));
                self.owes_ack.set(!header.please_ack);
            }
            (_, Kind::Ack) => self.lives.set(true),
            (_, Kind::Probe) => {
                // It has replied, and we have not got it.
                self.lives.set(true);
                self.send(cx, this, Kind::Nack, header.sequence);
            }
            (_, Kind::Nack) => {
                let resends = self.resends.get();
                if resends == RESENDS_MAX {
                    return Err(this.refuse(cx, message, &INSATIABLE));
                }
                self.resends.set(resends + 1);
                // A challenge is no sign that the call makes progress.
                if verdict == Verdict::Valid {
                    self.lives.set(true);
                    self.send_missing(cx, this);
                } else {
                    self.resend(cx, 0);
                }
            }
            (_, Kind::Request) => return Err(this.refuse(cx, message, &reason::MALFORMED)),
        }
        Ok(())
    }

    #[inline(never)]
    fn pop_other(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut message: Message,
    ) -> Result<(), Refused> {
        let header = match take_header(&mut message) {
            Ok(header) => header,
            Err(why) => return Err(this.refuse(cx, message, why)),
        };
        if self.waits.get() && header.sequence == self.sequence.get() {
            return self.take(cx, this, &header, message);
        }
        if header.please_ack && !is_newer(header.sequence, self.sequence.get()) {
            // No call waits for that reply any more.
            self.owes_ack.set(false);
            self.send(cx, this, Kind::Ack, header.sequence.wrapping_add(1));
        }
        Err(this.refuse(cx, message, &LATE))
    }
}

impl Session for ClientSession {
    #[inline]
    fn call(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let options = CallOptions::take(&mut request);
        if self.busy.replace(true) {
            self.queue.wait(cx, this.id(), options, |()| self.pass_on(cx))?;
        }
        if let Some(options) = options {
            self.tag.set(options.tag);
        }
        let outcome = self.converse(cx, this, request, options);
        self.leave(cx);
        outcome.map_err(CallError::from)
    }

    /// The header is still in front.
    #[inline]
    fn pop(&self, cx: &Kernel, this: &SessionRef, mut message: Message) -> Result<(), Refused> {
        if let Some(octets) = message.peek_in_place::<HEADER_OCTETS>()
            && flags_of(octets) == REPLY
            && self.waits.get()
            && names_of(octets).2 == self.sequence.get()
            && self.server.heard(self.under.get(), end_of(octets).1) == Verdict::Valid
        {
            let len = payload_of(octets).unwrap_or(message.len() - HEADER_OCTETS);
            if len + HEADER_OCTETS <= message.len() {
                message.strip_in_place(HEADER_OCTETS);
                message.truncate(len);
                self.finish(cx, Ok(message));
                return Ok(());
            }
        }
        self.pop_other(cx, this, message)
    }

    fn describe(&self, _: &SessionRef) -> Option<String> {
        let state = if self.waits.get() { "waits" } else { "free" };
        let ((host, number, channel), sequence) = (self.end.key, self.sequence.get());
        let to = alloc::format!("channel {channel} to {host}, number {number}");
        Some(alloc::format!("{to}, call {sequence}, {state}"))
    }

    fn control(&self, cx: &Kernel, this: &SessionRef, ask: &mut Ask<'_>) -> Answer {
        if let Some(tag) = ask.get::<CancelCall>().map(|q| q.tag) {
            if self.cancel(cx, this, tag) {
                return Answer::Answered;
            }
        } else if let Some(question) = ask.get::<CallsAtOnce>() {
            question.calls = 1;
            return Answer::Answered;
        }
        less(self.lower.control(cx, ask), ask, HEADER_OCTETS)
    }

    fn lower(&self) -> Option<&SessionRef> {
        Some(&self.lower)
    }

    fn close(&self, cx: &Kernel, this: &SessionRef) -> Closing {
        self.end.table.sessions.release(&self.end.key, this);
        self.end.table.lay_down(self.end.key, self.sequence.get());
        if self.owes_ack.replace(false) {
            // So that the server need not keep the reply.
            self.send(cx, this, Kind::Ack, self.sequence.get().wrapping_add(1));
        }
        self.finish(cx, Err(CallCause::Closed));
        self.queue.end(cx, CallCause::Closed, |_, _| true);
        self.lower.close(cx);
        Closing::Done
    }
}
