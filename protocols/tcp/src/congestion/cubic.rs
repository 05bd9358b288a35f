//! CUBIC: the window follows a cubic function of the time since the last reduction (RFC 9438),
//! after a slow start by HyStart++ (RFC 9406).
//!
//! All in integers: times in milliseconds, windows in octets. The constant C is 0.4 segments a
//! second cubed (section 5.1), and the multiplicative decrease 0.7 (section 4.6).

use super::hystart::{Growth, HyStart};
use super::{Congestion, Sample, Trouble, WINDOW_MAX, initial_window_octets, window_after_idle};
use core::time::Duration;
use xk_core::control::{Field, Writer};
use xk_core::{Time, fields};

/// Times beyond this from the curve's middle are not told apart, in milliseconds; so products fit
/// 64 bits.
const OFFSET_MS_MAX: i64 = 1 << 19;

/// Segments by which one acknowledgment may open the window in slow start (L of RFC 9406, section
/// 4.3, without pacing).
const SLOW_START_SEGMENTS_MAX: u32 = 8;

/// A congestion avoidance stage (RFC 9438, section 4.1.2).
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// Start of the epoch; moves on while the window is not used.
    start: Time,
    /// Time in which the curve reaches `w_max` again (K), in milliseconds.
    k_ms: i64,
    /// Window at which the curve is flat, in octets.
    origin: u32,
    /// Window that Reno would have, in octets.
    w_est: u64,
    /// Remainders of the divisions by which both windows grow.
    grown: u64,
    est_grown: u64,
}

/// State that a reduction changes, to take it back (RFC 9438, section 4.9).
#[derive(Clone, Copy, Debug)]
struct CubicState {
    window: u32,
    threshold: u32,
    w_max: u32,
    window_prior: u32,
    epoch: Option<Epoch>,
}

/// CUBIC's state.
#[derive(Debug)]
pub struct Cubic {
    mss: u32,
    state: CubicState,
    before: Option<CubicState>,
    /// The first slow start's watch.
    hystart: Option<HyStart>,
    /// The last acknowledgment while the window was not used up.
    unused_at: Option<Time>,
    last_ack: Time,
    timed_out: bool,
}

fields!(Epoch { start, k_ms, origin, w_est, grown, est_grown });
fields!(CubicState { window, threshold, w_max, window_prior, epoch });
fields!(Cubic { mss, state, before, hystart, unused_at, last_ack, timed_out });

impl CubicState {
    fn is_sound(&self) -> bool {
        let Self { window, threshold, w_max, window_prior, epoch } = *self;
        super::is_sound(1, &[window, threshold, w_max, window_prior])
            && window > 0
            && epoch.is_none_or(|epoch| {
                let Epoch { k_ms, origin, w_est, grown, est_grown, .. } = epoch;
                (0..1 << 22).contains(&k_ms)
                    && origin <= WINDOW_MAX
                    && [w_est, grown, est_grown].iter().all(|octets| *octets < 1 << 40)
            })
    }
}

impl Cubic {
    /// A window of the initial size.
    #[must_use]
    pub fn new(mss_octets: u32) -> Cubic {
        let mss = mss_octets.max(1);
        Cubic {
            mss,
            state: CubicState {
                window: initial_window_octets(mss),
                threshold: WINDOW_MAX,
                w_max: 0,
                window_prior: 0,
                epoch: None,
            },
            before: None,
            hystart: Some(HyStart::default()),
            unused_at: None,
            last_ack: Time::ZERO,
            timed_out: false,
        }
    }

