//! Pings between hosts, and the life of sessions.

use crate::common::*;
use core::net::Ipv4Addr;
use xk_core::graph::{Params, Value};
use xk_core::object::PushError;
use xk_core::reason;
use xk_core::{Part, Participants};
use xk_icmp::reasons;
use xk_icmp::wire::{self, Header, Query};
use xk_kit::control::{MaxPacket, OptPacket, RegisterErrorProtocol};
use xk_kit::net::checksum;
use xk_testkit::kernel::{Top, octets};

#[test]
fn a_ping_of_real_octets_is_answered_in_place() {
    let host = Host::simple(A);
    let request = [0x08, 0x00, 0x4d, 0x5a, 0x00, 0x01, 0x00, 0x01, 0x61, 0x62, 0x63, 0x64];
    let mut request = request.to_vec();
    request[2..4].fill(0);
    let sum = checksum::checksum(&request);
    request[2..4].copy_from_slice(&sum.to_be_bytes());
    let whole = host.cx.message(&packet(B, A, 1, &request));
    let place = whole.slices().next().unwrap().offset;
    host.lower.inject(&host.cx, None, whole);
    let sent = host.lower.take_sent();
    assert_eq!(sent[0].message.slices().next().unwrap().offset, place, "no copy");
    let answer = octets(&sent[0].message);
    assert_eq!((&answer[12..16], &answer[16..20]), (&A.octets()[..], &B.octets()[..]));
    let reply = etherparse::Icmpv4Slice::from_slice(&answer[20..]).unwrap();
    assert_eq!((reply.type_u8(), reply.payload()), (0, &b"abcd"[..]));
    assert!(checksum::is_valid(&answer[20..]));
    assert_eq!(host.figures().requests_answered, 1);
}

#[test]
fn pings_of_all_sizes_go_and_come() {
    let (a, b) = (Host::simple(A), Host::simple(B));
    let session = a.open(B);
    assert_eq!(session.ask(&a.cx, OptPacket::default()).unwrap().octets, 1472);
    assert_eq!(session.ask(&a.cx, MaxPacket::default()).unwrap().octets, 65_507);
    for len in [0, 1, 56, 1472, 1473, 8000, 65_507] {
        let payload: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
        a.push(&session, &payload);
        exchange(&a, &b);
        let received = a.pinger.take_received();
        assert_eq!(received.len(), 1, "{len}");
        assert_eq!(octets(&received[0].message), payload);
        assert_eq!(received[0].session, session);
    }
    assert_eq!(a.icmp.head().drops().total() + b.icmp.head().drops().total(), 0);
}

#[test]
fn each_session_has_its_own_replies() {
    let a = Host::simple(A);
    let other = Top::add(&a.cx, "other");
    let mine = a.open(B);
    assert_eq!(a.open(B), mine);
    let pair = Participants::pair(Part::Any, Part::host(B));
    let theirs = other.open(&a.cx, &a.icmp, pair).unwrap();
    assert_ne!(mine, theirs);
    for session in [&mine, &theirs, &mine] {
        a.push(session, b"x");
    }
    let sent = a.sent();
    let query = |n: usize| match wire::Message::parse(&sent[n][20..]).unwrap().header {
        Header::EchoRequest(query) => query,
        other => panic!("{other:?}"),
    };
    assert_ne!(query(0).id, query(1).id);
    assert_eq!(query(0).id, query(2).id);
    let numbers = [query(0).sequence, query(1).sequence, query(2).sequence];
    assert_eq!(numbers, [1, 1, 2]);
    a.inject(&packet(B, A, 1, &message(Header::EchoReply(query(1)), b"theirs")));
    assert_eq!(octets(&other.take_received()[0].message), b"theirs");
    assert!(a.pinger.take_received().is_empty());
    // From another host, or after the close, it is for no session.
    a.inject(&packet(FAR, A, 1, &message(Header::EchoReply(query(1)), b"")));
    theirs.close(&a.cx);
    a.inject(&packet(B, A, 1, &message(Header::EchoReply(query(1)), b"")));
    assert_eq!(a.dropped(&reasons::UNMATCHED_REPLY), 2);
    mine.close(&a.cx);
    assert!(!mine.head().is_closed());
    mine.close(&a.cx);
    assert!(mine.head().is_closed() && a.lower.held().is_empty());
}

