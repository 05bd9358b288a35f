//! The station between a wire that keeps what it gets and uppers that note what they see.

mod bench;

use crate::protocol::{GROUPS_MAX, LOOPED};
use crate::wire::EthAddr;
use bench::{Bench, FRAME_MAX, MINE, PEER, Seen};
use proptest::prelude::*;
use std::vec::Vec;
use xk_core::control::{Describe, ListMaps, ListSessions};
use xk_core::object::{OpenError, PushError};
use xk_core::participant::AddressError;
use xk_core::{Part, Participants, Reason, Upper, reason};
use xk_kit::control::{JoinGroup, LeaveGroup, LinkType, MaxPacket, MyEther, OptPacket, PeerEther};
use xk_kit::net::attribute::LinkCast;

const TYPED: usize = 0;
const SAP: usize = 1;
const SNAP: usize = 2;
const GROUP: EthAddr = EthAddr([1, 0, 0x5e, 0, 0, 1]);
const ALL: EthAddr = EthAddr::BROADCAST;

fn bench() -> Bench {
    Bench::new(4096).unwrap()
}

/// A frame: addresses, type or length, payload.
fn frame(dst: EthAddr, src: EthAddr, word: u16, payload: &[u8]) -> Vec<u8> {
    let mut octets = Vec::new();
    octets.extend_from_slice(&dst.0);
    octets.extend_from_slice(&src.0);
    octets.extend_from_slice(&word.to_be_bytes());
    octets.extend_from_slice(payload);
    octets
}

fn seen(upper: &'static str, octets: &[u8], cast: Option<LinkCast>) -> Seen {
    Seen { upper, octets: octets.to_vec(), cast }
}

impl Bench {
    fn drops(&self, reason: &Reason) -> u64 {
        self.eth.head().drops().of(reason)
    }

    fn take_sent(&self) -> Vec<Vec<u8>> {
        self.sent.take()
    }

    fn take_seen(&self) -> Vec<Seen> {
        self.notes.seen.take()
    }
}

#[test]
fn ethernet_ii_goes_out_padded() {
    let bench = bench();
    let session = bench.open(TYPED, PEER).unwrap();
    bench.push(&session, b"hello").unwrap();
    let long = [7; 46];
    bench.push(&session, &long).unwrap();
    let mut short = frame(PEER, MINE, 0x0800, b"hello");
    short.resize(60, 0);
    assert_eq!(bench.take_sent(), [short, frame(PEER, MINE, 0x0800, &long)]);
}

#[test]
fn llc_and_snap_go_out_with_their_length() {
    let bench = bench();
    let sap = bench.open(SAP, PEER).unwrap();
    bench.push(&sap, b"bpdu").unwrap();
    let snap = bench.open(SNAP, PEER).unwrap();
    bench.push(&snap, &[9; 100]).unwrap();
    let mut bpdu = frame(PEER, MINE, 7, &[0x42, 0x42, 3, b'b', b'p', b'd', b'u']);
    bpdu.resize(60, 0);
    let mut apple = frame(PEER, MINE, 108, &[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b]);
    apple.extend_from_slice(&[9; 100]);
    assert_eq!(bench.take_sent(), [bpdu, apple]);
}

#[test]
fn all_three_kinds_come_in_and_802_3_loses_its_padding() {
    let bench = bench();
    bench.arrive(&frame(MINE, PEER, 0x0800, b"ip with padding"));
    let mut bpdu = frame(MINE, PEER, 7, &[0x42, 0x42, 3, b'b', b'p', b'd', b'u']);
    bpdu.resize(60, 0);
    bench.arrive(&bpdu);
    let mut apple = frame(MINE, PEER, 9, &[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b, 5]);
    apple.resize(60, 0);
    for cut in 0..24 {
        bench.arrive_cut(&apple, cut);
    }
    let mut expected =
        std::vec![seen("typed", b"ip with padding", None), seen("sap", b"bpdu", None),];
    expected.resize(26, seen("snap", &[5], None));
    assert_eq!(bench.take_seen(), expected);
    assert_eq!(bench.dropped(), 0);
}

