//! A host: sending, receiving, demultiplexing, bounds.

use crate::common::*;
use core::cell::RefCell;
use core::net::Ipv4Addr;
use std::rc::Rc;
use xk_core::graph::{BuildError, Value};
use xk_core::message::PoolConfig;
use xk_core::object::{OpenError, Payer, PushError, USER_SHARE};
use xk_core::participant::AddressError;
use xk_core::{Part, Participants, Pool, reason};
use xk_ip::wire::Fragment;
use xk_ip::{DontFragment, reasons};
use xk_kit::control::{
    IsLocalHost, KeepWhole, MaxPacket, MyHost, OptPacket, PeerHost, PseudoHeader,
    SpecificDestination,
};
use xk_kit::net::attribute::LinkCast;
use xk_testkit::kernel::{Bottom, Event, Lower, TestKernel, octets};

#[test]
fn sends_the_octets_of_rfc_791() {
    let host = Host::simple();
    let session = host.open(PEER);
    session.push(&host.cx, host.cx.message(b"payload")).unwrap();
    let sent = host.sent(0);
    let packet = &sent[0];
    assert_eq!(packet[..4], [0x45, 0, 0, 27]);
    assert_eq!(packet[6..10], [0, 0, 64, NUMBER]);
    assert_eq!(packet[12..20], [10, 0, 0, 1, 10, 0, 0, 2]);
    assert_eq!(packet[20..], *b"payload");
    assert_eq!(
        etherparse::Ipv4HeaderSlice::from_slice(packet).unwrap().header_checksum(),
        etherparse::Ipv4HeaderSlice::from_slice(packet).unwrap().to_header().calc_header_checksum()
    );
    session.push(&host.cx, host.cx.message(b"")).unwrap();
    let next = header(&host.sent(0)[0]);
    assert_eq!(next.id, header(packet).id.wrapping_add(1), "ids count up");
    assert_eq!(next.payload_len(), 0);
}

/// Packets of a user's programs to this host's own addresses leave others seven eighths of the
/// places; the work that they cause is charged to that user, too.
#[test]
fn a_user_has_a_share_of_the_packets_to_ourselves() {
    const MOST: usize = 64;
    let host = Host::new(Graph::host().set("loop_max", Value::Integer(MOST as i64)), &[1500]);
    let session = host.open(OWN);
    let push = || (0..2 * MOST).filter(|_| session.push(&host.cx, host.cx.message(b"x")).is_ok());
    let users = [7, 8].map(Payer::user);
    for user in users {
        assert_eq!(host.cx.charging(user, || push().count()), MOST / USER_SHARE, "{user:?}");
    }
    assert_eq!(push().count(), MOST - users.len() * MOST / USER_SHARE, "the host's own");
    let charged = Rc::<RefCell<Vec<_>>>::default();
    let seen = Rc::clone(&charged);
    host.top.on_demux(Some(Rc::new(move |cx, _, _| {
        seen.borrow_mut().push(cx.payer());
        Ok(())
    })));
    host.cx.advance(core::time::Duration::from_millis(1));
    let of = |user| charged.borrow().iter().filter(|payer| **payer == user).count();
    let counts = [Some(users[0]), Some(users[1]), None].map(of);
    assert_eq!(counts, [MOST / USER_SHARE, MOST / USER_SHARE, MOST - 2 * MOST / USER_SHARE]);
}

#[test]
fn a_first_packet_makes_the_session_and_padding_is_trimmed() {
    let host = Host::simple();
    let mut packet = Packet::new(PEER, OWN, b"hello").octets();
    packet.resize(46, 0xee);
    assert!(host.inject(0, &packet));
    assert!(host.inject(0, &packet));
    let received = host.received();
    assert_eq!(octets(&received[0].message), b"hello");
    assert_eq!(octets(&received[1].message), b"hello");
    assert_eq!(received[0].session, received[1].session);
    let id = received[0].session.id();
    assert_eq!(
        host.top.take_events(),
        [Event::OpenDone(id), Event::Demux(id, 5), Event::Demux(id, 5)]
    );
    let (_, mut participants) = host.top.take_opened().remove(0);
    assert_eq!(participants.local_mut().unwrap().pop(), Some(Part::host(OWN)));
    assert_eq!(participants.peer_mut().unwrap().pop(), Some(Part::host(PEER)));
    received[0].session.push(&host.cx, host.cx.message(b"back")).unwrap();
    let back = header(&host.sent(0)[0]);
    assert_eq!((back.src, back.dst), (OWN, PEER));
    assert_eq!(host.open(PEER), received[0].session, "an open finds it");
    assert_eq!(host.drops(), 0);
}

