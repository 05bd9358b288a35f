//! The protocol under virtual time, between a link layer that keeps what it gets and an upper that
//! notes what it is told.

mod bench;

use crate::shared::Config;
use crate::wire::{EthAddr, Ipv4, PACKET_LEN, Packet};
use crate::{ArpTable, CONFLICT, LOOPED, UNRESOLVED, UNSOLICITED};
use bench::{Bench, Frame, ME, MINE, PEER, TYPE_ARP, TYPE_UPPER, YOU};
use core::time::Duration;
use proptest::prelude::*;
use std::string::String;
use std::vec::Vec;
use xk_core::control::{Describe, ListMaps, ListSessions};
use xk_core::object::{OpenError, PushError};
use xk_core::participant::AddressError;
use xk_core::{Part, Participants, Reason, SessionRef, Upper, reason};
use xk_kit::control::{MaxPacket, MyHost, NetworkErrorKind, PeerEther, PeerHost, Resolve};

mod bounds;
mod claims;

const SECOND: Duration = Duration::from_secs(1);
const THIRD: EthAddr = EthAddr([2, 0, 0, 0, 0, 3]);
const NOBODY: Ipv4 = Ipv4::new(192, 0, 2, 99);

fn with(change: impl FnOnce(&mut Config)) -> Bench {
    let mut config = Config::default();
    change(&mut config);
    Bench::new(config, 4096).unwrap()
}

/// A bench whose host is claimed, announced, and whose announcements are forgotten.
fn settled(change: impl FnOnce(&mut Config)) -> Bench {
    let bench = with(change);
    assert!(bench.claim(ME));
    bench.pass(3 * SECOND);
    bench.sent.take();
    bench
}

fn bench() -> Bench {
    settled(|_| ())
}

fn reply_of(eth: EthAddr, host: Ipv4) -> Packet {
    Packet::request(MINE, ME, host).reply(eth)
}

/// The frame of a packet on the link.
fn sent(to: EthAddr, packet: Packet) -> Frame {
    let mut octets = [0; PACKET_LEN];
    packet.emit(&mut octets);
    Frame { to, number: TYPE_ARP, octets: octets.to_vec() }
}

fn data(to: EthAddr, octets: &[u8]) -> Frame {
    Frame { to, number: TYPE_UPPER, octets: octets.to_vec() }
}

fn ask_all(host: Ipv4) -> Frame {
    sent(EthAddr::BROADCAST, Packet::request(MINE, ME, host))
}

impl Bench {
    fn open(&self, host: Ipv4) -> Result<SessionRef, OpenError> {
        self.open_for(&self.upper, host)
    }

    fn take_sent(&self) -> Vec<Frame> {
        self.sent.take()
    }

    fn drops(&self, reason: &Reason) -> u64 {
        self.arp.head().drops().of(reason)
    }

    fn table(&self) -> ArpTable {
        let table = ArpTable { max: 99, ..ArpTable::default() };
        self.arp.ask(&self.cx, table).unwrap()
    }

    fn state(&self, host: Ipv4) -> Option<String> {
        let table = self.table();
        table.entries.iter().find(|e| e.host == host).map(|e| String::from(&*e.state))
    }

    fn resolve(&self, host: Ipv4) -> Option<[u8; 6]> {
        let question = Resolve { host: host.into(), address: None };
        self.arp.ask(&self.cx, question).unwrap().address
    }
}

#[test]
fn messages_wait_for_the_address_and_go_in_order() {
    let bench = bench();
    let session = bench.open(YOU).unwrap();
    assert!(bench.take_sent().is_empty(), "nothing is asked before it is needed");
    for n in 1..=3 {
        bench.push(&session, &[n]).unwrap();
    }
    assert_eq!(bench.take_sent(), [ask_all(YOU)]);
    assert_eq!(bench.table().entries[0].waiting, 3);
    bench.hear(&reply_of(PEER, YOU));
    bench.push(&session, &[4]).unwrap();
    let expected: Vec<_> = (1..=4).map(|n| data(PEER, &[n])).collect();
    assert_eq!(bench.take_sent(), expected);
    assert_eq!(bench.notes.done.get(), 1, "the upper knows the session below");
}

