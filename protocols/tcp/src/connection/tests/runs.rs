//! Runs of segments, each way.

use super::channel::{Channel, Faults, Side};
use super::pattern;
use super::rules::{Lone, plain};
use super::*;

const FULL: usize = 1000;

/// Runs that the machine sends now: octets, those of a segment, and flags.
fn runs(lone: &mut Lone) -> Vec<(usize, u16, Flags)> {
    let mut all = Vec::new();
    while let Some(out) = lone.machine.transmit(lone.now) {
        let octets = out.payload.map_or(0, |payload| payload.len());
        all.push((octets, out.run, out.header.flags));
    }
    all
}

#[test]
fn what_may_go_goes_at_once_where_somebody_cuts() {
    let mut lone = Lone::new(plain());
    lone.machine.set_runs(true);
    lone.write(&pattern(20_500, 1));
    // RFC 6928: ten segments at first.
    assert_eq!(runs(&mut lone), [(10 * FULL, 1000, Flags::ACK)]);
    assert_eq!(lone.machine.recovery.board().segments(), 10);
    let ack = lone.header(Flags::ACK, 1, 10 * FULL as u32 + 1);
    lone.take(&ack, b"").unwrap();
    let small = (500, 0, Flags::ACK | Flags::PSH);
    assert_eq!(runs(&mut lone), [(10 * FULL, 1000, Flags::ACK), small]);
    // What fills no segment waits for another that did not (RFC 9293, appendix A.3).
    lone.write(&pattern(2100, 1));
    assert_eq!(runs(&mut lone), [(2 * FULL, 1000, Flags::ACK)]);
    lone.machine.shut();
    let last = runs(&mut lone);
    assert_eq!(last, [(100, 0, Flags::ACK | Flags::PSH | Flags::FIN)]);
}

#[test]
fn the_end_goes_with_a_run() {
    let mut lone = Lone::new(plain());
    lone.machine.set_runs(true);
    lone.write(&pattern(3 * FULL, 1));
    lone.machine.shut();
    let flags = Flags::ACK | Flags::PSH | Flags::FIN;
    assert_eq!(runs(&mut lone), [(3 * FULL, 1000, flags)]);
    assert_eq!(lone.machine.recovery.board().segments(), 3);
    assert_eq!(lone.machine.recovery.board().outstanding_octets(), 3001);
}

#[test]
fn a_lost_segment_of_a_run_goes_again_alone() {
    let mut lone =
        Lone::new(Settings { window_scale: false, timestamps: false, ..Settings::default() });
    lone.machine.set_runs(true);
    lone.write(&pattern(10 * FULL, 1));
    assert_eq!(runs(&mut lone).len(), 1);
    let mut ack = lone.header(Flags::ACK, 1, 2 * FULL as u32 + 1);
    let first = ack.ack - 2 * FULL as u32;
    let block = |n: u32| first + n * FULL as u32;
    ack.options.sack.push((block(3), block(10)));
    lone.take(&ack, b"").unwrap();
    let again = lone.sent();
    assert_eq!(again.len(), 1);
    assert_eq!(again[0].0.seq, block(2));
    assert_eq!(again[0].1, pattern(10 * FULL, 1)[2 * FULL..3 * FULL]);
}

#[test]
fn runs_that_arrive_count_by_their_segments() {
    let mut lone = Lone::new(crate::Settings { quick_acks: false, ..plain() });
    let mut seq = 1;
    // RFC 9293, section 3.8.6.3: at least every second full-sized segment.
    for (octets, answers) in [(1000, 0), (1000, 1), (20_000, 1), (1000, 0), (5000, 1)] {
        let header = lone.header(Flags::ACK, seq, 1);
        if octets > 1000 {
            lone.machine.expect_run(1000);
        }
        lone.take(&header, &pattern(octets, 2)).unwrap();
        assert_eq!(lone.sent().len(), answers, "{octets} octets at {seq}");
        seq += octets as u32;
    }
}

#[test]
fn a_run_goes_faster_through_no_window_than_its_segments() {
    let octets = 400_000;
    let sent = |runs| {
        let faults = Faults { runs, ..Faults::default() };
        let mut channel = Channel::new(1, faults);
        channel.write(Side::A, &pattern(octets, 1));
        channel.run();
        assert_eq!(channel.got(Side::B).len(), octets);
        let data = channel.log.iter().filter(|(_, side, _, data)| *side == Side::A && *data > 0);
        data.map(|(at, _, header, data)| (*at, header.seq, *data)).collect::<Vec<_>>()
    };
    assert_eq!(sent(true), sent(false));
}
