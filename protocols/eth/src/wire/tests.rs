use super::*;
use proptest::prelude::*;
use smoltcp::wire as peer;
use std::vec::Vec;

/// An ARP request in Ethernet II.
const ETHERNET: [u8; 18] = [
    0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x5e, 0x00, 0x53, 0x01, 0x08, 0x06, 0x00, 0x01,
    0x08, 0x00,
];
/// A spanning tree configuration packet: IEEE 802.3, LLC 0x42, padded to 60.
const SPANNING_TREE: [u8; 60] = [
    0x01, 0x80, 0xc2, 0x00, 0x00, 0x00, 0x00, 0x00, 0x5e, 0x00, 0x53, 0x02, 0x00, 0x26, 0x42, 0x42,
    0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x5e, 0x00, 0x53, 0x02, 0x00, 0x00,
    0x00, 0x00, 0x80, 0x00, 0x00, 0x00, 0x5e, 0x00, 0x53, 0x02, 0x80, 0x01, 0x00, 0x00, 0x14, 0x00,
    0x02, 0x00, 0x0f, 0x00, 0, 0, 0, 0, 0, 0, 0, 0,
];

/// The header and what is behind it, without padding where the header says how long that is.
fn read(octets: &[u8]) -> Result<(Header, &[u8]), Error> {
    let (header, rest) = octets.split_first_chunk().ok_or(Error::Truncated)?;
    let header = Header::parse(header)?;
    let rest = match header.kind {
        Kind::Type(_) => Some(rest),
        Kind::Length(length) => rest.get(..length.get().into()),
    };
    rest.map(|rest| (header, rest)).ok_or(Error::Truncated)
}

#[test]
fn ethernet_frame() {
    let (header, payload) = read(&ETHERNET).unwrap();
    assert!(header.dst.is_broadcast());
    assert_eq!(payload, [0, 1, 8, 0]);
    assert_eq!(header.src, EthAddr([0, 0, 0x5e, 0, 0x53, 1]));
    assert_eq!(header.kind, Kind::Type(EtherType::ARP));
}

#[test]
fn spanning_tree_frame() {
    let (header, packet) = read(&SPANNING_TREE).unwrap();
    let (selector, payload) = Selector::parse_llc(packet).unwrap();
    assert_eq!((selector, payload.len()), (Selector::Sap(0x42), 35));
    let Header { src, dst, kind } = header;
    assert_eq!(src, EthAddr([0, 0, 0x5e, 0, 0x53, 2]));
    assert_eq!(dst, EthAddr([1, 0x80, 0xc2, 0, 0, 0]));
    assert!(matches!(kind, Kind::Length(length) if length.get() == 38));
}

#[test]
fn snap_frame() {
    let mut octets = [0; 60];
    octets[12..14].copy_from_slice(&10u16.to_be_bytes());
    octets[14..22].copy_from_slice(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]);
    octets[22..24].copy_from_slice(&[0x45, 0x67]);
    let (_, packet) = read(&octets).unwrap();
    let (oui, protocol) = ([0; 3], EtherType::IPV4.get());
    let snap = Selector::Snap(Snap { oui, protocol });
    assert_eq!(Selector::parse_llc(packet), Ok((snap, &[0x45, 0x67][..])));
}

#[test]
fn type_or_length_boundaries() {
    let mut octets = [0; HEADER_LEN];
    let mut parse = |word: u16| {
        octets[12..14].copy_from_slice(&word.to_be_bytes());
        Header::parse(&octets).map(|header| header.kind)
    };
    assert_eq!(parse(1500), Ok(Kind::Length(Length(1500))));
    assert_eq!(parse(1501), Err(Error::TypeOrLength(1501)));
    assert_eq!(parse(0x5ff), Err(Error::TypeOrLength(0x5ff)));
    assert_eq!(parse(0x600), Ok(Kind::Type(EtherType::new(0x600).unwrap())));
    assert_eq!(Selector::parse_llc(&[0; 2]), Err(Error::Truncated), "no room for LLC");
    assert_eq!(EtherType::new(0x5ff), None);
}

#[test]
fn every_truncation() {
    for length in 3..SNAP_LEN {
        let octets = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];
        let packet = &octets[..length];
        assert_eq!(Selector::parse_llc(packet), Err(Error::Truncated));
    }
    assert_eq!(Selector::parse_llc(&[0x42, 0x42]), Err(Error::Truncated));
}