#[test]
fn what_the_host_sends_goes_straight_up() {
    let bench = bench();
    let session = bench.open(YOU).unwrap();
    bench.push(&session, &[1]).unwrap();
    bench.hear(&reply_of(PEER, YOU));
    let before = bench.arp.head().received();
    bench.arrive(PEER, TYPE_UPPER, b"data");
    bench.arrive(THIRD, TYPE_UPPER, b"more");
    assert_eq!(bench.notes.seen.take(), [b"data", b"more"]);
    assert_eq!(bench.arp.head().received(), before);
    assert_eq!(bench.notes.done.get(), 2);
}

#[test]
fn the_exchange_in_real_octets() {
    let bench = bench();
    let session = bench.open(YOU).unwrap();
    bench.push(&session, b"x").unwrap();
    let request = [
        0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0xc0,
        0x00, 0x02, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x02, 0x02,
    ];
    let frames = bench.take_sent();
    assert_eq!((frames[0].to, frames[0].number), (EthAddr::BROADCAST, TYPE_ARP));
    assert_eq!(frames[0].octets, request);
    let mut reply = [
        0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x02, 0xc0,
        0x00, 0x02, 0x02, 0x02, 0x00, 0x00, 0x00, 0x00, 0x01, 0xc0, 0x00, 0x02, 0x01,
    ]
    .to_vec();
    // As it comes on a real link: padded.
    reply.resize(46, 0);
    bench.arrive(PEER, TYPE_ARP, &reply);
    assert_eq!(bench.take_sent(), [data(PEER, b"x")]);
}

#[test]
fn a_host_is_asked_for_once_a_second_and_then_given_up() {
    let bench = bench();
    let session = bench.open(NOBODY).unwrap();
    let start = bench.cx.now();
    let mut requests = Vec::new();
    for n in 0..150u8 {
        let pushed = bench.push(&session, &[n; 20]);
        let failed = bench.cx.now().since(start) >= 4 * SECOND;
        assert_eq!(pushed.is_err(), failed, "{n}");
        bench.pass(SECOND / 25);
        for frame in bench.take_sent() {
            assert_eq!(frame, ask_all(NOBODY));
            requests.push(n / 25);
        }
    }
    assert_eq!(requests, [0, 0, 1, 2], "the second is sent when a second has passed");
    let errors = bench.notes.errors.take();
    assert_eq!(errors.len(), 48, "one for each message that waited");
    let first = (NetworkErrorKind::HostUnreachable, [52; 16].to_vec(), true);
    assert_eq!(errors[0], first, "the oldest were pushed out");
    assert_eq!(bench.drops(&reason::QUEUE_FULL), 52);
    assert_eq!(bench.drops(&UNRESOLVED), 48 + 50);
    assert_eq!(bench.push(&session, &[1]), Err(PushError::Unreachable));
}

#[test]
fn who_tells_senders_gets_back_what_could_not_go() {
    let bench = bench();
    bench.notes.takes_back.set(true);
    let session = bench.open(NOBODY).unwrap();
    bench.push(&session, &[7; 20]).unwrap();
    bench.pass(4 * SECOND);
    assert_eq!(bench.notes.back.take(), [[7; 20].to_vec()]);
    assert!(bench.notes.errors.take().is_empty());
    assert_eq!(bench.drops(&UNRESOLVED), 1);
}

#[test]
fn a_failure_is_forgiven() {
    let bench = bench();
    let session = bench.open(NOBODY).unwrap();
    bench.push(&session, &[1]).unwrap();
    bench.pass(4 * SECOND);
    assert_eq!(bench.state(NOBODY).as_deref(), Some("failed"));
    bench.take_sent();
    bench.pass(5 * SECOND);
    assert_eq!(bench.state(NOBODY).as_deref(), Some("idle"));
    bench.push(&session, &[2]).unwrap();
    assert_eq!(bench.take_sent(), [ask_all(NOBODY)]);
    // A host that appears after all is heard at once.
    bench.pass(4 * SECOND);
    bench.hear(&Packet::announcement(PEER, NOBODY));
    bench.take_sent();
    bench.push(&session, &[3]).unwrap();
    assert_eq!(bench.take_sent(), [data(PEER, &[3])]);
}

