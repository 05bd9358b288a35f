//! Processing of an acknowledgment, step by step.

use super::prr::Prr;
use super::rack::{DUP_THRESHOLD, Situation};
use super::rate::RateSample;
use super::recovery::{Ack, Acked, Phase, Recovery};
use super::scoreboard::{Newly, SackBlock};
use super::undo::Undo;
use crate::Seq;
use crate::congestion::Sample;
use core::time::Duration;
use xk_core::Time;

/// Blocks that a SACK option has room for (RFC 2018, section 3).
const BLOCKS_MAX: usize = 4;

/// Distance at which a reported duplicate may lie: the largest window (RFC 7323, section 2.3).
const DSACK_OCTETS_MAX: u32 = 1 << 30;

/// An acknowledgment on its way through the steps.
pub(super) struct Step<'a> {
    pub(super) ack: &'a Ack<'a>,
    pub(super) now: Time,
    pub(super) newly: Newly,
    pub(super) dsack: Option<SackBlock>,
    /// As they were before.
    una: Seq,
    outstanding_octets: u32,
    in_flight_octets: u32,
    dup_octets: u32,
    was_recovering: bool,
}

impl Recovery {
    /// Takes an acknowledgment in. Afterwards ask [`next_lost`](Recovery::next_lost),
    /// [`may_send`](Recovery::may_send) and [`timer`](Recovery::timer) again.
    pub fn acknowledge(&mut self, ack: &Ack<'_>, now: Time) -> Acked {
        self.now = now;
        if self.board.is_empty() && ack.sack.is_empty() && !ack.ece {
            // As with each segment that the peer sends while we have nothing to say.
            return Acked::default();
        }
        let mut step = self.begin_step(ack, now);
        self.mark_delivered(&mut step);
        let newly = step.newly;
        let rtt = self.measure(&step);
        let (rate, round) = self.rate.on_ack(&newly, self.rtt_min(), now);
        self.rack.on_ack(&newly, now);
        if step.dsack.is_some() {
            self.counters.dsacks += 1;
        }
        self.rack.adapt(step.dsack.is_some(), self.board.una(), self.board.nxt());
        self.count_duplicates(&step);

        let undone = self.judge_spurious(&step);
        if self.phase != Phase::Open && self.board.una().at_or_after(self.recover) {
            self.leave_phase(now);
        }
        self.judge_probe(&step);
        let mut lost_octets = self.detect(now);
        lost_octets += self.detect_without_sack(&step);
        self.enter_recovery_if_lost(now);
        self.conserve(&step, lost_octets);
        let cwr = ack.ece && self.on_echo(now);
        self.tell_congestion(&step, lost_octets, rtt, rate, round);
        self.rearm(newly.acked_octets > 0, now);

        Acked {
            acked_octets: newly.acked_octets,
            sacked_octets: newly.sacked_octets,
            delivered_octets: newly.delivered_octets,
            lost_octets,
            rtt,
            dsack: step.dsack.is_some(),
            reordered: newly.reordered,
            undone,
            cwr,
        }
    }

    fn begin_step<'a>(&self, ack: &'a Ack<'a>, now: Time) -> Step<'a> {
        let dsack = self.find_dsack(ack);
        let newly = Newly {
            now,
            fack: self.rack.fack(),
            echoed: ack.echoed,
            last: ack.sack.first().copied().filter(|_| self.is_sack && dsack.is_none()),
            rtt_min: self.rtt_min(),
            recover: (self.phase == Phase::Timeout).then_some(self.recover),
            ..Newly::default()
        };
        Step {
            ack,
            now,
            newly,
            dsack,
            una: self.board.una(),
            outstanding_octets: self.board.outstanding_octets(),
            in_flight_octets: self.in_flight_octets(),
            dup_octets: self.dup_octets,
            was_recovering: self.phase != Phase::Open,
        }
    }

