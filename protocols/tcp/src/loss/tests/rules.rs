//! Rules of the RFCs, one by one.

use super::{MSS, at, block, connected, sacked, send, seq};
use crate::Seq;
use crate::loss::{Ack, Due, Lost, Phase, Recovery, Timer};
use core::time::Duration;

fn duplicate(ack: Seq) -> Ack<'static> {
    Ack { duplicate: true, waiting: true, ..Ack::plain(ack) }
}

fn resend_all(recovery: &mut Recovery, ms: u64) -> u32 {
    let mut count = 0;
    while let Some(lost) = recovery.next_lost(at(ms)) {
        assert!(recovery.resent(lost.start, at(ms)));
        count += 1;
    }
    count
}

/// RFC 3042, section 2: the first two duplicates let one new segment go each.
#[test]
fn limited_transmit() {
    for is_sack in [false, true] {
        let mut recovery = connected(is_sack);
        send(&mut recovery, 10, at(100));
        assert_eq!(recovery.may_send(at(100)), 0);
        for n in 1..=2 {
            recovery.acknowledge(&sacked(seq(0), &[block(1, 1 + n)]), at(200));
            assert_eq!((recovery.may_send(at(200)), recovery.phase()), (MSS, Phase::Open));
            send(&mut recovery, 1, at(200));
        }
    }
}

/// RFC 6582, section 3.2: the third duplicate begins fast recovery, and each partial acknowledgment
/// shows the next hole.
#[test]
fn newreno_repairs_one_hole_a_round_trip() {
    let mut recovery = connected(false);
    send(&mut recovery, 10, at(100));
    for _ in 0..2 {
        recovery.acknowledge(&duplicate(seq(0)), at(200));
    }
    assert_eq!(recovery.phase(), Phase::Open);
    let acked = recovery.acknowledge(&duplicate(seq(0)), at(200));
    assert_eq!((recovery.phase(), acked.lost_octets), (Phase::Recovery, MSS));
    assert_eq!(recovery.congestion().threshold(), 5 * MSS);
    assert_eq!(recovery.next_lost(at(200)), Some(Lost { start: seq(0), octets: MSS }));
    assert_eq!(resend_all(&mut recovery, 200), 1);
    // Segment 4 is missing as well.
    let acked = recovery.acknowledge(&Ack { waiting: true, ..Ack::plain(seq(4)) }, at(300));
    assert_eq!((recovery.phase(), acked.lost_octets), (Phase::Recovery, MSS));
    assert_eq!(recovery.next_lost(at(300)).map(|lost| lost.start), Some(seq(4)));
    assert_eq!(resend_all(&mut recovery, 300), 1);
    recovery.acknowledge(&Ack::plain(seq(10)), at(400));
    assert_eq!((recovery.phase(), recovery.window()), (Phase::Open, 5 * MSS));
    assert_eq!(recovery.counters().timeouts, 0);
}

/// RFC 6582, section 3.2, step 2: duplicates of what a timeout sent again begin no fast recovery.
#[test]
fn duplicates_after_a_timeout_are_no_loss() {
    let mut recovery = connected(false);
    send(&mut recovery, 4, at(100));
    assert_eq!(recovery.on_timer(at(400), false), Due::Timeout(1));
    assert_eq!(resend_all(&mut recovery, 400), 1);
    recovery.acknowledge(&Ack::plain(seq(4)), at(500));
    assert_eq!(recovery.phase(), Phase::Open);
    send(&mut recovery, 1, at(500));
    for _ in 0..4 {
        recovery.acknowledge(&duplicate(seq(4)), at(510));
    }
    assert_eq!(recovery.phase(), Phase::Open);
}

/// RFC 8985, section 6.2: before reordering was seen, fewer than three sacked segments wait a
/// quarter of the round trip.
#[test]
fn the_reordering_window_ends_by_timer() {
    let mut recovery = connected(true);
    send(&mut recovery, 3, at(100));
    recovery.acknowledge(&sacked(seq(0), &[block(1, 2)]), at(200));
    assert_eq!(recovery.timer(false), Some((Timer::Reordering, at(225))));
    assert_eq!(recovery.on_timer(at(224), false), Due::Nothing);
    assert_eq!(recovery.on_timer(at(225), false), Due::Send);
    assert_eq!(recovery.phase(), Phase::Recovery);
    assert_eq!(recovery.next_lost(at(225)).map(|lost| lost.start), Some(seq(0)));
}

