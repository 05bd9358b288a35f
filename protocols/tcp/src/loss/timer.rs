//! Timers: the retransmission timeout, the reordering window's end, loss probes (RFC 6298; RFC
//! 8985, sections 6 to 8).

use super::recovery::{ACK_DELAY_MAX, Due, Lost, Phase, Probe, Recovery, Timer};
use super::undo::Undo;
use core::time::Duration;
use xk_core::Time;

/// The time for a probe while no round trip was measured (RFC 8985, section 7.2).
const PROBE_AFTER: Duration = Duration::from_secs(1);

/// No probe goes sooner: a peer on the same machine answers within microseconds, but its system
/// may pause it for longer. Linux waits two ticks of its clock at least.
const PROBE_AFTER_MIN: Duration = Duration::from_millis(1);

impl Recovery {
    /// The next moment at which something is to be done, and why; `None` if nothing is outstanding.
    /// `waiting` says whether data waits that the peer's window has room for: then the pace counts
    /// too.
    #[must_use]
    pub fn timer(&self, waiting: bool) -> Option<(Timer, Time)> {
        let mut first = None;
        let mut consider = |timer: Timer, at: Option<Time>| {
            if let Some(at) = at
                && first.is_none_or(|(_, earliest)| at < earliest)
            {
                first = Some((timer, at));
            }
        };
        consider(Timer::Reordering, self.reorder_at);
        consider(Timer::Probe, self.probe_at);
        consider(Timer::Retransmission, self.rto_at);
        if (waiting || self.board.lost_octets() > 0) && self.pacing_rate().is_some() {
            let is_open = self.in_flight_octets() < self.window() || self.extra_octets > 0;
            // If the pace would have let it go already, something else holds it up.
            let is_paced = self.pacer.next() > self.now;
            consider(Timer::Pace, (is_open && is_paced).then(|| self.pacer.next()));
        }
        first
    }

    /// A timer expired, or may have: does what is due. Harmless when nothing is. `waiting` as for
    /// [`timer`](Recovery::timer).
    pub fn on_timer(&mut self, now: Time, waiting: bool) -> Due {
        self.now = now;
        if self.reorder_at.is_some_and(|at| at <= now) {
            self.reorder_at = None;
            let lost = self.detect(now);
            self.enter_recovery_if_lost(now);
            if lost > 0 {
                return Due::Send;
            }
        }
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe_at = None;
            return self.probe(now, waiting);
        }
        if self.rto_at.is_some_and(|at| at <= now) {
            return self.time_out(now);
        }
        let paced = self.pacing_rate().is_some() && self.pacer.next() <= now;
        if paced && (waiting || self.board.lost_octets() > 0) { Due::Send } else { Due::Nothing }
    }

    /// RFC 6298, sections 5.4 to 5.6; RFC 5681, section 3.1, equation 4; RFC 8985, section 6.3.
    fn time_out(&mut self, now: Time) -> Due {
        if self.board.is_empty() {
            self.rto_at = None;
            return Due::Nothing;
        }
        self.counters.timeouts += 1;
        let again = self.phase != Phase::Open;
        let trouble = self.trouble(again, now);
        let reneged = self.board.has_reneged();
        if reneged {
            self.counters.reneged += 1;
            self.board.renege();
        }
        let situation = self.situation();
        let patience_max = self.rtt.rto_without_back_off();
        self.rack.lose_on_timeout(&mut self.board, situation, patience_max, now);
        self.congestion.on_timeout(&trouble);
        let was_repairing = again || reneged || !self.is_established;
        self.frto = self.frto.on_timeout(was_repairing);
        if !again {
            self.undo = Some(Undo::new(self.board.una()));
        }
        self.phase = Phase::Timeout;
        self.recover = self.board.nxt();
        self.prr = None;
        self.probe = None;
        self.probe_at = None;
        self.probe_is_next = false;
        self.reorder_at = None;
        self.dup_acks = 0;
        self.dup_octets = 0;
        // What the timer is for goes out in any case, even if the window is full of what was sent
        // since.
        self.extra_octets = self.mss_octets.saturating_add(1);
        self.pacer.reset();
        self.rtt.back_off();
        self.rto_at = Some(now + self.rtt.rto());
        Due::Timeout(self.rtt.back_offs())
    }

    /// Sets the timers after an acknowledgment (RFC 6298, sections 5.2 and 5.3).
    pub(super) fn rearm(&mut self, advanced: bool, now: Time) {
        if self.board.is_empty() {
            self.rto_at = None;
            self.reorder_at = None;
            self.probe_at = None;
            return;
        }
        if advanced {
            self.rto_at = Some(now + self.rtt.rto());
            self.schedule_probe(now);
        } else if self.phase != Phase::Open || self.board.sacked_segments() > 0 {
            self.probe_at = None;
        }
    }

    /// Sets the time for a loss probe, if one may be (RFC 8985, section 7.2).
    pub(super) fn schedule_probe(&mut self, now: Time) {
        self.probe_at = None;
        let eligible = self.is_sack
            && self.phase == Phase::Open
            && self.board.sacked_segments() == 0
            && self.board.in_flight_octets() > 0
            && self.probe.is_none()
            && self.probe_is_fair;
        if !eligible {
            return;
        }
        let smoothed = self.rtt.smoothed();
        let mut patience = smoothed.map_or(PROBE_AFTER, |srtt| (srtt * 2).max(PROBE_AFTER_MIN));
        if smoothed.is_some() && self.board.segments() == 1 {
            patience += ACK_DELAY_MAX;
        }
        let at = now + patience;
        self.probe_at = Some(self.rto_at.map_or(at, |rto_at| at.min(rto_at)));
    }

    /// RFC 8985, section 7.3.
    fn probe(&mut self, now: Time, waiting: bool) -> Due {
        if self.board.is_empty() {
            return Due::Nothing;
        }
        self.rto_at = Some(now + self.rtt.rto());
        if self.probe.is_some() || !self.probe_is_fair {
            return Due::Nothing;
        }
        if waiting && !self.board.is_full() {
            self.probe_is_next = true;
            self.extra_octets = self.mss_octets.saturating_add(1);
            self.pacer.reset();
            return Due::SendProbe;
        }
        let Some((start, octets)) = self.board.last_in_flight() else {
            return Due::Nothing;
        };
        self.probe_went(true, now);
        Due::ResendProbe(Lost { start, octets })
    }

    /// A loss probe goes out; the retransmission timer is what remains.
    pub(super) fn probe_went(&mut self, is_resent: bool, now: Time) {
        self.counters.probes += 1;
        self.probe = Some(Probe { end: self.board.nxt(), is_resent });
        self.probe_is_fair = false;
        self.probe_at = None;
        self.extra_octets = 0;
        self.rto_at = Some(now + self.rtt.rto());
    }
}
