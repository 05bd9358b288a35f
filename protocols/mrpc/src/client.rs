//! The client half (Sprite, rpcClient.c and rpcCall.c): a call on its channel, and the packets that
//! come for it.

use crate::channels::{
    ACKED, CANCELLED, CHALLENGED, CLOSED, Channel, FAILED, FRAGMENT, GAP, PARTIAL, REBOOTED,
    REFUSED, REPLIED, REPLIES, REQUESTS, reply_key,
};
use crate::fragments::{Taken, mark, push_bare};
use crate::reasons::{
    FORGED_FRAGMENT, LATE, NO_CALL, REPLAYED, UNKNOWN_CHANNEL, WRONG_BOOT, reason_of,
};
use crate::session::{Call, MrpcSession};
use crate::shared::{Shared, body_of};
use crate::timers::Retry;
use crate::wire::{
    ACK, CLOSE, ECHO, ERROR, HEADER_LEN, Header, LASTFRAG, NACK, PLSACK, REPLY, SERVER,
};
use xk_core::object::{CallCause, CallError, PushError, Refused};
use xk_core::shepherd::WaitError;
use xk_core::{Kernel, Message, ProtocolRef, SessionRef, Time};
use xk_kit::rpc::call::{self, CallOptions};
use xk_kit::rpc::incarnation::{FIRST, Verdict};
use xk_kit::rpc::retransmit::SavedMessage;

impl MrpcSession {
    /// Does a call on a channel that is the caller's.
    #[inline]
    pub(crate) fn call_on(
        &self,
        cx: &Kernel,
        this: &SessionRef,
        channel: &Channel,
        call: &Call,
        mut request: Message,
    ) -> Result<Message, CallError> {
        let is_large = call.cut.fragments != 0 || self.has_large_replies.get();
        let first = self.timers.get().first(is_large);
        let Some(timeout) = CallOptions::clip(call.options, cx.now(), first) else {
            return Err(CallCause::TimedOut { tries: 0 }.into());
        };
        channel.begin(this, self.server(), call.options.map_or(0, |o| o.tag));
        let sequence = self.begin_at.wrapping_add(self.shared.next_sequence());
        channel.sequence.set(sequence);
        let template = self.stamp(channel, call)?;
        let mut kept = SavedMessage::new();
        if call.cut.fragments != 0 {
            // Without a ticket nothing is executed: the last fragment alone fetches one.
            let mask = match template.process | call.flags & ECHO {
                0 => call.cut.last(),
                _ => call.cut.all(),
            };
            call.cut.send(cx, &self.lower, &template, 0, Some(&request), mask)?;
            kept.put(request);
        } else {
            if !request.is_empty() {
                kept.save(&request).map_err(|_| PushError::NoBuffers)?;
            }
            let header = call.cut.header(&template, 0).emit();
            if !request.push_in_place(&header) && request.push_array(&header).is_err() {
                return Err(PushError::NoBuffers.into());
            }
            self.lower.push(cx, request)?;
        }
        let waited = cx.wait(&channel.semaphore, Some(timeout));
        let events = channel.take_events();
        if events == REPLIED
            && channel.code.get() == 0
            && let Some(reply) = channel.reply.take()
        {
            return Ok(reply);
        }
        let timers = self.look_at_timers(cx);
        let mut retry = Retry::new(timers, is_large, cx.now().before(timeout));
        self.persist(cx, channel, (call, &kept), &mut retry, (waited, events))
    }

    /// The header for the packets of a call sent now, under the ticket known now; notes what its
    /// reply will look like.
    #[inline]
    fn stamp(&self, channel: &Channel, call: &Call) -> Result<Header, CallError> {
        let mut under = channel.sent_under.get();
        let Ok(ticket) = self.server().ticket_for(&mut under) else {
            return Err(CallCause::Rebooted.into());
        };
        channel.sent_under.set(under);
        channel.ticket.set(ticket & !FIRST);
        let sequence = channel.sequence.get();
        let template = self.template(call.flags, channel.index, ticket, sequence);
        let reply = Header { process: ticket & !FIRST, ..template };
        channel.expected.set(reply_key(&reply.emit()));
        Ok(template)
    }