    fn slow_start(&mut self, sample: &Sample) -> u32 {
        let state = &mut self.state;
        let divisor = match &mut self.hystart {
            Some(hystart) => match hystart.on_ack(sample.rtt, sample.round) {
                Growth::By(divisor) => divisor,
                Growth::Over => {
                    state.threshold = state.window;
                    self.hystart = None;
                    return sample.acked_octets;
                }
            },
            None => 1,
        };
        let segments_max = if self.timed_out { 1 } else { SLOW_START_SEGMENTS_MAX };
        // What blocks tell of does not open the window (RFC 9406, section 4.2; RFC 5681, section
        // 3.2).
        let octets = sample.acked_octets.min(self.mss.saturating_mul(segments_max)) / divisor;
        let opened = octets.min(state.threshold.saturating_sub(state.window));
        state.window = state.window.saturating_add(opened).min(WINDOW_MAX);
        octets - opened
    }

    /// Begins a congestion avoidance stage (RFC 9438, sections 4.2 and 4.8).
    fn begin_epoch(&mut self, now: Time) -> Epoch {
        let window = self.state.window;
        let (k_ms, origin) = if window < self.state.w_max && !self.timed_out {
            (k_ms(self.state.w_max - window, self.mss), self.state.w_max)
        } else {
            (0, window)
        };
        Epoch { start: now, k_ms, origin, w_est: window.into(), grown: 0, est_grown: 0 }
    }

    fn avoid(&mut self, octets: u32, sample: &Sample) {
        let mut epoch = match self.state.epoch {
            Some(epoch) => epoch,
            None => self.begin_epoch(sample.now),
        };
        if let Some(unused_at) = self.unused_at.take() {
            // RFC 9438, section 5.8: while the application sent too little the curve stood still.
            epoch.start = epoch.start.after(sample.now.since(unused_at));
        }
        let window = u64::from(self.state.window.max(1));
        let octets = u64::from(octets);
        let t = sample.now.since(epoch.start);
        let rtt = sample.srtt.unwrap_or_default();

        // RFC 9438, section 4.2: towards where the curve is a round trip from now.
        let target = u64::from(epoch.at(t + rtt, self.mss)).clamp(window, window + window / 2);
        epoch.grown += (target - window) * octets;
        let mut next = window + epoch.grown / window;
        epoch.grown %= window;

        // RFC 9438, section 4.3: alpha is 3 (1 - beta) / (1 + beta) = 9/17, and 1 from the former
        // window on.
        let reached = epoch.w_est >= u64::from(self.state.window_prior);
        let alpha_17ths = if reached { 17 } else { 9 };
        epoch.est_grown += octets * u64::from(self.mss) * alpha_17ths;
        epoch.w_est += epoch.est_grown / (17 * window);
        epoch.est_grown %= 17 * window;
        if u64::from(epoch.at(t, self.mss)) < epoch.w_est {
            next = next.max(epoch.w_est);
        }
        self.state.window = u32::try_from(next).unwrap_or(WINDOW_MAX).min(WINDOW_MAX);
        self.state.epoch = Some(epoch);
    }

    /// RFC 9438, sections 4.6 and 4.7.
    fn reduce(&mut self, trouble: &Trouble) {
        self.before = Some(self.state);
        let state = &mut self.state;
        state.window_prior = state.window;
        state.w_max = if state.window < state.w_max {
            // Fast convergence: the curve's middle is lower, so that newcomers find room.
            tenths(state.window, 17) / 2
        } else {
            state.window
        };
        let flight = trouble.outstanding_octets.min(state.window);
        state.threshold = tenths(flight, 7).max(self.mss.saturating_mul(2));
        state.epoch = None;
        self.hystart = None;
    }
}

impl Epoch {
    /// The curve, `t` after the stage began (RFC 9438, section 4.2, figure 1), in octets.
    fn at(&self, t: Duration, mss: u32) -> u32 {
        let t_ms = i64::try_from(t.as_millis()).unwrap_or(i64::MAX);
        let offset = t_ms.saturating_sub(self.k_ms).clamp(-OFFSET_MS_MAX, OFFSET_MS_MAX);
        let cube = offset * offset * offset;
        // 0.4 segments a second cubed, of milliseconds cubed: a factor of 4 / 10^10.
        let octets = cube / 10_000 * 4 * i64::from(mss.min(1 << 16)) / 1_000_000;
        let window = i64::from(self.origin).saturating_add(octets);
        u32::try_from(window.clamp(0, WINDOW_MAX.into())).unwrap_or(WINDOW_MAX)
    }
}

