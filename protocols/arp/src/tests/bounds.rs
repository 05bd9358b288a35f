//! Evictions when there is no room.

use super::*;
use crate::EVICTED;

#[test]
fn the_cache_is_bounded_and_the_oldest_useless_goes_first() {
    let bench = settled(|c| c.entries_max = 4);
    let held = bench.open(YOU).unwrap();
    bench.hear(&Packet::request(PEER, YOU, ME));
    for n in 10..20 {
        bench.hear(&Packet::request(PEER, Ipv4::new(192, 0, 2, n), ME));
    }
    let hosts: Vec<_> = bench.table().entries.iter().map(|e| e.host).collect();
    let last = |n| Ipv4::new(192, 0, 2, n);
    assert_eq!(hosts, [YOU, last(17), last(18), last(19)]);
    // With sessions everywhere one without an address gives way, with its session.
    let mut more: Vec<_> = (18..20).map(|n| bench.open(last(n)).unwrap()).collect();
    let asking = bench.open(NOBODY).unwrap();
    bench.push(&asking, &[1]).unwrap();
    bench.hear(&Packet::request(PEER, last(30), ME));
    assert!(asking.head().is_closed() && !held.head().is_closed());
    assert_eq!((bench.drops(&EVICTED), bench.drops(&UNRESOLVED)), (1, 1));
    // Then one to which nothing was sent since the last look.
    more.push(bench.open(last(30)).unwrap());
    for _ in 0..2 {
        for session in more.iter().chain([&held]) {
            bench.push(session, &[1]).unwrap();
        }
    }
    assert!(bench.open(last(40)).is_err(), "all were in use");
    for session in &more {
        bench.push(session, &[1]).unwrap();
    }
    assert!(bench.open(last(40)).is_ok());
    assert!(held.head().is_closed());
    assert_eq!(bench.table().total, 4);
}

#[test]
fn no_more_than_the_bound_wait_in_all_sessions() {
    let bench = settled(|c| c.waiting_max = 10);
    let sessions: Vec<_> = (10..30).map(|n| bench.open(Ipv4::new(192, 0, 2, n)).unwrap()).collect();
    for _ in 0..3 {
        for session in &sessions {
            bench.push(session, &[1]).unwrap();
        }
    }
    let waiting = |bench: &Bench| bench.table().entries.iter().map(|e| e.waiting).sum::<usize>();
    assert_eq!(waiting(&bench), 10);
    assert_eq!(bench.drops(&reason::QUEUE_FULL), 50);
    // The youngest are those of the last ten sessions.
    bench.take_sent();
    for n in 10..30 {
        bench.hear(&reply_of(PEER, Ipv4::new(192, 0, 2, n)));
    }
    let sent = bench.take_sent();
    assert_eq!((sent.len(), waiting(&bench)), (10, 0));
}

/// Each packet makes a session below that has no holder; every station on the link sends some.
#[test]
fn packets_leave_no_sessions_below() {
    let bench = bench();
    let before = bench.link_sessions();
    for n in 1..=200 {
        let station = EthAddr([2, 0, 0, 0, 1, n]);
        let host = Ipv4::new(192, 0, 2, n);
        bench.hear(&Packet::request(station, host, host));
        bench.hear(&Packet::request(station, host, NOBODY));
        bench.arrive(station, TYPE_ARP, b"no packet");
    }
    assert_eq!(bench.link_sessions(), before);
    // That of a host to which one is opened stays.
    let session = bench.open(YOU).unwrap();
    bench.push(&session, &[1]).unwrap();
    bench.hear(&reply_of(PEER, YOU));
    bench.hear(&Packet::request(PEER, YOU, ME));
    assert_eq!(bench.link_sessions(), before + 1);
    bench.push(&session, &[2]).unwrap();
    assert_eq!(bench.take_sent().last(), Some(&data(PEER, &[2])));
}