    /// The first block, if it reports a duplicate: it lies before the acknowledgment, or in the
    /// second block (RFC 2883, section 4).
    fn find_dsack(&self, ack: &Ack<'_>) -> Option<SackBlock> {
        let first = *ack.sack.first().filter(|_| self.is_sack)?;
        let octets = first.end.since(first.start);
        if octets == 0 || ack.ack.since(first.start) > DSACK_OCTETS_MAX && octets > DSACK_OCTETS_MAX
        {
            return None;
        }
        let lies_before = first.start.before(ack.ack)
            && first.end.at_or_before(ack.ack)
            && ack.ack.since(first.start) <= DSACK_OCTETS_MAX;
        let lies_in_second = ack.sack.get(1).is_some_and(|second| {
            first.start.at_or_after(second.start) && first.end.at_or_before(second.end)
        });
        (lies_before || lies_in_second).then_some(first)
    }

    /// Marks on the scoreboard what is delivered, lowest numbers first.
    fn mark_delivered(&mut self, step: &mut Step<'_>) {
        self.board.acknowledge(step.ack.ack, &mut step.newly);
        if !self.is_sack || step.ack.sack.is_empty() {
            return;
        }
        let una = self.board.una();
        let mut blocks = [SackBlock { start: una, end: una }; BLOCKS_MAX];
        let mut count = 0;
        let reported = usize::from(step.dsack.is_some());
        for &block in step.ack.sack.iter().skip(reported).take(BLOCKS_MAX) {
            // A block may reach below what is acknowledged by now if this segment was delayed.
            if block.end.at_or_before(una) {
                self.counters.bad_sacks += u64::from(step.ack.ack == una);
                continue;
            }
            blocks[count] = SackBlock { start: block.start.max(una), end: block.end };
            count += 1;
        }
        let blocks = &mut blocks[..count];
        blocks.sort_unstable_by_key(|block| block.start.since(una));
        for &block in blocks.iter() {
            if !self.board.sack(block, &mut step.newly) {
                self.counters.bad_sacks += 1;
            }
        }
    }

    /// Takes a round trip from what was delivered (RFC 6298, section 3; RFC 7323, section 4.1):
    /// from segments sent once, else by the echoed timestamp.
    fn measure(&mut self, step: &Step<'_>) -> Option<Duration> {
        let newly = &step.newly;
        let now = step.now;
        // A duplicate or a repair that provoked it says nothing of when the others arrived.
        let is_fresh = !newly.resent && step.dsack.is_none();
        let by_clock = match (newly.acked, newly.sacked) {
            (Some((first, last)), _) if is_fresh => Some((now.since(first), now.since(last))),
            // Blocks tell again what an acknowledgment that got lost had told; the latest is the
            // likeliest to be news.
            (None, Some((_, last))) if is_fresh && self.phase != Phase::Timeout => {
                Some((now.since(last), now.since(last)))
            }
            _ => None,
        };
        let by_echo = || {
            let echoed = step.ack.echoed.filter(|_| newly.acked_octets > 0)?;
            let is_told = step.dsack.is_none()
                && newly.resent_at.is_none_or(|resent| {
                    // An old echo that comes a round trip after the repair was made long ago, and
                    // only told again now.
                    !newly.echoes_before(resent)
                        || now.since(resent) < self.rtt_min().unwrap_or_default()
                });
            let rtt = now.since(echoed);
            is_told.then_some((rtt, rtt))
        };
        let Some((first, last)) = by_clock.or_else(by_echo) else {
            if step.ack.echoed.is_some() && newly.acked_octets > 0 {
                self.rtt.soften_back_off();
            }
            return None;
        };
        let segments = step.outstanding_octets.div_ceil(self.mss_octets.saturating_mul(2));
        self.rtt.sample(first, segments);
        self.probe_is_fair = true;
        let ns = u64::try_from(last.as_nanos()).unwrap_or(u64::MAX);
        if by_clock.is_some() {
            self.rtt_min.update(ns, now.as_ns());
        }
        Some(last)
    }