    /// Waits for the reply to a call that was not answered at once, and sends it again.
    #[cold]
    #[inline(never)]
    fn persist(
        &self,
        cx: &Kernel,
        channel: &Channel,
        (call, request): (&Call, &SavedMessage),
        retry: &mut Retry,
        (mut waited, mut events): (Result<(), WaitError>, u16),
    ) -> Result<Message, CallError> {
        let deadline = call.options.map_or(Time::MAX, |o| o.deadline);
        // So that two ends with different opinions do not go on without a timer and without end.
        let mut challenges = 0;
        loop {
            if let Some(ended) = self.ended(channel, events) {
                return ended;
            }
            match waited {
                Ok(()) => {}
                Err(WaitError::TimedOut) => {
                    if cx.now() >= deadline || !retry.timed_out(cx.now()) {
                        let tries = retry.sent();
                        return Err(CallCause::TimedOut { tries }.into());
                    }
                    // Every third time the request, by which a server that has rebooted shows
                    // itself.
                    if channel.partial.held() != 0 && !retry.sent().is_multiple_of(3) {
                        self.ask_missing(cx, channel, call);
                    } else {
                        let mask = self.unacknowledged(channel, call);
                        self.resend(cx, channel, call, request, PLSACK, mask)?;
                    }
                }
                Err(error) => return Err(error.into()),
            }
            if events & CHALLENGED != 0 {
                channel.delivered.set(0);
                challenges += 1;
                if challenges <= CHALLENGES_MAX {
                    self.resend(cx, channel, call, request, 0, call.cut.all())?;
                    retry.resent(cx.now());
                }
            }
            if events & REFUSED != 0 {
                channel.delivered.set(0);
                if !retry.refused(cx.now()) {
                    return Err(CallError::rejected(&call::BUSY));
                }
            }
            if events & PARTIAL != 0 {
                let missing = call.cut.all() & !channel.delivered.get();
                self.resend(cx, channel, call, request, 0, missing)?;
                retry.advanced(cx.now());
            } else if events & ACKED != 0 && retry.acknowledged(cx.now()) {
                self.hung.set(self.hung.get() + 1);
            }
            if events & FRAGMENT != 0 {
                retry.advanced(cx.now());
            }
            if events & GAP != 0 {
                self.ask_missing(cx, channel, call);
            }
            let until = retry.due().min(deadline);
            waited = cx.wait(&channel.semaphore, Some(until.since(cx.now())));
            events = channel.take_events();
        }
    }

    /// The call's result, if it has ended.
    fn ended(&self, channel: &Channel, events: u16) -> Option<Result<Message, CallError>> {
        if events & REPLIED != 0 {
            let mut reply = channel.reply.take()?;
            mark(&mut reply, channel.code.get());
            return Some(Ok(reply));
        }
        let error = if events & FAILED != 0 {
            CallError::rejected(reason_of(channel.code.get()))
        } else if events & REBOOTED != 0 {
            CallCause::Rebooted.into()
        } else if events & CANCELLED != 0 {
            CallCause::Cancelled.into()
        } else if events & CLOSED != 0 {
            CallCause::Closed.into()
        } else {
            return None;
        };
        Some(Err(error))
    }

    /// Fragments to send when nothing was heard in time: the missing ones if the server has listed
    /// those that it has, otherwise the last one, as a question.
    fn unacknowledged(&self, channel: &Channel, call: &Call) -> u16 {
        let missing = call.cut.all() & !channel.delivered.get();
        if channel.delivered.get() == 0 || missing == 0 { call.cut.last() } else { missing }
    }

    /// Sends the request, or those fragments of it, once more.
    fn resend(
        &self,
        cx: &Kernel,
        channel: &Channel,
        call: &Call,
        request: &SavedMessage,
        extra: u16,
        mask: u16,
    ) -> Result<(), CallError> {
        let mut template = self.stamp(channel, call)?;
        template.flags |= channel.next_round(REQUESTS).flags();
        let sent = match request.again(cx.pool()) {
            Ok(request) => {
                let cut = &call.cut;
                cut.send(cx, &self.lower, &template, extra, request.as_ref(), mask)
            }
            Err(_) => Err(PushError::NoBuffers),
        };
        match sent {
            // Nothing that is sent here later will go.
            Err(PushError::Closed) => Err(PushError::Closed.into()),
            // As good as lost.
            _ => Ok(()),
        }
    }

    /// Tells the server which fragments of its reply have come.
    fn ask_missing(&self, cx: &Kernel, channel: &Channel, call: &Call) {
        let Ok(template) = self.stamp(channel, call) else {
            return;
        };
        let header = Header {
            flags: SERVER | ACK | LASTFRAG | channel.next_round(REPLIES).flags(),
            mask: channel.partial.held(),
            ..template
        };
        push_bare(cx, &self.lower, &header);
    }
}

/// Number of challenges of one call that are answered at once; behind them the timer decides.
const CHALLENGES_MAX: u32 = 16;

impl Shared {
    /// The way of almost every reply: unfragmented, all in area 2, to the call that waits for it.
    /// The message otherwise.
    #[inline(always)]
    pub(crate) fn reply_at_once(&self, octets: &[u8; HEADER_LEN]) -> Option<&Channel> {
        let channel = self.channels.get(crate::wire::u16_at::<10>(octets))?;
        if channel.expected.get() != reply_key(octets) || !channel.active.get() {
            return None;
        }
        let boot = crate::wire::u32_at::<24>(octets);
        let server = channel.server.borrow();
        let verdict = server.as_ref()?.heard(channel.sent_under.get(), boot);
        drop(server);
        if verdict == Verdict::Valid {
            return Some(channel);
        }
        None
    }

