//! A router: forwarding, and telling senders.

use crate::common::*;
use core::net::Ipv4Addr;
use proptest::prelude::*;
use xk_core::object::PushError;
use xk_core::reason::{self, Class, Reason};
use xk_ip::reasons;
use xk_ip::wire::{Fragment, Options};
use xk_kit::control::SendErrorCause;
use xk_kit::net::attribute::LinkCast;
use xk_testkit::kernel::octets;

const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 7);
/// Every router is to look at the datagram (RFC 2113).
const ROUTER_ALERT: [u8; 4] = [148, 4, 0, 0];

fn router() -> (Host, ErrorProtocol) {
    let host = Host::new(Graph::router(), &[1500, 576]);
    host.enable();
    let icmp = ErrorProtocol::add(&host);
    (host, icmp)
}

#[test]
fn takes_one_hop_off_and_mends_the_checksum() {
    let (host, icmp) = router();
    let packet = Packet::new(PEER, THERE, b"onward");
    for _ in 0..3 {
        assert!(host.inject(0, &packet.octets()));
    }
    let sent = host.sent(1);
    let expected = Packet { ttl: 63, ..packet }.octets();
    assert_eq!(sent, [expected.clone(), expected.clone(), expected]);
    assert!(icmp.take().is_empty() && host.sent(0).is_empty());
    assert_eq!((host.figures().forwarded, host.drops()), (3, 0));
    assert_eq!(host.lowers[1].held().len(), 1, "one session per next hop");
    // By the default route, to a router on the first link.
    host.inject(1, &Packet::new(THERE, FAR, b"out").octets());
    assert_eq!(header(&host.sent(0)[0]).dst, FAR);
}

#[test]
fn a_kept_copy_is_not_altered() {
    let (host, _icmp) = router();
    let packet = Packet::new(PEER, THERE, b"onward").octets();
    let message = host.cx.message(&packet);
    let copy = message.try_clone().unwrap();
    host.lowers[0].inject(&host.cx, None, message);
    assert_eq!(octets(&copy), packet);
    assert_eq!(header(&host.sent(1)[0]).ttl, 63);
}

#[test]
fn who_cannot_be_reached_is_reported() {
    let host = Host::new(
        Graph::new()
            .address("10.0.0.1/24", "low0")
            .address("10.0.1.1/24", "low1")
            .set("forward", xk_core::graph::Value::Bool(true)),
        &[1500, 576],
    );
    let icmp = ErrorProtocol::add(&host);
    let base = Packet::new(PEER, THERE, &[1; 100]);
    let dying = Packet { ttl: 1, ..base.clone() };
    let dead = Packet { ttl: 0, ..base.clone() };
    let lost = Packet { dst: FAR, ..base.clone() };
    let mut big = Packet::new(PEER, THERE, &[1; 557]);
    big.fragment = Fragment::DONT;
    for (packet, cause, why) in [
        (dying, SendErrorCause::TimeToLive, &reasons::TTL_EXCEEDED),
        (dead, SendErrorCause::TimeToLive, &reasons::TTL_EXCEEDED),
        (lost, SendErrorCause::NoRoute, &reasons::NO_ROUTE),
        (big, SendErrorCause::TooBig { mtu: 576 }, &reason::TOO_BIG),
    ] {
        let before = host.dropped(why);
        host.inject(0, &packet.octets());
        let told = icmp.take();
        assert_eq!(told, [(cause, packet.octets(), false)]);
        assert_eq!(host.dropped(why), before + 1);
    }
    assert!(host.sent(0).is_empty() && host.sent(1).is_empty());
}

#[test]
fn what_may_not_go_on_stays() {
    let (host, icmp) = router();
    let local = Ipv4Addr::new(169, 254, 1, 1);
    for (src, dst, why) in [
        (PEER, Ipv4Addr::new(10, 0, 1, 255), None),
        (PEER, Ipv4Addr::new(224, 0, 0, 9), Some(&reason::NOT_MINE)),
        (PEER, Ipv4Addr::new(127, 0, 0, 2), Some(&reasons::MARTIAN)),
        (PEER, Ipv4Addr::new(250, 0, 0, 2), Some(&reasons::MARTIAN)),
        (PEER, local, Some(&reasons::MARTIAN)),
        (local, THERE, Some(&reasons::MARTIAN)),
        (Ipv4Addr::UNSPECIFIED, THERE, Some(&reason::BAD_SOURCE)),
        (Ipv4Addr::BROADCAST, THERE, Some(&reason::BAD_SOURCE)),
        (OWN, THERE, Some(&reason::BAD_SOURCE)),
    ] {
        let before = host.drops();
        host.inject(0, &Packet::new(src, dst, b"x").octets());
        assert!(host.sent(0).is_empty() && host.sent(1).is_empty(), "{src} {dst}");
        assert_eq!(host.drops() - before, u64::from(why.is_some()), "{src} {dst}");
        assert!(why.is_none_or(|why| host.dropped(why) > 0));
    }
    let mut message = host.cx.message(&Packet::new(PEER, THERE, b"x").octets());
    message.set_attribute(LinkCast::Multicast).unwrap();
    assert!(!host.lowers[0].inject(&host.cx, None, message));
    assert!(host.sent(1).is_empty() && icmp.take().is_empty());
    assert_eq!(host.received().len(), 1, "the directed broadcast was for us too");
}

