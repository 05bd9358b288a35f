use super::*;
use etherparse::{Icmpv4Header, Icmpv4Type};
use proptest::prelude::*;
use smoltcp::wire as peer;
use std::vec;
use std::vec::Vec;

/// The header of a UDP datagram and the start of its payload, as quoted.
const QUOTED: [u8; 28] = [
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
    0xc0, 0xa8, 0x00, 0xc7, 0xc3, 0x50, 0x00, 0x35, 0x00, 0x5f, 0x12, 0x34,
];
/// `ping`, as Windows sends it: id 1, sequence 19.
const PING: [u8; 40] = *b"\x08\x00\x4d\x48\x00\x01\x00\x13abcdefghijklmnopqrstuvwabcdefghi";

fn octets(header: Header, body: &[u8]) -> Vec<u8> {
    [&Message { header, body }.header_octets(), body].concat()
}

#[test]
fn ping() {
    let message = Message::parse(&PING).unwrap();
    assert_eq!(message.header, Header::EchoRequest(Query { id: 1, sequence: 19 }));
    assert_eq!(message.header_octets(), PING[..8]);
    let mut reply = PING;
    echo_reply(reply.first_chunk_mut().unwrap()).unwrap();
    assert_eq!(reply[..4], [0, 0, 0x55, 0x48]);
    let reply = Message::parse(&reply).unwrap();
    assert_eq!((Some(reply.header), reply.body), (message.header.reply(), message.body));
    assert_eq!(echo_reply(&mut [0; 8]), None);
}

#[test]
fn a_reply_of_zeros_is_valid() {
    let mut octets = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    assert!(Message::parse(&octets).is_ok());
    echo_reply(&mut octets).unwrap();
    assert_eq!(octets, [0, 0, 0xff, 0xff, 0, 0, 0, 0]);
    assert!(Message::parse(&octets).is_ok());
}

#[test]
fn quoted_datagram() {
    let mtu = NonZeroU16::new(1400);
    let header = Header::Unreachable(Unreachable::FragmentationNeeded(mtu));
    let whole = octets(header, &QUOTED);
    assert_eq!(whole[4..8], [0, 0, 0x05, 0x78]);
    let message = Message::parse(&whole).unwrap();
    assert_eq!(message.header, header);
    let quoted = message.quoted().unwrap();
    assert_eq!((quoted.src, quoted.dst), ([192, 168, 0, 1].into(), [192, 168, 0, 199].into()));
    assert_eq!((quoted.protocol, quoted.total_len, quoted.fragment_offset), (17, 115, 0));
    assert_eq!((quoted.header, quoted.payload), (&QUOTED[..20], &QUOTED[20..]));
    let mut no_ip = QUOTED;
    no_ip[0] = 0x65;
    assert_eq!(Message::parse(&octets(header, &no_ip)), Err(Error::Quoted));
}

#[test]
fn every_type_and_code() {
    let known: [(u8, u8); 9] =
        [(0, 1), (3, 16), (4, 1), (5, 4), (8, 1), (11, 2), (12, 3), (13, 1), (14, 1)];
    for kind in 0..=255 {
        let codes = known.iter().find(|(known, _)| *known == kind).map(|(_, codes)| *codes);
        for code in 0..=255 {
            let parsed = Header::parse(&[kind, code, 0, 0, 5, 0, 5, 0x78]);
            match codes {
                None => assert_eq!(parsed, Err(Error::Type(kind))),
                Some(codes) if code >= codes => assert_eq!(parsed, Err(Error::Code(kind, code))),
                Some(_) => {
                    let header = parsed.unwrap();
                    assert_eq!((header.kind(), header.code()), (kind, code));
                    let whole = octets(header, &QUOTED);
                    assert_eq!(Message::parse(&whole).unwrap().header, header);
                }
            }
        }
    }
}

#[test]
fn times() {
    let times = Times { originate_ms: 1, receive_ms: 86_399_999, transmit_ms: 0x8000_0000 };
    let mut body = [0; TIMES_LEN];
    times.emit(&mut body);
    let header = Header::TimestampRequest(Query { id: 7, sequence: 8 });
    let whole = octets(header, &body);
    assert_eq!(Message::parse(&whole).unwrap().times(), Some(times));
    assert_eq!(Message::parse(&octets(header, &body[..11])), Err(Error::Truncated));
}

