//! A congestion control after BBR: it models the path by its bandwidth and round trip, instead of
//! filling queues until losses tell.
//!
//! The four states, their gains and the filters are those of the IETF draft on BBR's first version;
//! from the later versions it has the bound on what may be in flight, which is found when more than
//! two in a hundred octets of a round trip are lost or packets are marked, and the gentler probe of
//! the round trip. All in integers.

use super::{Congestion, Sample, Trouble, WINDOW_MAX, initial_window_octets};
use crate::loss::Extreme;
use core::time::Duration;
use xk_core::control::{Field, Writer};
use xk_core::{Time, fields};

/// Gains are in 256ths.
const UNITY: u64 = 256;

/// 2 / ln 2: the smallest gain that doubles the rate each round trip.
const STARTUP_GAIN: u64 = 739;

/// Inverse of the startup gain: empties in one round trip the queue that startup left.
const DRAIN_GAIN: u64 = 88;

/// Gain of the window: twice what the path holds may be in flight, as acknowledgments come late and
/// in bunches.
const WINDOW_GAIN: u64 = 2 * UNITY;

/// Rates of the phases while bandwidth is probed: more, less, and six times even.
const PROBE_GAINS: [u64; 8] = [320, 192, UNITY, UNITY, UNITY, UNITY, UNITY, UNITY];

/// Paced one in a hundred slower than estimated, so that queues shrink.
const PACING_MARGIN_PERCENT: u64 = 99;

/// Rounds for which a bandwidth is remembered.
const BANDWIDTH_ROUNDS: u64 = 10;

/// The pipe is full after so many rounds without a quarter more of bandwidth.
const FULL_ROUNDS: u32 = 3;

/// A round that loses more than this share of what it delivers had too much in flight.
const LOSS_PERCENT_MAX: u64 = 2;

/// In startup a round must lose at least so many segments besides.
const STARTUP_LOSSES_MIN: u64 = 6;

/// Time for which a smallest round trip is believed.
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);

/// Time for which the queue is kept empty to measure it again.
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);

/// Segments that are always allowed.
const WINDOW_SEGMENTS_MIN: u32 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BbrState {
    /// Doubles the rate each round trip until the bandwidth no longer grows.
    Startup,
    /// Empties the queue that startup made.
    Drain,
    /// Cycles through [`PROBE_GAINS`]; the phase, and since when.
    ProbeBandwidth(usize, Time),
    /// Keeps little in flight to see the path without queues; until when, once little is in flight,
    /// and the round after that ended.
    ProbeRtt(Option<Time>, bool),
}

/// BBR's state.
#[derive(Debug)]
pub struct Bbr {
    mss: u32,
    state: BbrState,
    /// Octets a second, by rounds.
    bandwidth: Extreme,
    rounds: u64,
    min_rtt: Option<Duration>,
    min_rtt_at: Time,
    window: u32,
    /// Before the timeout or the probe of the round trip.
    prior_window: u32,
    rate: Option<u64>,
    full_bandwidth: u64,
    full_rounds: u32,
    is_full: bool,
    /// The most that may be in flight, learnt from losses and marks.
    flight_max: u32,
    flight_max_before: u32,
    /// Rounds of probing beyond the bound without much loss.
    flight_max_rounds: u32,
    /// Octets lost and delivered in this round.
    lost_octets: u64,
    delivered_octets: u64,
    /// Whether this round's losses were answered.
    is_answered: bool,
}

fields!(
    enum BbrState {
        Startup = 0,
        Drain = 1,
        ProbeBandwidth(phase, since) = 2,
        ProbeRtt(until, over) = 3,
    }
);
fields!(Bbr {
    mss,
    state,
    bandwidth,
    rounds,
    min_rtt,
    min_rtt_at,
    window,
    prior_window,
    rate,
    full_bandwidth,
    full_rounds,
    is_full,
    flight_max,
    flight_max_before,
    flight_max_rounds,
    lost_octets,
    delivered_octets,
    is_answered,
});