#[test]
fn cuts_what_is_too_long_and_copies_the_options_that_ask_for_it() {
    let (host, _icmp) = router();
    let mut packet = Packet::new(PEER, THERE, &pattern(1400));
    // A record of three routers, and an alert.
    packet.options = [&[7, 15, 4][..], &[0; 12], &ROUTER_ALERT, &[0]].concat();
    host.inject(0, &packet.octets());
    let sent = host.sent(1);
    assert!(sent.len() >= 3 && sent.iter().all(|p| p.len() <= 576));
    let mut whole = Vec::new();
    for (n, octets) in sent.iter().enumerate() {
        let header = header_with(octets);
        assert_eq!(header.0.fragment.offset(), whole.len());
        assert_eq!(header.0.fragment.more(), n + 1 < sent.len());
        let kinds: Vec<u8> = header.1.iter().map(|option| option[0]).collect();
        assert_eq!(kinds, if n == 0 { vec![7, 148] } else { vec![148] });
        if let Some([7, record @ ..]) = header.1.iter().next() {
            assert_eq!(record[..6], [15, 8, 10, 0, 1, 1], "the first slot is ours");
        }
        whole.extend_from_slice(&octets[header.0.header_len()..]);
    }
    assert_eq!(whole, pattern(1400));
    // A fragment that is cut again keeps its place.
    let mut middle = Packet::new(PEER, THERE, &pattern(1000));
    middle.fragment = Fragment::new(800, true).unwrap();
    host.inject(0, &middle.octets());
    let places: Vec<_> = host.sent(1).iter().map(|p| header(p).fragment).collect();
    assert_eq!(places, [Fragment::new(800, true).unwrap(), Fragment::new(1352, true).unwrap()]);
}

fn header_with(octets: &[u8]) -> (xk_ip::wire::Header, Options<'_>) {
    let packet = xk_ip::wire::Packet::parse(octets).expect("a good packet");
    (packet.header, packet.options)
}

#[test]
fn options_are_looked_at() {
    let (host, icmp) = router();
    // A record route whose length is wrong, at octet 21.
    let mut bad = Packet::new(PEER, OWN, b"x");
    bad.options = vec![200, 4, 0, 0];
    let mut octets = bad.octets();
    octets[20..24].copy_from_slice(&[7, 40, 4, 0]);
    fix(&mut octets, 24);
    host.inject(0, &octets);
    assert_eq!(icmp.take(), [(SendErrorCause::Parameter { pointer: 21 }, octets, false)]);
    for dst in [OWN, THERE] {
        for kind in [131, 137] {
            let mut routed = Packet::new(PEER, dst, b"x");
            routed.options = [&[kind, 7, 4][..], &FAR.octets(), &[0]].concat();
            host.inject(0, &routed.octets());
            let told = icmp.take();
            assert_eq!(told[0].0, SendErrorCause::Refused(&reasons::SOURCE_ROUTE));
            assert_eq!(told[0].1, routed.octets());
        }
    }
    assert_eq!(host.dropped(&reasons::SOURCE_ROUTE), 4);
    assert_eq!(host.dropped(&reasons::BAD_OPTION), 1);
    let mut alert = Packet::new(PEER, OWN, b"x");
    alert.options = ROUTER_ALERT.to_vec();
    host.inject(0, &alert.octets());
    assert_eq!(host.received().len(), 1, "unknown and harmless ones are passed over");
}

fn fix(octets: &mut [u8], header: usize) {
    octets[10..12].fill(0);
    let sum = xk_kit::net::checksum::checksum(&octets[..header]);
    octets[10..12].copy_from_slice(&sum.to_be_bytes());
}

static SECRET: Reason = Reason::new("secret", Class::Prohibited);
static BAD: Reason = Reason::new("bad", Class::Bad);