    /// Without SACK each duplicate acknowledgment tells that some segment arrived (RFC 5681,
    /// section 3.2; RFC 6582).
    fn count_duplicates(&mut self, step: &Step<'_>) {
        if self.is_sack {
            return;
        }
        let mss = self.mss_octets;
        if step.newly.acked_octets > 0 {
            // The hole that was filled was not among those counted.
            let counted = step.newly.acked_octets.saturating_sub(mss);
            self.dup_octets = self.dup_octets.saturating_sub(counted);
            self.dup_acks = 0;
        } else if self.is_duplicate(step) {
            self.dup_acks = self.dup_acks.saturating_add(1);
            self.dup_octets = self.dup_octets.saturating_add(mss);
        }
        self.dup_octets = self.dup_octets.min(self.board.outstanding_octets().saturating_sub(mss));
    }

    fn is_duplicate(&self, step: &Step<'_>) -> bool {
        step.ack.duplicate && step.newly.acked_octets == 0 && !self.board.is_empty()
    }

    pub(super) fn situation(&self) -> Situation {
        Situation {
            recovering: self.phase != Phase::Open,
            rtt_min: self.rtt_min(),
            srtt: self.rtt.smoothed(),
        }
    }

    /// Loss detection by time (RFC 8985, section 6.2, step 5), for peers with SACK. Octets newly
    /// believed lost.
    pub(super) fn detect(&mut self, now: Time) -> u32 {
        if !self.is_sack {
            return 0;
        }
        let situation = self.situation();
        let (lost, again) = self.rack.detect(&mut self.board, situation, now);
        self.reorder_at = again;
        lost
    }

    /// Loss detection by duplicate and partial acknowledgments, for peers without SACK (RFC 6582,
    /// section 3.2).
    fn detect_without_sack(&mut self, step: &Step<'_>) -> u32 {
        if self.is_sack {
            return 0;
        }
        let una = self.board.una();
        if self.timed_out_to.is_some_and(|to| una.after(to)) {
            self.timed_out_to = None;
        }
        let partial = self.phase == Phase::Recovery && step.newly.acked_octets > 0;
        let third = self.phase == Phase::Open
            && self.dup_acks >= DUP_THRESHOLD
            && self.timed_out_to.is_none();
        if partial || third { self.board.lose_first() } else { 0 }
    }

    /// Begins fast recovery if something is lost that no phase answers for yet (RFC 6675, section
    /// 5; RFC 6582).
    pub(super) fn enter_recovery_if_lost(&mut self, now: Time) {
        if self.phase != Phase::Open || self.board.lost_octets() == 0 {
            return;
        }
        let lost = self.board.lost_octets();
        let is_probe = self
            .board
            .next_lost()
            .is_some_and(|(start, octets)| octets == lost && self.path_probe.take() == Some(start));
        if is_probe {
            self.phase = Phase::Recovery;
            self.recover = self.board.nxt();
            (self.prr, self.undo) = (None, None);
            return;
        }
        self.counters.recoveries += 1;
        let trouble = self.trouble(false, now);
        self.congestion.on_loss(&trouble);
        self.undo = Some(Undo::new(self.board.una()));
        self.phase = Phase::Recovery;
        self.recover = self.board.nxt();
        self.probe = None;
        self.probe_at = None;
        self.prr = (!self.congestion.rules_recovery())
            .then(|| Prr::new(trouble.outstanding_octets, self.congestion.threshold()));
        self.conserve_first();
    }

    fn conserve_first(&mut self) {
        let in_flight = self.in_flight_octets();
        let mss = self.mss_octets;
        if let Some(prr) = &mut self.prr {
            prr.on_ack(0, in_flight, mss, false);
        }
    }