/// RFC 8985, section 6.2, steps 3 and 4: once reordering was seen three sacked segments decide
/// nothing, and each round trip with reported duplicates widens the window.
#[test]
fn reordering_makes_patient() {
    let mut recovery = connected(true);
    send(&mut recovery, 10, at(100));
    recovery.acknowledge(&sacked(seq(0), &[block(1, 2)]), at(200));
    let acked = recovery.acknowledge(&Ack::plain(seq(2)), at(205));
    assert!(acked.reordered && acked.lost_octets == 0);
    let acked = recovery.acknowledge(&sacked(seq(2), &[block(3, 9)]), at(210));
    assert_eq!((acked.lost_octets, recovery.phase()), (0, Phase::Open));
    // A quarter of the smallest round trip later it does.
    let (timer, when) = recovery.timer(false).unwrap();
    assert_eq!(timer, Timer::Reordering);
    assert_eq!(recovery.on_timer(when, false), Due::Send);
    assert_eq!(resend_all(&mut recovery, when.as_ms()), 1);
    // The original was only late; the peer reports the second one.
    recovery.acknowledge(&sacked(seq(9), &[]), at(250));
    let acked = recovery.acknowledge(&sacked(seq(9), &[block(2, 3)]), at(340));
    assert!(acked.dsack && acked.undone);
    assert!(recovery.window() >= 10 * MSS);
}

/// RFC 8985, section 3.2: a repair that got lost itself is found without a timeout.
#[test]
fn a_lost_repair_is_found() {
    let mut recovery = connected(true);
    send(&mut recovery, 10, at(100));
    recovery.acknowledge(&sacked(seq(0), &[block(1, 10)]), at(200));
    assert_eq!(resend_all(&mut recovery, 200), 1);
    send(&mut recovery, 1, at(210));
    let acked = recovery.acknowledge(&sacked(seq(0), &[block(1, 11)]), at(310));
    assert_eq!(acked.lost_octets, MSS);
    assert_eq!(recovery.next_lost(at(310)).map(|lost| lost.start), Some(seq(0)));
    assert_eq!((recovery.counters().timeouts, recovery.counters().recoveries), (0, 1));
}

/// RFC 8985, sections 7.2 and 7.3: two round trips after the last send the last segment goes again.
#[test]
fn a_tail_is_probed() {
    let mut recovery = connected(true);
    send(&mut recovery, 4, at(100));
    assert_eq!(recovery.timer(false), Some((Timer::Probe, at(300))));
    let due = recovery.on_timer(at(300), false);
    assert_eq!(due, Due::ResendProbe(Lost { start: seq(3), octets: MSS }));
    assert!(recovery.resent(seq(3), at(300)));
    assert_eq!(recovery.timer(false), Some((Timer::Retransmission, at(600))));
    // The first three are lost: the probe's acknowledgment tells.
    let acked = recovery.acknowledge(&sacked(seq(0), &[block(3, 4)]), at(400));
    assert_eq!((acked.lost_octets, recovery.phase()), (3 * MSS, Phase::Recovery));
}

/// RFC 8985, section 7.3: new data, if there are any, make the better probe.
#[test]
fn a_probe_carries_new_data() {
    let mut recovery = connected(true);
    send(&mut recovery, 10, at(100));
    assert_eq!(recovery.may_send(at(300)), 0);
    assert_eq!(recovery.on_timer(at(300), true), Due::SendProbe);
    assert!(recovery.may_send(at(300)) >= MSS);
    send(&mut recovery, 1, at(300));
    assert_eq!(recovery.may_send(at(300)), 0);
    assert_eq!(recovery.timer(true), Some((Timer::Retransmission, at(600))));
}