impl Bbr {
    /// A window of the initial size.
    #[must_use]
    pub fn new(mss_octets: u32) -> Bbr {
        let mss = mss_octets.max(1);
        Bbr {
            mss,
            state: BbrState::Startup,
            bandwidth: Extreme::max(BANDWIDTH_ROUNDS),
            rounds: 0,
            min_rtt: None,
            min_rtt_at: Time::ZERO,
            window: initial_window_octets(mss),
            prior_window: 0,
            rate: None,
            full_bandwidth: 0,
            full_rounds: 0,
            is_full: false,
            flight_max: WINDOW_MAX,
            flight_max_before: WINDOW_MAX,
            flight_max_rounds: 0,
            lost_octets: 0,
            delivered_octets: 0,
            is_answered: false,
        }
    }

    fn gains(&self) -> (u64, u64) {
        match self.state {
            BbrState::Startup => (STARTUP_GAIN, STARTUP_GAIN),
            BbrState::Drain => (DRAIN_GAIN, STARTUP_GAIN),
            BbrState::ProbeBandwidth(phase, _) => (PROBE_GAINS[phase % 8], WINDOW_GAIN),
            BbrState::ProbeRtt(..) => (UNITY, UNITY / 2),
        }
    }

    /// Octets that the path holds at the estimated bandwidth, times `gain`; without an estimate the
    /// initial window.
    fn path_octets(&self, gain: u64) -> u32 {
        let (Some(bandwidth), Some(min_rtt)) = (self.bandwidth.get(), self.min_rtt) else {
            return initial_window_octets(self.mss);
        };
        let octets = u128::from(bandwidth) * min_rtt.as_nanos() / 1_000_000_000;
        let octets = octets * u128::from(gain) / u128::from(UNITY);
        u32::try_from(octets).unwrap_or(WINDOW_MAX).min(WINDOW_MAX)
    }

    fn window_min(&self) -> u32 {
        self.mss.saturating_mul(WINDOW_SEGMENTS_MIN).min(WINDOW_MAX)
    }

    fn take_round(&mut self, sample: &Sample) {
        if sample.round {
            self.rounds += 1;
            self.lost_octets = 0;
            self.delivered_octets = 0;
            self.is_answered = false;
        }
        self.lost_octets += u64::from(sample.lost_octets);
        self.delivered_octets += u64::from(sample.delivered_octets);
        if let Some(rate) = sample.rate {
            let octets_per_s = rate.octets_per_s();
            // A rate that the application limited tells only if it is higher all the same.
            if !rate.app_limited || self.bandwidth.get().is_none_or(|known| octets_per_s >= known) {
                self.bandwidth.update(octets_per_s, self.rounds);
            }
        }
    }

    fn loses_much(&self) -> bool {
        self.lost_octets * 100 > (self.delivered_octets + self.lost_octets) * LOSS_PERCENT_MAX
            && self.lost_octets > u64::from(self.mss)
    }

    /// The pipe is full when the bandwidth stops growing, or when much is lost.
    fn check_full(&mut self, sample: &Sample) {
        let Some(bandwidth) = self.bandwidth.get() else {
            return;
        };
        if self.is_full {
            return;
        }
        let many = self.lost_octets >= STARTUP_LOSSES_MIN * u64::from(self.mss);
        if many && self.loses_much() {
            self.is_full = true;
            self.bound_flight(sample.prior_in_flight_octets);
        } else if sample.round && sample.rate.is_some_and(|rate| !rate.app_limited) {
            if bandwidth >= self.full_bandwidth / 4 * 5 {
                self.full_bandwidth = bandwidth;
                self.full_rounds = 0;
            } else {
                self.full_rounds += 1;
                self.is_full = self.full_rounds >= FULL_ROUNDS;
            }
        }
    }

    /// More than the path bears was in flight: seven tenths are the bound, but what it surely holds
    /// is allowed.
    fn bound_flight(&mut self, in_flight: u32) {
        self.is_answered = true;
        self.flight_max_before = self.flight_max;
        let flight = u32::try_from(u64::from(in_flight) * 7 / 10).unwrap_or(WINDOW_MAX);
        self.flight_max = flight.max(self.path_octets(UNITY)).max(self.window_min());
        self.flight_max_rounds = 0;
    }

    fn change_state(&mut self, sample: &Sample) {
        let now = sample.now;
        match self.state {
            BbrState::Startup if self.is_full => self.state = BbrState::Drain,
            BbrState::Drain if sample.in_flight_octets <= self.path_octets(UNITY) => {
                // Connections that start together shall not probe together.
                self.state = BbrState::ProbeBandwidth(2 + now.as_us() as usize % 6, now);
            }
            BbrState::ProbeBandwidth(phase, since) => self.cycle(phase, since, sample),
            _ => {}
        }
    }

