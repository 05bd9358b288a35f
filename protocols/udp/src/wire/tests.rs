use super::*;
use proptest::prelude::*;
use smoltcp::wire as peer;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

const SRC: Ipv4 = Ipv4::new(192, 0, 2, 1);
const DST: Ipv4 = Ipv4::new(192, 0, 2, 53);
/// A DNS query for the root's name servers from 192.0.2.1 to 192.0.2.53.
const QUERY: [u8; 25] = [
    0xc3, 0x50, 0x00, 0x35, 0x00, 0x19, 0xa1, 0xca, 0x12, 0x34, 0x01, 0x00, 0x00, 0x01, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01,
];

#[test]
fn query() {
    let datagram = Datagram::parse(&QUERY, SRC, DST).unwrap();
    assert_eq!(datagram.header.to_string(), "50000 > 53: UDP, length 17");
    assert_eq!(datagram.payload, &QUERY[8..]);
    assert_eq!(datagram.header_octets(SRC, DST), QUERY[..8]);
    assert_eq!(Datagram::parse(&QUERY, SRC, SRC), Err(Error::Checksum));
}

#[test]
fn without_checksum_or_source_port() {
    let mut octets = QUERY;
    octets[6..8].fill(0);
    octets[..2].fill(0);
    let datagram = Datagram::parse(&octets, SRC, DST).unwrap();
    assert_eq!(datagram.header.src, None);
}

#[test]
fn zero_checksum_goes_as_ones() {
    let length = Length::of_payload(2).unwrap();
    let header = Header { src: NonZeroU16::new(7), dst: NonZeroU16::MIN, length };
    let mut sum = Checksum::pseudo_header(SRC, DST, IP_PROTOCOL, 10);
    sum.add(&[0, 7, 0, 1, 0, 10, 0, 0]);
    // The payload that makes the whole sum 0xffff.
    let payload = sum.finish().to_be_bytes();
    let octets = Datagram { header, payload: &payload }.header_octets(SRC, DST);
    assert_eq!(octets[6..], [0xff, 0xff]);
    let whole = [&octets[..], &payload].concat();
    assert_eq!(Datagram::parse(&whole, SRC, DST).unwrap().header, header);
}

#[test]
fn every_wrong_field_and_truncation() {
    let parse = |at: usize, value: u8| {
        let mut octets = QUERY;
        octets[at] = value;
        Datagram::parse(&octets, SRC, DST).map(|datagram| datagram.header)
    };
    assert_eq!(parse(3, 0), Err(Error::Port));
    assert_eq!(parse(5, 7), Err(Error::Length));
    assert_eq!(parse(5, 26), Err(Error::Length));
    assert_eq!(parse(5, 24), Err(Error::Checksum));
    for (at, octet) in QUERY.iter().enumerate().skip(6) {
        assert_eq!(parse(at, octet ^ 0x10), Err(Error::Checksum), "octet {at}");
    }
    for len in 0..QUERY.len() {
        let error = if len < 8 { Error::Truncated } else { Error::Length };
        assert_eq!(Datagram::parse(&QUERY[..len], SRC, DST), Err(error));
    }
    assert_eq!(Length::of_payload(65_527).map(Length::get), Some(65_535));
    assert_eq!(Length::of_payload(65_528), None);
}

proptest! {
    #[test]
    fn oracles_read_what_we_write(src: u16, dst in 1u16.., payload: Vec<u8>, from: u32, to: u32) {
        let (from, to) = (Ipv4::from_bits(from), Ipv4::from_bits(to));
        let header = Header {
            src: NonZeroU16::new(src),
            dst: NonZeroU16::new(dst).unwrap(),
            length: Length::of_payload(payload.len()).unwrap(),
        };
        let datagram = Datagram { header, payload: &payload };
        let mut octets = datagram.header_octets(from, to).to_vec();
        octets.extend_from_slice(&payload);
        prop_assert_eq!(Datagram::parse(&octets, from, to), Ok(datagram));

        let theirs = peer::UdpPacket::new_checked(&octets[..]).unwrap();
        prop_assert!(theirs.verify_checksum(&from.into(), &to.into()));
        prop_assert_eq!((theirs.src_port(), theirs.dst_port()), (src, dst));
        prop_assert_eq!(theirs.payload(), &payload[..]);

        let (theirs, rest) = etherparse::UdpHeader::from_slice(&octets).unwrap();
        prop_assert_eq!((theirs.source_port, theirs.destination_port), (src, dst));
        prop_assert_eq!(usize::from(theirs.length), octets.len());
        let checksum = theirs.calc_checksum_ipv4_raw(from.octets(), to.octets(), rest).unwrap();
        prop_assert_eq!(theirs.checksum, checksum);
    }

    #[test]
    fn we_read_what_oracles_write(src: u16, dst in 1u16.., payload: Vec<u8>, from: u32, to: u32) {
        let (from, to) = (Ipv4::from_bits(from), Ipv4::from_bits(to));
        let expected = Header {
            src: NonZeroU16::new(src),
            dst: NonZeroU16::new(dst).unwrap(),
            length: Length::of_payload(payload.len()).unwrap(),
        };
        let checksum = etherparse::UdpHeader::without_ipv4_checksum(src, dst, payload.len())
            .unwrap().calc_checksum_ipv4_raw(from.octets(), to.octets(), &payload).unwrap();
        let length = expected.length.get();
        let theirs = etherparse::UdpHeader { source_port: src, destination_port: dst, length, checksum };
        let mut octets = theirs.to_bytes().to_vec();
        octets.extend_from_slice(&payload);
        prop_assert_eq!(Datagram::parse(&octets, from, to).unwrap().header, expected);

        let mut octets = vec![0; HEADER_LEN + payload.len()];
        let mut theirs = peer::UdpPacket::new_unchecked(&mut octets[..]);
        theirs.set_src_port(src);
        theirs.set_dst_port(dst);
        theirs.set_len(length);
        theirs.payload_mut().copy_from_slice(&payload);
        theirs.fill_checksum(&from.into(), &to.into());
        let ours = Datagram::parse(&octets, from, to).unwrap();
        prop_assert_eq!((ours.header, ours.payload), (expected, &payload[..]));
    }

    #[test]
    fn fuzz(mut data in proptest::collection::vec(any::<u8>(), 0..40), valid: bool) {
        if valid && data.len() >= HEADER_LEN {
            let (head, rest) = data.split_first_chunk_mut::<HEADER_LEN>().unwrap();
            let (src, dst) = (Ipv4::new(192, 0, 2, 1), Ipv4::new(198, 51, 100, 2));
            let ports = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
            let pseudo = Checksum::pseudo_header(src, dst, IP_PROTOCOL, 0);
            let pseudo = Pseudo { sent: pseudo, received: pseudo };
            let template = Template::new(((ports >> 16) as u16, ports as u16), Some(pseudo), true);
            let mut sum = template.sum_sent(rest.len()).unwrap();
            sum.add(rest);
            *head = template.header(rest.len(), Some(sum));
        }
        crate::fuzz::fuzz_wire(&data);
    }
}
