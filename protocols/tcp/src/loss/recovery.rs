//! The send side's one partner: what to send, what to resend, how much, and when.

use super::rate::Rate;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::undo::{Frto, Undo};
use super::{Extreme, Pacer, Prr, Rack, SackBlock};
use crate::Seq;
use crate::congestion::{Congestion, Trouble, initial_window_octets};
use alloc::boxed::Box;
use core::time::Duration;
use xk_core::{Time, fields};
use xk_kit::net::stream::StreamRecovery;

/// Time for which the smallest round trip is remembered.
const RTT_MIN_WINDOW: Duration = Duration::from_secs(300);

/// No segment is larger: an Internet packet is not.
const MSS_OCTETS_MAX: u32 = 65_535;

/// One tick of the clock behind the timestamp option.
pub(super) const TIMESTAMP_TICK: Duration = Duration::from_millis(1);

/// Time that a peer may wait before it acknowledges (TLP.max_ack_delay of RFC 8985, section 7.2).
pub(super) const ACK_DELAY_MAX: Duration = Duration::from_millis(200);

/// One arriving acknowledgment, already found acceptable: `ack` lies between the oldest
/// unacknowledged and the next new number.
#[derive(Clone, Copy, Debug)]
pub struct Ack<'a> {
    /// The acknowledgment number.
    pub ack: Seq,
    /// The blocks of its SACK option, in the option's order.
    pub sack: &'a [SackBlock],
    /// When, by this kernel's clock rounded down to the tick, the timestamp was made that the peer
    /// echoes; `None` without one.
    pub echoed: Option<Time>,
    /// Whether it may be a duplicate (RFC 5681, section 2): no payload, no SYN, no FIN, the same
    /// window as before.
    pub duplicate: bool,
    /// Whether it carries ECE on a connection that negotiated ECN (RFC 3168, section 6.1).
    pub ece: bool,
    /// Whether unsent data waits that the peer's window has room for.
    pub waiting: bool,
}

impl Ack<'_> {
    /// A plain acknowledgment of all before `ack`.
    #[must_use]
    pub fn plain(ack: Seq) -> Ack<'static> {
        Ack { ack, sack: &[], echoed: None, duplicate: false, ece: false, waiting: false }
    }
}

/// Result of an acknowledgment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acked {
    /// Octets by which it advanced: they may leave the send queue.
    pub acked_octets: u32,
    /// Octets newly acknowledged selectively.
    pub sacked_octets: u32,
    /// Octets delivered that were not known to be.
    pub delivered_octets: u32,
    /// Octets newly believed lost.
    pub lost_octets: u32,
    /// The round trip that it measured.
    pub rtt: Option<Duration>,
    /// Whether the peer reported a duplicate (RFC 2883).
    pub dsack: bool,
    /// Whether segments were seen to overtake each other.
    pub reordered: bool,
    /// Whether the last reduction of the window was found wrong and undone.
    pub undone: bool,
    /// Whether the next new segment shall carry CWR (RFC 3168, section 6.1.2).
    pub cwr: bool,
}

/// A segment to send again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// First sequence number.
    pub start: Seq,
    /// The sequence numbers that it takes. More than the largest segment if that shrank since: then
    /// it goes out in pieces, and counts as one segment all the same.
    pub octets: u32,
}

fields!(Lost { start, octets });

/// Kind of the timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Timer {
    /// The retransmission timeout (RFC 6298).
    Retransmission,
    /// The end of the reordering window (RFC 8985, section 6.2).
    Reordering,
    /// The time for a loss probe (RFC 8985, section 7.2).
    Probe,
    /// The next paced send.
    Pace,
}

/// Action after an expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Nothing: it was early.
    Nothing,
    /// Send what may be sent, lost segments first.
    Send,
    /// Send one new segment as a loss probe; [`Recovery::may_send`] has room for it.
    SendProbe,
    /// Send this segment again as a loss probe, and say so by [`Recovery::resent`].
    ResendProbe(Lost),
    /// The retransmission timer expired, for the so manieth time without progress; send lost
    /// segments.
    Timeout(u32),
}

