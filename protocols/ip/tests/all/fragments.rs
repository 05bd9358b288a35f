//! Fragments: cutting, putting together, time limits, the path's maximum.

use crate::common::*;
use core::net::Ipv4Addr;
use core::time::Duration;
use proptest::prelude::*;
use xk_core::graph::Value;
use xk_core::object::PushError;
use xk_core::{Answer, Ask, Kernel, Part, Participants, Protocol, ProtocolRef, Upper};
use xk_ip::reasons;
use xk_ip::wire::Fragment;
use xk_kit::control::{
    DeliverError, IsOutstanding, NetworkError, NetworkErrorKind, OptPacket, SendErrorCause, Start,
};
use xk_testkit::kernel::octets;

#[test]
fn eight_kilobytes_go_in_six_fragments_without_a_copy() {
    let host = Host::simple();
    let session = host.open(PEER);
    let message = host.cx.message(&pattern(8200));
    let from = message.slices().next().unwrap().offset;
    session.push(&host.cx, message).unwrap();
    let sent = host.lowers[0].take_sent();
    assert_eq!(sent.len(), 6);
    let mut whole = Vec::new();
    for (n, sent) in sent.iter().enumerate() {
        let packet: Vec<u8> = octets(&sent.message);
        let header = header(&packet);
        assert_eq!(header.fragment.offset(), n * 1480);
        assert_eq!(header.fragment.more(), n < 5);
        assert!(packet.len() <= 1500 && header.total_len() == packet.len());
        let last = sent.message.slices().last().unwrap();
        let end = last.offset + last.octets.len();
        assert_eq!(end, from + whole.len() + header.payload_len(), "no copy");
        whole.extend_from_slice(&packet[20..]);
    }
    assert_eq!(whole, pattern(8200));
    let ids: Vec<u16> = sent.iter().map(|s| header(&octets(&s.message)).id).collect();
    assert!(ids.iter().all(|id| *id == ids[0]));
    assert_eq!(host.figures().fragments_sent, 6);
}

/// Sends from one host to another, with any maximum and any order.
fn round_trip(len: usize, mtu: u32, reverse: bool) {
    let a = Host::new(Graph::host(), &[mtu]);
    let wide = Graph::new()
        .address("10.0.0.2/24", "low0")
        .set("fragments_max", Value::Integer(8192))
        .set("reassembly_octets_max", Value::Octets(8 << 20));
    let b = Host::new(wide, &[1500]);
    b.enable();
    let session = a.open(PEER);
    session.push(&a.cx, a.cx.message(&pattern(len))).unwrap();
    let mut sent = a.sent(0);
    if reverse {
        sent.reverse();
    }
    for packet in &sent {
        assert!(packet.len() <= mtu as usize);
        b.inject(0, packet);
    }
    let received = b.received();
    assert_eq!(received.len(), 1, "{len} octets over {mtu}");
    assert_eq!(octets(&received[0].message), pattern(len));
    assert_eq!((b.drops(), b.figures().fragments_held), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_is_cut_comes_together(len in 0usize..20_000, mtu in 68u32..3000, reverse: bool) {
        round_trip(len, mtu, reverse);
    }
}

#[test]
fn the_longest_datagram_over_the_shortest_link() {
    round_trip(65_515, 68, true);
    round_trip(65_515, 1500, false);
}

fn fragment(id: u16, at: usize, len: usize, more: bool) -> Packet {
    let mut packet = Packet::new(PEER, OWN, &pattern(at + len)[at..]);
    packet.id = id;
    packet.fragment = Fragment::new(at, more).unwrap();
    packet
}

#[test]
fn what_stays_incomplete_is_given_up_and_its_sender_told() {
    let host = Host::new(
        Graph::host().set("reassembly_timeout", Value::Duration(Duration::from_secs(60))),
        &[1500],
    );
    host.enable();
    let icmp = ErrorProtocol::add(&host);
    host.inject(0, &fragment(1, 0, 16, true).octets());
    host.cx.advance(Duration::from_secs(30));
    host.inject(0, &fragment(2, 16, 16, true).octets());
    host.inject(0, &fragment(1, 32, 16, true).octets());
    assert_eq!(host.figures().fragments_held, 3);
    host.cx.advance(Duration::from_secs(29));
    assert_eq!((icmp.take().len(), host.drops()), (0, 0));
    host.cx.advance(Duration::from_secs(1));
    let told = icmp.take();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].0, SendErrorCause::Reassembly);
    assert_eq!(told[0].1, fragment(1, 0, 16, true).octets(), "the first fragment as it came");
    host.cx.advance(Duration::from_secs(30));
    assert_eq!(icmp.take().len(), 0, "the first fragment was never there");
    assert_eq!(host.dropped(&reasons::TIMED_OUT), 3);
    assert_eq!(host.figures().fragments_held, 0);
    assert_eq!(host.cx.timers(), 0);
}

