//! A host: sending, receiving, demultiplexing, bounds.

mod common;

use common::*;
use core::net::Ipv4Addr;
use xk_core::graph::{BuildError, Value};
use xk_core::message::PoolConfig;
use xk_core::object::{OpenError, PushError};
use xk_core::participant::AddressError;
use xk_core::{Part, Participants, Pool, reason};
use xk_ip::wire::{Fragment, HEADER_LEN};
use xk_ip::{DontFragment, reasons};
use xk_kit::attribute::LinkCast;
use xk_kit::control::{IsLocalHost, MaxPacket, MyHost, OptPacket, PeerHost, PseudoHeader};
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
        etherparse::Ipv4HeaderSlice::from_slice(packet)
            .unwrap()
            .header_checksum(),
        etherparse::Ipv4HeaderSlice::from_slice(packet)
            .unwrap()
            .to_header()
            .calc_header_checksum()
    );
    session.push(&host.cx, host.cx.message(b"")).unwrap();
    let next = header(&host.sent(0)[0]);
    assert_eq!(next.id, header(packet).id.wrapping_add(1), "ids count up");
    assert_eq!(next.payload_len(), 0);
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
        [
            Event::OpenDone(id),
            Event::Demux(id, 5),
            Event::Demux(id, 5)
        ]
    );
    let (_, mut participants) = host.top.take_opened().remove(0);
    assert_eq!(
        participants.local_mut().unwrap().pop(),
        Some(Part::Host(OWN))
    );
    assert_eq!(
        participants.peer_mut().unwrap().pop(),
        Some(Part::Host(PEER))
    );
    received[0]
        .session
        .push(&host.cx, host.cx.message(b"back"))
        .unwrap();
    let back = header(&host.sent(0)[0]);
    assert_eq!((back.src, back.dst), (OWN, PEER));
    assert_eq!(host.open(PEER), received[0].session, "an open finds it");
    assert_eq!(host.drops(), 0);
}