#[test]
fn refusals_from_above_carry_the_whole_packet() {
    let (host, icmp) = router();
    let mut packet = Packet::new(PEER, OWN, b"12345678");
    let told = |packet: &Packet| {
        host.inject(0, &packet.octets());
        icmp.take()
    };
    for (why, cause) in [
        (&reason::NO_PORT, Some(SendErrorCause::Refused(&reason::NO_PORT))),
        (&SECRET, Some(SendErrorCause::Refused(&SECRET))),
        (&BAD, None),
    ] {
        host.top.refuse(Some(why));
        let expected: Vec<_> = cause.map(|c| (c, packet.octets(), false)).into_iter().collect();
        assert_eq!(told(&packet), expected);
        assert_eq!(told(&packet), expected, "also where the session is there already");
        assert_eq!(host.drops(), 0, "who refuses counts");
    }
    host.top.refuse(Some(&reason::NO_PORT));
    let mut directed = packet.clone();
    directed.dst = Ipv4Addr::new(10, 0, 0, 255);
    for _ in 0..2 {
        let told = told(&directed);
        assert!(told[0].2, "for more than one, in a frame for us alone");
    }
    packet.protocol = 99;
    let expected = (SendErrorCause::Refused(&reason::NO_PROTOCOL), packet.octets(), false);
    assert_eq!(told(&packet), [expected]);
    packet.dst = Ipv4Addr::BROADCAST;
    assert!(told(&packet)[0].2, "and says that it was for more than one");
    assert_eq!(host.dropped(&reason::NO_PROTOCOL), 2);
}

#[test]
fn without_an_error_protocol_refusals_are_counted() {
    let host = Host::simple();
    host.top.refuse(Some(&reason::NO_PORT));
    host.inject(0, &Packet::new(PEER, OWN, b"x").octets());
    assert_eq!((host.figures().errors_untold, host.drops()), (1, 0));
}

#[test]
fn a_busy_lower_layer_loses_packets_under_a_reason() {
    let (host, icmp) = router();
    host.lowers[1].fail(Some(PushError::QueueFull));
    host.inject(0, &Packet::new(PEER, THERE, b"x").octets());
    assert_eq!(host.dropped(&reason::QUEUE_FULL), 1);
    host.lowers[1].fail(Some(PushError::Unreachable));
    host.inject(0, &Packet::new(PEER, THERE, b"x").octets());
    assert_eq!(host.dropped(&reasons::NOT_SENT), 1);
    let told = icmp.take();
    assert_eq!(told.len(), 1, "nobody is told that a queue was full");
    assert_eq!(told[0].0, SendErrorCause::HostUnreachable);
    assert_eq!(told[0].1, Packet::new(PEER, THERE, b"x").octets());
}

#[test]
fn next_hops_are_bounded() {
    let host = Host::new(Graph::router().address("172.16.0.1/12", "low1"), &[1500, 1500]);
    for n in 0..3000u32 {
        let dst = Ipv4Addr::from_bits(0xac10_0100 + n);
        host.inject(0, &Packet::new(PEER, dst, b"x").octets());
        host.lowers[1].keep(false);
    }
    assert_eq!(host.figures().forwarded, 3000);
    assert!(host.lowers[1].held().iter().map(|s| s.head().opens()).sum::<u32>() <= 1024);
    host.cx.stop();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn every_arrival_has_one_outcome(
        damage in proptest::collection::vec((0usize..64, any::<u8>()), 0..4),
        cut in 0usize..80,
        mends: bool,
        dst in prop_oneof![Just(OWN), Just(THERE), Just(FAR), any::<u32>().prop_map(Ipv4Addr::from_bits)],
    ) {
        let (host, icmp) = router();
        let mut octets = Packet::new(PEER, dst, &pattern(40)).octets();
        for (at, value) in damage {
            if let Some(octet) = octets.get_mut(at) { *octet = value; }
        }
        octets.truncate(octets.len() - cut.min(octets.len()));
        let len = usize::from(octets.first().map_or(0, |o| o & 15)) * 4;
        if mends && len >= 20 && octets.len() >= len { fix(&mut octets, len); }
        host.inject(0, &octets);
        let figures = host.figures();
        let outcomes = host.received().len() as u64 + host.drops() + figures.forwarded + figures.fragments_held as u64;
        prop_assert_eq!(outcomes, 1);
        prop_assert!(icmp.take().len() <= 1);
    }
}

#[test]
fn every_truncation_is_dropped() {
    let (host, _icmp) = router();
    let mut whole = Packet::new(PEER, OWN, b"payload");
    whole.options = ROUTER_ALERT.to_vec();
    let octets = whole.octets();
    for len in 0..octets.len() {
        assert!(!host.inject(0, &octets[..len]), "{len}");
        assert_eq!(host.drops(), len as u64 + 1);
    }
    assert!(host.received().is_empty());
}