#[test]
fn opening_chooses_source_and_next_hop() {
    let host = Host::new(
        Graph::host()
            .address("10.0.1.1/24", "low1")
            .address("172.16.0.1/16", "low1")
            .route("192.0.2.0/24", Some("172.16.0.254")),
        &[1500, 1000],
    );
    for (peer, source, at) in [
        (PEER, OWN, 0),
        (Ipv4Addr::new(10, 0, 1, 9), Ipv4Addr::new(10, 0, 1, 1), 1),
        (Ipv4Addr::new(172, 16, 3, 9), Ipv4Addr::new(172, 16, 0, 1), 1),
        (FAR, Ipv4Addr::new(172, 16, 0, 1), 1),
        (Ipv4Addr::new(8, 8, 8, 8), OWN, 0),
        (Ipv4Addr::BROADCAST, OWN, 0),
        (Ipv4Addr::new(10, 0, 1, 255), Ipv4Addr::new(10, 0, 1, 1), 1),
        (Ipv4Addr::new(224, 0, 0, 5), OWN, 0),
    ] {
        let session = host.open(peer);
        session.push(&host.cx, host.cx.message(b"x")).unwrap();
        let sent = host.sent(at);
        let sent = header(sent.last().expect("it goes out there"));
        assert_eq!((sent.src, sent.dst), (source, peer));
        assert_eq!(sent.ttl, if peer.is_multicast() { 1 } else { 64 });
        let asked = session.ask(&host.cx, MyHost::default()).unwrap().host;
        assert_eq!(asked, source);
        let opt = session.ask(&host.cx, OptPacket::default()).unwrap().octets;
        assert_eq!(opt, [1480, 980][at]);
    }
    assert!(host.sent(0).is_empty() && host.sent(1).is_empty());
}

/// RFC 6864, sections 4.1 and 4.2: what may be fragmented has an identification of its own, across
/// sessions too, and what may not has none.
#[test]
fn identifications_go_on_where_they_ended_and_atomic_datagrams_have_none() {
    let host = Host::simple();
    let ids = |count: usize, len: usize| {
        let session = host.open(PEER);
        for _ in 0..count {
            session.push(&host.cx, host.cx.message(&vec![0; len])).unwrap();
        }
        session.close(&host.cx);
        let sent = host.sent(0);
        let ids: Vec<u16> = sent.iter().map(|packet| header(packet).id).collect();
        ids
    };
    let all = [ids(3, 10), ids(2, 2000), ids(1, 0)].concat();
    let distances: Vec<u16> = all.windows(2).map(|two| two[1].wrapping_sub(two[0])).collect();
    // The two of 2000 octets go in two fragments each.
    assert_eq!(distances, [1, 1, 1, 0, 1, 0, 1]);

    let session = host.open(PEER);
    let mut message = host.cx.message(b"whole");
    message.set_attribute(DontFragment).unwrap();
    session.push(&host.cx, message).unwrap();
    session.push(&host.cx, host.cx.message(b"not")).unwrap();
    assert!(session.ask(&host.cx, KeepWhole).is_some());
    session.push(&host.cx, host.cx.message(b"whole")).unwrap();
    let sent = host.sent(0);
    let ids = [0, 1, 2].map(|n| header(&sent[n]).id);
    assert_eq!(ids, [0, all[7].wrapping_add(1), 0]);
}