#[test]
fn an_address_in_use_is_confirmed_by_asking_its_station() {
    let bench = bench();
    let session = bench.open(YOU).unwrap();
    bench.push(&session, &[1]).unwrap();
    bench.hear(&reply_of(PEER, YOU));
    bench.pass(30 * SECOND);
    bench.push(&session, &[2]).unwrap();
    bench.take_sent();
    bench.pass(30 * SECOND);
    let poll = sent(PEER, Packet::request(MINE, ME, YOU));
    assert_eq!(bench.take_sent(), core::slice::from_ref(&poll));
    assert_eq!(bench.state(YOU).as_deref(), Some("checking"));
    bench.push(&session, &[3]).unwrap();
    assert_eq!(bench.take_sent(), [data(PEER, &[3])], "used meanwhile");
    bench.hear(&reply_of(PEER, YOU));
    assert_eq!(bench.state(YOU).as_deref(), Some("known"));
    // Now it keeps silent.
    bench.push(&session, &[4]).unwrap();
    bench.take_sent();
    bench.pass(60 * SECOND + 3 * SECOND + SECOND / 2);
    assert_eq!(bench.take_sent(), [&poll, &poll, &poll, &poll].map(Clone::clone));
    bench.pass(SECOND);
    assert_eq!(bench.state(YOU).as_deref(), Some("idle"));
    bench.push(&session, &[5]).unwrap();
    assert_eq!(bench.take_sent(), [ask_all(YOU)]);
}

#[test]
fn an_address_out_of_use_is_forgotten() {
    let bench = bench();
    bench.hear(&Packet::request(PEER, YOU, ME));
    assert_eq!(bench.state(YOU).as_deref(), Some("known"));
    bench.take_sent();
    bench.pass(30 * SECOND);
    // Heard again: it counts from here.
    bench.hear(&Packet::announcement(PEER, YOU));
    bench.pass(59 * SECOND);
    assert_eq!(bench.state(YOU).as_deref(), Some("known"));
    assert_eq!(bench.table().entries[0].age, 59 * SECOND);
    bench.pass(SECOND);
    assert_eq!(bench.state(YOU), None);
    assert!(bench.take_sent().is_empty());
    assert_eq!(bench.cx.timers(), 0);
}

#[test]
fn sessions_follow_a_host_that_moves() {
    let bench = bench();
    let one = bench.open(YOU).unwrap();
    let two = bench.open_for(&bench.other, YOU).unwrap();
    assert!(one != two);
    for session in [&one, &two] {
        bench.push(session, &[1]).unwrap();
    }
    bench.hear(&reply_of(PEER, YOU));
    bench.take_sent();
    bench.hear(&Packet::announcement(THIRD, YOU));
    for session in [&one, &two] {
        bench.push(session, &[2]).unwrap();
    }
    let frames = bench.take_sent();
    let numbers: Vec<_> = frames.iter().map(|f| (f.to, f.number)).collect();
    assert_eq!(numbers, [(THIRD, TYPE_UPPER), (THIRD, 0x0801)]);
    assert_eq!(bench.table().moved, 1);
    let peer = one.ask(&bench.cx, PeerEther::default()).unwrap();
    assert_eq!(peer.address, THIRD.0);
}

#[test]
fn requests_for_us_are_answered_and_teach() {
    let bench = bench();
    bench.hear(&Packet::request(PEER, YOU, ME));
    let answer = Packet::request(PEER, YOU, ME).reply(MINE);
    assert_eq!(bench.take_sent(), [sent(PEER, answer)]);
    let session = bench.open(YOU).unwrap();
    bench.push(&session, &[1]).unwrap();
    assert_eq!(bench.take_sent(), [data(PEER, &[1])], "no request is needed");
    // A probe is answered but teaches nothing.
    bench.hear(&Packet::probe(THIRD, ME));
    let answer = Packet::probe(THIRD, ME).reply(MINE);
    assert_eq!(bench.take_sent(), [sent(THIRD, answer)]);
    assert_eq!(bench.table().total, 1);
}

#[test]
fn what_nobody_asked_for_teaches_nothing() {
    let bench = bench();
    bench.hear(&reply_of(PEER, YOU));
    bench.hear(&Packet::announcement(PEER, YOU));
    bench.hear(&Packet::request(PEER, YOU, NOBODY));
    assert_eq!(bench.drops(&UNSOLICITED), 1);
    assert_eq!(bench.drops(&reason::NOT_MINE), 2);
    assert_eq!(bench.table().total, 0);
    assert!(bench.take_sent().is_empty());
}

