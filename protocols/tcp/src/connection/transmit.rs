//! The next segment to send: resets, SYNs, lost data, new data, our end, probes, acknowledgements
//! (RFC 9293, sections 3.8 and 3.10).

use super::{AckDue, Connection, syn};
use crate::options::{Options, TIMESTAMPS_LEN};
use crate::seq::Seq;
use crate::state::State;
use crate::wire::{Flags, Header, OPTIONS_LEN_MAX};
use xk_core::{Message, Time};

/// A segment to be sent.
pub struct Out {
    /// Header of the segment, without checksum.
    pub header: Header,
    /// Data of the segment.
    pub payload: Option<Message>,
    /// Whether a router may mark it instead of dropping it (RFC 3168, section 6.1.5).
    pub markable: bool,
    /// Octets of each segment, if it is a run of several that a layer below cuts; else 0.
    pub run: u16,
}

impl Out {
    fn bare(header: Header) -> Self {
        Self { header, payload: None, markable: false, run: 0 }
    }
}

impl Connection {
    /// The next segment to send now, if there is one.
    pub fn transmit(&mut self, now: Time) -> Option<Out> {
        if self.may_only_acknowledge() {
            if self.persist_at.is_some() || self.cork_at.is_some() {
                self.watch_window(now);
            }
            return self.transmit_ack(now);
        }
        if let Some(reset) = self.reset.take() {
            return Some(Out::bare(*reset));
        }
        match self.state {
            State::Closed => return None,
            State::SynSent | State::SynReceived => {
                let syn = self.transmit_syn(now);
                if syn.is_some() || !self.sends_early() {
                    return syn;
                }
                return self.transmit_again(now).or_else(|| self.transmit_new(now));
            }
            State::TimeWait => {}
            _ => {
                if let Some(out) = self.transmit_again(now) {
                    return Some(out);
                }
                if let Some(out) = self.transmit_new(now) {
                    return Some(out);
                }
                self.watch_window(now);
                if core::mem::take(&mut self.poke) {
                    return Some(self.poke(now));
                }
            }
        }
        self.transmit_ack(now)
    }

