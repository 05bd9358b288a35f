//! Tests of the curve and its reductions.

use super::*;
use proptest::prelude::*;

const MSS: u32 = 1000;
const RTT: Duration = Duration::from_millis(100);

fn sample(now: Time, octets: u32) -> Sample {
    Sample {
        now,
        acked_octets: octets,
        delivered_octets: octets,
        lost_octets: 0,
        in_flight_octets: 0,
        prior_in_flight_octets: 0,
        rtt: Some(RTT),
        srtt: Some(RTT),
        min_rtt: Some(RTT),
        rate: None,
        round: false,
        window_limited: true,
        recovering: false,
    }
}

fn trouble(cubic: &Cubic) -> Trouble {
    Trouble {
        now: Time::ZERO,
        outstanding_octets: cubic.window(),
        in_flight_octets: cubic.window(),
        lost_octets: MSS,
        again: false,
    }
}

/// A connection with a window of `segments` when it meets its first loss.
fn lossy(segments: u32) -> Cubic {
    let mut cubic = Cubic::new(MSS);
    cubic.start(segments * MSS, Time::ZERO);
    let trouble = trouble(&cubic);
    cubic.on_loss(&trouble);
    cubic
}

/// Acknowledges a window's worth each round trip until `ms`.
fn run(cubic: &mut Cubic, from_ms: u64, to_ms: u64) {
    let mut now = from_ms;
    while now < to_ms {
        now += 100;
        let mut window = cubic.window();
        while window > 0 {
            let octets = window.min(MSS);
            cubic.on_ack(&sample(Time::from_ms(now), octets));
            window -= octets;
        }
    }
}

proptest! {
    #[test]
    fn the_root_is_the_largest(value in 0..u64::from(WINDOW_MAX) * 2_500_000_000) {
        let root = u128::from(cube_root(value));
        prop_assert!(root.pow(3) <= u128::from(value) && (root + 1).pow(3) > u128::from(value));
    }
}

/// RFC 9438, section 4.6: the decrease is to seven tenths.
#[test]
fn a_loss_takes_three_tenths() {
    let cubic = lossy(100);
    assert_eq!((cubic.window(), cubic.threshold()), (70 * MSS, 70 * MSS));
}

/// RFC 9438, section 4.2: K is the cube root of (W_max - cwnd) / C.
#[test]
fn the_curve_returns_after_k() {
    // 300 segments below 1000: the cube root of 300 / 0.4 is 9.086 s.
    assert_eq!(k_ms(300 * MSS, MSS), 9085);
    let mut cubic = lossy(1000);
    run(&mut cubic, 0, 9_000);
    let window = cubic.window() / MSS;
    assert!((985..=1000).contains(&window), "{window}");
    run(&mut cubic, 9_000, 18_000);
    let window = cubic.window() / MSS;
    assert!((1240..=1330).contains(&window), "C (t - K)^3 is 283 then: {window}");
}

/// RFC 9438, section 4.3: where the curve is slower than Reno, Reno's rule holds.
#[test]
fn small_windows_are_renos() {
    let mut cubic = lossy(20);
    run(&mut cubic, 0, 1_000);
    // Ten round trips at 9/17 of a segment each, from 14 on.
    let window = cubic.window();
    assert!((18 * MSS..=20 * MSS).contains(&window), "{window}");
}

/// RFC 9438, section 4.7.
#[test]
fn fast_convergence_lowers_the_middle() {
    let mut cubic = lossy(100);
    assert_eq!(cubic.state.w_max, 100 * MSS);
    let trouble = trouble(&cubic);
    cubic.on_loss(&trouble);
    assert_eq!(cubic.state.w_max, 70 * MSS * 85 / 100);
    assert_eq!(cubic.window(), 49 * MSS);
}

/// RFC 9438, section 4.9: a reduction that was wrong leaves nothing behind.
#[test]
fn undo_restores_all() {
    let mut cubic = lossy(1000);
    run(&mut cubic, 0, 2_000);
    let (window, threshold) = (cubic.window(), cubic.threshold());
    let trouble = trouble(&cubic);
    cubic.on_timeout(&trouble);
    assert_eq!(cubic.window(), MSS);
    cubic.undo(Time::from_ms(2_000));
    assert_eq!((cubic.window(), cubic.threshold()), (window, threshold));
    assert_eq!(cubic.state.w_max, 1000 * MSS);
    assert!(cubic.state.epoch.is_some());
}

/// RFC 9438, section 4.8: after a timeout the curve begins where slow start ended.
#[test]
fn a_timeout_begins_anew() {
    let mut cubic = lossy(100);
    let trouble = trouble(&cubic);
    cubic.on_timeout(&trouble);
    assert_eq!((cubic.window(), cubic.threshold()), (MSS, 49 * MSS));
    run(&mut cubic, 0, 600);
    assert!(cubic.window() >= 49 * MSS);
    let epoch = cubic.state.epoch.unwrap();
    assert_eq!(epoch.k_ms, 0);
}

/// RFC 9438, section 5.8: no growth for a window that is not used, nor a leap afterwards.
#[test]
fn an_unused_window_does_not_grow() {
    let mut cubic = lossy(1000);
    run(&mut cubic, 0, 1_000);
    let window = cubic.window();
    for ms in (1_100..60_000).step_by(100) {
        let unused = Sample { window_limited: false, ..sample(Time::from_ms(ms), MSS) };
        cubic.on_ack(&unused);
    }
    assert_eq!(cubic.window(), window);
    cubic.on_ack(&sample(Time::from_ms(60_000), MSS));
    assert!(cubic.window() - window < MSS, "{}", cubic.window() - window);
}

proptest! {
    /// Whatever is told, the window stays between one segment and the bound.
    #[test]
    fn windows_stay_in_bounds(
        steps in proptest::collection::vec((0_u8..6, 0_u32..1 << 20, 0_u64..5_000), 1..200),
    ) {
        let mut cubic = Cubic::new(MSS);
        let mut now = Time::ZERO;
        for (what, octets, ms) in steps {
            now += Duration::from_millis(ms);
            let trouble = Trouble { outstanding_octets: octets, ..trouble(&cubic) };
            match what {
                0 => cubic.on_loss(&trouble),
                1 => cubic.on_timeout(&trouble),
                2 => cubic.undo(now),
                3 => cubic.after_idle(now, Duration::from_millis(ms), RTT),
                4 => cubic.recovered(now),
                _ => cubic.on_ack(&Sample { round: ms > 2_500, ..sample(now, octets) }),
            }
            prop_assert!((MSS..=WINDOW_MAX).contains(&cubic.window()));
            prop_assert!(cubic.threshold() >= 2 * MSS);
        }
    }
}