/// No room for another outstanding segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Phase of recovery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Fast recovery (RFC 5681, section 3.2).
    Recovery,
    /// Recovery after a timeout.
    Timeout,
}

fields!(
    enum Phase {
        Open = 0,
        Recovery = 1,
        Timeout = 2,
    }
);

/// Counts of events on a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Segments sent again.
    pub resent: u64,
    /// Their octets.
    pub octets_resent: u64,
    /// Fast recoveries begun.
    pub recoveries: u64,
    /// Expired retransmission timers.
    pub timeouts: u64,
    /// Loss probes sent.
    pub probes: u64,
    /// Reductions undone: nothing had been lost.
    pub undone: u64,
    /// Duplicates that the peer reported (RFC 2883).
    pub dsacks: u64,
    /// SACK blocks outside of what is outstanding, ignored.
    pub bad_sacks: u64,
    /// Times that the peer forgot what it had acknowledged selectively.
    pub reneged: u64,
    /// Reductions because of marked packets (RFC 3168).
    pub ecn: u64,
}

fields!(Counters {
    resent,
    octets_resent,
    recoveries,
    timeouts,
    probes,
    undone,
    dsacks,
    bad_sacks,
    reneged,
    ecn
});

/// A loss probe that is out (RFC 8985, section 7.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) end: Seq,
    pub(super) is_resent: bool,
}

fields!(Probe { end, is_resent });

/// Loss recovery and congestion control of one connection.
#[derive(Debug)]
pub struct Recovery {
    /// The largest segment, in octets of payload.
    pub(super) mss_octets: u32,
    pub(super) congestion: Box<dyn Congestion>,
    pub(super) board: Scoreboard,
    pub(super) rtt: Rtt,
    pub(super) rtt_min: Extreme,
    pub(super) rack: Rack,
    pub(super) rate: Rate,
    pub(super) pacer: Pacer,
    /// In fast recovery, unless the algorithm rules itself or nothing was reduced.
    pub(super) prr: Option<Prr>,
    pub(super) phase: Phase,
    /// The phase ends when all before this is acknowledged.
    pub(super) recover: Seq,
    /// Before this is acknowledged, duplicates may be echoes of what a timeout sent again (RFC
    /// 6582, section 3.2, step 2).
    pub(super) timed_out_to: Option<Seq>,
    pub(super) frto: Frto,
    pub(super) undo: Option<Undo>,
    pub(super) is_sack: bool,
    pub(super) is_established: bool,
    pub(super) iss: Seq,
    pub(super) dup_acks: u32,
    /// Octets that duplicate acknowledgments say are delivered, without SACK.
    pub(super) dup_octets: u32,
    pub(super) probe: Option<Probe>,
    /// The next new segment is a loss probe.
    pub(super) probe_is_next: bool,
    /// Whether a round trip was measured since the last probe (RFC 8985, section 7.3).
    pub(super) probe_is_fair: bool,
    /// May be sent beyond the window: a probe's or F-RTO's new segments.
    pub(super) extra_octets: u32,
    pub(super) rto_at: Option<Time>,
    pub(super) reorder_at: Option<Time>,
    pub(super) probe_at: Option<Time>,
    /// Start of a segment that probes the path for a larger size: its loss says nothing about
    /// congestion.
    pub(super) path_probe: Option<Seq>,
    /// Marks are answered again when this is acknowledged.
    pub(super) ecn_until: Option<Seq>,
    pub(super) last_sent: Time,
    /// The last moment that anything was heard of.
    pub(super) now: Time,
    /// Most in flight in this and in the last round trip.
    pub(super) peak_octets: (u32, u32),
    pub(super) counters: Counters,
}

fields!(Recovery {
    mss_octets,
    congestion,
    board,
    rtt,
    rtt_min,
    rack,
    rate,
    pacer,
    prr,
    phase,
    recover,
    timed_out_to,
    frto,
    undo,
    is_sack,
    is_established,
    iss,
    dup_acks,
    dup_octets,
    probe,
    probe_is_next,
    probe_is_fair,
    extra_octets,
    rto_at,
    reorder_at,
    probe_at,
    path_probe,
    ecn_until,
    last_sent,
    now,
    peak_octets,
    counters,
});

