//! Hosts of ours: announcements, probes, conflicts.

use super::{
    Bench, CONFLICT, EthAddr, Frame, Ipv4, ME, MINE, NOBODY, PEER, Packet, SECOND, THIRD,
    UNRESOLVED, YOU, ask_all, bench, data, reply_of, sent, with,
};
use crate::CLAIMS_MAX;
use std::vec::Vec;
use xk_core::object::PushError;

fn announcement() -> Frame {
    sent(EthAddr::BROADCAST, Packet::announcement(MINE, ME))
}

fn probe() -> Frame {
    sent(EthAddr::BROADCAST, Packet::probe(MINE, ME))
}

/// A bench that has just begun to probe for its host.
fn probing() -> Bench {
    let bench = with(|c| c.probe = true);
    assert!(bench.claim(ME));
    assert!(bench.take_sent().is_empty());
    bench
}

#[test]
fn a_claim_is_announced_twice() {
    let bench = with(|_| ());
    assert!(bench.claim(ME));
    assert_eq!(bench.take_sent(), [announcement()]);
    bench.pass(SECOND * 19 / 10);
    assert!(bench.take_sent().is_empty());
    bench.pass(SECOND / 10);
    assert_eq!(bench.take_sent(), [announcement()]);
    assert!(bench.claim(ME), "claiming it again changes nothing");
    bench.pass(60 * SECOND);
    assert!(bench.take_sent().is_empty());
}

#[test]
fn only_stations_can_be_claimed_and_only_so_many() {
    let bench = with(|_| ());
    for host in [Ipv4::UNSPECIFIED, Ipv4::BROADCAST, Ipv4::LOCALHOST, Ipv4::new(224, 0, 0, 1)] {
        assert!(!bench.claim(host), "{host}");
    }
    for n in 0..CLAIMS_MAX {
        assert!(bench.claim(Ipv4::new(10, 0, 0, n as u8)));
    }
    assert!(!bench.claim(ME));
}

#[test]
fn nothing_is_answered_before_it_is_claimed() {
    let bench = with(|_| ());
    bench.hear(&Packet::request(PEER, YOU, ME));
    assert!(bench.take_sent().is_empty());
}

#[test]
fn probes_come_first_if_wanted() {
    let bench = probing();
    bench.pass(8 * SECOND);
    let frames = bench.take_sent();
    let expected = [probe(), probe(), probe(), announcement()];
    assert_eq!(frames[..4], expected);
    bench.pass(2 * SECOND);
    assert_eq!(frames.len() + bench.take_sent().len(), 5);
}

#[test]
fn probing_answers_nothing_and_keeps_messages_waiting() {
    let bench = probing();
    let session = bench.open(YOU).unwrap();
    bench.push(&session, &[1]).unwrap();
    bench.hear(&Packet::request(PEER, NOBODY, ME));
    assert!(bench.take_sent().is_empty(), "the host is not ours yet");
    bench.pass(8 * SECOND);
    let frames = bench.take_sent();
    let asked = frames.iter().position(|f| *f == ask_all(YOU)).unwrap();
    let announced = frames.iter().position(|f| *f == announcement()).unwrap();
    assert_eq!(asked, announced + 1, "asked as soon as it was ours");
    bench.hear(&reply_of(PEER, YOU));
    assert_eq!(bench.take_sent(), [data(PEER, &[1])]);
}

#[test]
fn a_probe_that_finds_another_gives_the_host_up_for_a_minute() {
    for packet in [Packet::announcement(PEER, ME), Packet::probe(PEER, ME)] {
        let bench = probing();
        let session = bench.open(YOU).unwrap();
        bench.push(&session, &[1]).unwrap();
        bench.hear(&packet);
        assert_eq!(bench.notes.conflicts.take(), [(ME, PEER)]);
        assert_eq!(bench.drops(&UNRESOLVED), 1, "what waited is dropped");
        assert_eq!(bench.notes.errors.take().len(), 1);
        assert_eq!(bench.push(&session, &[2]), Err(PushError::Unreachable));
        bench.pass(59 * SECOND);
        assert!(bench.take_sent().is_empty());
        bench.pass(10 * SECOND);
        let frames = bench.take_sent();
        assert_eq!(frames[..4], [probe(), probe(), probe(), announcement()]);
    }
}

#[test]
fn our_own_probe_coming_back_is_no_conflict() {
    let bench = probing();
    bench.hear(&Packet::probe(MINE, ME));
    assert!(bench.notes.conflicts.take().is_empty());
    bench.pass(8 * SECOND);
    assert!(bench.take_sent().contains(&announcement()));
}

#[test]
fn a_conflict_is_told_counted_and_answered_every_ten_seconds_at_most() {
    let bench = bench();
    let mut defences = Vec::new();
    for second in 0..25 {
        bench.hear(&Packet::announcement(THIRD, ME));
        bench.pass(SECOND);
        for frame in bench.take_sent() {
            assert_eq!(frame, announcement());
            defences.push(second);
        }
    }
    assert_eq!(defences, [0, 10, 20]);
    assert_eq!(bench.drops(&CONFLICT), 25);
    assert_eq!(bench.table().conflicts, 25);
    assert_eq!(bench.notes.conflicts.take(), [(ME, THIRD); 25]);
    assert_eq!(bench.table().total, 0, "the other's address is not learned");
}

#[test]
fn a_conflicting_request_for_us_is_no_reason_to_learn() {
    let bench = bench();
    bench.hear(&Packet::request(THIRD, ME, YOU));
    assert_eq!(bench.drops(&CONFLICT), 1);
    assert_eq!(bench.take_sent(), [announcement()]);
}

#[test]
fn what_was_known_of_a_host_is_forgotten_when_it_becomes_ours() {
    let bench = with(|_| ());
    let session = bench.open(YOU).unwrap();
    bench.push(&session, &[1]).unwrap();
    bench.hear(&reply_of(PEER, YOU));
    assert_eq!(bench.resolve(YOU), Some(PEER.0));
    assert!(bench.claim(YOU));
    assert_eq!(bench.resolve(YOU), Some(MINE.0));
}