#[test]
fn a_passive_open_names_both_ends_once() {
    let bench = bench();
    for _ in 0..3 {
        bench.arrive(&frame(MINE, PEER, 0x0800, &[1]));
    }
    let done = bench.notes.done.borrow();
    let [(session, both)] = done.as_slice() else {
        panic!("{} sessions", done.len());
    };
    let expected = Participants::pair(Part::Ether(MINE.0), Part::Ether(PEER.0));
    assert_eq!(*both, expected);
    assert_eq!(session.head().received(), 3);
    assert_eq!(session.head().opens(), 0);
    // An active open finds it.
    assert_eq!(bench.open(TYPED, PEER).unwrap(), *session);
    assert_eq!(session.head().opens(), 1);
}

#[test]
fn an_open_session_gets_what_its_peer_sends() {
    let bench = bench();
    let session = bench.open(TYPED, PEER).unwrap();
    assert_eq!(bench.open(TYPED, PEER).unwrap(), session);
    bench.arrive(&frame(MINE, PEER, 0x0800, &[1]));
    assert_eq!(session.head().received(), 1);
    assert!(bench.notes.done.borrow().is_empty());
    session.close(&bench.cx);
    bench.push(&session, &[1]).unwrap();
    session.close(&bench.cx);
    assert_eq!(bench.push(&session, &[1]), Err(PushError::Closed));
    // The next frame makes another.
    bench.arrive(&frame(MINE, PEER, 0x0800, &[1]));
    assert_eq!(bench.notes.done.borrow().len(), 1);
}

#[test]
fn only_frames_for_this_station_are_taken() {
    let bench = bench();
    let other = EthAddr([2, 0, 0, 0, 0, 9]);
    bench.arrive(&frame(other, PEER, 0x0800, &[1]));
    bench.arrive(&frame(GROUP, PEER, 0x0800, &[2]));
    assert_eq!(bench.drops(&reason::NOT_MINE), 2);
    bench.arrive(&frame(ALL, PEER, 0x0800, &[3]));
    let join = JoinGroup { address: GROUP.0 };
    assert!(bench.eth.ask(&bench.cx, join).is_some());
    assert!(bench.eth.ask(&bench.cx, join).is_some());
    assert_eq!(bench.joined.get(), 2, "the wire is told");
    bench.arrive(&frame(GROUP, PEER, 0x0800, &[4]));
    bench.arrive(&frame(MINE, PEER, 0x0800, &[5]));
    let leave = LeaveGroup { address: GROUP.0 };
    assert!(bench.eth.ask(&bench.cx, leave).is_some());
    bench.arrive(&frame(GROUP, PEER, 0x0800, &[6]));
    assert!(bench.eth.ask(&bench.cx, leave).is_some());
    bench.arrive(&frame(GROUP, PEER, 0x0800, &[7]));
    assert!(bench.eth.ask(&bench.cx, leave).is_none(), "it was taken back before");
    assert_eq!(bench.joined.get(), 0, "the wire is told");
    assert_eq!(bench.drops(&reason::NOT_MINE), 3);
    assert_eq!(
        bench.take_seen(),
        [
            seen("typed", &[3], Some(LinkCast::Broadcast)),
            seen("typed", &[4], Some(LinkCast::Multicast)),
            seen("typed", &[5], None),
            seen("typed", &[6], Some(LinkCast::Multicast)),
        ]
    );
}