#[test]
fn a_session_is_found_again_counted_and_closed() {
    let host = Host::simple();
    let session = host.open(PEER);
    assert_eq!(host.open(PEER), session);
    assert_eq!(host.lowers[0].held().len(), 1);
    session.close(&host.cx);
    assert!(!session.head().is_closed());
    session.close(&host.cx);
    assert!(session.head().is_closed());
    assert_eq!(host.lowers[0].held().len(), 0);
    let closed = session.push(&host.cx, host.cx.message(b"x"));
    assert_eq!(closed, Err(PushError::Closed));
    assert_ne!(host.open(PEER), session);
}

#[test]
fn wrong_opens_are_refused() {
    let host = Host::new(Graph::new().address("10.0.0.1/24", "low0"), &[1500]);
    let open = |local, peer| {
        let pair = Participants::pair(local, peer);
        host.top.open(&host.cx, &host.ip, pair).map(drop)
    };
    let address = |error| Err(OpenError::Address(error));
    assert_eq!(open(Part::Any, Part::host(FAR)), Err(OpenError::NoRoute));
    assert_eq!(open(Part::Any, Part::Any), address(AddressError::Wildcard));
    assert_eq!(open(Part::port(1), Part::host(PEER)), address(AddressError::WrongFamily));
    assert_eq!(open(Part::host(FAR), Part::host(PEER)), address(AddressError::OutOfRange));
    let nobody = Part::host(Ipv4Addr::new(0, 0, 0, 1));
    assert_eq!(open(Part::Any, nobody), Err(OpenError::NoRoute));
    let unnumbered = xk_testkit::kernel::Top::add_kind(&host.cx, "stranger", "stranger");
    let pair = Participants::pair(Part::Any, Part::host(PEER));
    assert_eq!(unnumbered.open(&host.cx, &host.ip, pair).map(drop), Err(OpenError::NoTypeNumber));
    host.enable();
    let again = host.top.enable(&host.cx, &host.ip, Participants::local(Part::Any));
    assert_eq!(again.map(drop), Err(OpenError::InUse));
}

#[test]
fn what_the_graph_says_wrongly_is_named() {
    let cx = TestKernel::new(1);
    let lower = [Bottom::add(&cx, "low0", Lower::link(1500))];
    let wrong = |graph: Graph| match build_on(&cx, &lower, &graph) {
        Err(BuildError::Param { name, index, .. }) => (name, index),
        other => panic!("{other:?}"),
    };
    for address in ["10.0.0.1", "10.0.0.0/24", "10.0.0.255/24", "127.0.0.1/8", "224.0.0.1/4", "x"] {
        assert_eq!(wrong(Graph::new().address(address, "low0")), ("address", 0), "{address}");
    }
    assert_eq!(wrong(Graph::host().address("10.0.0.1/8", "low0")), ("address", 1));
    assert_eq!(wrong(Graph::host().address("10.0.0.9/8", "eth0")), ("address", 1));
    assert_eq!(wrong(Graph::host().route("10/8", None)), ("route", 1));
    assert_eq!(wrong(Graph::host().route("10.0.0.0/8", Some("11.0.0.1"))), ("route", 1));
    assert_eq!(wrong(Graph::host().route("10.0.0.0/8", Some("10.0.0.1"))), ("route", 1));
    assert_eq!(wrong(Graph::host().group("10.0.0.1")), ("group", 0));
    assert_eq!(build_on(&cx, &[], &Graph::new()).map(drop), Err(BuildError::Lower { at: 0 }));
}

#[test]
fn questions_are_answered() {
    let host = Host::simple();
    let session = host.open(FAR);
    let ask = |host_asked: Ipv4Addr| {
        host.ip.ask(&host.cx, IsLocalHost { host: host_asked.into(), local: false })
    };
    for (asked, local) in [
        (OWN, true),
        (PEER, false),
        (Ipv4Addr::BROADCAST, true),
        (Ipv4Addr::new(10, 0, 0, 255), true),
        (Ipv4Addr::new(127, 0, 0, 1), true),
        (Ipv4Addr::new(224, 0, 0, 1), true),
        (Ipv4Addr::new(224, 0, 0, 2), false),
    ] {
        assert_eq!(ask(asked).unwrap().local, local, "{asked}");
    }
    assert_eq!(session.ask(&host.cx, PeerHost::default()).unwrap().host, FAR);
    assert_eq!(session.ask(&host.cx, MaxPacket::default()).unwrap().octets, 65515);
    let sum = session.ask(&host.cx, PseudoHeader::default()).unwrap().sum;
    assert_eq!(sum, 0x0a00 + 0x0001 + 0xc000 + 0x0209 + 17);
    assert_eq!(host.ip.ask(&host.cx, MyHost::default()).unwrap().host, OWN);
}

