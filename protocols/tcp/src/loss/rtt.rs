//! Round trip time and the retransmission timeout (RFC 6298; RFC 7323, appendix G).

use core::time::Duration;

/// Between what values the retransmission timeout may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RtoBounds {
    /// Before the first measurement (RFC 6298, section 2.1).
    pub initial: Duration,
    /// Smallest. RFC 6298, section 2.4, advises one second for clocks as coarse as half of that; with the finer clocks of today 200 ms
    /// are usual, and spurious timeouts are found and undone.
    pub min: Duration,
    /// Largest (RFC 6298, section 2.5).
    pub max: Duration,
    /// How fine the clock is that measures (G of RFC 6298, section 2.2).
    pub granularity: Duration,
}

impl Default for RtoBounds {
    fn default() -> RtoBounds {
        RtoBounds {
            initial: Duration::from_secs(1),
            min: Duration::from_millis(200),
            max: Duration::from_secs(60),
            granularity: Duration::from_millis(1),
        }
    }
}

/// The timeout after the handshake if it had to be repeated (RFC 6298, section 5.7).
const AFTER_LOST_SYN: Duration = Duration::from_secs(3);

/// Beyond this many doublings the timeout is at its bound anyway.
const BACK_OFFS_MAX: u32 = 30;

/// The estimator of one connection.
#[derive(Clone, Debug)]
pub struct Rtt {
    bounds: RtoBounds,
    srtt_ns: Option<u64>,
    rttvar_ns: u64,
    latest: Duration,
    /// Without back-off.
    rto: Duration,
    back_offs: u32,
}

impl Rtt {
    /// Nothing measured.
    #[must_use]
    pub fn new(bounds: RtoBounds) -> Rtt {
        Rtt {
            rto: bounds.initial.min(bounds.max),
            bounds,
            srtt_ns: None,
            rttvar_ns: 0,
            latest: Duration::ZERO,
            back_offs: 0,
        }
    }

    /// Takes a measurement in, and ends the back-off. `expected` says how many measurements a round trip gives, at least one: so many
    /// share the weight that one would have (RFC 7323, appendix G).
    ///
    /// By Karn's rule (RFC 6298, section 3) a segment sent twice gives none, unless a timestamp tells which one was answered.
    pub fn sample(&mut self, rtt: Duration, expected: u32) {
        let measured = u64::try_from(rtt.as_nanos())
            .unwrap_or(u64::MAX / 8)
            .min(u64::MAX / 8);
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
                self.rttvar_ns = towards(self.rttvar_ns, error, 4 * expected);
                towards(srtt, measured, 8 * expected)
            }
        };
        self.srtt_ns = Some(srtt);
        self.back_offs = 0;
        let margin = Duration::from_nanos(self.rttvar_ns.saturating_mul(4));
        let rto = Duration::from_nanos(srtt).saturating_add(margin.max(self.bounds.granularity));
        self.rto = rto.max(self.bounds.min).min(self.bounds.max);
    }

    /// The smoothed round trip, if one was measured.
    #[must_use]
    pub fn smoothed(&self) -> Option<Duration> {
        self.srtt_ns.map(Duration::from_nanos)
    }

    /// How much the round trip varies.
    #[must_use]
    pub fn variation(&self) -> Duration {
        Duration::from_nanos(self.rttvar_ns)
    }

    /// The last measurement; zero before the first.
    #[must_use]
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// The retransmission timeout, with its back-off.
    #[must_use]
    pub fn rto(&self) -> Duration {
        let factor = 1_u32 << self.back_offs.min(BACK_OFFS_MAX);
        self.rto.saturating_mul(factor).min(self.bounds.max)
    }

    /// The timer expired: the next timeout is twice as long (RFC 6298, section 5.5).
    pub fn back_off(&mut self) {
        self.back_offs = self.back_offs.saturating_add(1).min(BACK_OFFS_MAX);
    }

    /// Ends the back-off without a measurement: new data was acknowledged, or the timeout was spurious.
    pub fn end_back_off(&mut self) {
        self.back_offs = 0;
    }

    /// How often the timer expired since the last measurement.
    #[must_use]
    pub fn back_offs(&self) -> u32 {
        self.back_offs
    }

    /// The handshake is done, but its first segment had to be repeated (RFC 6298, section 5.7).
    pub fn syn_was_lost(&mut self) {
        self.back_offs = 0;
        if self.srtt_ns.is_none() {
            self.rto = AFTER_LOST_SYN.max(self.bounds.min).min(self.bounds.max);
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