    fn cycle(&mut self, phase: usize, since: Time, sample: &Sample) {
        let lasted = sample.now.since(since) > self.min_rtt.unwrap_or_default();
        let gain = PROBE_GAINS[phase];
        if gain > UNITY {
            self.raise_bound(sample);
        }
        if self.loses_much() && !self.is_answered {
            let flight = sample.rate.map_or(sample.prior_in_flight_octets, |r| r.in_flight_octets);
            self.bound_flight(flight);
            if gain > UNITY {
                self.state = BbrState::ProbeBandwidth(1, sample.now);
                return;
            }
        }
        let over = match gain {
            // Until the probe has shown in the queue, or losses.
            more if more > UNITY => {
                let full = self.path_octets(more).min(self.flight_max);
                lasted && (sample.lost_octets > 0 || sample.prior_in_flight_octets >= full)
            }
            // Until the queue is gone.
            less if less < UNITY => lasted || sample.in_flight_octets <= self.path_octets(UNITY),
            _ => lasted,
        };
        if over {
            self.state = BbrState::ProbeBandwidth((phase + 1) % PROBE_GAINS.len(), sample.now);
        }
    }

    /// While more is probed and little is lost the bound grows, faster with each round.
    fn raise_bound(&mut self, sample: &Sample) {
        if self.flight_max == WINDOW_MAX || self.loses_much() || !sample.window_limited {
            return;
        }
        if sample.round {
            self.flight_max_rounds = (self.flight_max_rounds + 1).min(10);
        }
        let step = u64::from(self.mss) << self.flight_max_rounds;
        let opened = step * u64::from(sample.delivered_octets) / u64::from(self.flight_max);
        let raised = u64::from(self.flight_max).saturating_add(opened);
        self.flight_max = u32::try_from(raised).unwrap_or(WINDOW_MAX).min(WINDOW_MAX);
    }

    fn watch_rtt(&mut self, sample: &Sample) {
        let now = sample.now;
        let expired = now.since(self.min_rtt_at) > MIN_RTT_WINDOW;
        if let Some(rtt) = sample.rtt
            && (expired || self.min_rtt.is_none_or(|known| rtt <= known))
        {
            self.min_rtt = Some(rtt);
            self.min_rtt_at = now;
        }
        match self.state {
            BbrState::ProbeRtt(until, round) => self.go_on_probing_rtt(until, round, sample),
            _ if expired && self.is_full => {
                self.prior_window = self.prior_window.max(self.window);
                self.state = BbrState::ProbeRtt(None, false);
            }
            _ => {}
        }
    }

    fn go_on_probing_rtt(&mut self, until: Option<Time>, round: bool, sample: &Sample) {
        let now = sample.now;
        self.state = match until {
            None if sample.in_flight_octets <= self.probe_rtt_window() => {
                BbrState::ProbeRtt(Some(now + PROBE_RTT_TIME), false)
            }
            Some(until) if now >= until && round => {
                self.min_rtt_at = now;
                self.window = self.window.max(self.prior_window);
                self.prior_window = 0;
                BbrState::ProbeBandwidth(2, now)
            }
            Some(until) => BbrState::ProbeRtt(Some(until), round || sample.round),
            None => BbrState::ProbeRtt(None, false),
        };
    }

    fn probe_rtt_window(&self) -> u32 {
        self.path_octets(UNITY / 2).max(self.window_min())
    }

    fn set_rate(&mut self, pacing_gain: u64, sample: &Sample) {
        let rate = match self.bandwidth.get() {
            Some(bandwidth) => {
                let rate = u128::from(bandwidth) * u128::from(pacing_gain * PACING_MARGIN_PERCENT);
                u64::try_from(rate / u128::from(UNITY * 100)).unwrap_or(u64::MAX)
            }
            None => {
                let Some(srtt) = sample.srtt.filter(|srtt| !srtt.is_zero()) else {
                    return;
                };
                let window = u128::from(self.window) * u128::from(STARTUP_GAIN);
                let rate = window * 1_000_000_000 / (srtt.as_nanos() * u128::from(UNITY));
                u64::try_from(rate).unwrap_or(u64::MAX)
            }
        };
        // Until the pipe is full a lower estimate is only a worse one.
        if self.is_full || self.rate.is_none_or(|known| rate > known) {
            self.rate = Some(rate.max(1));
        }
    }