#[test]
fn routes_change_while_sessions_live() {
    use xk_ip::{AddRoute, ListRoutes, RemoveRoute, RouteInfo};
    let host = Host::new(Graph::host().address("10.0.1.1/24", "low1"), &[1500, 576]);
    let session = host.open(FAR);
    session.push(&host.cx, host.cx.message(&[0; 1000])).unwrap();
    assert_eq!(host.sent(0).len(), 1);
    let route = RouteInfo {
        network: "192.0.2.0/24".parse().unwrap(),
        via: Some(Ipv4Addr::new(10, 0, 1, 254)),
        on: String::new(),
        metric: 1,
    };
    let added = host.ip.ask(&host.cx, AddRoute { route: route.clone(), added: false });
    assert!(added.unwrap().added);
    let again = host.ip.ask(&host.cx, AddRoute { route: route.clone(), added: false });
    assert!(!again.unwrap().added, "it is there already");
    session.push(&host.cx, host.cx.message(&[0; 1000])).unwrap();
    assert_eq!((host.sent(0).len(), host.sent(1).len()), (0, 2), "smaller, so in two fragments");
    let list = host.ip.ask(&host.cx, ListRoutes::default()).unwrap().routes;
    assert_eq!(list.len(), 4);
    assert!(list.contains(&RouteInfo { on: "low1".into(), ..route }));
    for network in ["192.0.2.0/24", "0.0.0.0/0"] {
        let network = network.parse().unwrap();
        let removed = host.ip.ask(&host.cx, RemoveRoute { network, via: None, removed: 0 });
        assert_eq!(removed.unwrap().removed, 1);
    }
    let lost = session.push(&host.cx, host.cx.message(b"x"));
    assert_eq!(lost, Err(PushError::NoRoute));
    let back = RouteInfo {
        network: "0.0.0.0/0".parse().unwrap(),
        via: None,
        on: "low0".into(),
        metric: 9,
    };
    assert!(host.ip.ask(&host.cx, AddRoute { route: back, added: false }).unwrap().added);
    session.push(&host.cx, host.cx.message(b"x")).unwrap();
    assert_eq!(host.sent(0).len(), 1);
}

#[test]
fn packets_to_ourselves_come_back_later_and_are_bounded() {
    let host = Host::new(Graph::host().set("loop_max", Value::Integer(256)), &[1500]);
    for peer in [OWN, Ipv4Addr::new(127, 0, 0, 1)] {
        let session = host.open(peer);
        session.push(&host.cx, host.cx.message(b"me")).unwrap();
        assert_eq!(host.received().len(), 0, "not while it is pushed");
        host.cx.run_due();
        let received = host.received();
        assert_eq!(octets(&received[0].message), b"me");
        assert_eq!(received[0].session, session);
        let big = session.push(&host.cx, host.cx.message(&pattern(9000)));
        assert_eq!(big, Ok(()));
        host.cx.run_due();
        assert_eq!(octets(&host.received()[0].message), pattern(9000));
        let results: Vec<_> =
            (0..300).map(|_| session.push(&host.cx, host.cx.message(b"x"))).collect();
        assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 256);
        assert!(results.contains(&Err(PushError::QueueFull)));
        host.cx.run_due();
        assert_eq!(host.received().len(), 256);
    }
    let full = host.dropped(&reason::QUEUE_FULL);
    assert!(host.sent(0).is_empty() && (host.drops(), full) == (88, 88));
    // What a wire brings under our own name never reaches those sessions.
    assert!(!host.inject(0, &Packet::new(OWN, OWN, b"spoofed").octets()));
    assert_eq!(host.dropped(&reason::BAD_SOURCE), 1);
    assert!(host.received().is_empty());
}