    /// Whether an established connection has nothing to send, as most calls find: saves the longer
    /// look.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self, now: Time) -> bool {
        self.is_quiet_so_far() && !self.is_ack_due(now)
    }

    /// Whether nothing is to be sent, as long as no time passes and nothing is delivered.
    #[inline]
    #[must_use]
    pub fn is_quiet_so_far(&self) -> bool {
        self.ack_due != AckDue::Now && self.may_only_acknowledge()
    }

    /// Whether nothing may be due on an established connection but an acknowledgement.
    #[inline]
    fn may_only_acknowledge(&self) -> bool {
        self.state == State::Established
            && self.send.unsent() == 0
            && self.recovery.board().lost_octets() == 0
            && self.again.is_none()
            && self.probe.is_none()
            && self.reset.is_none()
            && !self.force
            && !self.poke
    }

    #[inline]
    fn is_ack_due(&self, now: Time) -> bool {
        match self.ack_due {
            AckDue::Now => true,
            AckDue::At(at) => at <= now || self.receive.is_opened(self.peer_full),
            AckDue::No => self.state != State::TimeWait && self.receive.is_opened(self.peer_full),
        }
    }

    fn transmit_ack(&mut self, now: Time) -> Option<Out> {
        if !self.is_ack_due(now) {
            return None;
        }
        let mut header = self.header(now, self.snd_nxt(), Flags::NONE);
        if core::mem::take(&mut self.timeout_due) {
            header.options.user_timeout = self.settings.announced();
        }
        self.tell_marks(&mut header, false);
        Some(Out::bare(header))
    }

    fn transmit_syn(&mut self, now: Time) -> Option<Out> {
        let iss = self.send.iss;
        let again = self.again.take_if(|(from, _)| *from == iss).is_some()
            || match self.recovery.next_lost(now) {
                Some(lost) if lost.start == iss => self.recovery.resent(iss, now),
                _ => false,
            };
        if !again && !core::mem::take(&mut self.syn_due) && !self.is_syn_ripe(now) {
            if self.state == State::SynReceived && self.ack_due == AckDue::Now {
                return self.transmit_ack(now);
            }
            return None;
        }
        self.syn_due = false;
        if self.recovery.board().is_empty() && self.snd_nxt() == self.send.iss {
            // There is room for one.
            let _ = self.recovery.sent(1, now);
        }
        self.stuck_since.get_or_insert(now);
        let mut header = self.syn_header(now);
        let payload = self.fill_syn(&mut header, now);
        Some(Out { payload, ..Out::bare(header) })
    }

    /// Our SYN, with what is known of the peer's.
    fn syn_header(&mut self, now: Time) -> Header {
        let peer = (self.state == State::SynReceived).then(|| super::Syn {
            irs: self.receive.irs,
            window: 0,
            segment_max: self.peer_segment,
            shift: (self.receive.shift > 0 || self.send.shift > 0 || self.timestamps)
                .then_some(self.send.shift),
            clock: self.timestamps.then_some(self.ts_recent),
            sack: self.sack,
            ecn: self.offer,
            tallies: None,
            user_timeout: None,
            fast_open: None,
        });
        let mut header = syn(&self.settings, &self.ends, self.send.iss, peer.as_ref(), now);
        if !self.ecn_offered {
            header.flags = header.flags.without(Flags::ECE | Flags::CWR | Flags::AE);
        }
        if peer.is_some() {
            self.offer = self.offer.repeated(1);
            self.ack_due = AckDue::No;
            self.last_ack_sent = self.receive.rcv_nxt;
            let window = self.receive.room().min(u32::from(u16::MAX));
            (header.ack, header.window) = (self.receive.rcv_nxt, window as u16);
            self.receive.rcv_adv = self.receive.rcv_nxt + window;
        }
        header
    }

    /// A segment that acknowledges what has arrived; with it that is done.
    pub(super) fn header(&mut self, now: Time, seq: Seq, flags: Flags) -> Header {
        let (local, peer) = (self.ends.local, self.ends.peer);
        let flags = flags | Flags::ACK | self.echo;
        let mut header = Header::new(local, peer, seq, self.receive.rcv_nxt, flags);
        header.window = self.receive.announce(self.peer_full);
        self.stamp(&mut header, now);
        if self.has_blocks() {
            let blocks_max = if self.timestamps { 3 } else { 4 };
            header.options.sack = self.receive.blocks(blocks_max);
        }
        self.last_ack_sent = self.receive.rcv_nxt;
        self.ack_due = AckDue::No;
        self.unacked = 0;
        header
    }

    /// Whether the next segment tells of octets that came out of order, or twice.
    #[inline]
    pub(super) fn has_blocks(&self) -> bool {
        self.sack && (self.receive.has_gap() || self.receive.duplicate.is_some())
    }

    /// Octets that the options of the next segment with new data may take, besides the timestamps.
    #[inline]
    fn options_len(&self) -> u32 {
        match self.has_blocks() {
            // As many blocks as there may be.
            true => (OPTIONS_LEN_MAX - if self.timestamps { TIMESTAMPS_LEN } else { 0 }) as u32,
            false => self.tallies_len(),
        }
    }

    /// Octets of data that a segment has room for besides the header's options.
    fn room_behind(&self, options: &Options) -> u32 {
        let blocks = options.sack.as_slice().len() as u32;
        let taken = if blocks > 0 { 4 + 8 * blocks } else { 0 };
        u32::from(self.segment).saturating_sub(taken).max(1)
    }

    /// The next segment of lost data, or a loss probe.
    fn transmit_again(&mut self, now: Time) -> Option<Out> {
        let una = self.snd_una();
        let left = self.again.take().filter(|(_, end)| end.after(una));
        let (from, end) = match left {
            Some(left) => left,
            None => {
                let lost = match self.probe.take() {
                    Some(probe) => probe,
                    None => self.recovery.next_lost(now)?,
                };
                if !self.recovery.resent(lost.start, now) {
                    return None;
                }
                self.note_resent(lost.start);
                self.note_carrier_lost(lost.start);
                (lost.start, lost.start + lost.octets)
            }
        };
        let from = from.max(una);
        let fin = self.send.fin.filter(|fin| fin.before(end) && fin.at_or_after(from));
        let data_end = fin.unwrap_or(end);
        // Should a SYN be asked for here, its number is behind us: nothing is sent but an
        // acknowledgement.
        let due = self.ack_due;
        let mut header = self.header(now, from, Flags::NONE);
        let octets = data_end.since(from).min(self.room_behind(&header.options));
        let upto = from + octets;
        let payload = match octets {
            0 => None,
            octets => {
                let skipped = self.forgotten(from, octets);
                let Some(payload) = self.send.again(from + skipped, octets - skipped) else {
                    // Nothing went, so nothing was acknowledged either; there will be another
                    // occasion: an acknowledgement now would make one at once, without end.
                    self.ack_due = due;
                    self.again = Some((from, end));
                    return None;
                };
                Some(payload)
            }
        };
        if fin == Some(upto) {
            header.flags |= Flags::FIN;
        } else if upto.before(end) {
            self.again = Some((upto, end));
        }
        if self.send.is_marked(from, upto) {
            header.flags |= Flags::PSH;
        }
        Some(Out { header, payload, markable: false, run: 0 })
    }

    /// Octets that the planted fault leaves out in front of what goes again.
    fn forgotten(&self, from: Seq, octets: u32) -> u32 {
        let is_planted = cfg!(debug_assertions) && self.settings.planted;
        u32::from(is_planted && octets > 1 && from.0.is_multiple_of(4))
    }

    /// Octets that the peer's window has room for behind what was sent.
    pub(super) fn usable(&self) -> u32 {
        let end = self.snd_una() + self.send.snd_wnd;
        let nxt = self.snd_nxt();
        if end.after(nxt) { end.since(nxt) } else { 0 }
    }

    /// Whether data or our end wait that the peer's window has room for.
    pub(super) fn is_waiting(&self) -> bool {
        self.send.unsent() > 0 && self.usable() > 0 || self.is_fin_due()
    }

    /// Whether everything was sent, and our end is to follow.
    fn is_fin_due(&self) -> bool {
        self.may_end() && self.send.unsent() == 0
    }

    /// Whether our end goes with the last data: not before the handshake is done.
    fn may_end(&self) -> bool {
        self.send.is_shut && self.send.fin.is_none() && self.state != State::SynReceived
    }

    /// Octets of new data that go in one segment now: none if the window is silly (RFC 9293,
    /// sections
    /// 3.7.4 and 3.8.6.2.1).
    fn sensible(&self, room: u32) -> u32 {
        let (unsent, usable) = (self.send.unsent(), self.usable());
        let record = self.send.unsent_of_record();
        let octets = record.min(usable).min(room);
        // A record that is not the last waits for nothing that could fill its segment.
        if octets == room || octets == 0 || self.force || octets == record && record < unsent {
            return octets;
        }
        let is_all = octets == unsent;
        // Only a small segment waits for a small one (RFC 9293, appendix A.3): else each write that
        // ends in one waits for the acknowledgement that the peer delays.
        let (una, small_end) = (self.snd_una(), self.send.small_end);
        let waits_for_small = small_end.after(una) && small_end.at_or_before(self.snd_nxt());
        let may_be_small = self.settings.no_delay || !waits_for_small;
        if is_all && (self.send.is_shut || may_be_small && !self.settings.cork) {
            return octets;
        }
        // Half of the largest window is as good as a segment, for peers with small buffers.
        if octets >= self.send.fair_wnd / 2 && !self.settings.cork { octets } else { 0 }
    }

    /// New data, and our end behind them.
    fn transmit_new(&mut self, now: Time) -> Option<Out> {
        let unsent = self.send.unsent();
        if unsent == 0 && !self.is_fin_due() {
            self.force = false;
            return None;
        }
        let room = u32::from(self.segment).saturating_sub(self.options_len()).max(1);
        let probe = self.path_probe(now, self.send.unsent_of_record(), self.usable());
        let octets = probe.unwrap_or_else(|| self.sensible(room));
        let allows_fin = self.may_end();
        if octets == 0 && !(allows_fin && unsent == 0) {
            return None;
        }
        let allowed = self.recovery.may_send(now);
        if allowed < octets || allowed == 0 {
            return None;
        }
        let (one, octets) = (octets, self.run_octets(octets, room, allowed));
        let has_fin = allows_fin && octets == unsent;
        let nxt = self.snd_nxt();
        let payload = match octets {
            0 => None,
            octets => match self.send.cut(octets) {
                Ok(payload) => Some(payload),
                Err(_) => {
                    // There will be another occasion: that of the next timer.
                    self.forget_path_probe();
                    return None;
                }
            },
        };
        let mut flags = Flags::NONE;
        // What a small window has cut off goes by the timer alone, and should not wait once more.
        if octets > 0 && (self.send.pushes || self.force && octets < room) {
            flags |= Flags::PSH;
        }
        if one < room {
            self.send.small_end = nxt + octets;
        }
        if has_fin {
            flags |= Flags::FIN;
            self.send.fin = Some(nxt + octets);
        }
        if octets > 0 && core::mem::take(&mut self.cwr) {
            flags |= Flags::CWR;
        }
        self.record_sent(octets, one, has_fin, now);
        self.note_sent(now);
        self.force = false;
        let mut header = self.header(now, nxt, flags);
        if octets > 0 && probe.is_none() {
            self.tell_marks(&mut header, true);
        }
        Some(Out {
            header,
            payload,
            markable: self.ecn && octets > 0,
            run: if octets > one { one as u16 } else { 0 },
        })
    }

    /// New data went, so the window is open and something is outstanding.
    #[inline]
    pub(super) fn note_sent(&mut self, now: Time) {
        (self.window_probe, self.cork_at) = (None, None);
        (self.persist_at, self.persist_count) = (None, 0);
        self.stuck_since.get_or_insert(now);
        // An answer: the next segments of the peer are likely to be answered as well.
        if !self.is_interactive && self.has_received() {
            self.is_interactive = now.since(self.data_at) < self.settings.delayed_ack;
        }
        if self.send.is_wanted && self.settings.unsent_max < u32::MAX {
            self.tell_room();
        }
    }

    /// A segment that provokes an acknowledgement: one octet behind the peer's closed window if
    /// data wait, else none with an old number (RFC 9293, sections 3.8.4 and 3.8.6.1).
    fn poke(&mut self, now: Time) -> Out {
        let nxt = self.snd_nxt();
        let octet = self.send.peek(1);
        if octet.is_some() && self.persist_count > 0 {
            self.window_probe = Some(now);
            return Out {
                header: self.header(now, nxt, Flags::NONE),
                payload: octet,
                markable: false,
                run: 0,
            };
        }
        Out::bare(self.header(now, nxt - 1, Flags::NONE))
    }
}
