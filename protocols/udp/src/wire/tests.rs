use super::*;
use core::net::Ipv6Addr;
use proptest::prelude::*;
use smoltcp::wire as peer;
use std::vec;
use std::vec::Vec;
use xk_core::HostAddr;
use xk_kit::net::addr::Ipv4;
use xk_kit::net::ports::Pseudo;

const SRC: Ipv4 = Ipv4::new(192, 0, 2, 1);
const DST: Ipv4 = Ipv4::new(192, 0, 2, 53);
/// A DNS query for the root's name servers from 192.0.2.1 to 192.0.2.53.
const QUERY: [u8; 25] = [
    0xc3, 0x50, 0x00, 0x35, 0x00, 0x19, 0xa1, 0xca, 0x12, 0x34, 0x01, 0x00, 0x00, 0x01, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x01,
];

fn template(ports: (u16, u16), src: impl Into<HostAddr>, dst: impl Into<HostAddr>) -> Template {
    let dst = dst.into();
    let (sum, is_required) =
        (Checksum::pseudo_header(src, dst, IP_PROTOCOL, 0), dst.to_v4().is_none());
    Template::new(ports, Some(Pseudo { sent: sum, received: sum, is_required }), !is_required)
}

/// The header and payload of a datagram between two hosts; `None` if its length or checksum is
/// wrong.
fn read(
    octets: &[u8],
    src: impl Into<HostAddr>,
    dst: impl Into<HostAddr>,
) -> Option<(Header, &[u8])> {
    let (head, rest) = octets.split_first_chunk()?;
    let header = Header::parse(head);
    let payload = &rest[..header.payload(rest.len())?];
    let (src, dst) = (src.into(), dst.into());
    let from = template((header.src(), 0), src, dst).for_peer(header.dst());
    let template = template((header.src(), header.dst()), src, dst);
    let sum = |of: Template| of.sum_received(header, payload.len()).map(Checksum::finish);
    assert_eq!(sum(from), sum(template), "the template of no port, completed");
    let is_intact = match template.sum_received(header, payload.len()) {
        None => !template.is_required,
        Some(mut sum) => {
            sum.add(payload);
            sum.is_valid()
        }
    };
    is_intact.then_some((header, payload))
}

/// The header of a datagram.
fn write(
    ports: (u16, u16),
    payload: &[u8],
    src: impl Into<HostAddr>,
    dst: impl Into<HostAddr>,
) -> [u8; HEADER_LEN] {
    let template = template(ports, src, dst);
    let mut sum = template.sum_sent(payload.len()).unwrap();
    sum.add(payload);
    template.header(payload.len(), Some(sum)).octets()
}

#[test]
fn query() {
    let (header, payload) = read(&QUERY, SRC, DST).unwrap();
    assert_eq!((header.src(), header.dst(), header.length()), (50_000, 53, HEADER_LEN + 17));
    assert_eq!((header.ports(), payload), (50_000 << 16 | 53, &QUERY[8..]));
    assert_eq!(Header::new((50_000, 53), 17, 0xa1ca), header);
    assert_eq!(write((50_000, 53), payload, SRC, DST), QUERY[..8]);
    assert_eq!(read(&QUERY, SRC, SRC), None);
}

#[test]
fn without_checksum_or_source_port() {
    let mut octets = QUERY;
    octets[6..8].fill(0);
    octets[..2].fill(0);
    assert_eq!(read(&octets, SRC, DST).unwrap().0.src(), 0);
}

#[test]
fn zero_checksum_goes_as_ones() {
    let mut sum = Checksum::pseudo_header(SRC, DST, IP_PROTOCOL, 10);
    sum.add(&[0, 7, 0, 1, 0, 10, 0, 0]);
    // The payload that makes the whole sum 0xffff.
    let payload = sum.finish().to_be_bytes();
    let octets = write((7, 1), &payload, SRC, DST);
    assert_eq!(octets[6..], [0xff, 0xff]);
    let whole = [&octets[..], &payload].concat();
    assert_eq!(read(&whole, SRC, DST).unwrap().1, payload);
}

#[test]
fn a_sum_left_open_is_completed_by_the_rest() {
    let payload = b"of odd length";
    let partial = template((7, 1), SRC, DST).partial_header(payload.len()).unwrap();
    let mut sum = Checksum::new();
    sum.add(&partial.octets());
    sum.add(payload);
    let whole = write((7, 1), payload, SRC, DST);
    assert_eq!(sum.finish(), Header::parse(&whole).checksum());
    assert_eq!(partial.octets()[..6], whole[..6]);
}