fn headers() -> impl Strategy<Value = Header> {
    (any::<[u8; 6]>(), any::<[u8; 6]>(), TYPE_MIN..).prop_map(|(dst, src, word)| Header {
        dst: EthAddr(dst),
        src: EthAddr(src),
        kind: Kind::Type(EtherType::new(word).unwrap()),
    })
}

proptest! {
    #[test]
    fn oracles_read_what_we_write(header in headers()) {
        let octets = header.octets();
        prop_assert_eq!(Header::parse(&octets), Ok(header));
        let Kind::Type(ether_type) = header.kind else { unreachable!() };
        let [a, b] = ether_type.get().to_be_bytes();
        prop_assert_eq!(&source_and_word(&octets)[..6], header.src.0);
        prop_assert_eq!(&source_and_word(&octets)[6..], [a, b]);

        let frame = peer::EthernetFrame::new_checked(&octets[..]).unwrap();
        prop_assert_eq!(frame.dst_addr().0, header.dst.0);
        prop_assert_eq!(frame.src_addr().0, header.src.0);
        prop_assert_eq!(u16::from(frame.ethertype()), ether_type.get());

        let (theirs, _) = etherparse::Ethernet2Header::from_slice(&octets).unwrap();
        prop_assert_eq!(theirs.destination, header.dst.0);
        prop_assert_eq!(theirs.source, header.src.0);
        prop_assert_eq!(theirs.ether_type.0, ether_type.get());
    }

    #[test]
    fn we_read_what_oracles_write(dst: [u8; 6], src: [u8; 6], word in TYPE_MIN..) {
        let theirs = etherparse::Ethernet2Header {
            destination: dst, source: src, ether_type: etherparse::EtherType(word),
        };
        let expected = Header {
            dst: EthAddr(dst), src: EthAddr(src), kind: Kind::Type(EtherType::new(word).unwrap()),
        };
        prop_assert_eq!(Header::parse(&theirs.to_bytes()), Ok(expected));

        let mut octets = [0; HEADER_LEN];
        peer::EthernetRepr {
            src_addr: peer::EthernetAddress(src),
            dst_addr: peer::EthernetAddress(dst),
            ethertype: peer::EthernetProtocol::from(word),
        }.emit(&mut peer::EthernetFrame::new_unchecked(&mut octets[..]));
        prop_assert_eq!(Header::parse(&octets), Ok(expected));
    }

    #[test]
    fn two_headers_are_the_same_or_not(header in headers(), at in 0..HEADER_LEN, bit in 0..8) {
        let octets = header.octets();
        let mut other = octets;
        prop_assert!(is_same(&octets, &other));
        other[at] ^= 1u8 << bit;
        prop_assert!(!is_same(&octets, &other), "octet {at}");
    }

    #[test]
    fn llc_round_trips(sap: u8, oui: [u8; 3], protocol: u16, tail: Vec<u8>) {
        // 0xaa, whose low bit is clear too, says that SNAP follows.
        let sap = Selector::Sap(if sap & !1 == 0xaa { 0 } else { sap & !1 });
        for selector in [sap, Selector::Snap(Snap { oui, protocol })] {
            let mut head = [0; SNAP_LEN];
            let len = selector.emit(&mut head);
            let mut octets = head[..len].to_vec();
            octets.extend_from_slice(&tail);
            prop_assert_eq!(Selector::parse_llc(&octets), Ok((selector, &tail[..])));
        }
    }

    #[test]
    fn of_llc_unnumbered_information_is_read(dsap: u8, ssap: u8, control: u8, tail: Vec<u8>) {
        for control in [3, control] {
            let mut octets = [dsap, ssap, control].to_vec();
            octets.extend_from_slice(&tail);
            let read = Selector::parse_llc(&octets);
            match (dsap, ssap, control) {
                (0xaa, 0xaa, 3) => {}
                (_, ssap, 3) if ssap & 1 == 0 => {
                    prop_assert_eq!(read, Ok((Selector::Sap(dsap), &tail[..])));
                }
                _ => prop_assert_eq!(read, Err(Error::Control)),
            }
        }
    }
}