/// RFC 8985, section 7.4.2: a loss that the probe itself repaired is one all the same, unless the
/// peer had both.
#[test]
fn what_a_probe_repaired_is_answered() {
    for (reported, window) in [(false, 5), (true, 11)] {
        let mut recovery = connected(true);
        send(&mut recovery, 10, at(100));
        recovery.acknowledge(&Ack::plain(seq(9)), at(200));
        let before = recovery.window();
        let (timer, when) = recovery.timer(false).unwrap();
        assert_eq!((timer, recovery.phase()), (Timer::Probe, Phase::Open));
        assert!(matches!(recovery.on_timer(when, false), Due::ResendProbe(_)));
        assert!(recovery.resent(seq(9), when));
        let later = when.after(Duration::from_millis(100));
        recovery.acknowledge(&Ack::plain(seq(10)), later);
        if reported {
            recovery.acknowledge(&sacked(seq(10), &[block(9, 10)]), later);
        }
        send(&mut recovery, 1, later);
        recovery.acknowledge(&Ack::plain(seq(11)), later.after(Duration::from_millis(100)));
        let is_reduced = recovery.window() < before;
        assert_eq!(is_reduced, !reported, "{window} {before} {}", recovery.window());
    }
}

/// RFC 5682, section 3.1: after a timeout the acknowledgments of originals show that they were only
/// late.
#[test]
fn a_spurious_timeout_is_undone() {
    for is_sack in [false, true] {
        let mut recovery = connected(is_sack);
        send(&mut recovery, 10, at(100));
        recovery.acknowledge(&Ack { waiting: true, ..Ack::plain(seq(2)) }, at(200));
        let (window, threshold) = (recovery.window(), recovery.congestion().threshold());
        send(&mut recovery, 4, at(200));
        time_out(&mut recovery);
        assert_eq!((recovery.window(), resend_all(&mut recovery, 900)), (MSS, 1));
        recovery.acknowledge(&Ack { waiting: true, ..Ack::plain(seq(4)) }, at(950));
        assert_eq!(recovery.next_lost(at(950)), None, "new data go first");
        assert!(recovery.may_send(at(950)) >= 2 * MSS);
        send(&mut recovery, 2, at(950));
        let acked = recovery.acknowledge(&Ack { waiting: true, ..Ack::plain(seq(6)) }, at(951));
        assert!(acked.undone, "SACK {is_sack}");
        assert_eq!((recovery.phase(), recovery.board().lost_octets()), (Phase::Open, 0));
        assert!(recovery.window() >= window);
        assert_eq!(recovery.congestion().threshold(), threshold);
    }
}

fn time_out(recovery: &mut Recovery) {
    for _ in 0..3 {
        let (_, when) = recovery.timer(false).unwrap();
        match recovery.on_timer(when, false) {
            Due::Timeout(_) => return,
            Due::ResendProbe(lost) => assert!(recovery.resent(lost.start, when)),
            _ => {}
        }
    }
    panic!("no timeout");
}

/// RFC 5682, section 3.1: a duplicate instead means that segments are missing.
#[test]
fn a_true_timeout_goes_on() {
    let mut recovery = connected(false);
    send(&mut recovery, 10, at(100));
    time_out(&mut recovery);
    assert_eq!(resend_all(&mut recovery, 500), 1);
    recovery.acknowledge(&Ack { waiting: true, ..Ack::plain(seq(1)) }, at(600));
    send(&mut recovery, 2, at(600));
    let acked = recovery.acknowledge(&duplicate(seq(1)), at(700));
    assert!(!acked.undone);
    assert_eq!(recovery.phase(), Phase::Timeout);
    assert_eq!(recovery.next_lost(at(700)).map(|lost| lost.start), Some(seq(1)));
}