/// RFC 8200, section 8.1: over IPv6 a checksum is not optional. The template is made as for a graph
/// that wants none.
#[test]
fn over_ipv6_a_checksum_is_required() {
    let [src, dst] = [1, 53].map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n));
    let head = write((50_000, 53), &QUERY[8..], src, dst);
    let mut octets = [&head[..], &QUERY[8..]].concat();
    assert_eq!(read(&octets, src, dst).unwrap().1, &QUERY[8..]);
    octets[6..8].fill(0);
    assert_eq!(read(&octets, src, dst), None);
    assert_eq!(read(&octets, SRC, DST).unwrap().1, &QUERY[8..]);
}

#[test]
fn every_wrong_field_and_truncation() {
    let reads = |at: usize, value: u8| {
        let mut octets = QUERY;
        octets[at] = value;
        read(&octets, SRC, DST).is_some()
    };
    assert!(!reads(5, 7) && !reads(5, 26) && !reads(5, 24));
    for (at, octet) in QUERY.iter().enumerate() {
        assert!(!reads(at, octet ^ 0x10), "octet {at}");
    }
    for len in 0..QUERY.len() {
        assert_eq!(read(&QUERY[..len], SRC, DST), None);
    }
    let header = |length: u16| Header(u64::from(length) << 16);
    assert_eq!((header(7).payload(9), header(8).payload(0)), (None, Some(0)));
    assert_eq!(header(65_535).payload(65_527), Some(65_527));
    assert_eq!(header(65_535).payload(65_526), None);
}

proptest! {
    #[test]
    fn oracles_read_what_we_write(src: u16, dst in 1u16.., payload: Vec<u8>, from: u32, to: u32) {
        let (from, to) = (Ipv4::from_bits(from), Ipv4::from_bits(to));
        let mut octets = write((src, dst), &payload, from, to).to_vec();
        octets.extend_from_slice(&payload);
        let (header, ours) = read(&octets, from, to).unwrap();
        prop_assert_eq!((header.src(), header.dst(), ours), (src, dst, &payload[..]));

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
    fn an_oracle_reads_what_we_write_over_ipv6(
        src: u16, dst in 1u16.., payload: Vec<u8>, from: u128, to: u128,
    ) {
        // What stands for an IPv4 address is one (RFC 4291, section 2.5.5.2).
        let (from, to) = (Ipv6Addr::from_bits(from | 1 << 127), Ipv6Addr::from_bits(to | 1 << 127));
        let mut octets = write((src, dst), &payload, from, to).to_vec();
        octets.extend_from_slice(&payload);
        prop_assert_eq!(read(&octets, from, to).unwrap().1, &payload[..]);
        let (theirs, rest) = etherparse::UdpHeader::from_slice(&octets).unwrap();
        let checksum = theirs.calc_checksum_ipv6_raw(from.octets(), to.octets(), rest).unwrap();
        prop_assert_eq!(theirs.checksum, checksum);
    }

    #[test]
    fn we_read_what_oracles_write(src: u16, dst in 1u16.., payload: Vec<u8>, from: u32, to: u32) {
        let (from, to) = (Ipv4::from_bits(from), Ipv4::from_bits(to));
        let checksum = etherparse::UdpHeader::without_ipv4_checksum(src, dst, payload.len())
            .unwrap().calc_checksum_ipv4_raw(from.octets(), to.octets(), &payload).unwrap();
        let length = (HEADER_LEN + payload.len()) as u16;
        let theirs = etherparse::UdpHeader { source_port: src, destination_port: dst, length, checksum };
        let mut octets = theirs.to_bytes().to_vec();
        octets.extend_from_slice(&payload);
        let expected = Header::new((src, dst), payload.len(), checksum);
        prop_assert_eq!(read(&octets, from, to), Some((expected, &payload[..])));

        let mut octets = vec![0; HEADER_LEN + payload.len()];
        let mut theirs = peer::UdpPacket::new_unchecked(&mut octets[..]);
        theirs.set_src_port(src);
        theirs.set_dst_port(dst);
        theirs.set_len(length);
        theirs.payload_mut().copy_from_slice(&payload);
        theirs.fill_checksum(&from.into(), &to.into());
        prop_assert_eq!(read(&octets, from, to), Some((expected, &payload[..])));
    }
}
