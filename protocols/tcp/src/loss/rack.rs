//! Loss detection by time: a segment is lost if one sent sufficiently later was delivered (RFC
//! 8985, section 6).

use super::scoreboard::{Newly, Scoreboard, Sending};
use crate::Seq;
use core::time::Duration;
use xk_core::Time;
use xk_core::fields;

/// Sacked segments that begin fast recovery while no reordering was seen (RFC 8985, section 6.2,
/// step 4).
pub(super) const DUP_THRESHOLD: u32 = 3;

/// Recoveries for which a widened reordering window stays (RFC 8985, section 6.2, step 4).
const PERSIST_RECOVERIES: u8 = 16;

/// State of the sender, as far as the reordering window depends on it.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// In fast recovery or in recovery after a timeout.
    pub recovering: bool,
    /// The smallest recent round trip.
    pub rtt_min: Option<Duration>,
    /// The smoothed round trip.
    pub srtt: Option<Duration>,
}

/// The state of one connection.
#[derive(Clone, Debug)]
pub struct Rack {
    /// The latest transmission that was delivered.
    newest: Option<Sending>,
    /// The round trip that its delivery took.
    rtt: Duration,
    fack: Seq,
    reordered: u32,
    dsack_round: Option<Seq>,
    window_mult: u32,
    persist: u8,
}

fields!(Rack { newest, rtt, fack, reordered, dsack_round, window_mult, persist });

impl Rack {
    /// Nothing delivered; the first segment begins at `next`.
    #[must_use]
    pub fn new(next: Seq) -> Rack {
        Rack {
            newest: None,
            rtt: Duration::ZERO,
            fack: next,
            reordered: 0,
            dsack_round: None,
            window_mult: 1,
            persist: 0,
        }
    }

    /// The highest sequence number acknowledged in any way.
    pub fn fack(&self) -> Seq {
        self.fack
    }

    /// Acknowledgments that have shown segments to overtake each other.
    pub fn reordered(&self) -> u32 {
        self.reordered
    }

    /// Takes in what an acknowledgment delivered (RFC 8985, section 6.2, steps 2 and 3).
    pub fn on_ack(&mut self, newly: &Newly, now: Time) {
        if let Some(newest) = newly.newest {
            self.rtt = now.since(newest.at);
            if self.newest.is_none_or(|known| newest.is_after(known)) {
                self.newest = Some(newest);
            }
        }
        self.fack = self.fack.max(newly.fack);
        self.reordered = self.reordered.saturating_add(newly.reordered.into());
    }

    /// The latest transmission that was delivered was not the one that was thought; waits for the
    /// next.
    pub(super) fn forget_newest(&mut self) {
        self.newest = None;
    }

    /// Adapts the reordering window to duplicates that the peer reports (RFC 8985, section 6.2,
    /// step 4).
    pub fn adapt(&mut self, dsack: bool, una: Seq, nxt: Seq) {
        if self.dsack_round.is_some_and(|round| una.at_or_after(round)) {
            self.dsack_round = None;
        }
        if dsack && self.dsack_round.is_none() {
            self.dsack_round = Some(nxt);
            self.window_mult = self.window_mult.saturating_add(1);
            self.persist = PERSIST_RECOVERIES;
        }
    }

    /// A recovery ended (RFC 8985, section 6.2, step 4).
    pub fn recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.window_mult = 1;
        }
    }

    /// Time for which a segment may be overtaken before it counts as lost (RFC 8985, section 6.2,
    /// step 4).
    #[must_use]
    pub fn reordering_window(&self, board: &Scoreboard, situation: Situation) -> Duration {
        if self.reordered == 0 && (situation.recovering || board.sacked_segments() >= DUP_THRESHOLD)
        {
            return Duration::ZERO;
        }
        let wide = situation.rtt_min.unwrap_or_default().saturating_mul(self.window_mult) / 4;
        wide.min(situation.srtt.unwrap_or_default())
    }

    /// Finds what is lost (RFC 8985, section 6.2, step 5): the octets newly believed lost, and when
    /// to look again.
    pub fn detect(
        &self,
        board: &mut Scoreboard,
        situation: Situation,
        now: Time,
    ) -> (u32, Option<Time>) {
        let Some(newest) = self.newest else {
            return (0, None);
        };
        let patience = self.rtt + self.reordering_window(board, situation);
        let mut again = None;
        let lost = board.lose_while(|sending| {
            if !newest.is_after(sending) {
                return false;
            }
            let deadline = sending.at.after(patience);
            if deadline > now {
                again = Some(deadline);
            }
            deadline <= now
        });
        (lost, again)
    }

    /// After a timeout: the first outstanding segment is lost, and all that were sent long enough
    /// ago (RFC 8985, section 6.3); `patience_max` is enough at any rate, should the round trip
    /// have been told by an acknowledgment that came long after. Octets.
    pub fn lose_on_timeout(
        &self,
        board: &mut Scoreboard,
        situation: Situation,
        patience_max: Duration,
        now: Time,
    ) -> u32 {
        let patience = self.rtt + self.reordering_window(board, situation);
        let patience = patience.min(patience_max);
        let first = board.lose_first();
        let others = board.lose_while(|sending| sending.at.after(patience) <= now);
        board.order_lost();
        first + others
    }
}
