//! Goodput of two machines over a channel that loses in both directions.

use super::pattern;
use super::{Channel, Faults, Settings, Side};
use crate::congestion::{NAMES, Name};
use crate::loss::Counters;
use core::time::Duration;
use xk_kit::net::stream::StreamSetting;

/// Enough that their mean tells more than chance.
const SEEDS: [u64; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];

/// Moves `octets` while so many of a million segments get lost: the time it takes, in milliseconds,
/// and what recovery had to do.
fn transfer(congestion: &'static str, seed: u64, loss: u32, octets: usize) -> (u128, Counters) {
    let congestion = Name::of(congestion).unwrap();
    let settings = Settings { congestion, ..Settings::default() };
    let faults = Faults { loss, ..Faults::default() };
    let mut channel = Channel::with(seed, faults, settings);
    let begin = channel.now;
    channel.write(Side::A, &pattern(octets, 1));
    while channel.got(Side::B).len() < octets && channel.now.since(begin) < Duration::from_secs(600)
    {
        channel.run_for(Duration::from_millis(5));
    }
    assert_eq!(channel.got(Side::B), pattern(octets, 1));
    let counters = *channel.machine(Side::A).recovery.counters();
    (channel.now.since(begin).as_millis(), counters)
}

/// MSS / RTT * sqrt(3/2) / sqrt(p) is 1.77 MB/s at 10 ms (Mathis et al., 1997); nothing is sent
/// again that arrived.
#[test]
fn one_loss_in_a_hundred_is_repaired_without_waste() {
    for congestion in NAMES {
        let (ms, counters) = transfer(congestion, 5, 10_000, 2_000_000);
        assert!(ms < 1_600, "{congestion}: {ms} ms, {counters:?}");
        // The last segment has none behind it that would tell of its loss.
        assert!(counters.timeouts <= 1, "{congestion}: {counters:?}");
        assert_eq!(counters.dsacks, 0, "{congestion}");
    }
}

/// Most timeouts are of tails whose probes got lost as well; none waits longer and longer.
#[test]
fn one_loss_in_five_is_borne() {
    for congestion in NAMES {
        let all = SEEDS.map(|seed| transfer(congestion, seed, 200_000, 400_000));
        let mean = all.iter().map(|(ms, _)| ms).sum::<u128>() / SEEDS.len() as u128;
        assert!(mean < 15_000, "{congestion}: {mean} ms, {all:?}");
    }
}

/// A buffer that is smaller than two windows would be what limits the sender.
#[test]
fn the_send_buffer_grows_with_the_congestion_window() {
    let (first, most) = (64 << 10, 1 << 20);
    let settings = Settings { send_buffer: first, send_buffer_max: most, ..Settings::default() };
    let mut channel = Channel::with(1, Faults::default(), settings);
    channel.write(Side::A, &pattern(5_000_000, 1));
    channel.run_for(Duration::from_millis(200));
    let sender = channel.machine(Side::A);
    let (buffer, window) = (sender.send.buffer, sender.recovery.congestion().window());
    assert!(buffer >= window.saturating_mul(2).min(most), "{buffer} for {window}");
    assert!(buffer > 4 * first, "{buffer}");
}

/// A program that has set it means it.
#[test]
fn a_send_buffer_that_is_set_stays() {
    let mut channel = Channel::new(1, Faults::default());
    let now = channel.now;
    assert!(channel.machine(Side::A).set(StreamSetting::SendBuffer(64 << 10), now));
    channel.write(Side::A, &pattern(5_000_000, 1));
    channel.run_for(Duration::from_millis(500));
    assert_eq!(channel.machine(Side::A).send.buffer, 64 << 10);
}
