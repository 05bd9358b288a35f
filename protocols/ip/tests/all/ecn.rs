//! Marks of congestion on their way up and down (RFC 3168, section 5), and what attributes cost a
//! packet: nothing.

use crate::common::*;
use xk_core::Message;
use xk_ip::DontFragment;
use xk_ip::wire::{Fragment, HEADER_LEN_MAX, Options};
use xk_kit::net::attribute::Ecn;
use xk_testkit::kernel::octets;

/// The two bits of a packet that goes with these attributes, whether it may be cut, and whether its
/// header is in order.
fn sent(host: &Host, mark: Option<Ecn>, dont: bool, len: usize) -> Vec<(u8, bool, usize)> {
    let session = host.open(PEER);
    let mut message = host.cx.message(&pattern(len));
    if let Some(mark) = mark {
        message.set_attribute(mark).unwrap();
    }
    if dont {
        message.set_attribute(DontFragment).unwrap();
    }
    session.push(&host.cx, message).unwrap();
    let sent = host.lowers[0].take_sent();
    let look = |message: &Message| {
        assert!(!message.has_attributes(), "what was asked is done");
        let header = header(&octets(message));
        (header.ecn(), header.fragment.dont(), header.payload_len())
    };
    sent.iter().map(|sent| look(&sent.message)).collect()
}

#[test]
fn what_can_be_marked_says_so_on_the_wire() {
    let host = Host::simple();
    // The first finds the way, the others go straight.
    for _ in 0..3 {
        assert_eq!(sent(&host, None, false, 9), [(0, false, 9)]);
        let mark = Some(Ecn::CapableZero);
        assert_eq!(sent(&host, mark, false, 9), [(2, false, 9)]);
        assert_eq!(sent(&host, mark, true, 900), [(2, true, 900)]);
        assert_eq!(sent(&host, Some(Ecn::CapableOne), true, 9), [(1, true, 9)]);
        // What came with a mark and goes back as it is has not met congestion on this way.
        let experienced = Some(Ecn::Experienced);
        assert_eq!(sent(&host, experienced, false, 9), [(0, false, 9)]);
    }
    let pieces = sent(&host, Some(Ecn::CapableZero), false, 3000);
    assert_eq!(pieces, [(2, false, 1480), (2, false, 1480), (2, false, 40)]);
}

/// A packet to us with these two bits.
fn marked(packet: &Packet, bits: u8) -> Vec<u8> {
    let mut header = header(&packet.octets());
    header.traffic_class = bits;
    let mut buf = [0; HEADER_LEN_MAX];
    let front = header.emit_with(Options::NONE, &mut buf);
    [front.unwrap(), &packet.payload].concat()
}

fn seen(host: &Host) -> Vec<Option<Ecn>> {
    let received = host.received();
    received.iter().map(|r| r.message.attribute::<Ecn>()).collect()
}

#[test]
fn only_a_mark_is_told_above() {
    let host = Host::simple();
    let packet = Packet::new(PEER, OWN, b"hello");
    for bits in [0, 1, 2, 3, 3, 0] {
        host.inject(0, &marked(&packet, bits));
    }
    let mark = Some(Ecn::Experienced);
    assert_eq!(seen(&host), [None, None, None, mark, mark, None]);
    // A padded one takes another way.
    let mut padded = marked(&packet, 3);
    padded.resize(46, 0);
    host.inject(0, &padded);
    assert_eq!(seen(&host), [mark]);
    assert_eq!(host.drops(), 0);
}

/// RFC 3168, section 5.3.
#[test]
fn a_mark_on_a_fragment_is_one_on_the_whole() {
    let host = Host::simple();
    let piece = |at: usize, more: bool, bits: u8| {
        let mut packet = Packet::new(PEER, OWN, &pattern(at + 16)[at..]);
        packet.fragment = Fragment::new(at, more).unwrap();
        host.inject(0, &marked(&packet, bits));
    };
    for (bits, told) in [
        ([2, 2, 2], None),
        ([2, 3, 2], Some(Ecn::Experienced)),
        ([2, 2, 3], Some(Ecn::Experienced)),
        ([3, 2, 2], Some(Ecn::Experienced)),
        ([0, 0, 0], None),
    ] {
        piece(0, true, bits[0]);
        piece(32, false, bits[2]);
        piece(16, true, bits[1]);
        assert_eq!(seen(&host), [told], "{bits:?}");
    }
}
