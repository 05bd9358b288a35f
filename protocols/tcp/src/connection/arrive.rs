//! A segment arrives (RFC 9293, section 3.10.7; RFC 5961; RFC 7323, section 5.3).

use super::receive::Taken;
use super::{AckDue, Connection, Syn, Verdict};
use crate::loss::{Ack, Acked, SackBlock};
use crate::options::{BLOCKS_MAX, Timestamps};
use crate::seq::Seq;
use crate::state::{Cause, State};
use crate::wire::{Flags, Header};
use alloc::boxed::Box;
use core::time::Duration;
use xk_core::reason::{Class, Reason};
use xk_core::{Message, Time};
use xk_kit::net::attribute::Ecn;
use xk_kit::net::stream::StreamError;

/// The segment's timestamp is older than one that came before (RFC 7323, section 5).
pub static OLD_TIMESTAMP: Reason = Reason::new("old timestamp", Class::Bad);
/// The segment lies outside of the window.
pub static OUT_OF_WINDOW: Reason = Reason::new("out of window", Class::Bad);
/// The segment acknowledges what was never sent, or lies too far back (RFC 5961, section 5).
pub static BAD_ACK: Reason = Reason::new("bad acknowledgement", Class::Bad);
/// A reset whose number is in the window, but not the next (RFC 5961, section 3).
pub static BLIND_RESET: Reason = Reason::new("blind reset", Class::Bad);
/// A SYN on a connection that stands (RFC 5961, section 4).
pub static BLIND_SYN: Reason = Reason::new("blind SYN", Class::Bad);
/// The segment acknowledges nothing where it must.
pub static NO_ACK: Reason = Reason::new("no acknowledgement", Class::Bad);
/// The connection is closed, or closing, and takes nothing more.
pub static NOT_READ: Reason = Reason::new("data after close", Class::NoPort);

/// Challenges that a connection sends in a second (RFC 5961, section 7).
const CHALLENGES_MAX: u32 = 10;
/// The segments that are acknowledged at once at the beginning, and behind a pause: while the
/// peer's window is small each of its acknowledgements counts.
pub(super) const QUICK_ACKS: u8 = 16;
/// No retransmission timeout is shorter than this pause, in nanoseconds; saves the longer look.
const PAUSE_NS_MIN: u64 = 100_000_000;
/// Time for which the peer's timestamps can be compared (RFC 7323, section 5.5).
const TIMESTAMPS_VALID: Duration = Duration::from_secs(24 * 24 * 3600);

impl Connection {
    /// Takes a segment in. `payload` is what follows its header, `mark` what its packet bore (RFC
    /// 3168).
    ///
    /// # Errors
    /// Why it was dropped, wholly or but for its acknowledgement.
    pub fn segment(
        &mut self,
        now: Time,
        header: &Header,
        payload: Option<Message>,
        mark: Option<Ecn>,
    ) -> Verdict {
        match self.state {
            State::Closed => {
                // Behind the segment that ended it (RFC 9293, section 3.10.7.1).
                self.refuse(header, payload.as_ref().map_or(0, Message::len));
                Err(&NOT_READ)
            }
            State::SynSent => self.in_syn_sent(now, header, payload, mark),
            _ => self.in_others(now, header, payload, mark),
        }
    }

    /// RFC 9293, section 3.10.7.3.
    fn in_syn_sent(
        &mut self,
        now: Time,
        header: &Header,
        payload: Option<Message>,
        mark: Option<Ecn>,
    ) -> Verdict {
        let flags = header.flags;
        let acks = flags.has(Flags::ACK);
        let most = self.snd_nxt() + self.syn_data();
        let is_ours = acks && header.ack.after(self.send.iss) && header.ack.at_or_before(most);
        if acks && !is_ours {
            self.refuse(header, 0);
            return Err(&BAD_ACK);
        }
        if flags.has(Flags::RST) {
            if !acks {
                return Err(&BLIND_RESET);
            }
            self.fail(StreamError::Refused);
            return Ok(());
        }
        if !flags.has(Flags::SYN) {
            return Err(&NO_ACK);
        }
        self.learn(&Syn::of(header).marked(mark), now);
        self.receive.rcv_adv = self.receive.rcv_nxt + self.syn_window();
        if !acks {
            // Both have opened at once: our SYN goes again, with what the peer's said.
            self.enter(Cause::Syn);
            self.again = Some((self.send.iss, self.send.iss + 1));
            return Ok(());
        }
        self.take_fast_answer(header);
        self.acknowledge(now, header, 0);
        self.enter(Cause::SynAck);
        self.establish(now);
        self.ack_due = AckDue::Now;
        let octets = payload.as_ref().map_or(0, Message::len) as u32;
        self.count_octets(mark, octets);
        let verdict = match payload {
            // Data on a SYN begin behind it.
            Some(payload) => self.take_text(now, header.seq + 1, payload),
            None => Ok(()),
        };
        if flags.has(Flags::FIN) {
            self.note_fin(header.seq + 1 + octets, now);
        }
        verdict
    }

