//! Speed of connections on a path: what the formulas of the literature say, and which control beats
//! which.

use super::path::{MSS, Path, Wish, World};
use std::vec::Vec;
use xk_core::Time;

/// The part of the path's rate that one endless connection gets in `seconds`, in percent.
fn percent(path: Path, congestion: &str, seconds: u64) -> u64 {
    let mut world = World::new(path, 7);
    let flow = world.add(Wish::endless(congestion));
    world.run_until(Time::from_s(seconds));
    std::println!(
        "{congestion}: {} % window {} {:?} dropped {} lost {}",
        world.goodput(flow) * 100 / path.octets_per_s,
        world.flows[flow].recovery.window(),
        world.flows[flow].recovery.counters(),
        world.dropped,
        world.lost,
    );
    world.goodput(flow) * 100 / path.octets_per_s
}

#[test]
fn all_fill_a_clean_path() {
    for congestion in crate::congestion::NAMES {
        let reached = percent(Path::new(10, 40), congestion, 30);
        assert!(reached >= 95, "{congestion} reaches {reached} %");
    }
}

/// Mathis et al. (1997): MSS / RTT * sqrt(3/2) / sqrt(p), less for delayed acknowledgments; RFC
/// 9438, section 5, for CUBIC.
#[test]
fn one_loss_in_a_hundred_costs_what_the_formulas_say() {
    // 1448 octets * 12.2 segments / 40 ms is 3.5 Mb/s.
    let path = Path::new(10, 40).loss_percent(1);
    let newreno = percent(path, "newreno", 120);
    assert!((24..=42).contains(&newreno), "NewReno reaches {newreno} %");
    let cubic = percent(path, "cubic", 120);
    assert!((24..=50).contains(&cubic), "CUBIC reaches {cubic} %");
    let bbr = percent(path, "bbr", 120);
    assert!(bbr >= 88, "BBR reaches {bbr} %");
}

#[test]
fn cubic_beats_newreno_on_a_long_fat_path() {
    let path = Path { loss_ppm: 20, ..Path::new(200, 200) };
    let (newreno, cubic) = (percent(path, "newreno", 120), percent(path, "cubic", 120));
    assert!(cubic * 2 >= newreno * 3, "CUBIC reaches {cubic} %, NewReno {newreno} %");
    let bbr = percent(path, "bbr", 60);
    assert!(bbr >= 85, "BBR reaches {bbr} %");
}

#[test]
fn equals_share_equally() {
    for congestion in ["newreno", "cubic", "bbr"] {
        let mut world = World::new(Path::new(20, 40), 3);
        let flows: Vec<usize> = (0..4)
            .map(|n| {
                world.add(Wish { begins: Time::from_ms(n * 137), ..Wish::endless(congestion) })
            })
            .collect();
        world.run_until(Time::from_s(120));
        let rates: Vec<f64> = flows.iter().map(|&flow| world.goodput(flow) as f64).collect();
        // Jain's index: one if all have the same, a quarter if one has all.
        let sum: f64 = rates.iter().sum();
        let squares: f64 = rates.iter().map(|rate| rate * rate).sum();
        let fairness = sum * sum / (4.0 * squares);
        std::println!("{congestion}: {rates:?} {fairness} dropped {}", world.dropped);
        assert!(fairness > 0.85, "{congestion} {rates:?}");
        assert!(sum >= 2_500_000.0 * 0.93, "{congestion} {rates:?}");
    }
}

/// RFC 8985: losses of a segment and of its repair are found without the timer, and tails by
/// probes.
#[test]
fn timeouts_are_rare() {
    let path = Path::new(10, 40).loss_percent(2);
    for congestion in crate::congestion::NAMES {
        let mut world = World::new(path, 11);
        let flow = world.add(Wish::endless(congestion));
        world.run_until(Time::from_s(60));
        let counters = *world.flows[flow].recovery.counters();
        std::println!("{congestion}: {counters:?} lost {} dropped {}", world.lost, world.dropped);
        assert!(counters.timeouts * 50 <= counters.recoveries.max(50), "{congestion} {counters:?}");
        let needed = world.lost + world.dropped;
        assert!(counters.resent <= needed + needed / 20 + 5, "{congestion} {counters:?} {needed}");
    }
}

/// RFC 3168: marks keep the queue short without a single loss.
#[test]
fn marks_are_answered() {
    for congestion in ["newreno", "cubic", "bbr"] {
        let mut path = Path::new(10, 40);
        path.queue_octets = 200_000;
        path.mark_octets = Some(30_000);
        let mut world = World::new(path, 5);
        let flow = world.add(Wish::endless(congestion));
        world.run_until(Time::from_s(30));
        let counters = *world.flows[flow].recovery.counters();
        std::println!("{congestion}: {counters:?} {} {}", world.dropped, world.goodput(flow));
        assert_eq!((world.dropped, counters.resent), (0, 0), "{congestion}");
        assert!(counters.ecn > 0 && world.goodput(flow) > 1_000_000, "{congestion} {counters:?}");
    }
}

/// A late path is none that lost: RFC 5682 and RFC 3522 take the reduction back.
#[test]
fn a_stall_is_undone() {
    for (is_sack, has_timestamps) in [(true, true), (true, false), (false, true), (false, false)] {
        let stall = Some((Time::from_ms(10_000), Time::from_ms(11_500)));
        let path = Path { stall, ..Path::new(10, 40) };
        let mut world = World::new(path, 5);
        let flow = world.add(Wish { is_sack, has_timestamps, ..Wish::endless("newreno") });
        world.run_until(Time::from_ms(9_990));
        let before = world.flows[flow].recovery.congestion().threshold();
        world.run_until(Time::from_ms(12_500));
        let recovery = &world.flows[flow].recovery;
        std::println!(
            "{is_sack} {has_timestamps}: {:?} {before} {}",
            recovery.counters(),
            recovery.window()
        );
        assert!(recovery.counters().timeouts > 0);
        assert!(recovery.counters().undone > 0, "SACK {is_sack}, timestamps {has_timestamps}");
        assert!(recovery.window() >= before.min(5 * MSS));
    }
}
