//! Segments that one acknowledgment delivered, gathered one by one.

use super::{SackBlock, Segment, Sending};
use crate::Seq;
use crate::loss::rate::Stamp;
use crate::loss::recovery::TIMESTAMP_TICK;
use core::time::Duration;
use xk_core::Time;

/// Segments that one acknowledgment delivered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Newly {
    /// Time at which the acknowledgment came.
    pub(crate) now: Time,
    /// Time when the segment was sent whose timestamp the peer echoes, if it does, rounded down to
    /// ticks of the clock.
    pub(crate) echoed: Option<Time>,
    /// The block with the segment that provoked the acknowledgment, unless it was a duplicate (RFC
    /// 2018, section 4).
    pub(crate) last: Option<SackBlock>,
    /// No round trip is shorter.
    pub(crate) rtt_min: Option<Duration>,
    /// Octets acknowledged cumulatively.
    pub acked_octets: u32,
    /// Octets delivered that were not before.
    pub delivered_octets: u32,
    /// Octets among them by selective acknowledgments.
    pub sacked_octets: u32,
    /// Segments delivered that were not before.
    pub delivered_segments: u32,
    /// Times when the first and the last segment were sent that are acknowledged cumulatively and
    /// were sent once.
    pub(crate) acked: Option<(Time, Time)>,
    /// Times when the first and the last segment were sent that are acknowledged selectively and
    /// were sent once.
    pub(crate) sacked: Option<(Time, Time)>,
    /// Whether a segment that was resent is among them.
    pub resent: bool,
    /// Time at which one of these was sent again last, if any.
    pub(crate) resent_at: Option<Time>,
    /// Time of the retransmission, if it was the only one, of a segment that the peer already had
    /// when it made its echo.
    pub(crate) late: Option<Time>,
    /// Whether a segment that was resent more than once is acknowledged cumulatively.
    pub(crate) resent_often: bool,
    /// The last transmission (RFC 8985, section 6.2, step 2).
    pub(crate) newest: Option<Sending>,
    /// Transmission of the segment sent last, and the state of delivery then.
    pub(crate) stamp: Option<(Sending, Stamp)>,
    /// The highest sequence number that was ever acknowledged in any way.
    pub(crate) fack: Seq,
    /// Whether a segment sent once came behind one with higher numbers (RFC 8985, section 6.2, step
    /// 3).
    pub reordered: bool,
    /// Up to here segments count for `original`.
    pub(crate) recover: Option<Seq>,
    /// Whether a segment sent once, from before `recover`, is among them (RFC 5682, section 3.1,
    /// step 3).
    pub(crate) original: bool,
}

impl Newly {
    /// Whether the peer echoes a timestamp from before `sent`, the clock's ticks granted.
    pub(crate) fn echoes_before(&self, sent: Time) -> bool {
        self.echoed.is_some_and(|echoed| echoed.after(TIMESTAMP_TICK) <= sent)
    }

    #[inline]
    pub(super) fn delivered(&mut self, segment: &Segment, cumulatively: bool) {
        self.delivered_octets += segment.octets;
        self.delivered_segments += 1;
        if !cumulatively {
            self.sacked_octets += segment.octets;
        }
        let end = segment.end();
        if segment.is_original() {
            let times = if cumulatively { &mut self.acked } else { &mut self.sacked };
            *times = Some((times.map_or(segment.sent, |(first, _)| first), segment.sent));
            self.reordered |= end.before(self.fack);
            self.original |= self.recover.is_some_and(|recover| end.at_or_before(recover));
        } else {
            self.resent = true;
            self.resent_at = self.resent_at.max(Some(segment.sent));
            if cumulatively && segment.times > 2 {
                self.resent_often = true;
            } else if cumulatively && self.echoes_before(segment.sent) {
                self.late = Some(segment.sent);
            }
        }
        self.fack = self.fack.max(end);
        let sending = segment.sending();
        if self.newest.is_none_or(|last| sending.is_after(last))
            && self.is_about_last_transmission(segment)
        {
            self.newest = Some(sending);
        }
        if self.stamp.is_none_or(|(last, _)| sending.is_after(last)) {
            self.stamp = Some((sending, segment.stamp));
        }
    }

    /// Whether the acknowledgment answers the last transmission, as far as can be told (RFC 8985,
    /// section 6.2, step 2). Of what came out of order the echo says nothing, for it is that of the
    /// last segment that came in order (RFC 7323, section 4.3): there, the first block tells what
    /// came last.
    fn is_about_last_transmission(&self, segment: &Segment) -> bool {
        let is_last = || {
            self.last.is_some_and(|block| {
                block.start.at_or_before(segment.start) && segment.end().at_or_before(block.end)
            })
        };
        segment.is_original()
            || ((!self.echoes_before(segment.sent) || is_last())
                && self.rtt_min.is_none_or(|min| self.now.since(segment.sent) >= min))
    }
}