#[test]
fn every_truncation() {
    for len in 0..PING.len() {
        let error = if len < 8 { Error::Truncated } else { Error::Checksum };
        assert_eq!(Message::parse(&PING[..len]), Err(error));
    }
    let header = Header::TimeExceeded(TimeExceeded::Transit);
    for len in 0..20 {
        assert_eq!(Message::parse(&octets(header, &QUOTED[..len])), Err(Error::Truncated));
    }
    assert!(Message::parse(&octets(header, &QUOTED[..20])).is_ok());
    for at in 0..PING.len() {
        let mut octets = PING;
        octets[at] ^= 0x40;
        assert_eq!(Message::parse(&octets), Err(Error::Checksum), "octet {at}");
    }
}

fn headers() -> impl Strategy<Value = Header> {
    let kinds = prop_oneof![
        Just((0u8, 1u8)),
        Just((3, 16)),
        Just((5, 4)),
        Just((8, 1)),
        Just((11, 2)),
        Just((12, 3)),
        Just((13, 1)),
        Just((14, 1)),
    ];
    (kinds, any::<u8>(), any::<[u8; 4]>()).prop_map(|((kind, codes), code, [a, b, c, d])| {
        Header::parse(&[kind, code % codes, 0, 0, a, b, c, d]).unwrap()
    })
}

proptest! {
    #[test]
    fn agrees_with_etherparse(header in headers(), data in any::<[u8; 12]>()) {
        let body: &[u8] = if header.is_error() { &QUOTED } else { &data };
        let whole = octets(header, body);
        let (theirs, rest) = Icmpv4Header::from_slice(&whole).unwrap();
        let known = !matches!(theirs.icmp_type, Icmpv4Type::Unknown { .. });
        prop_assert!(known, "{:?}", theirs);
        prop_assert_eq!(theirs.icmp_type.calc_checksum(rest), theirs.checksum);
        let mut again = theirs.to_bytes().to_vec();
        again.extend_from_slice(rest);
        prop_assert_eq!(Message::parse(&again), Message::parse(&whole));
        prop_assert_eq!(Message::parse(&whole), Ok(Message { header, body }));
    }

    #[test]
    fn agrees_with_smoltcp(reply: bool, ident: u16, seq_no: u16, data: Vec<u8>) {
        let query = Query { id: ident, sequence: seq_no };
        let (header, repr) = if reply {
            (Header::EchoReply(query), peer::Icmpv4Repr::EchoReply { ident, seq_no, data: &data })
        } else {
            (Header::EchoRequest(query),
                peer::Icmpv4Repr::EchoRequest { ident, seq_no, data: &data })
        };
        let whole = octets(header, &data);
        let theirs = peer::Icmpv4Packet::new_checked(&whole[..]).unwrap();
        prop_assert_eq!(peer::Icmpv4Repr::parse(&theirs, &Default::default()).unwrap(), repr);
        let mut again = vec![0; repr.buffer_len()];
        repr.emit(&mut peer::Icmpv4Packet::new_unchecked(&mut again[..]), &Default::default());
        prop_assert_eq!(Message::parse(&again), Ok(Message { header, body: &data }));
    }

    #[test]
    fn errors_agree_with_smoltcp(code in 0u8..16, exceeded: bool) {
        let header = peer::Ipv4Repr {
            src_addr: Ipv4::new(192, 0, 2, 1),
            dst_addr: Ipv4::new(192, 0, 2, 2),
            next_header: peer::IpProtocol::Udp,
            payload_len: 8,
            hop_limit: 3,
        };
        let data = &QUOTED[20..];
        let repr = if exceeded {
            peer::Icmpv4Repr::TimeExceeded {
                reason: peer::Icmpv4TimeExceeded::from(code % 2), header, data }
        } else {
            peer::Icmpv4Repr::DstUnreachable {
                reason: peer::Icmpv4DstUnreachable::from(code), header, data }
        };
        let mut theirs = vec![0; repr.buffer_len()];
        repr.emit(&mut peer::Icmpv4Packet::new_unchecked(&mut theirs[..]), &Default::default());
        let ours = Message::parse(&theirs).unwrap();
        prop_assert_eq!(ours.header.code(), if exceeded { code % 2 } else { code });
        let quoted = ours.quoted().unwrap();
        prop_assert_eq!((quoted.src, quoted.dst), (header.src_addr, header.dst_addr));
        prop_assert_eq!(quoted.payload, data);
        let whole = octets(ours.header, ours.body);
        let back = peer::Icmpv4Packet::new_checked(&whole[..]).unwrap();
        prop_assert_eq!(peer::Icmpv4Repr::parse(&back, &Default::default()).unwrap(), repr);
    }
}