#[test]
fn many_incomplete_datagrams_stay_within_bounds() {
    let octets_max = 64 * 1024;
    let host =
        Host::new(Graph::host().set("reassembly_octets_max", Value::Octets(octets_max)), &[1500]);
    let baseline = host.cx.live();
    for id in 0..5000 {
        host.inject(0, &fragment(id, 0, 1480, true).octets());
        let held = host.figures().fragments_held;
        assert!(held * (1480 + 256) <= octets_max as usize);
    }
    let held = host.figures().fragments_held as u64;
    assert_eq!(held + host.dropped(&reasons::EVICTED), 5000);
    assert_eq!(host.cx.timers(), 1, "one timer for all");
    host.cx.advance(Duration::from_secs(61));
    assert_eq!(host.drops(), 5000);
    assert_eq!(host.cx.live(), baseline);
}

#[test]
fn overlaps_are_dropped_whole() {
    let host = Host::simple();
    host.inject(0, &fragment(1, 0, 24, true).octets());
    host.inject(0, &fragment(1, 16, 24, false).octets());
    host.inject(0, &fragment(1, 24, 16, false).octets());
    assert_eq!(host.received().len(), 0);
    assert_eq!(host.dropped(&reasons::OVERLAP), 3);
    host.inject(0, &fragment(2, 0, 24, true).octets());
    host.inject(0, &fragment(2, 0, 24, true).octets());
    host.inject(0, &fragment(2, 24, 16, false).octets());
    assert_eq!(octets(&host.received()[0].message), pattern(40));
    assert_eq!(host.dropped(&reasons::DUPLICATE), 1);
}

fn too_big(host: &Host, to: Ipv4Addr, mtu: u32) {
    let question = DeliverError {
        source: OWN.into(),
        destination: to.into(),
        protocol: NUMBER,
        error: NetworkError {
            start: Start::new(&[1; 8]),
            ..NetworkError::new(NetworkErrorKind::PacketTooBig { mtu })
        },
    };
    assert!(host.ip.ask(&host.cx, question).is_some());
}

#[test]
fn a_reported_maximum_is_kept_for_ten_minutes() {
    let host = Host::simple();
    let (session, other) = (host.open(FAR), host.open(PEER));
    let path = || session.ask(&host.cx, OptPacket::default()).unwrap().octets + 20;
    assert_eq!(path(), 1500);
    too_big(&host, FAR, 1400);
    assert_eq!(path(), 1400);
    let errors = host.top.take_errors();
    assert_eq!(errors[0].kind, NetworkErrorKind::PacketTooBig { mtu: 1400 });
    assert_eq!(errors[0].session.as_ref(), Some(&session));
    assert_eq!(*errors[0].start, [1; 8]);
    session.push(&host.cx, host.cx.message(&[0; 1400])).unwrap();
    assert_eq!(host.sent(0).len(), 2);
    other.push(&host.cx, host.cx.message(&[0; 1400])).unwrap();
    assert_eq!(host.sent(0).len(), 1, "another way");
    // More than it is now is no news; nothing said means the next plateau; 68 is the least.
    too_big(&host, FAR, 9000);
    assert_eq!(path(), 1400);
    too_big(&host, FAR, 0);
    assert_eq!(path(), 1006);
    too_big(&host, FAR, 1);
    assert_eq!(path(), 68);
    session.close(&host.cx);
    let session = host.open(FAR);
    let path = || session.ask(&host.cx, OptPacket::default()).unwrap().octets + 20;
    assert_eq!(path(), 68, "a new session knows");
    host.cx.advance(Duration::from_secs(599));
    assert_eq!(path(), 68);
    host.cx.advance(Duration::from_secs(2));
    assert_eq!(path(), 1500);
    assert_eq!(host.cx.timers(), 0);
}

#[test]
fn errors_about_nothing_that_was_sent_are_counted() {
    let host = Host::simple();
    too_big(&host, FAR, 1000);
    assert_eq!(host.dropped(&reasons::UNMATCHED_ERROR), 1);
    assert!(host.top.take_errors().is_empty());
}

#[test]
fn a_failing_lower_layer_is_reported() {
    let host = Host::simple();
    let session = host.open(PEER);
    host.lowers[0].fail(Some(PushError::QueueFull));
    for len in [10, 9000] {
        let result = session.push(&host.cx, host.cx.message(&pattern(len)));
        assert_eq!(result, Err(PushError::QueueFull));
    }
    host.lowers[0].fail(None);
    session.push(&host.cx, host.cx.message(b"x")).unwrap();
}

/// Says of every packet whether it is still under way.
struct Knowing(bool);

impl Protocol for Knowing {
    fn control(&self, _: &Kernel, _: &ProtocolRef, ask: &mut Ask<'_>) -> Answer {
        ask.answer::<IsOutstanding>(|about| {
            assert_eq!(*about.start, [1; 8]);
            about.is = self.0;
        })
    }
}

/// RFC 5927, section 4.1.
#[test]
fn a_report_about_what_is_not_under_way_changes_no_path() {
    for is_under_way in [false, true] {
        let host = Host::simple();
        let upper = host.cx.add_protocol("udp", "above", Knowing(is_under_way));
        let pair = Participants::pair(Part::Any, Part::host(FAR));
        let session = host.ip.open(&host.cx, Upper::new(&upper), pair).expect("it opens");
        too_big(&host, FAR, 600);
        let path = session.ask(&host.cx, OptPacket::default()).unwrap().octets + 20;
        let refused = host.dropped(&reasons::UNMATCHED_ERROR);
        let expected = if is_under_way { (600, 0) } else { (1500, 1) };
        assert_eq!((path, refused), expected);
        session.close(&host.cx);
    }
}