/// No count of segments or octets reaches this.
const COUNT_MAX: u64 = 1 << 48;

impl Recovery {
    /// Whether what was read is such as a connection makes: nothing can overflow that is reckoned
    /// with it.
    pub(crate) fn is_sound(&self) -> bool {
        let Counters { resent, recoveries, timeouts, probes, undone, .. } = self.counters;
        let Counters { dsacks, bad_sacks, reneged, ecn, .. } = self.counters;
        let counts =
            [resent, recoveries, timeouts, probes, undone, dsacks, bad_sacks, reneged, ecn];
        (1..=MSS_OCTETS_MAX).contains(&self.mss_octets)
            && self.congestion.is_sound()
            && self.rtt.is_sound()
            && self.board.is_of(&self.rate)
            && self.rate.delivered_octets() < COUNT_MAX
            && self.prr.is_none_or(|prr| prr.is_sound())
            && self.undo.is_none_or(|undo| undo.is_sound())
            && self.dup_acks < 1 << 24
            && self.dup_octets <= 1 << 30
            && counts.iter().all(|count| *count < COUNT_MAX)
    }

    /// For a connection whose first sequence number, the SYN's, is `iss`, and whose segments have
    /// at most `mss_octets` of payload. At most `segments_max` may be outstanding at once; the
    /// memory of a connection is bounded by it (64 octets each).
    #[must_use]
    pub fn new(
        (mss_octets, segments_max): (u32, u32),
        congestion: Box<dyn Congestion>,
        iss: Seq,
    ) -> Recovery {
        let window_ns = u64::try_from(RTT_MIN_WINDOW.as_nanos()).unwrap_or(u64::MAX);
        Recovery {
            board: Scoreboard::new(iss, segments_max),
            rtt: Rtt::new(),
            rtt_min: Extreme::min(window_ns),
            rack: Rack::new(iss),
            rate: Rate::new(),
            pacer: Pacer::default(),
            prr: None,
            phase: Phase::Open,
            recover: iss,
            timed_out_to: None,
            frto: Frto::Off,
            undo: None,
            is_sack: false,
            is_established: false,
            iss,
            dup_acks: 0,
            dup_octets: 0,
            probe: None,
            probe_is_next: false,
            probe_is_fair: true,
            extra_octets: 0,
            rto_at: None,
            reorder_at: None,
            probe_at: None,
            path_probe: None,
            ecn_until: None,
            last_sent: Time::ZERO,
            now: Time::ZERO,
            peak_octets: (0, 0),
            counters: Counters::default(),
            mss_octets,
            congestion,
        }
    }

    /// The handshake is done: `mss_octets` and `is_sack` as for [`begin`](Recovery::begin).
    pub fn established(&mut self, mss_octets: u32, is_sack: bool, now: Time) {
        self.begin(mss_octets, is_sack, now);
        self.proved();
    }

    /// Data may go: `mss_octets` is the largest segment that both sides and the path
    /// bear, `is_sack` whether selective acknowledgments were agreed. The window begins again, with
    /// one segment if the SYN had to be repeated (RFC 5681, section 3.1).
    pub fn begin(&mut self, mss_octets: u32, is_sack: bool, now: Time) {
        self.mss_octets = mss_octets.clamp(1, MSS_OCTETS_MAX);
        self.congestion.set_mss(self.mss_octets);
        self.is_sack = is_sack;
        let syn_was_lost = self.counters.timeouts > 0;
        let window = if syn_was_lost {
            self.rtt.syn_was_lost();
            self.mss_octets
        } else {
            initial_window_octets(self.mss_octets)
        };
        self.congestion.start(window, now);
        self.phase = Phase::Open;
        self.frto = Frto::Off;
        self.undo = None;
        self.timed_out_to = None;
        self.last_sent = now;
    }

    /// The handshake is done, after data went already.
    pub fn proved(&mut self) {
        self.is_established = true;
    }

    /// Chooses another algorithm; it begins with the window that the last one had.
    pub fn set_congestion(&mut self, mut congestion: Box<dyn Congestion>, now: Time) {
        congestion.set_mss(self.mss_octets);
        congestion.start(self.congestion.window(), now);
        self.congestion = congestion;
        self.undo = None;
        self.prr = None;
    }