    /// Proportional rate reduction for what this acknowledgment delivered (RFC 6937, section 3).
    fn conserve(&mut self, step: &Step<'_>, lost_octets: u32) {
        let in_flight = self.in_flight_octets();
        let mss = self.mss_octets;
        let acked = step.newly.acked_octets;
        let delivered = if self.is_sack {
            step.newly.delivered_octets
        } else if acked > 0 {
            acked.saturating_sub(step.dup_octets).max(1)
        } else if self.is_duplicate(step) {
            mss
        } else {
            0
        };
        if let Some(prr) = &mut self.prr
            && delivered > 0
        {
            prr.on_ack(delivered, in_flight, mss, acked > 0 && lost_octets == 0);
            if !self.is_sack && acked > 0 && lost_octets > 0 {
                // A partial acknowledgment has the next hole filled at once (RFC 6582, section 3.2,
                // step 3).
                prr.allow(in_flight, mss);
            }
        }
    }

    /// The peer echoes a mark: answers at most once a window (RFC 3168, section 6.1.2). Whether CWR
    /// is to be sent.
    fn on_echo(&mut self, now: Time) -> bool {
        let una = self.board.una();
        if self.ecn_until.is_some_and(|until| una.at_or_after(until)) {
            self.ecn_until = None;
        }
        if self.ecn_until.is_some() {
            return false;
        }
        self.ecn_until = Some(self.board.nxt());
        // A window that was reduced for a loss is not reduced again for a mark.
        if self.phase == Phase::Open {
            self.counters.ecn += 1;
            let trouble = self.trouble(false, now);
            self.congestion.on_ecn(&trouble);
            self.undo = None;
        }
        true
    }

    fn tell_congestion(
        &mut self,
        step: &Step<'_>,
        lost_octets: u32,
        rtt: Option<Duration>,
        rate: Option<RateSample>,
        round: bool,
    ) {
        let delivered_octets = step.newly.delivered_octets;
        // What the handshake delivered is no measure of the path.
        if delivered_octets == 0 && lost_octets == 0 || step.una == self.iss {
            return;
        }
        let sample = Sample {
            now: step.now,
            acked_octets: step.newly.acked_octets,
            delivered_octets,
            lost_octets,
            in_flight_octets: self.in_flight_octets(),
            prior_in_flight_octets: step.in_flight_octets,
            rtt,
            srtt: self.rtt.smoothed(),
            min_rtt: self.rtt_min(),
            rate,
            round,
            window_limited: self.is_window_limited(),
            // What ends recovery, or echoes a mark (RFC 3168, section 6.1.2), does not open the
            // window as well.
            recovering: step.was_recovering || self.phase != Phase::Open || step.ack.ece,
        };
        self.congestion.on_ack(&sample);
        if round {
            self.peak_octets = (self.in_flight_octets(), self.peak_octets.0);
        }
    }

    /// Whether the window was used up in this or the last round trip: only then has it proved
    /// itself (RFC 7661, section 4.1). In slow start half of it is enough, as it doubles before
    /// that shows.
    pub(super) fn is_window_limited(&self) -> bool {
        let peak = self.peak_octets.0.max(self.peak_octets.1);
        let window = self.congestion.window();
        if window < self.congestion.threshold() {
            window < peak.saturating_mul(2)
        } else {
            window < peak.saturating_add(self.mss_octets)
        }
    }

    /// A loss probe is answered (RFC 8985, section 7.4.2): was it what repaired a loss?
    fn judge_probe(&mut self, step: &Step<'_>) {
        let Some(probe) = self.probe else {
            return;
        };
        let ack: Seq = step.ack.ack;
        if ack.before(probe.end) {
            return;
        }
        let dsack = step.dsack.is_some_and(|block| block.end == probe.end);
        if !probe.is_resent || dsack {
            self.probe = None;
        } else if ack.after(probe.end) {
            self.probe = None;
            let trouble = self.trouble(false, step.now);
            self.congestion.on_loss(&trouble);
            self.congestion.recovered(step.now);
        } else if step.ack.duplicate && step.newly.acked_octets == 0 && step.ack.sack.is_empty() {
            self.probe = None;
        }
    }
}
