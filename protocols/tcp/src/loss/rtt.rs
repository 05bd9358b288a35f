//! Round trip time and the retransmission timeout (RFC 6298; RFC 7323, appendix G).

use core::time::Duration;
use xk_core::fields;

/// The timeout before the first measurement (RFC 6298, section 2.1).
const RTO_INITIAL: Duration = Duration::from_secs(1);
/// The smallest. RFC 6298, section 2.4, advises one second for clocks as coarse as half of that;
/// with the finer clocks of today 200 ms are usual, and spurious timeouts are found and undone.
const RTO_MIN: Duration = Duration::from_millis(200);
/// The largest (RFC 6298, section 2.5).
const RTO_MAX: Duration = Duration::from_secs(60);
/// Granularity of the clock (G of RFC 6298, section 2.2).
const GRANULARITY: Duration = Duration::from_millis(1);

/// The timeout after the handshake if it had to be repeated (RFC 6298, section 5.7).
const AFTER_LOST_SYN: Duration = Duration::from_secs(3);

/// Beyond this many doublings the timeout is at its bound anyway.
const BACK_OFFS_MAX: u32 = 30;

/// The estimator of one connection.
#[derive(Clone, Debug)]
pub struct Rtt {
    rto_min: Duration,
    srtt_ns: Option<u64>,
    rttvar_ns: u64,
    latest: Duration,
    /// Without back-off.
    rto: Duration,
    back_offs: u32,
}

fields!(Rtt { rto_min, srtt_ns, rttvar_ns, latest, rto, back_offs });

/// No measurement counts for more, in nanoseconds.
const MEASURED_MAX: u64 = u64::MAX / 8;

impl Rtt {
    /// Whether its numbers are such as measurements make.
    pub(super) fn is_sound(&self) -> bool {
        self.rto_min == RTO_MIN
            && (RTO_MIN..=RTO_MAX).contains(&self.rto)
            && self.srtt_ns.is_none_or(|ns| ns <= MEASURED_MAX)
            && self.rttvar_ns <= MEASURED_MAX
            && self.back_offs <= BACK_OFFS_MAX
    }

    /// Nothing measured.
    #[expect(clippy::new_without_default, reason = "every one is made by this")]
    pub fn new() -> Rtt {
        Rtt {
            rto: RTO_INITIAL,
            rto_min: RTO_MIN,
            srtt_ns: None,
            rttvar_ns: 0,
            latest: Duration::ZERO,
            back_offs: 0,
        }
    }

    /// Takes a measurement in, and ends the back-off. `expected` says how many measurements a round
    /// trip gives, at least one: so many share the weight that one would have (RFC 7323, appendix
    /// G), except where the variation grows.
    ///
    /// By Karn's rule (RFC 6298, section 3) a segment sent twice gives none, unless a timestamp
    /// tells which one was answered.
    pub fn sample(&mut self, rtt: Duration, expected: u32) {
        let measured = u64::try_from(rtt.as_nanos()).unwrap_or(MEASURED_MAX).min(MEASURED_MAX);
        let expected = u64::from(expected.max(1));
        self.latest = rtt;
        let srtt = match self.srtt_ns {
            // RFC 6298, section 2.2.
            None => {
                self.rttvar_ns = measured / 2;
                measured
            }
            // RFC 6298, section 2.3: beta is a quarter, alpha an eighth.
            Some(srtt) => {
                let error = srtt.abs_diff(measured);
                // A queue that fills within a round trip must show in the timeout before the round
                // trip is over.
                let share = if error > self.rttvar_ns { 1 } else { expected };
                self.rttvar_ns = towards(self.rttvar_ns, error, 4 * share);
                towards(srtt, measured, 8 * expected)
            }
        };
        self.srtt_ns = Some(srtt);
        self.back_offs = 0;
        let margin = Duration::from_nanos(self.rttvar_ns.saturating_mul(4));
        let rto = Duration::from_nanos(srtt).saturating_add(margin.max(GRANULARITY));
        self.rto = rto.max(self.rto_min).min(RTO_MAX);
    }

    /// The smoothed round trip, if one was measured.
    pub fn smoothed(&self) -> Option<Duration> {
        self.srtt_ns.map(Duration::from_nanos)
    }

    /// Variation of the round trip.
    pub fn variation(&self) -> Duration {
        Duration::from_nanos(self.rttvar_ns)
    }

    /// The last measurement; zero before the first.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// The retransmission timeout, with its back-off.
    pub fn rto(&self) -> Duration {
        let factor = 1_u32 << self.back_offs.min(BACK_OFFS_MAX);
        self.rto.saturating_mul(factor).min(RTO_MAX)
    }

    /// The retransmission timeout that the measurements alone give.
    pub fn rto_without_back_off(&self) -> Duration {
        self.rto
    }

    /// The timer expired: the next timeout is twice as long (RFC 6298, section 5.5).
    pub fn back_off(&mut self) {
        self.back_offs = self.back_offs.saturating_add(1).min(BACK_OFFS_MAX);
    }