    /// The path bears larger or smaller segments now. With `lost`, larger ones in flight are known
    /// not to have arrived (RFC 1191, section 6.5): they are resent, and the window stays, as this
    /// is no congestion.
    pub fn set_mss(&mut self, mss_octets: u32, lost: bool) {
        self.mss_octets = mss_octets.clamp(1, MSS_OCTETS_MAX);
        self.congestion.set_mss(self.mss_octets);
        if lost && self.board.lose_larger(self.mss_octets) > 0 && self.phase == Phase::Open {
            self.phase = Phase::Recovery;
            self.recover = self.board.nxt();
            self.prr = None;
            self.undo = None;
        }
    }

    /// The next segment, which begins at `start`, is larger than is known to pass: if it alone gets
    /// lost, that is no sign of congestion (RFC 4821, section 7.5).
    pub fn path_probe(&mut self, start: Seq) {
        self.path_probe = Some(start);
    }

    /// Records that the next `octets` sequence numbers, SYN and FIN included, were sent now.
    ///
    /// # Errors
    /// [`Full`] if no more segments may be outstanding; [`may_send`](Recovery::may_send) is zero
    /// before that happens.
    pub fn sent(&mut self, octets: u32, now: Time) -> Result<(), Full> {
        if !self.note_sent(octets, now) {
            return Err(Full);
        }
        self.after_send(octets, now);
        if core::mem::take(&mut self.probe_is_next) {
            self.probe_went(false, now);
        } else {
            self.schedule_probe(now);
        }
        Ok(())
    }

    /// Records that the next `count` segments of `octets` sequence numbers each were sent now, none
    /// of them a loss probe. The caller has seen to it that there is room.
    pub fn sent_run(&mut self, count: u32, octets: u32, now: Time) {
        for _ in 0..count {
            let _ = self.note_sent(octets, now);
        }
        self.after_send(count * octets, now);
        self.schedule_probe(now);
    }

    #[inline]
    fn note_sent(&mut self, octets: u32, now: Time) -> bool {
        let in_flight = self.board.in_flight_octets();
        let stamp = self.rate.on_sent(octets, in_flight, now);
        self.board.sent(octets, now, stamp)
    }

    /// Records that the segment that begins at `start` was sent again now. `false` if no such
    /// segment is lost or in flight.
    pub fn resent(&mut self, start: Seq, now: Time) -> bool {
        let stamp = self.rate.on_sent(0, self.board.in_flight_octets(), now);
        let Some(octets) = self.board.resent(start, now, stamp) else {
            return false;
        };
        self.counters.resent += 1;
        self.counters.octets_resent += u64::from(octets);
        if let Some(undo) = &mut self.undo {
            undo.on_resent(octets, now);
        }
        self.frto = self.frto.on_resent();
        self.after_send(octets, now);
        if start == self.board.una() {
            self.rto_at = Some(now + self.rtt.rto());
        }
        true
    }

    fn after_send(&mut self, octets: u32, now: Time) {
        self.last_sent = now;
        self.now = now;
        self.extra_octets = self.extra_octets.saturating_sub(octets);
        self.peak_octets.0 = self.peak_octets.0.max(self.board.in_flight_octets());
        if let Some(prr) = &mut self.prr {
            prr.on_sent(octets);
        }
        if let Some(rate) = self.pacing_rate() {
            self.pacer.on_sent(octets, rate, self.mss_octets, now);
        }
        if self.rto_at.is_none() {
            self.rto_at = Some(now + self.rtt.rto());
        }
    }

    /// The lost segment to send again first, if one may go now.
    #[must_use]
    pub fn next_lost(&self, now: Time) -> Option<Lost> {
        if self.frto.holds_back() {
            return None;
        }
        let (start, octets) = self.board.next_lost()?;
        (self.room(now) > 0).then_some(Lost { start, octets })
    }

