//! Finding out that nothing had been lost (RFC 5682 F-RTO, RFC 3522 Eifel, RFC 2883), and taking
//! the reduction back.

use super::ack::Step;
use super::recovery::{Phase, Recovery};
use super::scoreboard::SackBlock;
use crate::Seq;
use xk_core::{Time, fields};

/// Whether a timeout was spurious, by what arrives after it (RFC 5682, section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Frto {
    /// Not asked.
    Off,
    /// The first segment is to be resent (step 1).
    Armed,
    /// The segment was resent; its acknowledgment is awaited (step 2).
    Waiting,
    /// New segments went out instead of further lost ones (step 3).
    Probing,
}

fields!(
    enum Frto {
        Off = 0,
        Armed = 1,
        Waiting = 2,
        Probing = 3,
    }
);

impl Frto {
    /// Whether lost segments are not resent yet.
    pub(super) fn holds_back(self) -> bool {
        matches!(self, Frto::Waiting | Frto::Probing)
    }

    /// Asks, unless losses were being repaired; asks again if nothing came since the last timeout
    /// (RFC 5682, section 3.1).
    pub(super) fn on_timeout(self, was_repairing: bool) -> Frto {
        match self {
            Frto::Armed | Frto::Waiting => Frto::Armed,
            Frto::Off if !was_repairing => Frto::Armed,
            Frto::Off | Frto::Probing => Frto::Off,
        }
    }

    pub(super) fn on_resent(self) -> Frto {
        if self == Frto::Armed { Frto::Waiting } else { self }
    }
}

/// State of a reduction from which it can be found wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    /// Sequence number at or behind which the resent octets lie.
    marker: Seq,
    /// Time at which the first segment was sent again.
    first_resent: Option<Time>,
    /// Octets resent, less those that the peer had twice: blocks tell of octets, not of segments,
    /// and one may cover several (RFC 2883, section 4).
    needed: i64,
    /// After this it is too late; `None` while the recovery lasts.
    until: Option<Time>,
}

fields!(Undo { marker, first_resent, needed, until });

impl Undo {
    /// Whether it counts no more than was ever under way.
    pub(super) fn is_sound(&self) -> bool {
        self.needed.unsigned_abs() < 1 << 48
    }

    pub(super) fn new(marker: Seq) -> Undo {
        Undo { marker, first_resent: None, needed: 0, until: None }
    }

    pub(super) fn on_resent(&mut self, octets: u32, now: Time) {
        if self.until.is_none() {
            self.first_resent.get_or_insert(now);
            self.needed += i64::from(octets);
        }
    }

    fn on_dsack(&mut self, block: SackBlock) {
        let start = block.start.max(self.marker);
        if block.end.after(start) {
            self.needed -= i64::from(block.end.since(start));
        }
    }

    fn is_moot(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now > until)
    }
}

impl Recovery {
    /// Looks whether this acknowledgment shows that nothing had been lost, and undoes the reduction
    /// then.
    pub(super) fn judge_spurious(&mut self, step: &Step<'_>) -> bool {
        let spurious = self.is_spurious(step);
        if spurious {
            self.take_back(step.now);
        } else {
            self.advance_frto(step);
        }
        spurious
    }

    fn is_spurious(&mut self, step: &Step<'_>) -> bool {
        let newly = &step.newly;
        // RFC 5682, section 3.1, step 3b: what was never resent came before what was sent after the
        // timeout.
        if self.frto == Frto::Probing && newly.original && newly.fack.at_or_before(self.recover) {
            return true;
        }
        let Some(undo) = &mut self.undo else {
            return false;
        };
        if undo.is_moot(step.now) {
            self.undo = None;
            return false;
        }
        if let Some(dsack) = step.dsack {
            undo.on_dsack(dsack);
            // RFC 2883, RFC 3708: the peer had all of it twice.
            if undo.first_resent.is_some() && undo.needed <= 0 {
                return true;
            }
        }
        // RFC 3522, section 3.2: the peer echoes a timestamp from before the retransmission.
        undo.first_resent.is_some_and(|first| {
            newly.late.is_some_and(|resent| resent >= first)
                || (newly.resent_often
                    && self.phase == Phase::Timeout
                    && newly.echoes_before(first))
        })
    }

    fn advance_frto(&mut self, step: &Step<'_>) {
        let advanced = step.newly.acked_octets > 0;
        self.frto = match self.frto {
            Frto::Waiting if !advanced => Frto::Waiting,
            Frto::Waiting if step.ack.waiting && self.board.una().before(self.recover) => {
                self.extra_octets = self.mss_octets.saturating_mul(2);
                Frto::Probing
            }
            // An acknowledgment that tells nothing, such as of a window, is ignored.
            Frto::Probing
                if !advanced && step.newly.delivered_octets == 0 && !step.ack.duplicate =>
            {
                Frto::Probing
            }
            Frto::Waiting | Frto::Probing => {
                self.extra_octets = 0;
                Frto::Off
            }
            state @ (Frto::Off | Frto::Armed) => state,
        };
    }

    fn take_back(&mut self, now: Time) {
        self.counters.undone += 1;
        self.undo = None;
        self.congestion.undo(now);
        self.rtt.end_back_off();
        if self.phase != Phase::Open {
            // What was delivered of the retransmissions says nothing about the segments that were
            // only late.
            self.rack.forget_newest();
            self.board.find_lost();
            self.leave_phase(now);
            self.timed_out_to = None;
            self.undo = None;
        }
    }

    /// The phase is over: back to normal.
    pub(super) fn leave_phase(&mut self, now: Time) {
        if self.phase == Phase::Timeout {
            self.timed_out_to = Some(self.recover);
        }
        self.phase = Phase::Open;
        self.prr = None;
        self.frto = Frto::Off;
        self.extra_octets = 0;
        self.dup_acks = 0;
        self.dup_octets = 0;
        self.rack.recovered();
        self.congestion.recovered(now);
        let until = now + self.rtt.rto();
        if let Some(undo) = &mut self.undo {
            undo.until = Some(until);
        }
    }
}