#[test]
fn past_the_bound_of_groups_all_are_taken_and_a_station_is_none() {
    let bench = bench();
    let join = |address| bench.eth.ask(&bench.cx, JoinGroup { address }).is_some();
    assert!(!join(PEER.0));
    for n in 0..GROUPS_MAX {
        let [.., a, b] = n.to_be_bytes();
        assert!(join([1, 0, 0x5e, 0, a, b]));
    }
    let strange = EthAddr([3, 0, 0, 0, 0, 9]);
    bench.arrive(&frame(strange, PEER, 0x0800, &[1]));
    assert!(bench.take_seen().is_empty());
    let one_more = [3, 0, 0, 0, 0, 1];
    assert!(join(one_more));
    bench.arrive(&frame(strange, PEER, 0x0800, &[2]));
    assert_eq!(bench.take_seen(), [seen("typed", &[2], Some(LinkCast::Multicast))]);
    assert!(bench.eth.ask(&bench.cx, LeaveGroup { address: one_more }).is_some());
    bench.arrive(&frame(strange, PEER, 0x0800, &[3]));
    assert!(bench.take_seen().is_empty());
    assert!(join(ALL.0));
}

#[test]
fn a_mark_left_by_the_sender_is_not_believed() {
    let bench = bench();
    let octets = frame(MINE, PEER, 0x0800, &[1]);
    let mut message = bench.cx.pool().copy_from(0, &octets).unwrap();
    message.set_attribute(LinkCast::Broadcast).unwrap();
    bench.arrive_message(message);
    assert_eq!(bench.take_seen(), [seen("typed", &[1], None)]);
}

#[test]
fn false_sources_are_counted() {
    let bench = bench();
    bench.arrive(&frame(MINE, MINE, 0x0800, &[1]));
    bench.arrive(&frame(ALL, MINE, 0x0800, &[1]));
    assert_eq!(bench.drops(&LOOPED), 2);
    bench.arrive(&frame(MINE, GROUP, 0x0800, &[1]));
    bench.arrive(&frame(MINE, EthAddr::ZERO, 0x0800, &[1]));
    assert_eq!(bench.drops(&reason::BAD_SOURCE), 2);
    // A session with a group sends to it; nothing comes from there.
    let session = bench.open(TYPED, GROUP).unwrap();
    bench.arrive(&frame(MINE, GROUP, 0x0800, &[1]));
    assert_eq!(bench.drops(&reason::BAD_SOURCE), 3);
    // Nor does an open session take what goes to another station.
    let peer = bench.open(TYPED, PEER).unwrap();
    bench.arrive(&frame(PEER, PEER, 0x0800, &[1]));
    assert_eq!(bench.drops(&reason::NOT_MINE), 1);
    assert!(bench.take_seen().is_empty());
    drop((session, peer));
}

#[test]
fn a_length_is_not_taken_for_a_number() {
    let bench = bench();
    let sap = bench.open(SAP, PEER).unwrap();
    // As many octets as the service access point's number, which is another's.
    let mut other = std::vec![0; 0x42];
    other[..3].copy_from_slice(&[0x44, 0x44, 3]);
    bench.arrive(&frame(MINE, PEER, 0x42, &other));
    assert_eq!(bench.drops(&reason::NO_PROTOCOL), 1);
    assert_eq!(sap.head().received(), 0);
}

#[test]
fn bad_frames_are_counted_by_reason() {
    let bench = bench();
    let cases: [(u16, &[u8], &Reason); 8] = [
        (0x05dd, &[1], &reason::MALFORMED),
        (0x0806, &[1], &reason::NO_PROTOCOL),
        (4, &[0x42, 0x42, 3], &reason::BAD_LENGTH),
        (2, &[0x42, 0x42, 3, 1], &reason::TRUNCATED),
        (7, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], &reason::TRUNCATED),
        (3, &[0x44, 0x44, 3], &reason::NO_PROTOCOL),
        // XID, and a response.
        (3, &[0x42, 0x42, 0xaf], &reason::NOT_SUPPORTED),
        (3, &[0x42, 0x43, 3], &reason::NOT_SUPPORTED),
    ];
    for (word, payload, reason) in cases {
        let before = bench.drops(reason);
        bench.arrive(&frame(MINE, PEER, word, payload));
        assert_eq!(bench.drops(reason), before + 1, "{word:x} {payload:x?}");
    }
    // An organisation without a place in the numbers.
    let unknown = [0xaa, 0xaa, 3, 0x12, 0x34, 0x56, 8, 0];
    bench.arrive(&frame(MINE, PEER, 8, &unknown));
    assert_eq!(bench.drops(&reason::NO_PROTOCOL), 3);
    assert!(bench.take_seen().is_empty());
}