#[test]
fn broadcasts_and_groups_are_taken_and_answered_from_our_own_host() {
    let host = Host::new(Graph::host().group("224.0.0.251"), &[1500]);
    host.enable();
    for (dst, taken) in [
        (Ipv4Addr::BROADCAST, true),
        (Ipv4Addr::new(10, 0, 0, 255), true),
        (Ipv4Addr::new(224, 0, 0, 251), true),
        (Ipv4Addr::new(224, 0, 0, 252), false),
    ] {
        let mut message = host.cx.message(&Packet::new(PEER, dst, b"all").octets());
        message.set_attribute(LinkCast::Broadcast).unwrap();
        host.lowers[0].inject(&host.cx, None, message);
        let received = host.received();
        assert_eq!(received.len(), usize::from(taken), "{dst}");
        let Some(first) = received.first() else {
            continue;
        };
        first.session.push(&host.cx, host.cx.message(b"me")).unwrap();
        let answer = header(&host.sent(0)[0]);
        assert_eq!((answer.src, answer.dst), (OWN, PEER));
        let own = first.session.ask(&host.cx, MyHost::default()).unwrap();
        assert_eq!(own.host, OWN);
        let sent_to = SpecificDestination::default();
        let sent_to = first.session.ask(&host.cx, sent_to).unwrap();
        assert_eq!((sent_to.host, sent_to.many), (dst.into(), true));
    }
    host.inject(0, &Packet::new(PEER, OWN, b"one").octets());
    let asked = SpecificDestination::default();
    let sent_to = host.received()[0].session.ask(&host.cx, asked).unwrap();
    assert_eq!((sent_to.host, sent_to.many), (OWN.into(), false));
    assert_eq!(host.dropped(&reason::NOT_MINE), 1);
    let mut message = host.cx.message(&Packet::new(PEER, OWN, b"all").octets());
    message.set_attribute(LinkCast::Broadcast).unwrap();
    assert!(!host.lowers[0].inject(&host.cx, None, message));
    assert_eq!(host.dropped(&reasons::LINK_BROADCAST), 1);
}

#[test]
fn bad_sources_and_destinations_are_dropped() {
    let host = Host::simple();
    for source in [
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [255, 255, 255, 255],
        [240, 0, 0, 1],
        [0, 0, 0, 0],
        [0, 0, 0, 7],
        [10, 0, 0, 255],
        [10, 0, 0, 1],
    ] {
        let packet = Packet::new(source.into(), OWN, b"x").octets();
        assert!(!host.inject(0, &packet), "{source:?}");
    }
    assert_eq!(host.dropped(&reason::BAD_SOURCE), 8);
    let asking = Packet::new(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, b"who am I");
    assert!(host.inject(0, &asking.octets()), "a host without an address");
    for dst in [[127, 0, 0, 1], [0, 0, 0, 0], [240, 0, 0, 1]] {
        assert!(!host.inject(0, &Packet::new(PEER, dst.into(), b"x").octets()));
    }
    assert_eq!(host.dropped(&reasons::MARTIAN), 3);
    assert!(!host.inject(0, &Packet::new(PEER, FAR, b"x").octets()));
    assert_eq!(host.dropped(&reason::NOT_MINE), 1);
    assert_eq!(host.received().len(), 1);
}

#[test]
fn whoever_may_not_be_fragmented_is_told_the_maximum() {
    let host = Host::new(Graph::host().set("dont_fragment", Value::Bool(true)), &[1500]);
    let session = host.open(PEER);
    session.push(&host.cx, host.cx.message(&[0; 1480])).unwrap();
    session.push(&host.cx, host.cx.message(&[0; 1481])).unwrap();
    let sent = host.sent(0);
    assert_eq!(header(&sent[0]).fragment, Fragment::DONT);
    assert_eq!(sent.len(), 3);
    assert!(sent[1..].iter().all(|p| !header(p).fragment.dont()));
    let mut message = host.cx.message(&[0; 1481]);
    message.set_attribute(DontFragment).unwrap();
    assert_eq!(session.push(&host.cx, message), Err(PushError::TooBig));
    let mut message = host.cx.message(&[0; 1480]);
    message.set_attribute(DontFragment).unwrap();
    session.push(&host.cx, message).unwrap();
    assert!(header(&host.sent(0)[0]).fragment.dont());
    let huge = session.push(&host.cx, host.cx.pool().alloc(64, 65516).unwrap());
    assert_eq!(huge, Err(PushError::TooBig));
}