#[test]
fn false_packets_are_counted_by_reason() {
    let bench = bench();
    let group = EthAddr([1, 0, 0x5e, 0, 0, 1]);
    let mut from_group = reply_of(group, YOU);
    bench.hear(&from_group);
    from_group.sender_eth = EthAddr::ZERO;
    bench.hear(&from_group);
    for host in [Ipv4::BROADCAST, Ipv4::LOCALHOST, Ipv4::new(224, 0, 0, 1), Ipv4::UNSPECIFIED] {
        bench.hear(&reply_of(PEER, host));
    }
    assert_eq!(bench.drops(&reason::BAD_SOURCE), 6);
    bench.hear(&reply_of(MINE, YOU));
    assert_eq!(bench.drops(&LOOPED), 1);
    let mut octets = [0; PACKET_LEN];
    for (at, value, reason) in [
        (1, 6, &reason::NOT_SUPPORTED),
        (3, 1, &reason::NOT_SUPPORTED),
        (4, 8, &reason::MALFORMED),
        (7, 3, &reason::NOT_SUPPORTED),
    ] {
        reply_of(PEER, YOU).emit(&mut octets);
        octets[at] = value;
        let before = bench.drops(reason);
        bench.arrive(PEER, TYPE_ARP, &octets);
        assert_eq!(bench.drops(reason), before + 1);
    }
    assert_eq!(bench.table().total, 0);
}

#[test]
fn every_truncation_is_counted() {
    let bench = bench();
    let mut octets = [0; PACKET_LEN];
    Packet::request(PEER, YOU, ME).emit(&mut octets);
    for len in 0..PACKET_LEN {
        bench.arrive(PEER, TYPE_ARP, &octets[..len]);
    }
    assert_eq!(bench.drops(&reason::TRUNCATED), PACKET_LEN as u64);
    assert!(bench.take_sent().is_empty());
}

#[test]
fn a_proxy_is_believed_and_counted() {
    let bench = bench();
    let session = bench.open(YOU).unwrap();
    bench.push(&session, &[1]).unwrap();
    bench.take_sent();
    let mut octets = [0; PACKET_LEN];
    reply_of(PEER, YOU).emit(&mut octets);
    bench.arrive(THIRD, TYPE_ARP, &octets);
    assert_eq!(bench.take_sent(), [data(PEER, &[1])]);
    assert_eq!(bench.table().mismatched, 1);
}

#[test]
fn broadcast_and_groups_need_no_asking() {
    let bench = bench();
    let all = bench.open(Ipv4::BROADCAST).unwrap();
    bench.push(&all, &[1]).unwrap();
    let group = bench.open(Ipv4::new(239, 255, 0, 251)).unwrap();
    bench.push(&group, &[2]).unwrap();
    let mapped = EthAddr([1, 0, 0x5e, 0x7f, 0, 251]);
    let expected = [data(EthAddr::BROADCAST, &[1]), data(mapped, &[2])];
    assert_eq!(bench.take_sent(), expected);
    assert_eq!(bench.table().total, 0);
    all.close(&bench.cx);
    assert_eq!(bench.push(&all, &[1]), Err(PushError::Closed));
}

#[test]
fn opens_are_checked() {
    let bench = bench();
    let range = Err(OpenError::Address(AddressError::OutOfRange));
    for host in [ME, Ipv4::UNSPECIFIED, Ipv4::LOCALHOST, Ipv4::new(250, 0, 0, 1)] {
        assert_eq!(bench.open(host), range, "{host}");
    }
    let open = |both| bench.arp.open(&bench.cx, Upper::new(&bench.upper), both);
    let wild = Participants::pair(Part::Any, Part::Any);
    assert_eq!(open(wild), Err(OpenError::Address(AddressError::Wildcard)));
    let ether = Participants::pair(Part::Any, Part::Ether(PEER.0));
    assert_eq!(open(ether), Err(OpenError::Address(AddressError::WrongFamily)));
    let both = Participants::pair(Part::Any, Part::host(YOU));
    let answer = bench.arp.open(&bench.cx, Upper::new(&bench.arp), both.clone());
    assert!(answer.is_ok(), "it has a number itself");
    let one = open(both.clone()).unwrap();
    assert_eq!(open(both).unwrap(), one, "opened once more");
    assert_eq!(one.head().opens(), 2);
}

#[test]
fn closing_lets_go_of_everything() {
    let bench = bench();
    let session = bench.open(YOU).unwrap();
    bench.push(&session, &[1]).unwrap();
    session.close(&bench.cx);
    assert_eq!(bench.drops(&reason::CLOSED), 1);
    bench.take_sent();
    bench.pass(20 * SECOND);
    assert_eq!(bench.table().total, 0, "nobody wants it any more");
    let idle = bench.open(YOU).unwrap();
    idle.close(&bench.cx);
    assert_eq!(bench.table().total, 0);
    let ask = ListSessions::first(9);
    assert_eq!(bench.arp.ask(&bench.cx, ask).unwrap().total, 0);
    let pool = bench.cx.pool().clone();
    drop((session, idle, bench));
    assert_eq!(pool.stats().buffers_live, 0);
}