    /// Ends the back-off without a measurement: new data was acknowledged, or the timeout was
    /// spurious.
    pub fn end_back_off(&mut self) {
        self.back_offs = 0;
    }

    /// Leaves one doubling at most: something was acknowledged, though which transmission cannot be
    /// told. Where acknowledgments get lost as well that happens again and again, and each would
    /// wait longer than the last.
    pub fn soften_back_off(&mut self) {
        self.back_offs = self.back_offs.min(1);
    }

    /// Times that the timer expired since the last measurement.
    pub fn back_offs(&self) -> u32 {
        self.back_offs
    }

    /// The handshake is done, but its first segment had to be repeated (RFC 6298, section 5.7).
    pub fn syn_was_lost(&mut self) {
        self.back_offs = 0;
        if self.srtt_ns.is_none() {
            self.rto = AFTER_LOST_SYN;
        }
    }
}

/// `from`, one `parts`-th of the way nearer to `to`.
fn towards(from: u64, to: u64, parts: u64) -> u64 {
    let parts = parts.max(1);
    if to >= from {
        from.saturating_add((to - from) / parts)
    } else {
        from - (from - to).div_ceil(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn rtt(min: u64) -> Rtt {
        Rtt { rto_min: ms(min), ..Rtt::new() }
    }

    /// RFC 6298, sections 2.1 and 2.2.
    #[test]
    fn the_first_measurement_counts_for_all() {
        let mut rtt = rtt(1);
        assert_eq!((rtt.rto(), rtt.smoothed()), (ms(1000), None));
        rtt.sample(ms(100), 1);
        assert_eq!((rtt.smoothed(), rtt.variation()), (Some(ms(100)), ms(50)));
        assert_eq!(rtt.rto(), ms(300));
    }

    /// RFC 6298, section 2.3: RTTVAR is 3/4 * 50 + 1/4 * 80, SRTT 7/8 * 100 + 1/8 * 180.
    #[test]
    fn later_ones_have_their_weights() {
        let mut rtt = rtt(1);
        rtt.sample(ms(100), 1);
        rtt.sample(ms(180), 1);
        assert_eq!(rtt.variation(), Duration::from_micros(57_500));
        assert_eq!(rtt.smoothed(), Some(ms(110)));
        assert_eq!(rtt.rto(), ms(340));
    }

    /// RFC 7323, appendix G: forty measurements of a round trip count like one.
    #[test]
    fn many_measurements_share_the_weight() {
        let (mut once, mut often) = (rtt(1), rtt(1));
        once.sample(ms(100), 1);
        often.sample(ms(100), 1);
        once.sample(ms(60), 1);
        for _ in 0..40 {
            often.sample(ms(60), 40);
        }
        let (once, often) = (once.smoothed().unwrap(), often.smoothed().unwrap());
        assert!(once.abs_diff(often) < ms(1), "{once:?} {often:?}");
    }

    #[test]
    fn a_filling_queue_shows_at_once() {
        let mut rtt = rtt(1);
        for _ in 0..1000 {
            rtt.sample(ms(200), 100);
        }
        for n in 0..100 {
            rtt.sample(ms(200 + 2 * n), 100);
        }
        assert!(rtt.rto() > ms(500), "{:?}", rtt.rto());
    }

    /// RFC 6298, sections 2.4, 2.5 and 5.5.
    #[test]
    fn bounds_hold_and_back_off_doubles() {
        let mut rtt = rtt(1000);
        rtt.sample(ms(1), 1);
        assert_eq!(rtt.rto(), ms(1000));
        for expected in [2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000] {
            rtt.back_off();
            assert_eq!(rtt.rto(), ms(expected));
        }
        assert_eq!(rtt.back_offs(), 7);
        rtt.sample(ms(1), 1);
        assert_eq!((rtt.rto(), rtt.back_offs()), (ms(1000), 0));
    }

    /// RFC 6298, section 5.7.
    #[test]
    fn a_lost_syn_makes_it_patient() {
        let mut rtt = rtt(200);
        rtt.back_off();
        rtt.syn_was_lost();
        assert_eq!(rtt.rto(), ms(3000));
        rtt.sample(ms(100), 1);
        rtt.syn_was_lost();
        assert_eq!(rtt.rto(), ms(300));
    }

    proptest! {
        #[test]
        fn the_estimate_stays_among_the_measurements(
            samples in proptest::collection::vec((1_u64..u64::MAX, 0_u32..1000), 1..50),
        ) {
            let mut rtt = rtt(200);
            for &(ns, expected) in &samples {
                rtt.sample(Duration::from_nanos(ns), expected);
            }
            let most = samples.iter().map(|s| s.0).max().unwrap();
            let srtt = rtt.smoothed().unwrap();
            prop_assert!(srtt <= Duration::from_nanos(most));
            prop_assert!(rtt.rto() >= ms(200) && rtt.rto() <= Duration::from_secs(60));
        }
    }
}