    /// RFC 9293, section 3.10.7.4.
    fn in_others(
        &mut self,
        now: Time,
        header: &Header,
        payload: Option<Message>,
        mark: Option<Ecn>,
    ) -> Verdict {
        let octets = payload.as_ref().map_or(0, Message::len);
        self.check_timestamps(now, header, octets)?;
        if header.flags.has(Flags::SYN) && header.seq == self.receive.irs {
            self.take_answer_again(Syn::of(header).marked(mark).ecn);
        }
        let payload = self.check_sequence(now, header, payload, octets)?;
        if header.flags.has(Flags::RST) {
            return self.take_reset(now, header);
        }
        if header.flags.has(Flags::SYN) {
            if self.state == State::SynReceived && header.seq == self.receive.irs {
                // The peer's SYN once more: both have opened at once, or our answer was lost.
                if header.flags.has(Flags::ACK) {
                    return self.take_ack_of_syn(now, header, octets);
                }
                if !self.take_syn_again(Syn::of(header).marked(mark).ecn) {
                    self.refuse_other_syn(header);
                    return Err(&BLIND_SYN);
                }
                self.again = Some((self.send.iss, self.send.iss + 1));
                return Ok(());
            }
            self.challenge(now);
            return Err(&BLIND_SYN);
        }
        if !header.flags.has(Flags::ACK) {
            return Err(&NO_ACK);
        }
        if self.state == State::SynReceived {
            self.take_ack_of_syn(now, header, octets)?;
        } else {
            self.check_ack(now, header)?;
            self.acknowledge(now, header, octets);
        }
        self.note_timestamps(now, header);
        if let Some(field) = header.options.user_timeout {
            self.take_user_timeout(field);
        }
        self.heard_at = now;
        self.keep_alive_count = 0;
        self.take_mark(header.flags, mark, octets);
        self.after_ack(now);
        let verdict = match payload {
            Some(payload) => self.take_payload(now, header, payload),
            None => Ok(()),
        };
        if header.flags.has(Flags::FIN) {
            self.note_fin(header.seq + octets as u32, now);
        }
        verdict
    }

    /// RFC 7323, section 5.3, R1 and R2. A segment without timestamps is taken, as Linux does,
    /// though section 3.2 would have it dropped: something between the hosts may have left them
    /// out, and such a connection would stand still.
    fn check_timestamps(&mut self, now: Time, header: &Header, octets: usize) -> Verdict {
        let Some(stamps) = header.options.timestamps.filter(|_| self.timestamps) else {
            return Ok(());
        };
        if header.flags.has(Flags::RST) {
            return Ok(());
        }
        let is_old = Seq(stamps.value).before(Seq(self.ts_recent));
        if is_old && now.since(self.ts_recent_at) <= TIMESTAMPS_VALID {
            let is_empty = octets == 0 && !header.flags.any(Flags::SYN | Flags::FIN);
            self.acknowledge_stranger(now, is_empty);
            return Err(&OLD_TIMESTAMP);
        }
        Ok(())
    }

    /// RFC 7323, section 4.3, 2, as RFC 9293 has it: only what covers the last acknowledgement
    /// counts.
    fn note_timestamps(&mut self, now: Time, header: &Header) {
        if self.timestamps
            && let Some(stamps) = header.options.timestamps
            && header.seq.at_or_before(self.last_ack_sent)
            && (Seq(stamps.value).at_or_after(Seq(self.ts_recent))
                || now.since(self.ts_recent_at) > TIMESTAMPS_VALID)
        {
            (self.ts_recent, self.ts_recent_at) = (stamps.value, now);
        }
    }