#[test]
fn stopping_frees_what_waits() {
    let bench = bench();
    let session = bench.open(YOU).unwrap();
    bench.push(&session, &[1]).unwrap();
    let other = bench.open(Ipv4::BROADCAST).unwrap();
    let pool = bench.cx.pool().clone();
    bench.cx.stop();
    assert_eq!(pool.stats().buffers_live, 0);
    assert_eq!(bench.push(&session, &[1]), Err(PushError::Closed));
    drop(other);
}

#[test]
fn without_timers_nothing_waits_for_ever() {
    let bench = Bench::new(Config::default(), 0).unwrap();
    assert!(bench.claim(ME));
    bench.take_sent();
    let session = bench.open(YOU).unwrap();
    assert_eq!(bench.push(&session, &[1]), Err(PushError::Unreachable));
    bench.hear(&Packet::request(PEER, YOU, ME));
    assert_eq!(bench.state(YOU).as_deref(), Some("idle"));
    assert_eq!(bench.push(&session, &[1]), Err(PushError::Unreachable));
}

#[test]
fn questions_are_answered() {
    let bench = bench();
    let cx = &bench.cx;
    assert_eq!(bench.resolve(YOU), None);
    assert_eq!(bench.take_sent(), [ask_all(YOU)]);
    bench.hear(&reply_of(PEER, YOU));
    assert_eq!(bench.resolve(YOU), Some(PEER.0));
    assert_eq!(bench.resolve(ME), Some(MINE.0));
    assert_eq!(bench.resolve(Ipv4::BROADCAST), Some([255; 6]));
    assert_eq!(bench.resolve(Ipv4::new(224, 0, 0, 1)), Some([1, 0, 0x5e, 0, 0, 1]));
    assert_eq!(bench.resolve(Ipv4::LOCALHOST), None);
    assert_eq!(bench.arp.ask(cx, MyHost::default()).unwrap().host, ME);
    let session = bench.open(YOU).unwrap();
    assert_eq!(session.ask(cx, MyHost::default()).unwrap().host, ME);
    let peer = session.ask(cx, PeerHost::default()).unwrap();
    assert_eq!(peer.host, YOU);
    let max = session.ask(cx, MaxPacket::default()).unwrap();
    assert_eq!(max.octets, 1500);
    let unresolved = bench.open(NOBODY).unwrap();
    assert!(unresolved.ask(cx, PeerEther::default()).is_none());
    assert_eq!(unresolved.ask(cx, MaxPacket::default()).unwrap().octets, 1500);
    let describe =
        |session: &SessionRef| -> String { session.ask(cx, Describe::default()).unwrap().text };
    assert_eq!(describe(&session), "192.0.2.2 at 02:00:00:00:00:02, known");
    assert_eq!(describe(&unresolved), "192.0.2.99, idle, 0 waiting");
    let maps = bench.arp.ask(cx, ListMaps::default()).unwrap().maps;
    assert_eq!(maps.len(), 2);
}

#[test]
fn a_tag_is_handed_down() {
    let bench = bench();
    let session = bench.open(YOU).unwrap();
    session.head().set_tag(7);
    bench.push(&session, &[1]).unwrap();
    bench.hear(&reply_of(PEER, YOU));
    let link = bench.cx.find_protocol("link").unwrap();
    let both = Participants::pair(Part::Any, Part::Ether(PEER.0));
    let below = link.open(&bench.cx, Upper::new(&bench.upper), both).unwrap();
    assert_eq!(below.head().tag(), 7);
}

proptest! {
    #[test]
    fn any_packet_is_taken_or_counted(octets in prop::collection::vec(any::<u8>(), 0..64)) {
        let bench = bench();
        let (before, received) = (bench.arp.head().drops().total(), bench.arp.head().received());
        bench.arrive(PEER, TYPE_ARP, &octets);
        prop_assert_eq!(bench.arp.head().received(), received + 1);
        let took = Packet::parse_slice(&octets).is_ok();
        prop_assert!(took || bench.arp.head().drops().total() == before + 1);
    }
}
