//! A sender's wishes for a header are on the wire, and headers' fields are told the protocol that
//! has asked.

use crate::common::*;
use xk_core::Message;
use xk_ip::wire::{HEADER_LEN_MAX, Options};
use xk_kit::control::TellArrivals;
use xk_kit::net::attribute::{Arrived, Ecn, Sending};
use xk_testkit::kernel::octets;

/// Hops and class of traffic of the packets that go for a message with these attributes, whose
/// headers are in order.
fn sent(host: &Host, sending: Option<Sending>, mark: Option<Ecn>, len: usize) -> Vec<(u8, u8)> {
    let session = host.open(PEER);
    let mut message = host.cx.message(&pattern(len));
    if let Some(sending) = sending {
        message.set_attribute(sending).unwrap();
    }
    if let Some(mark) = mark {
        message.set_attribute(mark).unwrap();
    }
    session.push(&host.cx, message).unwrap();
    let sent = host.lowers[0].take_sent();
    let look = |message: &Message| {
        assert!(!message.has_attributes(), "what was asked is done");
        let header = header(&octets(message));
        (header.ttl, header.traffic_class)
    };
    sent.iter().map(|sent| look(&sent.message)).collect()
}

#[test]
fn a_header_is_as_its_sender_asks() {
    let host = Host::simple();
    let asked = |hops, class| Some(Sending { hops, class, ..Sending::default() });
    // The first finds the way, the others go straight.
    for _ in 0..3 {
        assert_eq!(sent(&host, None, None, 9), [(64, 0)]);
        assert_eq!(sent(&host, asked(0, None), None, 9), [(64, 0)]);
        assert_eq!(sent(&host, asked(1, None), None, 9), [(1, 0)]);
        assert_eq!(sent(&host, asked(255, Some(0xb8)), None, 900), [(255, 0xb8)]);
        assert_eq!(sent(&host, asked(0, Some(0xff)), None, 9), [(64, 0xff)]);
        let mark = Some(Ecn::CapableZero);
        assert_eq!(sent(&host, asked(9, Some(0xb8)), mark, 9), [(9, 0xba)]);
    }
    assert_eq!(sent(&host, asked(9, Some(0x10)), None, 3000), [(9, 0x10); 3]);
}

#[test]
fn what_headers_said_is_told_if_asked() {
    let host = Host::simple();
    let arrives = |hops: u8, class: u8, padding: usize| {
        let packet = Packet::new(PEER, OWN, b"hello");
        let mut header = header(&packet.octets());
        (header.ttl, header.traffic_class) = (hops, class);
        let mut buf = [0; HEADER_LEN_MAX];
        let front = header.emit_with(Options::NONE, &mut buf);
        let octets = [front.unwrap(), &packet.payload, &vec![0; padding]].concat();
        host.inject(0, &octets);
        host.received().iter().map(|r| r.message.attribute::<Arrived>()).collect::<Vec<_>>()
    };
    for _ in 0..2 {
        assert_eq!(arrives(9, 0x10, 0), [None]);
    }
    // Several may ask, and none for another.
    host.ip.ask(&host.cx, TellArrivals { number: u32::from(NUMBER) + 1 }).unwrap();
    assert_eq!(arrives(9, 0x10, 0), [None]);
    for number in [u32::from(NUMBER), u32::from(NUMBER) + 64, 6, 255, 256, u32::MAX] {
        host.ip.ask(&host.cx, TellArrivals { number }).unwrap();
    }
    let told = |hops, class| [Some(Arrived { to: OWN.into(), hops, class })];
    for padding in [0, 0, 21] {
        assert_eq!(arrives(9, 0x10, padding), told(9, 0x10));
        assert_eq!(arrives(255, 0, padding), told(255, 0));
    }
}
