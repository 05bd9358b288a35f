//! HyStart++: leaves slow start when the round trip grows, before losses tell (RFC 9406).

use core::time::Duration;
use xk_core::fields;

/// Bounds of the growth of the round trip that counts (RFC 9406, section 4.3).
const RTT_GROWTH_MIN: Duration = Duration::from_millis(4);
const RTT_GROWTH_MAX: Duration = Duration::from_millis(16);

/// Otherwise it is this part of the round trip (RFC 9406, section 4.3).
const RTT_DIVISOR: u32 = 8;

/// Measurements in a round before it is judged (RFC 9406, section 4.3).
const SAMPLES_MIN: u32 = 8;

/// In conservative slow start the window grows by this part (RFC 9406, section 4.3).
const CONSERVATIVE_DIVISOR: u32 = 4;

/// Rounds of conservative slow start (RFC 9406, section 4.3).
const CONSERVATIVE_ROUNDS: u32 = 5;

/// Growth of the window in slow start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// By all that was acknowledged, over this divisor.
    By(u32),
    /// Not at all: congestion avoidance begins.
    Over,
}

/// The state of one connection's first slow start.
#[derive(Clone, Debug, Default)]
pub(super) struct HyStart {
    last_round: Option<Duration>,
    this_round: Option<Duration>,
    samples: u32,
    /// In conservative slow start: the round trip it began with, and its rounds.
    conservative: Option<(Duration, u32)>,
}

fields!(HyStart { last_round, this_round, samples, conservative });

impl HyStart {
    /// Whether it has counted no more than a slow start has.
    pub(super) fn is_sound(&self) -> bool {
        self.samples < 1 << 30 && self.conservative.is_none_or(|(_, rounds)| rounds < 1 << 30)
    }

    /// An acknowledgment in slow start, which measured `rtt`; `round` says that a round trip ended
    /// with it.
    pub(super) fn on_ack(&mut self, rtt: Option<Duration>, round: bool) -> Growth {
        if round {
            self.last_round = self.this_round.take();
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                if *rounds >= CONSERVATIVE_ROUNDS {
                    return Growth::Over;
                }
            }
        }
        if let Some(rtt) = rtt {
            self.this_round = Some(self.this_round.map_or(rtt, |least| least.min(rtt)));
            self.samples += 1;
        }
        if self.samples >= SAMPLES_MIN {
            self.judge();
        }
        Growth::By(if self.conservative.is_some() { CONSERVATIVE_DIVISOR } else { 1 })
    }

    fn judge(&mut self) {
        let Some(least) = self.this_round else {
            return;
        };
        match (self.conservative, self.last_round) {
            // The growth was a passing one (RFC 9406, section 4.2).
            (Some((baseline, _)), _) if least < baseline => self.conservative = None,
            (None, Some(last)) => {
                let growth = (last / RTT_DIVISOR).clamp(RTT_GROWTH_MIN, RTT_GROWTH_MAX);
                if least >= last + growth {
                    self.conservative = Some((least, 0));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(hystart: &mut HyStart, ms: u64) -> Growth {
        let rtt = Some(Duration::from_millis(ms));
        let first = hystart.on_ack(rtt, true);
        if first == Growth::Over {
            return first;
        }
        (1..SAMPLES_MIN).map(|_| hystart.on_ack(rtt, false)).last().unwrap()
    }

    #[test]
    fn a_steady_round_trip_lets_slow_start_go_on() {
        let mut hystart = HyStart::default();
        for _ in 0..20 {
            assert_eq!(round(&mut hystart, 50), Growth::By(1));
        }
    }

    #[test]
    fn a_grown_round_trip_slows_and_then_ends_it() {
        let mut hystart = HyStart::default();
        assert_eq!(round(&mut hystart, 80), Growth::By(1));
        assert_eq!(round(&mut hystart, 89), Growth::By(1), "an eighth of 80 ms is 10");
        assert_eq!(round(&mut hystart, 101), Growth::By(4));
        for _ in 1..CONSERVATIVE_ROUNDS {
            assert_eq!(round(&mut hystart, 101), Growth::By(4));
        }
        assert_eq!(round(&mut hystart, 101), Growth::Over);
    }

    #[test]
    fn a_passing_growth_is_forgiven() {
        let mut hystart = HyStart::default();
        round(&mut hystart, 20);
        assert_eq!(round(&mut hystart, 30), Growth::By(4));
        assert_eq!(round(&mut hystart, 22), Growth::By(1));
        assert_eq!(round(&mut hystart, 22), Growth::By(1));
    }

    #[test]
    fn few_measurements_decide_nothing() {
        let mut hystart = HyStart::default();
        for ms in [20, 40, 80, 160] {
            assert_eq!(hystart.on_ack(Some(Duration::from_millis(ms)), true), Growth::By(1));
        }
    }
}