impl Congestion for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn set_mss(&mut self, mss_octets: u32) {
        self.mss = mss_octets.max(1);
        self.state.window = self.state.window.max(self.mss);
    }

    fn start(&mut self, window_octets: u32, now: Time) {
        self.state.window = window_octets.max(self.mss);
        self.last_ack = now;
    }

    fn on_ack(&mut self, sample: &Sample) {
        let last = core::mem::replace(&mut self.last_ack, sample.now);
        let slow_start = self.state.window < self.state.threshold;
        if !sample.window_limited {
            self.unused_at.get_or_insert(last);
            return;
        }
        if sample.recovering && !slow_start {
            return;
        }
        let octets = if slow_start { self.slow_start(sample) } else { sample.acked_octets };
        if octets > 0 && self.state.window >= self.state.threshold {
            self.avoid(octets, sample);
        }
    }

    fn on_loss(&mut self, trouble: &Trouble) {
        self.reduce(trouble);
        self.state.window = self.state.threshold;
        self.timed_out = false;
    }

    fn on_timeout(&mut self, trouble: &Trouble) {
        if !trouble.again {
            self.reduce(trouble);
        }
        self.state.epoch = None;
        self.state.window = self.mss;
        self.timed_out = true;
    }

    fn on_ecn(&mut self, trouble: &Trouble) {
        self.on_loss(trouble);
    }

    fn recovered(&mut self, _now: Time) {
        // What was held back while losses were repaired is no time of the curve's.
        self.unused_at = None;
    }

    fn undo(&mut self, _now: Time) {
        if let Some(before) = self.before.take() {
            let window = self.state.window.max(before.window);
            self.state = CubicState { window, ..before };
            self.timed_out = false;
        }
    }

    fn after_idle(&mut self, now: Time, idle: Duration, rto: Duration) {
        if idle > rto {
            let state = &mut self.state;
            state.threshold = state.threshold.max(state.window / 4 * 3);
            state.window = window_after_idle(state.window, self.mss, idle, rto);
            self.unused_at.get_or_insert(now.before(idle));
        }
    }

    fn window(&self) -> u32 {
        self.state.window
    }

    fn threshold(&self) -> u32 {
        self.state.threshold
    }

    fn write(&self, out: &mut Writer<'_>) {
        self.put(out);
    }

    fn is_sound(&self) -> bool {
        super::is_sound(self.mss, &[])
            && self.state.is_sound()
            && self.before.is_none_or(|before| before.is_sound())
            && self.hystart.as_ref().is_none_or(HyStart::is_sound)
    }
}

/// Returns `count` tenths of `value`.
fn tenths(value: u32, count: u64) -> u32 {
    u32::try_from(u64::from(value) * count / 10).unwrap_or(u32::MAX)
}

/// Time in which the curve climbs `octets` up to where it is flat (RFC 9438, section 4.2, figure
/// 2), in milliseconds.
fn k_ms(octets: u32, mss: u32) -> i64 {
    // The cube root of segments / 0.4, in seconds; times 10^9 under the root gives milliseconds.
    let cubed = u64::from(octets) * 2_500_000_000 / u64::from(mss.max(1));
    i64::try_from(cube_root(cubed)).unwrap_or(i64::MAX)
}

/// The largest number whose cube is not above `value`.
fn cube_root(value: u64) -> u64 {
    let mut root = 0_u64;
    for bit in (0..=21).rev() {
        let next = root | (1 << bit);
        if next * next * next <= value {
            root = next;
        }
    }
    root
}

#[cfg(test)]
mod tests;