#[test]
fn an_unwilling_upper_costs_no_session() {
    let bench = bench();
    bench.notes.unwilling.set(true);
    bench.arrive(&frame(MINE, PEER, 0x0800, &[1]));
    assert_eq!(bench.drops(&reason::PROHIBITED), 1);
    let ask = ListSessions::first(9);
    let list = bench.eth.ask(&bench.cx, ask).unwrap();
    assert_eq!((list.sessions.len(), list.total), (0, 0));
}

#[test]
fn opens_are_checked() {
    let bench = bench();
    let upper = Upper::new(&bench.uppers[TYPED]);
    let open = |both| bench.eth.open(&bench.cx, upper, both);
    let range = Err(OpenError::Address(AddressError::OutOfRange));
    let ether = |address: EthAddr| Part::Ether(address.0);
    assert_eq!(open(Participants::pair(ether(PEER), ether(PEER))), range);
    assert_eq!(open(Participants::pair(Part::Any, ether(MINE))), range);
    assert_eq!(open(Participants::pair(Part::Any, ether(EthAddr::ZERO))), range);
    assert_eq!(
        open(Participants::pair(Part::Any, Part::Any)),
        Err(OpenError::Address(AddressError::Wildcard))
    );
    assert_eq!(open(Participants::local(Part::Any)), Err(OpenError::Address(AddressError::Count)));
    assert!(open(Participants::pair(ether(MINE), ether(PEER))).is_ok());
    // The type number is taken: by another receiver it cannot be opened or enabled.
    let other = Upper { receiver: &bench.uppers[SAP], selector: bench.uppers[TYPED].id() };
    let both = Participants::pair(Part::Any, ether(PEER));
    let answer = bench.eth.open(&bench.cx, other, both.clone());
    assert_eq!(answer, Err(OpenError::InUse));
    let any = Participants::local(Part::Any);
    let answer = bench.eth.open_enable(&bench.cx, other, any);
    assert_eq!(answer, Err(OpenError::InUse));
    // Without a number no protocol stands here.
    let itself = Upper::new(&bench.eth);
    let answer = bench.eth.open(&bench.cx, itself, both);
    assert_eq!(answer, Err(OpenError::NoTypeNumber));
}

#[test]
fn a_withdrawn_offer_is_one_no_more() {
    let bench = bench();
    let any = Participants::local(Part::Any);
    let upper = Upper { receiver: &bench.uppers[SAP], selector: bench.uppers[SNAP].id() };
    let again = |participants| bench.eth.open_enable(&bench.cx, upper, participants);
    assert_eq!(again(any.clone()), Err(OpenError::InUse));
    bench.eth.open_disable(&bench.cx, xk_core::object::Enable(0x2_809b));
    assert!(again(any).is_ok());
}

#[test]
fn sizes_are_those_of_the_wire_less_the_headers() {
    let bench = bench();
    for (upper, octets) in [(TYPED, 1500), (SAP, 1497), (SNAP, 1492)] {
        let session = bench.open(upper, PEER).unwrap();
        let max = session.ask(&bench.cx, MaxPacket::default()).unwrap();
        let opt = session.ask(&bench.cx, OptPacket::default()).unwrap();
        assert_eq!((max.octets, opt.octets), (octets, octets));
        let data = std::vec![1; octets as usize];
        bench.push(&session, &data).unwrap();
        assert_eq!(bench.take_sent()[0].len(), FRAME_MAX as usize);
        let data = std::vec![1; octets as usize + 1];
        assert_eq!(bench.push(&session, &data), Err(PushError::TooBig));
    }
    assert_eq!(bench.drops(&reason::TOO_BIG), 3);
    let max = bench.eth.ask(&bench.cx, MaxPacket::default()).unwrap();
    let opt = bench.eth.ask(&bench.cx, OptPacket::default()).unwrap();
    assert_eq!((max.octets, opt.octets), (1500, 1500));
}

