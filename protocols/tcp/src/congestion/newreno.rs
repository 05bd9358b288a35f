//! NewReno: additive increase, multiplicative decrease (RFC 5681, RFC 6582), counting octets (RFC
//! 3465).

use super::{Congestion, Sample, Trouble, WINDOW_MAX, initial_window_octets, window_after_idle};
use core::time::Duration;
use xk_core::control::{Field, Writer};
use xk_core::{Time, fields};

/// Segments by which one acknowledgment may open the window in slow start (RFC 3465, section 2.2).
const SLOW_START_SEGMENTS_MAX: u32 = 2;

/// NewReno's state.
#[derive(Debug)]
pub struct NewReno {
    mss: u32,
    window: u32,
    threshold: u32,
    /// Octets acknowledged in congestion avoidance towards the next segment (RFC 3465, section
    /// 2.1).
    counted: u32,
    /// Window and threshold before the last reduction.
    before: Option<(u32, u32)>,
    /// Whether a timeout's slow start is on, in which one acknowledgment counts for one segment
    /// (RFC 3465, section 2.3).
    timed_out: bool,
}

fields!(NewReno { mss, window, threshold, counted, before, timed_out });

impl NewReno {
    /// A window of the initial size.
    #[must_use]
    pub fn new(mss_octets: u32) -> NewReno {
        NewReno {
            mss: mss_octets.max(1),
            window: initial_window_octets(mss_octets.max(1)),
            threshold: WINDOW_MAX,
            counted: 0,
            before: None,
            timed_out: false,
        }
    }

    fn halve(&mut self, trouble: &Trouble) {
        self.before = Some((self.window, self.threshold));
        // RFC 5681, section 3.1, equation 4; what limited transmit added does not count.
        let flight = trouble.outstanding_octets.min(self.window);
        self.threshold = (flight / 2).max(self.mss.saturating_mul(2));
        self.counted = 0;
    }
}

impl Congestion for NewReno {
    fn name(&self) -> &'static str {
        "newreno"
    }

    fn set_mss(&mut self, mss_octets: u32) {
        self.mss = mss_octets.max(1);
        self.window = self.window.max(self.mss);
    }

    fn start(&mut self, window_octets: u32, _now: Time) {
        self.window = window_octets.max(self.mss);
    }

    fn on_ack(&mut self, sample: &Sample) {
        let slow_start = self.window < self.threshold;
        if !sample.window_limited || (sample.recovering && !slow_start) {
            return;
        }
        let mut octets = sample.acked_octets;
        if slow_start {
            let segments_max = if self.timed_out { 1 } else { SLOW_START_SEGMENTS_MAX };
            let allowed = octets.min(self.mss.saturating_mul(segments_max));
            let opened = allowed.min(self.threshold - self.window);
            self.window = self.window.saturating_add(opened).min(WINDOW_MAX);
            if opened == allowed {
                return;
            }
            octets = allowed - opened;
        }
        // RFC 3465, section 2.1: one segment for each window that was acknowledged.
        self.counted = self.counted.saturating_add(octets);
        if self.counted >= self.window {
            self.counted -= self.window;
            self.window = self.window.saturating_add(self.mss).min(WINDOW_MAX);
        }
    }

    fn on_loss(&mut self, trouble: &Trouble) {
        self.halve(trouble);
        self.window = self.threshold;
    }

    fn on_timeout(&mut self, trouble: &Trouble) {
        if !trouble.again {
            self.halve(trouble);
        }
        self.window = self.mss;
        self.timed_out = true;
    }

    fn on_ecn(&mut self, trouble: &Trouble) {
        self.on_loss(trouble);
    }

    fn recovered(&mut self, _now: Time) {
        self.timed_out = false;
    }

    fn undo(&mut self, _now: Time) {
        if let Some((window, threshold)) = self.before.take() {
            self.window = self.window.max(window);
            self.threshold = self.threshold.max(threshold);
        }
        self.timed_out = false;
    }

    fn after_idle(&mut self, _now: Time, idle: Duration, rto: Duration) {
        if idle > rto {
            // RFC 7661's spirit: three quarters of what was reached are remembered.
            self.threshold = self.threshold.max(self.window / 4 * 3);
            self.window = window_after_idle(self.window, self.mss, idle, rto);
            self.counted = 0;
        }
    }

    fn window(&self) -> u32 {
        self.window
    }

    fn threshold(&self) -> u32 {
        self.threshold
    }

    fn write(&self, out: &mut Writer<'_>) {
        self.put(out);
    }

    fn is_sound(&self) -> bool {
        let (window, threshold) = self.before.unwrap_or_default();
        super::is_sound(self.mss, &[self.window, self.threshold, window, threshold])
            && self.window > 0
    }
}