    /// The first check: what of the segment lies in the window (RFC 9293, section 3.4). Gives its
    /// data, cut to that.
    fn check_sequence(
        &mut self,
        now: Time,
        header: &Header,
        payload: Option<Message>,
        octets: usize,
    ) -> Result<Option<Message>, &'static Reason> {
        let (seq, span) = (header.seq, header.span(octets));
        let (nxt, window) = (self.receive.rcv_nxt, self.receive.window());
        let begins = seq.at_or_after(nxt) && seq.before(nxt + window.max(1));
        // The last of it, or of what came before: an old segment that ends at the next octet has
        // nothing new.
        let last = seq + span.saturating_sub(1);
        let ends = span > 0
            && last.at_or_after(nxt)
            && last.before(nxt + window.max(1))
            && seq.before(nxt);
        // In the midst of it lies the whole window.
        let spans = span > 0 && seq.before(nxt) && last.at_or_after(nxt + window.max(1));
        let is_acceptable = begins || ends || spans;
        if !is_acceptable || (window == 0 && octets > 0 && seq == nxt) {
            return self.take_unacceptable(now, header, octets, is_acceptable);
        }
        let Some(mut payload) = payload else {
            return Ok(None);
        };
        // What lies behind the window is not kept (RFC 9293, section 3.10.7.4, "tailored").
        let room = (nxt + window).since(seq);
        if octets as u32 > room {
            payload.truncate(room as usize);
        }
        Ok(Some(payload))
    }

    /// A segment outside of the window. With a window of zero its acknowledgement counts all the
    /// same.
    fn take_unacceptable(
        &mut self,
        now: Time,
        header: &Header,
        octets: usize,
        is_next: bool,
    ) -> Result<Option<Message>, &'static Reason> {
        let flags = header.flags;
        if flags.has(Flags::RST) {
            return Err(&OUT_OF_WINDOW);
        }
        if is_next {
            // A probe of our closed window.
            self.ack_due = AckDue::Now;
            return Ok(None);
        }
        let nxt = self.receive.rcv_nxt;
        let ahead = header.seq.since(nxt);
        let is_ahead = header.seq.after(nxt) && ahead <= self.receive.buffer;
        if self.receive.window() == 0 && is_ahead && !flags.has(Flags::SYN) {
            // The peer has sent more than there is room for. What it acknowledges is taken, lest
            // both wait for one another (RFC 9293, section 3.10.7.4).
            self.acknowledge_stranger(now, octets == 0);
            return Ok(None);
        }
        let end = header.seq + octets as u32;
        let is_duplicate = octets > 0 && end.at_or_before(nxt) && nxt.since(header.seq) < 1 << 30;
        if is_duplicate {
            self.receive.duplicate = Some((header.seq, end));
            self.note_repeat();
        }
        if self.state == State::TimeWait && flags.has(Flags::FIN) {
            // RFC 9293, section 3.10.7.4: our acknowledgement of it was lost; the wait starts over.
            self.ends_at = Some(now + self.settings.time_wait);
        }
        if flags.has(Flags::SYN)
            && !(self.state == State::SynReceived && header.seq == self.receive.irs)
        {
            self.challenge(now);
            return Err(&BLIND_SYN);
        }
        if self.state == State::SynReceived && flags.has(Flags::SYN) {
            return Ok(None);
        }
        self.acknowledge_stranger(now, octets == 0 && !flags.has(Flags::FIN));
        if flags.has(Flags::ACK)
            && !flags.has(Flags::SYN)
            && octets == 0
            && self.state != State::SynReceived
            && header.seq + 1 == nxt
        {
            // A keep-alive probe: it acknowledges as any other does.
            self.heard_at = now;
        }
        Err(&OUT_OF_WINDOW)
    }

    /// Answers a segment that does not belong with what is expected; if it is empty only so often,
    /// lest two sides answer each other without end.
    fn acknowledge_stranger(&mut self, now: Time, is_empty: bool) {
        if is_empty {
            self.challenge(now);
        } else {
            self.ack_due = AckDue::Now;
        }
    }

    /// A challenge (RFC 5961, section 3.2): an acknowledgement, but only so many a second.
    fn challenge(&mut self, now: Time) {
        let second = Time::from_s(now.as_ms() / 1000);
        let (sent, since) = self.challenges;
        let sent = if since == second { sent } else { 0 };
        self.challenges = (sent + 1, second);
        if sent < CHALLENGES_MAX {
            self.ack_due = AckDue::Now;
        }
    }

    /// RFC 9293, section 3.10.7.4, second; RFC 5961, section 3.2.
    fn take_reset(&mut self, now: Time, header: &Header) -> Verdict {
        if header.seq != self.receive.rcv_nxt {
            self.challenge(now);
            return Err(&BLIND_RESET);
        }
        let error = match self.state {
            State::SynReceived => StreamError::Refused,
            _ => StreamError::Reset,
        };
        if matches!(self.state, State::Closing | State::LastAck) {
            // Both have said all: nothing is lost (RFC 9293, section 3.10.7.4).
            self.enter(Cause::Reset);
            self.events.closed = true;
            return Ok(());
        }
        self.fail(error);
        Ok(())
    }

    /// The acknowledgement of our SYN, in SYN-RECEIVED.
    fn take_ack_of_syn(&mut self, now: Time, header: &Header, octets: usize) -> Verdict {
        let most = self.snd_nxt() + self.syn_data();
        let is_ours = header.ack.after(self.snd_una()) && header.ack.at_or_before(most);
        if !is_ours {
            self.refuse(header, 0);
            return Err(&BAD_ACK);
        }
        self.take_fast_answer(header);
        self.acknowledge(now, header, octets);
        self.enter(Cause::AckOfSyn);
        self.establish(now);
        Ok(())
    }

    /// Resets the sender of a segment with so many octets of data, unless it is a reset itself.
    fn refuse(&mut self, header: &Header, octets: usize) {
        if let Some(reset) = header.answering_reset(octets) {
            self.reset = Some(Box::new(reset));
        }
    }

    /// Ends a handshake in which the peer asks for marks to be fed back in two ways (RFC 9768,
    /// section 3.1.5). The reset is one that fits whether the peer has had our SYN or not.
    fn refuse_other_syn(&mut self, header: &Header) {
        let (seq, ack) = (self.snd_nxt(), header.seq + 1);
        let reset = Header::new(header.dst, header.src, seq, ack, Flags::RST | Flags::ACK);
        self.reset = Some(Box::new(reset));
        self.fail(StreamError::Refused);
    }

    /// Whether an acknowledgement may be believed (RFC 5961, section 5.2).
    fn check_ack(&mut self, now: Time, header: &Header) -> Verdict {
        let (una, nxt, ack) = (self.snd_una(), self.snd_nxt(), header.ack);
        if ack == nxt + 1
            && let Some(sent) = self.window_probe.take()
            && self.send.skip_octet()
        {
            // The peer took the octet of our window probe: it counts as sent.
            if self.send.unsent() == 0 {
                (self.persist_at, self.persist_count) = (None, 0);
            }
            let _ = self.recovery.sent(1, sent);
            return Ok(());
        }
        let is_old = ack.before(una) && una.since(ack) > self.send.max_snd_wnd;
        if ack.after(nxt) || is_old {
            self.challenge(now);
            return Err(&BAD_ACK);
        }
        Ok(())
    }

    /// Takes an acknowledgement in: the window, what arrived, what did not.
    fn acknowledge(&mut self, now: Time, header: &Header, octets: usize) {
        let (una, ack) = (self.snd_una(), header.ack);
        let shift = if header.flags.has(Flags::SYN) { 0 } else { self.send.shift };
        let window = u32::from(header.window) << shift;
        let is_same_window = window == self.send.snd_wnd;
        if header.flags.has(Flags::SYN) {
            self.set_window(header.seq, window);
        } else {
            self.take_window(header.seq, ack, window);
        }
        let mut blocks = [SackBlock { start: Seq(0), end: Seq(0) }; BLOCKS_MAX];
        let mut count = 0;
        if self.sack {
            for (block, (start, end)) in blocks.iter_mut().zip(header.options.sack.as_slice()) {
                *block = SackBlock { start: *start, end: *end };
                count += 1;
            }
        }
        let is_late = ack.before(una);
        if is_late && count == 0 {
            return;
        }
        let is_latest = !is_late && header.seq.at_or_after(self.send.snd_wl1);
        // On a SYN the bits agree, and echo nothing (RFC 3168, section 6.1.1).
        let ece = is_latest
            && !header.flags.has(Flags::SYN)
            && self.is_congested(header, octets, ack.since(una));
        let is_plain = octets == 0 && !header.flags.any(Flags::SYN | Flags::FIN) && !is_late;
        let told = Ack {
            ack,
            sack: blocks.get(..count).unwrap_or_default(),
            echoed: self.echoed(now, header),
            duplicate: is_plain && is_same_window,
            ece,
            waiting: self.is_waiting(),
        };
        let mut acked = self.recovery.acknowledge(&told, now);
        // Counts tell the peer that they were heard.
        acked.cwr &= self.accurate.is_none();
        self.take_acked(now, una, &acked);
    }

    /// Time at which the segment was sent that this one answers, if the peer's echo says so.
    fn echoed(&self, now: Time, header: &Header) -> Option<Time> {
        let stamps = header.options.timestamps.filter(|_| self.timestamps)?;
        self.echo(now, stamps)
    }

    /// Time at which the segment was sent that these timestamps, agreed on, answer.
    #[inline]
    pub(super) fn echo(&self, now: Time, stamps: Timestamps) -> Option<Time> {
        let ago = self.ends.clock(now).wrapping_sub(stamps.echo);
        let at = now.as_ms().checked_sub(u64::from(ago))?;
        // What lies before the connection is no echo of ours.
        Some(Time::from_ms(at))
    }

    /// Acts on the acknowledgement of octets.
    pub(super) fn take_acked(&mut self, now: Time, una: Seq, acked: &Acked) {
        self.cwr |= acked.cwr;
        if self.persist_at.is_some() {
            // The peer lives, though its window may be closed (RFC 9293, section 3.8.6.1): it owes
            // an answer only once it is probed again.
            self.stuck_since = None;
        }
        if acked.acked_octets == 0 {
            return;
        }
        let now_una = self.snd_una();
        let ends = u32::from(una == self.send.iss)
            + u32::from(
                self.send.fin.is_some_and(|fin| now_una.after(fin) && una.at_or_before(fin)),
            );
        self.send.acknowledged += u64::from(acked.acked_octets - ends.min(acked.acked_octets));
        self.send.acknowledge(now_una);
        self.note_arrived(now_una);
        self.soft_error = None;
        let board = self.recovery.board();
        self.stuck_since = (!board.is_empty()).then_some(now);
        if board.is_empty() {
            self.again = None;
        }
        if self.send.is_wanted {
            self.tell_room();
        }
    }

    /// Tells a sender that found too little room when there is enough. The buffer is what limits
    /// it, so that grows if the network takes more.
    pub(super) fn tell_room(&mut self) {
        let window = self.recovery.congestion().window();
        self.send.tune(window, self.settings.send_buffer_max);
        if self.send.is_writable(self.settings.unsent_max) && self.state.takes_data() {
            self.send.is_wanted = false;
            self.events.writable = true;
        }
    }

    /// The send window, of a segment whose acknowledgement is not taken yet: from what
    /// acknowledges most, and of such from the latest.
    ///
    /// What acknowledges more was sent later, whatever it carries: octets sent again have a lower
    /// number. If it moved what is acknowledged and not the window, as by RFC 9293, section
    /// 3.10.7.4, fifth, more would be sent than the peer has room for.
    #[inline]
    pub(super) fn take_window(&mut self, seq: Seq, ack: Seq, window: u32) {
        let una = self.snd_una();
        if ack.after(una) || ack == una && self.send.snd_wl1.at_or_before(seq) {
            self.set_window(seq, window);
        }
    }

    #[inline]
    fn set_window(&mut self, seq: Seq, window: u32) {
        let send = &mut self.send;
        send.snd_wnd = window;
        send.max_snd_wnd = send.max_snd_wnd.max(window);
        send.fair_wnd = send.fair_wnd.max(window);
        send.snd_wl1 = seq;
        if window > 0 {
            (self.persist_at, self.persist_count) = (None, 0);
        }
    }

    /// Changes the state if our own end was acknowledged.
    fn after_ack(&mut self, now: Time) {
        let is_fin_acked = self.send.fin.is_some_and(|fin| self.snd_una().after(fin));
        if !is_fin_acked {
            return;
        }
        self.enter(Cause::AckOfFin);
        match self.state {
            State::FinWait2 if self.is_deaf && self.ends_at.is_none() => {
                self.ends_at = Some(now + self.settings.orphan_timeout);
            }
            State::TimeWait if self.ends_at.is_none() => self.begin_time_wait(now),
            _ => {}
        }
    }

    fn begin_time_wait(&mut self, now: Time) {
        self.ends_at = Some(now + self.settings.time_wait);
    }

    /// The data of a segment.
    fn take_payload(&mut self, now: Time, header: &Header, payload: Message) -> Verdict {
        let (seq, octets) = (header.seq, payload.len() as u32);
        if octets == 0 {
            return Ok(());
        }
        if !self.state.receives() {
            // RFC 9293, section 3.10.7.4, seventh: text behind a FIN is ignored.
            return Err(&NOT_READ);
        }
        if self.is_deaf && (seq + octets).after(self.receive.rcv_nxt) {
            // It is not read any more, and the peer is to know (RFC 9293, section 3.6.1).
            self.reset = Some(Box::new(self.reset_header(now)));
            self.enter(Cause::Reset);
            return Err(&NOT_READ);
        }
        self.take_text(now, seq, payload)
    }

    fn take_text(&mut self, now: Time, seq: Seq, payload: Message) -> Verdict {
        let octets = payload.len() as u32;
        self.note_full(octets);
        match self.receive.take(seq, payload) {
            Taken::InOrder { at_gap } => {
                self.note_next(now, octets);
                if at_gap {
                    self.ack_due = AckDue::Now;
                }
                if self.receive.is_at_end() {
                    self.take_fin(now);
                }
                Ok(())
            }
            Taken::OutOfOrder => {
                self.ack_due = AckDue::Now;
                Ok(())
            }
            Taken::Dropped(why) => {
                self.ack_due = AckDue::Now;
                Err(why)
            }
        }
    }

    /// The next octets, while nothing is kept out of order and no end is known.
    #[inline]
    pub(super) fn take_next(&mut self, now: Time, payload: Message) {
        let octets = payload.len() as u32;
        self.note_full(octets);
        self.receive.append(payload);
        self.note_next(now, octets);
    }

    /// Octets have come in order: every second full segment is acknowledged at once (RFC 9293,
    /// section 3.8.6.3).
    #[inline]
    fn note_next(&mut self, now: Time, octets: u32) {
        self.unacked = self.unacked.saturating_add(octets);
        if self.unacked >= 2 * self.peer_full {
            self.ack_due = AckDue::Now;
        } else if self.ack_due == AckDue::No {
            self.ack_due = self.ack_of_first(now);
        }
        self.data_at = now;
        if self.receive.is_to_tune() {
            let round_trip = self.recovery.rtt().smoothed();
            self.receive.tune(now, round_trip);
        }
    }

    /// Time for the acknowledgement of the first segment after an acknowledgement: at once while
    /// the peer's window may be small, at the beginning and after a pause. In a conversation, where
    /// an answer takes the acknowledgement along, it is delayed (as in Linux).
    fn ack_of_first(&mut self, now: Time) -> AckDue {
        if now.as_ns().saturating_sub(self.data_at.as_ns()) > PAUSE_NS_MIN
            && now.since(self.data_at) > self.recovery.rtt().rto()
        {
            self.quick_acks = QUICK_ACKS;
        }
        if self.quick_acks == 0 || self.is_interactive {
            return AckDue::At(now + self.settings.delayed_ack);
        }
        self.quick_acks -= 1;
        AckDue::Now
    }

    /// Acknowledges the next segments at once, and what waits, or leaves it to answers.
    pub(super) fn set_quick_acks(&mut self, on: bool) {
        self.is_interactive = !on;
        if on {
            self.quick_acks = QUICK_ACKS;
            if matches!(self.ack_due, AckDue::At(_)) {
                self.ack_due = AckDue::Now;
            }
        }
    }

    /// The peer's stream ends at `end`.
    fn note_fin(&mut self, end: Seq, now: Time) {
        if self.receive.fin_taken
            || !matches!(
                self.state,
                State::SynReceived | State::Established | State::FinWait1 | State::FinWait2
            )
        {
            return;
        }
        if end.before(self.receive.rcv_nxt) || end.after(self.receive.rcv_adv) {
            return;
        }
        // The first one counts: a peer that moves its end contradicts itself.
        let fin = *self.receive.fin.get_or_insert(end);
        self.ack_due = AckDue::Now;
        if fin == self.receive.rcv_nxt {
            self.take_fin(now);
        }
    }

    /// The peer's end has come in order (RFC 9293, section 3.10.7.4, eighth).
    fn take_fin(&mut self, now: Time) {
        self.receive.take_end();
        self.ack_due = AckDue::Now;
        self.events.end = true;
        self.enter(Cause::Fin);
        if self.state == State::TimeWait {
            self.begin_time_wait(now);
        }
    }
}