    fn set_window(&mut self, window_gain: u64, sample: &Sample) {
        let slack = self.mss.saturating_mul(3);
        let target = self.path_octets(window_gain).saturating_add(slack);
        let grown = self.window.saturating_add(sample.delivered_octets);
        self.window = if self.is_full {
            grown.min(target)
        } else if self.window < target || sample.window_limited {
            grown
        } else {
            self.window
        };
        let bound = match self.state {
            BbrState::ProbeRtt(..) => self.probe_rtt_window(),
            // Beside the probe some room is left to others.
            BbrState::ProbeBandwidth(phase, _) if phase > 0 && self.flight_max < WINDOW_MAX => {
                self.flight_max / 20 * 17
            }
            _ => self.flight_max,
        };
        self.window = self.window.min(bound).clamp(self.window_min(), WINDOW_MAX);
    }
}

impl Congestion for Bbr {
    fn name(&self) -> &'static str {
        "bbr"
    }

    fn set_mss(&mut self, mss_octets: u32) {
        self.mss = mss_octets.max(1);
        self.window = self.window.max(self.mss);
    }

    fn start(&mut self, window_octets: u32, now: Time) {
        self.window = window_octets.max(self.mss);
        self.min_rtt_at = now;
    }

    fn on_ack(&mut self, sample: &Sample) {
        self.take_round(sample);
        self.check_full(sample);
        self.watch_rtt(sample);
        self.change_state(sample);
        let (pacing_gain, window_gain) = self.gains();
        self.set_rate(pacing_gain, sample);
        self.set_window(window_gain, sample);
    }

    fn on_loss(&mut self, _trouble: &Trouble) {
        self.prior_window = self.prior_window.max(self.window);
        self.flight_max_before = self.flight_max;
    }

    fn on_timeout(&mut self, trouble: &Trouble) {
        if !trouble.again {
            self.prior_window = self.prior_window.max(self.window);
        }
        self.window = self.mss;
    }

    fn on_ecn(&mut self, trouble: &Trouble) {
        if !self.is_answered {
            self.bound_flight(trouble.in_flight_octets);
        }
    }

    fn recovered(&mut self, _now: Time) {
        if !matches!(self.state, BbrState::ProbeRtt(..)) {
            self.window = self.window.max(self.prior_window).min(self.flight_max);
            self.prior_window = 0;
        }
    }

    fn undo(&mut self, _now: Time) {
        self.flight_max = self.flight_max.max(self.flight_max_before);
        self.window = self.window.max(self.prior_window);
    }

    fn after_idle(&mut self, now: Time, _idle: Duration, _rto: Duration) {
        // An idle time is as good as a probe of the round trip: the queue is empty.
        self.min_rtt_at = self.min_rtt_at.max(now.before(MIN_RTT_WINDOW));
        if let (BbrState::ProbeBandwidth(..), Some(bandwidth)) = (self.state, self.bandwidth.get())
        {
            self.rate = Some(bandwidth.max(1));
        }
    }

    fn window(&self) -> u32 {
        self.window
    }

    fn threshold(&self) -> u32 {
        if self.is_full { self.window } else { WINDOW_MAX }
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.rate
    }

    fn rules_recovery(&self) -> bool {
        true
    }

    fn write(&self, out: &mut Writer<'_>) {
        self.put(out);
    }

    fn is_sound(&self) -> bool {
        let counts = [self.rounds, self.lost_octets, self.delivered_octets];
        let phase_is_one = match self.state {
            BbrState::ProbeBandwidth(phase, _) => phase < PROBE_GAINS.len(),
            _ => true,
        };
        let windows = [self.window, self.prior_window, self.flight_max, self.flight_max_before];
        super::is_sound(self.mss, &windows)
            && self.flight_max > 0
            && phase_is_one
            && self.full_rounds < 1 << 30
            && self.flight_max_rounds <= 10
            && self.full_bandwidth < 1 << 60
            && counts.iter().all(|count| *count < 1 << 48)
    }
}

#[cfg(test)]
mod tests;