#[test]
fn a_session_may_ask_that_nothing_is_fragmented() {
    let host = Host::new(Graph::host(), &[1500]);
    let session = host.open(PEER);
    session.push(&host.cx, host.cx.message(&[0; 1481])).unwrap();
    assert_eq!(host.sent(0).len(), 2);
    assert!(session.ask(&host.cx, KeepWhole).is_some());
    session.push(&host.cx, host.cx.message(&[0; 1])).unwrap();
    session.push(&host.cx, host.cx.message(&[0; 1480])).unwrap();
    let too_big = session.push(&host.cx, host.cx.message(&[0; 1481]));
    assert_eq!(too_big, Err(PushError::TooBig));
    let sent = host.sent(0);
    assert_eq!(sent.len(), 2);
    assert!(sent.iter().all(|p| header(p).fragment == Fragment::DONT));

    // On a path so narrow that a host may have lied about it, what does not fit is cut all the
    // same.
    let host = Host::new(Graph::host(), &[500]);
    let session = host.open(PEER);
    assert!(session.ask(&host.cx, KeepWhole).is_some());
    session.push(&host.cx, host.cx.message(&[0; 481])).unwrap();
    assert_eq!(host.sent(0).len(), 2);
}

#[test]
fn idle_sessions_make_room_and_busy_ones_do_not() {
    let host = Host::new(Graph::host().set("sessions_max", Value::Integer(4)), &[1500]);
    host.enable();
    for n in 2..200 {
        let peer = Ipv4Addr::new(10, 0, 0, n);
        assert!(host.inject(0, &Packet::new(peer, OWN, b"x").octets()));
    }
    let held: Vec<_> = (2..6).map(|n| host.open(Ipv4Addr::new(10, 0, 0, n))).collect();
    let fifth = Participants::pair(Part::Any, Part::host(Ipv4Addr::new(10, 0, 0, 99)));
    let refused = host.top.open(&host.cx, &host.ip, fifth);
    assert_eq!(refused.map(drop), Err(OpenError::Full));
    assert_eq!(host.lowers[0].held()[0].head().opens(), 4);
    host.inject(0, &Packet::new(Ipv4Addr::new(10, 0, 0, 99), OWN, b"x").octets());
    assert_eq!(host.dropped(&reason::TABLE_FULL), 1);
    drop(held);
}

#[test]
fn an_exhausted_pool_is_reported() {
    let pool =
        Pool::new(&PoolConfig { descriptors_max: 4, ..PoolConfig::with_octets_max(1 << 20) });
    let cx = TestKernel::with_pool(1, pool.unwrap());
    let lower = [Bottom::add(&cx, "low0", Lower::link(1500))];
    let ip = build_on(&cx, &lower, &Graph::host()).unwrap();
    let top = xk_testkit::kernel::Top::add_kind(&cx, "udp", "top");
    cx.numbers_mut()
        .add(xk_core::numbers::Number { upper: "udp", lower: "ip", number: 17 })
        .unwrap();
    cx.start().unwrap();
    let pair = Participants::pair(Part::Any, Part::host(PEER));
    let session = top.open(&cx, &ip, pair).unwrap();
    assert_eq!(session.push(&cx, cx.message(&[0; 8000])), Err(PushError::NoBuffers));
    drop(lower[0].take_sent());
    assert_eq!(cx.live(), (0, 0));
}

#[test]
fn stopping_leaves_nothing() {
    let host = Host::simple();
    let session = host.open(OWN);
    session.push(&host.cx, host.cx.message(b"x")).unwrap();
    let mut first = Packet::new(PEER, OWN, &[0; 8]);
    first.fragment = Fragment::new(0, true).unwrap();
    host.inject(0, &first.octets());
    drop(session);
    host.cx.stop();
    assert_eq!(host.cx.live(), (0, 0));
}