#[test]
fn questions_are_answered() {
    let bench = bench();
    let session = bench.open(TYPED, PEER).unwrap();
    let cx = &bench.cx;
    let mine = session.ask(cx, MyEther::default()).unwrap();
    let peer = session.ask(cx, PeerEther::default()).unwrap();
    assert_eq!((mine.address, peer.address), (MINE.0, PEER.0));
    assert_eq!(session.ask(cx, LinkType::default()).unwrap().number, 228);
    let sap = bench.open(SAP, PEER).unwrap();
    assert!(sap.ask(cx, LinkType::default()).is_none());
    assert_eq!(
        session.ask(cx, Describe::default()).unwrap().text,
        "02:00:00:00:00:01 > 02:00:00:00:00:02, IPv4"
    );
    let join = JoinGroup { address: GROUP.0 };
    assert!(session.ask(cx, join).is_some());
    let maps = bench.eth.ask(cx, ListMaps::default()).unwrap().maps;
    assert_eq!(maps.len(), 3);
}

#[test]
fn strangers_cannot_fill_the_table() {
    let bench = Bench::new(8).unwrap();
    let held = bench.open(TYPED, PEER).unwrap();
    for n in 0..=255 {
        let stranger = EthAddr([2, 1, 0, 0, 0, n]);
        bench.arrive(&frame(MINE, stranger, 0x0800, &[n]));
    }
    assert_eq!(bench.take_seen().len(), 256);
    let list = bench.eth.ask(&bench.cx, ListSessions::first(99));
    let list = list.unwrap();
    assert_eq!(list.total, 8);
    assert!(list.here().any(|session| *session == held));
}

#[test]
fn nothing_is_left_in_the_pool() {
    let bench = bench();
    let session = bench.open(TYPED, PEER).unwrap();
    bench.push(&session, b"short").unwrap();
    bench.arrive(&frame(ALL, PEER, 0x0800, &[1]));
    let pool = bench.cx.pool().clone();
    drop((session, bench));
    assert_eq!(pool.stats().buffers_live, 0);
    assert_eq!(pool.stats().descriptors_live, 0);
}

#[test]
fn every_truncation_is_seen_or_counted() {
    let bench = bench();
    let mut apple = frame(MINE, PEER, 11, &[0xaa, 0xaa, 3, 8, 0, 7, 0x80, 0x9b, 5, 6, 7]);
    apple.resize(60, 0);
    for whole in [apple, frame(ALL, PEER, 0x0800, &[1; 60])] {
        for len in 0..=whole.len() {
            let before = bench.dropped();
            bench.arrive(&whole[..len]);
            let seen = bench.take_seen().len() as u64;
            assert_eq!(bench.dropped() + seen, before + 1, "{len} octets");
        }
    }
}

proptest! {
    #[test]
    fn what_one_sends_another_gets(data in prop::collection::vec(any::<u8>(), 0..1492), upper in 0usize..3) {
        let bench = bench();
        let session = bench.open(upper, PEER).unwrap();
        bench.push(&session, &data).unwrap();
        let mut sent = bench.take_sent().remove(0);
        sent[..6].copy_from_slice(&MINE.0);
        sent[6..12].copy_from_slice(&PEER.0);
        bench.arrive(&sent);
        let mut seen = bench.take_seen().remove(0).octets;
        if upper == TYPED {
            prop_assert!(seen.len() == data.len() || seen.len() == 46);
            seen.truncate(data.len());
        }
        prop_assert_eq!(seen, data);
    }
}