/// A request may bear the identifier of a session to the host that sent it: it is answered all the
/// same, and does not come up as a reply.
#[test]
fn the_peer_may_ping_back_with_the_same_identifier() {
    let a = Host::simple(A);
    let session = a.open(B);
    a.push(&session, b"mine");
    let sent = a.sent();
    let Header::EchoRequest(query) = wire::Message::parse(&sent[0][20..]).unwrap().header else {
        panic!("no request");
    };
    a.inject(&packet(B, A, 1, &message(Header::EchoRequest(query), b"theirs")));
    let (_, _, answer) = told(&a);
    assert_eq!(wire::Message::parse(&answer).unwrap().header, Header::EchoReply(query));
    assert!(a.pinger.take_received().is_empty());
    let mut reply = message(Header::EchoReply(query), b"odd");
    a.inject(&packet(B, A, 1, &reply));
    assert_eq!(octets(&a.pinger.take_received()[0].message), b"odd");
    reply[9] ^= 1;
    a.inject(&packet(B, A, 1, &reply));
    assert!(a.pinger.take_received().is_empty());
    assert_eq!(a.dropped(&reason::BAD_CHECKSUM), 1);
}

#[test]
fn pinging_ourselves_works() {
    let a = Host::simple(A);
    for peer in [A, Ipv4Addr::new(127, 0, 0, 1)] {
        let session = a.open(peer);
        a.push(&session, b"me");
        while a.cx.run_due() > 0 {}
        assert_eq!(octets(&a.pinger.take_received()[0].message), b"me");
    }
    assert!(a.sent().is_empty());
}

#[test]
fn a_broadcast_ping_is_answered_only_if_wanted() {
    let request = message(Header::EchoRequest(Query { id: 1, sequence: 1 }), b"all");
    for (wanted, dst) in [
        (false, Ipv4Addr::BROADCAST),
        (false, Ipv4Addr::new(10, 0, 0, 255)),
        (false, Ipv4Addr::new(224, 0, 0, 1)),
        (true, Ipv4Addr::new(10, 0, 0, 255)),
    ] {
        let mut params = Params::default();
        params.set("broadcast_echo", Value::Bool(wanted));
        let host = Host::new(A, Params::default(), params);
        host.inject(&packet(B, dst, 1, &request));
        host.inject(&packet(B, dst, 1, &request));
        let sent = host.sent();
        assert_eq!(sent.len(), if wanted { 2 } else { 0 });
        assert_eq!(host.dropped(&reasons::BROADCAST), if wanted { 0 } else { 2 });
        assert!(sent.iter().all(|p| p[12..16] == A.octets()));
    }
}

#[test]
fn time_stamps_are_answered_if_wanted() {
    let times = wire::Times { originate_ms: 77, receive_ms: 0, transmit_ms: 0 };
    let mut body = [0; wire::TIMES_LEN];
    times.emit(&mut body);
    let query = Query { id: 5, sequence: 6 };
    let request = message(Header::TimestampRequest(query), &body);
    let plain = Host::simple(A);
    plain.inject(&packet(B, A, 1, &request));
    assert_eq!(plain.dropped(&reasons::IGNORED), 1);
    let mut params = Params::default();
    params.set("timestamp", Value::Bool(true));
    let host = Host::new(A, Params::default(), params);
    host.cx.advance(core::time::Duration::from_millis(9));
    host.inject(&packet(B, A, 1, &request));
    let (_, _, reply) = told(&host);
    let reply = wire::Message::parse(&reply).unwrap();
    assert_eq!(reply.header, Header::TimestampReply(query));
    let times = reply.times().unwrap();
    assert_eq!(times.originate_ms, 77);
    assert_eq!((times.receive_ms, times.transmit_ms), (0x8000_0009, 0x8000_0009));
    let mut bad = request.clone();
    bad[19] ^= 1;
    host.inject(&packet(B, A, 1, &bad));
    assert_eq!(host.dropped(&reason::BAD_CHECKSUM), 1);
    host.inject(&packet(B, A, 1, &message(Header::TimestampRequest(query), &[0; 4])));
    assert_eq!(host.dropped(&reason::TRUNCATED), 1);
}

#[test]
fn a_ping_without_a_buffer_for_its_header_is_counted() {
    let host = Host::simple(A);
    let session = host.open(B);
    let pool = host.cx.pool();
    let message = pool.copy_from(0, b"no room in front").expect("a buffer");
    let mut all = Vec::new();
    for octets in [2048, 64, 1, 0] {
        all.extend(core::iter::from_fn(|| pool.alloc(0, octets).ok()));
    }
    let pushed = session.push(&host.cx, message);
    assert_eq!(pushed, Err(PushError::NoBuffers));
    assert_eq!(host.dropped(&reason::NO_BUFFERS), 1);
    drop(all);
}

#[test]
fn stopping_leaves_nothing() {
    let a = Host::simple(A);
    let session = a.open(B);
    a.push(&session, b"x");
    a.top.refuse(Some(&reason::NO_PORT));
    a.inject(&packet(B, A, 17, b"12345678"));
    drop((session, a.sent()));
    let question = RegisterErrorProtocol { protocol: a.icmp.clone() };
    assert!(a.ip.ask(&a.cx, question).is_some());
    a.cx.stop();
    assert_eq!(a.cx.live(), (0, 0));
}