    /// A packet for the client half; the header is still in front.
    #[inline(never)]
    pub(crate) fn client_half(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        lower: &SessionRef,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        let Some(channel) = self.channels.get(header.channel) else {
            return Err(this.refuse(message, &UNKNOWN_CHANNEL));
        };
        let is_ours = channel.active.get() && channel.host.get().folded() == header.server_host;
        if header.flags & (ACK | CLOSE) == ACK | CLOSE {
            if !is_ours {
                self.answer_probe(cx, lower, header);
            }
            // Else the next request is the answer.
            return Ok(());
        }
        let client = header.client_host.to_be_bytes();
        if !is_ours
            || channel.sequence.get() != header.sequence
            || !channel.expected.get().starts_with(&client)
        {
            return Err(this.refuse(message, &NO_CALL));
        }
        if header.flags & (ACK | NACK) != 0 && header.round() != channel.rounds[REQUESTS].get() {
            return Err(this.refuse(message, &LATE));
        }
        if header.flags & ECHO != 0 {
            return self.receive_reply(cx, this, channel, header, message);
        }
        let verdict = self.judge(channel, header);
        match verdict {
            Verdict::Valid => self.receive(cx, this, channel, header, message),
            Verdict::Resend => {
                channel.next_round(REQUESTS);
                channel.tell(cx, CHALLENGED);
                Ok(())
            }
            Verdict::Rebooted => {
                channel.tell(cx, REBOOTED);
                Err(this.refuse(message, &WRONG_BOOT))
            }
            Verdict::Stray => Err(this.refuse(message, &WRONG_BOOT)),
        }
    }

    fn judge(&self, channel: &Channel, header: &Header) -> Verdict {
        let server = channel.server.borrow();
        let Some(server) = server.as_ref() else {
            return Verdict::Stray;
        };
        let under = channel.sent_under.get();
        if header.flags & (NACK | ERROR) == NACK | ERROR {
            server.challenged(under, header.boot, header.process)
        } else {
            server.heard(under, header.boot)
        }
    }

    /// A packet of the server that was called, for a call under way.
    fn receive(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        channel: &Channel,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        if header.flags & (ACK | NACK) != 0 {
            channel.next_round(REQUESTS);
        }
        if header.flags & NACK != 0 {
            channel.tell(cx, REFUSED);
            return Ok(());
        }
        if header.flags & ACK != 0 {
            // The same once more says no more than that the server is alive.
            let is_news = header.flags & LASTFRAG != 0 && header.mask != channel.delivered.get();
            if header.mask != 0 {
                channel.delivered.set(header.mask);
            }
            channel.tell(cx, if is_news { PARTIAL } else { ACKED });
            return Ok(());
        }
        if header.flags & REPLY == 0 {
            return Err(this.refuse(message, &xk_core::reason::MALFORMED));
        }
        if header.process != channel.ticket.get() {
            // Of another incarnation's call.
            return Err(this.refuse(message, &NO_CALL));
        }
        self.receive_reply(cx, this, channel, header, message)
    }

    fn receive_reply(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        channel: &Channel,
        header: &Header,
        message: Message,
    ) -> Result<(), Refused> {
        if header.flags & ERROR != 0 {
            channel.active.set(false);
            channel.code.set(header.command);
            channel.tell(cx, FAILED);
            return Ok(());
        }
        let body = body_of(message, header);
        if header.fragments == 0 {
            channel.replied(cx, body, header.sizes[0]);
            return Ok(());
        }
        let is_gap =
            header.flags & LASTFRAG != 0 && header.round() == channel.rounds[REPLIES].get();
        let gap = if is_gap { GAP } else { 0 };
        match channel.partial.take(header, body) {
            Taken::Duplicate => {
                this.head().drops().count(&REPLAYED);
                if is_gap {
                    channel.tell(cx, gap);
                }
                Ok(())
            }
            Taken::Forged => {
                this.head().drops().count(&FORGED_FRAGMENT);
                Ok(())
            }
            Taken::New => {
                channel.tell(cx, FRAGMENT | gap);
                Ok(())
            }
            Taken::Complete => match channel.partial.join() {
                Some((reply, area1)) => {
                    channel.replied(cx, reply, area1);
                    Ok(())
                }
                None => {
                    this.head().drops().count(&FORGED_FRAGMENT);
                    Ok(())
                }
            },
        }
    }

    /// The server asks whether a channel is idle, and it is.
    fn answer_probe(&self, cx: &Kernel, lower: &SessionRef, probe: &Header) {
        let header = Header { flags: ACK | CLOSE | SERVER, boot: self.boot, ..probe.bare() };
        push_bare(cx, lower, &header);
    }
}
