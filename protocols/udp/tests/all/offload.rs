//! Checksums left to the layers below, and verified by them.

use crate::udp;
use core::net::Ipv4Addr;
use std::str::FromStr;
use xk_core::{Message, Part, Participants, ProtocolRef, SessionRef, reason};
use xk_kit::wire::offload::{self, Offloads, TransportChecksum};
use xk_testkit::kernel::{Bottom, Lower, TestKernel, Top};

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// A payload this long is left to be summed below.
const LONG: usize = 256;

struct Net {
    cx: TestKernel,
    ip: Bottom,
    udp: ProtocolRef,
    top: Top,
}

impl Net {
    fn new(partial_checksums: bool, checksum: bool) -> Self {
        let cx = TestKernel::new(7);
        let lower = Lower { partial_checksums, ..Lower::host(OWN, 17) };
        let ip = Bottom::add(&cx, "ip", lower);
        let udp = udp(&cx, &ip, 8, checksum);
        let top = Top::add(&cx, "top");
        cx.start().unwrap();
        Self { cx, ip, udp, top }
    }

    fn open(&self) -> SessionRef {
        let participants = Participants::from_str("port5000, port7@10.0.0.2").unwrap();
        self.top.open(&self.cx, &self.udp, participants).unwrap()
    }

    fn sent(&self, session: &SessionRef, payload: &[u8]) -> Message {
        session.push(&self.cx, self.cx.message(payload)).expect("a session sends");
        self.ip.take_sent().pop().expect("a datagram").message
    }

    fn inject(&self, octets: &[u8], known: TransportChecksum) {
        let mut message = self.cx.message(octets);
        message.set_attribute(known).unwrap();
        self.ip.inject(&self.cx, Some(Part::host(PEER)), message);
    }
}

fn octets(message: &Message) -> Vec<u8> {
    message.octets().collect()
}

#[test]
fn what_is_left_open_becomes_what_udp_would_have_computed() {
    let (open, closed) = (Net::new(true, true), Net::new(false, true));
    let (there, here) = (open.open(), closed.open());
    for len in [0, 1, LONG - 1, LONG, LONG + 1, 1000, 1471, 8000] {
        let payload: Vec<u8> = (0..len).map(|n| (n * 31 + 7) as u8).collect();
        let mut left = open.sent(&there, &payload);
        let whole = closed.sent(&here, &payload);
        assert!(!whole.has_attributes());
        assert_eq!(left.has_attributes(), len >= LONG, "{len}");
        assert_eq!(left.eq_octets(&octets(&whole)), len < LONG, "{len}");
        offload::complete(open.cx.pool(), &mut left).unwrap();
        assert!(left.eq_octets(&octets(&whole)), "{len}");
    }
}

#[test]
fn without_checksums_nothing_is_left_open() {
    let net = Net::new(true, false);
    let sent = net.sent(&net.open(), &[7; 1000]);
    assert!(!sent.has_attributes());
    assert_eq!(octets(&sent)[6..8], [0, 0]);
}

#[test]
fn what_is_known_of_arrivals_is_believed_and_goes_no_further() {
    let net = Net::new(true, true);
    let session = net.open();
    // Ports exchanged, and a checksum that is wrong.
    let datagram = |len: usize| {
        let mut octets = vec![0, 7, 0x13, 0x88, 0, 0, 0xde, 0xad];
        octets.resize(8 + len, 9);
        octets[4..6].copy_from_slice(&((8 + len) as u16).to_be_bytes());
        octets
    };
    for len in [1, 100, 1000] {
        let (octets, segment) = (datagram(len), 8 + len as u32);
        let partial = TransportChecksum::Partial { segment, field: 6 };
        for known in [TransportChecksum::Verified, partial] {
            net.inject(&octets, known);
            let got = net.top.take_received().pop().expect("a message");
            assert!(got.message.eq_octets(&octets[8..]));
            assert!(!got.message.has_attributes());
            assert_eq!(got.session, session);
        }
        let message = net.cx.message(&octets);
        net.ip.inject(&net.cx, Some(Part::host(PEER)), message);
    }
    assert_eq!(net.udp.head().drops().of(&reason::BAD_CHECKSUM), 3);
}

#[test]
fn a_first_message_is_believed_too() {
    let net = Net::new(true, true);
    let port = Participants::from_str("port9").unwrap();
    let _enabled = net.top.enable(&net.cx, &net.udp, port).unwrap();
    let octets = [0, 7, 0, 9, 0, 9, 0xde, 0xad, 1];
    net.inject(&octets, TransportChecksum::Verified);
    let got = net.top.take_received().pop().expect("a message");
    assert!(!got.message.has_attributes());
    // One that is not taken is refused with what is known of it, so that it can be completed and
    // quoted.
    let mut other = octets;
    other[3] = 10;
    net.inject(&other, TransportChecksum::Verified);
    assert_eq!(net.udp.head().drops().of(&reason::NO_PORT), 1);
}

#[test]
fn who_does_not_know_the_question_answers_nothing() {
    // UDP itself passes unknown questions down; the one below finds that it was not the one asked.
    let net = Net::new(true, true);
    assert!(!Offloads::of_protocol(&net.cx, &net.udp).tx_checksum);
    assert!(Offloads::of_protocol(&net.cx, net.ip.protocol()).tx_checksum);
    let session = net.open();
    assert!(!Offloads::of_session(&net.cx, &session).tx_checksum);
}