/// RFC 3522, section 3.2: an echo from before the retransmission tells that the original arrived.
#[test]
fn an_old_echo_undoes() {
    let mut recovery = connected(true);
    send(&mut recovery, 10, at(100));
    recovery.acknowledge(&sacked(seq(0), &[block(1, 10)]), at(200));
    assert_eq!(recovery.phase(), Phase::Recovery);
    assert_eq!(resend_all(&mut recovery, 200), 1);
    let late = Ack { echoed: Some(at(100)), ..Ack::plain(seq(10)) };
    let acked = recovery.acknowledge(&late, at(210));
    assert!(acked.undone);
    assert_eq!(recovery.phase(), Phase::Open);
    assert!(recovery.window() >= 10 * MSS);
    // One from the retransmission is none.
    send(&mut recovery, 10, at(300));
    recovery.acknowledge(&sacked(seq(10), &[block(11, 20)]), at(400));
    let (_, when) = recovery.timer(false).unwrap();
    recovery.on_timer(when, false);
    assert_eq!(resend_all(&mut recovery, when.as_ms()), 1);
    let echo = Ack { echoed: Some(when), ..Ack::plain(seq(20)) };
    assert!(!recovery.acknowledge(&echo, when.after(Duration::from_millis(100))).undone);
}

/// RFC 2018, section 8: a peer may forget what it sacked; after a timeout all goes again.
#[test]
fn a_peer_that_reneges_gets_all_again() {
    let mut recovery = connected(true);
    send(&mut recovery, 5, at(100));
    recovery.acknowledge(&sacked(seq(0), &[block(1, 5)]), at(200));
    resend_all(&mut recovery, 200);
    recovery.acknowledge(&Ack::plain(seq(1)), at(300));
    assert!(recovery.board().has_reneged());
    time_out(&mut recovery);
    assert_eq!(recovery.counters().reneged, 1);
    assert_eq!((recovery.board().sacked_octets(), recovery.board().lost_octets()), (0, 4 * MSS));
    assert_eq!(recovery.next_lost(at(900)).map(|lost| lost.start), Some(seq(1)));
}

/// RFC 3168, section 6.1.2: one answer a window, and CWR with it.
#[test]
fn marks_are_answered_once_a_window() {
    let mut recovery = connected(true);
    send(&mut recovery, 10, at(100));
    let marked = |n| Ack { ece: true, waiting: true, ..Ack::plain(seq(n)) };
    assert!(recovery.acknowledge(&marked(2), at(200)).cwr);
    assert_eq!(recovery.window(), 4 * MSS);
    assert!(!recovery.acknowledge(&marked(6), at(201)).cwr);
    assert_eq!(recovery.window(), 4 * MSS);
    send(&mut recovery, 1, at(210));
    assert!(recovery.acknowledge(&marked(10), at(220)).cwr);
    assert_eq!(recovery.counters().ecn, 2);
}

/// RFC 1191, section 6.5: what was too large for the path goes again, and the window stays.
#[test]
fn a_smaller_path_is_no_congestion() {
    let mut recovery = connected(true);
    send(&mut recovery, 10, at(100));
    recovery.set_mss(MSS / 2, true);
    assert_eq!((recovery.window(), recovery.board().lost_octets()), (10 * MSS, 10 * MSS));
    assert_eq!(resend_all(&mut recovery, 110), 10);
    recovery.acknowledge(&Ack::plain(seq(10)), at(210));
    assert_eq!(recovery.phase(), Phase::Open);
    assert!(recovery.window() >= 10 * MSS);
    assert_eq!(recovery.counters().recoveries, 0);
}

/// RFC 5681, section 4.1: after an idle time the window begins again, in steps.
#[test]
fn an_idle_connection_begins_anew() {
    let mut recovery = connected(true);
    let mut now = 100;
    for _ in 0..4 {
        let all = recovery.may_send(at(now)) / MSS;
        send(&mut recovery, all, at(now));
        now += 100;
        while !recovery.board().is_empty() {
            let next = recovery.board().una() + 2 * MSS;
            let next = next.min(recovery.board().nxt());
            recovery.acknowledge(&Ack::plain(next), at(now));
        }
    }
    assert_eq!(recovery.window(), 160 * MSS);
    assert_eq!(recovery.may_send(at(now + 100)), 160 * MSS);
    assert_eq!(recovery.may_send(at(now + 60_000)), 10 * MSS);
    assert_eq!(recovery.congestion().threshold(), 1 << 30);
}

