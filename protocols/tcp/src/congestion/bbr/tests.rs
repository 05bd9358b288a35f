//! Tests of the model and its states; how it does on a path is seen in `loss`.

use super::*;
use crate::loss::RateSample;
use proptest::prelude::*;

const MSS: u32 = 1000;
const RTT: Duration = Duration::from_millis(40);

/// Sample that a path of `octets_per_s` gives each round trip to a sender of `in_flight` octets.
fn sample(now: Time, octets_per_s: u64, in_flight: u32) -> Sample {
    let held = u32::try_from(octets_per_s * 40 / 1000).unwrap();
    let delivered = in_flight.min(held);
    let queued = u64::from(in_flight.saturating_sub(held));
    let rtt = RTT + Duration::from_nanos(queued * 1_000_000_000 / octets_per_s);
    Sample {
        now,
        acked_octets: delivered,
        delivered_octets: delivered,
        lost_octets: 0,
        in_flight_octets: 0,
        prior_in_flight_octets: in_flight,
        rtt: Some(rtt),
        srtt: Some(rtt),
        min_rtt: Some(RTT),
        rate: Some(RateSample {
            delivered_octets: delivered.into(),
            interval: RTT,
            app_limited: false,
            prior_delivered_octets: 0,
            in_flight_octets: in_flight,
        }),
        round: true,
        window_limited: true,
        recovering: false,
    }
}

#[test]
fn startup_finds_the_bandwidth_and_drains() {
    let mut bbr = Bbr::new(MSS);
    let rate = 1_250_000;
    for n in 1..20 {
        bbr.on_ack(&sample(Time::from_ms(40 * n), rate, bbr.window()));
    }
    assert_eq!(bbr.bandwidth.get(), Some(rate));
    assert_eq!(bbr.min_rtt, Some(RTT));
    assert!(matches!(bbr.state, BbrState::ProbeBandwidth(..)), "{:?}", bbr.state);
    // Twice 50,000 octets, and three segments.
    assert_eq!(bbr.window(), 103_000);
}

#[test]
fn much_loss_bounds_what_is_in_flight() {
    let mut bbr = Bbr::new(MSS);
    for n in 1..20 {
        bbr.on_ack(&sample(Time::from_ms(40 * n), 1_250_000, bbr.window()));
    }
    let lossy = Sample { lost_octets: 5 * MSS, ..sample(Time::from_ms(900), 1_250_000, 100_000) };
    bbr.on_ack(&lossy);
    assert_eq!(bbr.flight_max, 70_000);
    assert!(bbr.window() <= 70_000);
}

#[test]
fn little_loss_changes_nothing() {
    let mut bbr = Bbr::new(MSS);
    for n in 1..50 {
        let lossy = Sample {
            lost_octets: MSS / 2,
            ..sample(Time::from_ms(40 * n), 1_250_000, bbr.window())
        };
        bbr.on_ack(&lossy);
    }
    assert_eq!(bbr.flight_max, WINDOW_MAX);
    assert_eq!(bbr.window(), 103_000);
}

#[test]
fn the_round_trip_is_probed_after_ten_seconds() {
    let mut bbr = Bbr::new(MSS);
    let (mut least, mut probes) = (u32::MAX, 0);
    for n in 1..1000 {
        // Something else fills the queue, so that the smallest round trip never shows by itself.
        let later = if n > 20 { Duration::from_millis(5) } else { Duration::ZERO };
        let seen = sample(Time::from_ms(40 * n), 1_250_000, bbr.window());
        bbr.on_ack(&Sample { rtt: seen.rtt.map(|rtt| rtt + later), ..seen });
        if n > 20 {
            least = least.min(bbr.window());
        }
        probes += u32::from(matches!(bbr.state, BbrState::ProbeRtt(None, _)));
    }
    assert!(least <= 32_000, "half of what the path holds: {least}");
    assert!((2..=4).contains(&probes), "{probes}");
}

proptest! {
    #[test]
    fn windows_and_rates_stay_in_bounds(
        steps in proptest::collection::vec((0_u8..7, 1_u32..1 << 24, 0_u64..5_000), 1..200),
    ) {
        let mut bbr = Bbr::new(MSS);
        let mut now = Time::ZERO;
        for (what, octets, ms) in steps {
            now += Duration::from_millis(ms);
            let trouble = Trouble {
                now,
                outstanding_octets: octets,
                in_flight_octets: octets,
                lost_octets: octets / 2,
                again: ms % 2 == 0,
            };
            match what {
                0 => bbr.on_loss(&trouble),
                1 => bbr.on_timeout(&trouble),
                2 => bbr.undo(now),
                3 => bbr.after_idle(now, Duration::from_millis(ms), RTT),
                4 => bbr.recovered(now),
                5 => bbr.on_ecn(&trouble),
                _ => bbr.on_ack(&Sample {
                    lost_octets: octets / 50,
                    in_flight_octets: octets,
                    ..sample(now, ms * 1000 + 1, octets)
                }),
            }
            prop_assert!((MSS..=WINDOW_MAX).contains(&bbr.window()));
            prop_assert!(bbr.pacing_rate() != Some(0));
        }
    }
}