    /// Octets of new data that may go now. Lost segments go first. The peer's window is the
    /// caller's to heed.
    pub fn may_send(&mut self, now: Time) -> u32 {
        if self.board.is_full() {
            return 0;
        }
        if self.board.is_empty() && self.is_established {
            let (idle, rto) = (now.since(self.last_sent), self.rtt.rto());
            if idle > rto {
                self.congestion.after_idle(now, idle, rto);
                self.last_sent = now;
            }
        }
        self.room(now)
    }

    /// Octets that the windows and the pace leave; when nothing is in flight at least one segment,
    /// and its FIN.
    fn room(&self, now: Time) -> u32 {
        let in_flight = self.in_flight_octets();
        let mut room = self.window().saturating_sub(in_flight).max(self.extra_octets);
        if in_flight == 0 {
            room = room.max(self.mss_octets.saturating_add(1));
        }
        match self.pacing_rate() {
            Some(rate) => room.min(self.pacer.allows(rate, self.mss_octets, now)),
            None => room,
        }
    }

    /// The sender has nothing more to send though it might: measurements and the window shall not
    /// be misled.
    pub fn limited_by_application(&mut self) {
        let in_flight = self.in_flight_octets();
        if self.board.lost_octets() == 0 && in_flight < self.window() {
            self.rate.on_app_limited(in_flight);
        }
    }

    /// Octets that may be in the network.
    pub fn window(&self) -> u32 {
        match &self.prr {
            Some(prr) => prr.window(),
            None => self.congestion.window(),
        }
    }

    /// Octets believed to be in the network.
    pub fn in_flight_octets(&self) -> u32 {
        self.board.in_flight_octets().saturating_sub(self.dup_octets)
    }

    /// The rate at which sends are spread, in octets a second; `None` if they are not.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<u64> {
        self.congestion.pacing_rate().map(|rate| rate.max(1))
    }

    pub(super) fn trouble(&self, again: bool, now: Time) -> Trouble {
        Trouble {
            now,
            outstanding_octets: self.board.outstanding_octets(),
            in_flight_octets: self.in_flight_octets(),
            lost_octets: self.board.lost_octets(),
            again,
        }
    }

    /// The outstanding segments.
    pub fn board(&self) -> &Scoreboard {
        &self.board
    }

    /// The round trip time and the timeout.
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// The smallest round trip of the last minutes.
    pub fn rtt_min(&self) -> Option<Duration> {
        self.rtt_min.get().map(Duration::from_nanos)
    }

    /// The congestion control.
    pub fn congestion(&self) -> &dyn Congestion {
        &*self.congestion
    }

    /// Whether one acknowledgement does the work of several that came with it: not while the window
    /// opens by no more than a little for each, as in slow start if it is what limits, nor while it
    /// matters which of them tells what.
    #[inline]
    pub fn takes_few(&self) -> bool {
        let is_slow_start = self.congestion.window() < self.congestion.threshold();
        self.phase == Phase::Open && !(is_slow_start && self.is_window_limited())
    }

    /// Returns the sender's state, as programs are told.
    pub fn stage(&self) -> StreamRecovery {
        match self.phase {
            Phase::Recovery => StreamRecovery::Recovery,
            Phase::Timeout => StreamRecovery::Loss,
            Phase::Open if self.ecn_until.is_some_and(|until| self.board.una().before(until)) => {
                StreamRecovery::Reduced
            }
            Phase::Open if self.board.sacked_octets() > 0 || self.dup_acks > 0 => {
                StreamRecovery::Disorder
            }
            Phase::Open => StreamRecovery::Open,
        }
    }

    /// Acknowledgments that have shown segments to overtake each other.
    pub fn reordered(&self) -> u32 {
        self.rack.reordered()
    }

    /// Time of the last transmission.
    pub fn last_sent(&self) -> Time {
        self.last_sent
    }

    /// Phase of recovery.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Counts of events so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Octets delivered in all.
    pub fn delivered_octets(&self) -> u64 {
        self.rate.delivered_octets()
    }

    /// Whether [`rest`](Recovery::rest) has something to give back.
    pub fn has_slack(&self) -> bool {
        self.board.has_slack()
    }

    /// Gives back memory that an idle connection does not need.
    pub fn rest(&mut self) {
        self.board.rest();
    }
}
