//! Tests of the whole of loss recovery.

mod everything_arrives;
mod hostile;
mod path;
mod rules;
mod throughput;

use super::{Ack, Due, Phase, Recovery, SackBlock, Scoreboard, Timer};
use crate::Seq;
use crate::congestion::NewReno;
use alloc::boxed::Box;
use core::time::Duration;
use xk_core::Time;

const MSS: u32 = 1000;

/// A connection whose SYN went at zero.
fn fresh() -> Recovery {
    let mut recovery = Recovery::new((MSS, 1 << 16), Box::new(NewReno::new(MSS)), Seq(0));
    recovery.sent(1, Time::ZERO).unwrap();
    recovery
}

/// A connection that is established at 100 ms, with a round trip of 100 ms and the initial window.
fn connected(is_sack: bool) -> Recovery {
    let mut recovery = fresh();
    recovery.acknowledge(&Ack::plain(Seq(1)), Time::from_ms(100));
    recovery.established(MSS, is_sack, Time::from_ms(100));
    recovery
}

fn at(ms: u64) -> Time {
    Time::from_ms(ms)
}

fn send(recovery: &mut Recovery, segments: u32, now: Time) {
    for _ in 0..segments {
        recovery.sent(MSS, now).unwrap();
    }
}

/// The number of the first octet of segment `n`, counted from zero.
fn seq(n: u32) -> Seq {
    Seq(1 + n * MSS)
}

fn block(from: u32, to: u32) -> SackBlock {
    SackBlock { start: seq(from), end: seq(to) }
}

#[test]
fn the_handshake_gives_the_first_round_trip() {
    let mut recovery = connected(true);
    assert_eq!(recovery.rtt().smoothed(), Some(Duration::from_millis(100)));
    assert_eq!(recovery.rtt().rto(), Duration::from_millis(300));
    assert_eq!(recovery.window(), 10 * MSS);
    assert_eq!(recovery.may_send(at(100)), 10 * MSS);
    assert_eq!(recovery.timer(true), None);
}

fn sacked<'a>(ack: Seq, sack: &'a [SackBlock]) -> Ack<'a> {
    Ack { sack, duplicate: true, waiting: true, ..Ack::plain(ack) }
}

/// RFC 8985, section 6.2, step 4; RFC 6675, section 5: three sacked segments begin fast recovery.
#[test]
fn three_sacked_segments_begin_fast_recovery() {
    let mut recovery = connected(true);
    send(&mut recovery, 10, at(100));
    for n in 2..=3 {
        let acked = recovery.acknowledge(&sacked(seq(0), &[block(1, n)]), at(200));
        assert_eq!((acked.lost_octets, recovery.phase()), (0, Phase::Open));
    }
    let acked = recovery.acknowledge(&sacked(seq(0), &[block(1, 4)]), at(200));
    assert_eq!((acked.lost_octets, recovery.phase()), (MSS, Phase::Recovery));
    let lost = recovery.next_lost(at(200)).unwrap();
    assert_eq!((lost.start, lost.octets), (seq(0), MSS));
    assert!(recovery.resent(lost.start, at(200)));
    assert_eq!(recovery.next_lost(at(200)), None);
    let acked = recovery.acknowledge(&Ack::plain(seq(10)), at(300));
    assert_eq!((acked.acked_octets, recovery.phase()), (10 * MSS, Phase::Open));
    assert_eq!(recovery.window(), 5 * MSS);
    assert_eq!(recovery.timer(true), None);
}

/// RFC 6298, section 5: the timer runs while something is outstanding, and doubles.
#[test]
fn the_timer_doubles() {
    let mut recovery = connected(false);
    send(&mut recovery, 1, at(100));
    assert_eq!(recovery.timer(false), Some((Timer::Retransmission, at(400))));
    assert_eq!(recovery.on_timer(at(399), false), Due::Nothing);
    assert_eq!(recovery.on_timer(at(400), false), Due::Timeout(1));
    assert_eq!((recovery.phase(), recovery.window()), (Phase::Timeout, MSS));
    assert!(recovery.resent(recovery.next_lost(at(400)).unwrap().start, at(400)));
    assert_eq!(recovery.timer(false), Some((Timer::Retransmission, at(1000))));
    assert_eq!(recovery.on_timer(at(1000), false), Due::Timeout(2));
}

/// An idle connection may take 2 KiB in all.
#[test]
fn an_idle_connection_takes_little() {
    let congestion = size_of::<crate::congestion::Bbr>().max(size_of::<crate::congestion::Cubic>());
    let (recovery, segment) = (size_of::<Recovery>(), Scoreboard::SEGMENT_OCTETS);
    assert!(recovery + congestion <= 1024, "{recovery} and {congestion} octets");
    assert_eq!(segment, 64, "what `Recovery::new` promises");
}