/// RFC 5681, section 3.1, and RFC 6298, section 5.7: a lost SYN makes cautious.
#[test]
fn a_lost_syn_leaves_one_segment() {
    let mut recovery = super::fresh();
    assert_eq!(recovery.timer(false), Some((Timer::Retransmission, at(1000))));
    assert_eq!(recovery.on_timer(at(1000), false), Due::Timeout(1));
    assert_eq!(resend_all(&mut recovery, 1000), 1);
    recovery.acknowledge(&Ack::plain(Seq(1)), at(1100));
    recovery.established(MSS, true, at(1100));
    assert_eq!((recovery.window(), recovery.phase()), (MSS, Phase::Open));
    assert_eq!((recovery.rtt().smoothed(), recovery.rtt().rto()), (None, Duration::from_secs(3)));
}

/// Nonsense of a peer is counted, and changes nothing.
#[test]
fn nonsense_is_counted() {
    let mut recovery = connected(true);
    send(&mut recovery, 4, at(100));
    let acked = recovery.acknowledge(&sacked(seq(0), &[block(2, 2)]), at(200));
    assert_eq!((acked.sacked_octets, acked.dsack), (0, false));
    let blocks = [block(3, 9), block(2, 1), block(7, 8)];
    recovery.acknowledge(&sacked(seq(0), &blocks), at(200));
    assert!(recovery.counters().bad_sacks >= 3, "{:?}", recovery.counters());
    assert_eq!((recovery.board().sacked_octets(), recovery.in_flight_octets()), (0, 4 * MSS));
    assert!(!recovery.resent(seq(9), at(200)));
}

/// A repair that goes right behind new data of the same moment is not lost when these are
/// acknowledged first.
#[test]
fn transmissions_of_one_moment_have_an_order() {
    let mut recovery = connected(true);
    send(&mut recovery, 9, at(100));
    recovery.acknowledge(&sacked(seq(0), &[block(1, 3)]), at(200));
    send(&mut recovery, 1, at(200));
    recovery.acknowledge(&sacked(seq(0), &[block(1, 9)]), at(200));
    assert_eq!(resend_all(&mut recovery, 200), 1);
    let acked = recovery.acknowledge(&sacked(seq(0), &[block(1, 10)]), at(300));
    assert_eq!(acked.lost_octets, 0);
    recovery.acknowledge(&Ack::plain(seq(10)), at(300));
    assert_eq!(recovery.counters().resent, 1);
}

/// RFC 6298, section 5.4: the first segment goes again, though the window is full of what was sent
/// just before.
#[test]
fn a_timeout_always_resends() {
    let mut recovery = connected(true);
    send(&mut recovery, 1, at(100));
    send(&mut recovery, 9, at(390));
    let (mut when, mut due) = (at(390), Due::Nothing);
    while !matches!(due, Due::Timeout(_)) {
        (_, when) = recovery.timer(false).unwrap();
        due = recovery.on_timer(when, false);
        if let Due::ResendProbe(lost) = due {
            assert!(recovery.resent(lost.start, when));
        }
    }
    assert_eq!(recovery.next_lost(when).map(|lost| lost.start), Some(seq(0)));
}

/// An acknowledgment that answers a needless repair echoes what was echoed long ago: no round trip
/// took so long.
#[test]
fn an_echo_told_again_is_no_round_trip() {
    let mut recovery = connected(true);
    send(&mut recovery, 2, at(100));
    let mut when = at(100);
    for _ in 0..6 {
        time_out(&mut recovery);
        when = recovery.timer(false).unwrap().1;
        resend_all(&mut recovery, when.as_ms());
    }
    let back_offs = recovery.rtt().back_offs();
    assert!(back_offs >= 5);
    let blocks = [block(0, 1)];
    let late = Ack { echoed: Some(at(100)), sack: &blocks, ..Ack::plain(seq(2)) };
    let acked = recovery.acknowledge(&late, when.after(Duration::from_millis(100)));
    assert_eq!((acked.rtt, acked.dsack), (None, true));
    assert_eq!(recovery.rtt().smoothed(), Some(Duration::from_millis(100)));
    assert_eq!(recovery.rtt().back_offs().min(1), recovery.rtt().back_offs());
}
