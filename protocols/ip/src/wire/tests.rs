use super::*;
use etherparse::{IpDscp, IpEcn, IpFragOffset, IpNumber, Ipv4Header, Ipv4Options};
use proptest::prelude::*;
use smoltcp::wire as peer;
use std::vec;
use std::vec::Vec;

/// The header known from textbooks: UDP, 192.168.0.1 > 192.168.0.199.
const PLAIN: [u8; 20] = [
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
    0xc0, 0xa8, 0x00, 0xc7,
];

fn datagram(header: &Header, options: Options<'_>) -> Vec<u8> {
    let mut octets = [0; HEADER_LEN_MAX];
    let mut datagram = header.emit_with(options, &mut octets).unwrap().to_vec();
    datagram.resize(datagram.len() + header.payload_len(), 0x5a);
    datagram
}

#[test]
fn plain_header() {
    let header = Header::parse(&PLAIN).unwrap();
    assert_eq!((header.total_len(), header.payload_len(), header.options_len()), (115, 95, 0));
    let Header { traffic_class, ttl, id, fragment, protocol, src, dst, .. } = header;
    assert_eq!((traffic_class, ttl, id, fragment, protocol), (0, 64, 0, Fragment::DONT, 17));
    assert_eq!((src, dst), (Ipv4::new(192, 168, 0, 1), Ipv4::new(192, 168, 0, 199)));
    let mut octets = [0; HEADER_LEN];
    header.emit(&mut octets);
    assert_eq!(octets, PLAIN);
    Template::new(&header).emit(115, 0, Fragment::DONT, &mut octets);
    assert_eq!(octets, PLAIN);
}

#[test]
fn one_hop_on() {
    let mut octets = PLAIN;
    assert_eq!(decrement_ttl(&mut octets), Some(63));
    assert_eq!(octets[8..12], [0x3f, 0x11, 0xb9, 0x61]);
    for left in (1..63).rev() {
        assert_eq!(decrement_ttl(&mut octets), Some(left));
        assert_eq!(Header::parse(&octets).unwrap().ttl, left);
    }
    assert_eq!(decrement_ttl(&mut octets), None);
    assert_eq!(octets[8], 1, "unchanged");
}

#[test]
fn every_wrong_field() {
    let parse = |at: usize, value: u8, whole: bool| {
        let mut octets = PLAIN;
        octets[at] = value;
        octets[10..12].fill(0);
        let sum = checksum::checksum(&octets).to_be_bytes();
        octets[10..12].copy_from_slice(&sum);
        if whole { Packet::parse(&octets).map(|p| p.header) } else { Header::parse(&octets) }
    };
    assert_eq!(parse(0, 0x65, false), Err(Error::Version(6)));
    assert_eq!(parse(0, 0x44, false), Err(Error::HeaderLength(4)));
    assert_eq!(parse(0, 0x46, true), Err(Error::Truncated));
    assert_eq!(parse(3, 19, false), Err(Error::TotalLength));
    assert_eq!(parse(3, 21, true), Err(Error::TotalLength));
    assert_eq!(parse(6, 0x20, false), Err(Error::Fragment), "95 octets and more");
    assert_eq!(parse(6, 0x1f, false).map(|h| h.fragment.offset()), Ok(0x1f00 * 8));
    for at in 0..20 {
        let mut octets = PLAIN;
        octets[at] ^= 1;
        assert!(Header::parse(&octets).is_err(), "octet {at}");
    }
}

#[test]
fn fragments() {
    assert_eq!(Fragment::new(4, false), None);
    assert_eq!(Fragment::new(65_536, false), None);
    let last = Fragment::new(65_528, false).unwrap();
    assert!(last.is_part() && !last.more() && last.offset() == 65_528);
    assert!(!Fragment::DONT.is_part());
    // The datagram that never ends: 65,528 + 16 octets.
    let mut header = Header::new(Ipv4::LOCALHOST, Ipv4::LOCALHOST, 1, 16).unwrap();
    header.fragment = last;
    assert_eq!(Packet::parse(&datagram(&header, Options::NONE)), Err(Error::Fragment));
}

/// An alert, nothing, a loose source route over two hosts, a record of three, and the end.
const OPTIONS: [u8; 32] = [
    148, 4, 0, 0, 1, 131, 11, 4, 192, 0, 2, 1, 192, 0, 2, 2, 7, 15, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0,
];

#[test]
fn options_of_every_kind() {
    let options = Options::parse(&OPTIONS).unwrap();
    let seen: Vec<(u8, usize)> = options.iter().map(|o| (o[0], o.len())).collect();
    assert_eq!(seen, [(148, 4), (1, 1), (131, 11), (7, 15)]);
    assert!(options.has_source_route());
    let mut room = [0xff; OPTIONS_LEN_MAX];
    let copied = options.copied(&mut room);
    assert_eq!(copied.octets(), [&OPTIONS[..4], &OPTIONS[5..16], &[0]].concat());

    let mut header = Header::new(Ipv4::LOCALHOST, Ipv4::BROADCAST, 17, 8).unwrap();
    header.set_lengths(options, 8).unwrap();
    let octets = datagram(&header, options);
    assert_eq!(Packet::parse(&octets).unwrap().options, options);
    let theirs = peer::Ipv4Packet::new_checked(&octets[..]).unwrap();
    assert!(theirs.verify_checksum() && theirs.header_len() == 52);

    // Overflows 2, with addresses; a good one of each form, and one source route too many.
    for good in [&[68, 12, 13, 0x21, 192, 0, 2, 1, 0, 0, 0, 9][..], &[68, 8, 5, 0, 0, 0, 0, 0]] {
        assert_eq!(Options::parse(good).unwrap().iter().next(), Some(good));
    }
    let twice = [131, 3, 4, 137, 3, 4, 0, 0];
    assert_eq!(Options::parse(&twice), Err(Error::Option(23)), "one source route");
}

#[test]
fn malformed_options_name_the_octet() {
    let cases: [(&[u8], u8); 12] = [
        (&[1, 1, 1, 7], 23),
        (&[7, 2, 0, 0], 21),
        (&[7, 1, 0, 0], 21),
        (&[7, 5, 4, 0], 21),
        (&[7, 6, 4, 0], 21),
        (&[1, 7, 7, 5, 0, 0, 0, 0], 23),
        (&[131, 3, 0, 0], 22),
        (&[68, 3, 5, 0], 21),
        (&[68, 4, 4, 0], 22),
        (&[68, 4, 5, 2], 23),
        (&[148, 3, 0, 0], 21),
        (&[7, 3, 4, 7, 3, 4, 0, 0], 23),
    ];
    for (octets, at) in cases {
        assert_eq!(Options::parse(octets), Err(Error::Option(at)), "{octets:?}");
    }
    // What stands behind the end of the list does not count.
    assert!(Options::parse(&[0, 7, 0, 0]).unwrap().iter().next().is_none());
    assert!(Options::parse(&[130, 3, 9, 0]).is_ok(), "an unknown option is ignored");
    assert_eq!(Options::parse(&[1, 1, 1]), Err(Error::Truncated));
}

#[test]
fn every_truncation() {
    let octets = [&[7, 39, 4][..], &[0; 37]].concat();
    let options = Options::parse(&octets).unwrap();
    let mut header = Header::new(Ipv4::LOCALHOST, Ipv4::BROADCAST, 1, 8).unwrap();
    header.set_lengths(options, 8).unwrap();
    let octets = datagram(&header, options);
    assert_eq!(octets.len(), 68);
    for len in 0..octets.len() {
        let error = if len < 60 { Error::Truncated } else { Error::TotalLength };
        assert_eq!(Packet::parse(&octets[..len]), Err(error), "{len} octets");
    }
    assert_eq!(Header::new(Ipv4::LOCALHOST, Ipv4::LOCALHOST, 1, 65_516), Err(TooLong));
    assert_eq!(header.set_lengths(options, 65_476), Err(TooLong));
}

prop_compose! {
    fn headers()(traffic_class: u8, id: u16, words in 0usize..0x1fff, more: bool, dont: bool,
        ttl: u8, protocol: u8, src: u32, dst: u32, eighths in 0usize..20) -> Header {
        let mut header =
            Header::new(Ipv4::from_bits(src), Ipv4::from_bits(dst), protocol, eighths * 8).unwrap();
        let offset = words.saturating_sub(eighths) * 8;
        let mut fragment = Fragment::new(offset, more).unwrap();
        fragment.0 |= if dont { 0x4000 } else { 0 };
        (header.traffic_class, header.id, header.fragment, header.ttl) =
            (traffic_class, id, fragment, ttl);
        header
    }
}

fn to_etherparse(header: &Header) -> Ipv4Header {
    let mut theirs = Ipv4Header {
        dscp: IpDscp::try_new(header.dscp()).unwrap(),
        ecn: IpEcn::try_new(header.ecn()).unwrap(),
        total_len: header.total_len,
        identification: header.id,
        dont_fragment: header.fragment.dont(),
        more_fragments: header.fragment.more(),
        fragment_offset: IpFragOffset::try_new(header.fragment.offset() as u16 / 8).unwrap(),
        time_to_live: header.ttl,
        protocol: IpNumber(header.protocol),
        header_checksum: 0,
        source: header.src.octets(),
        destination: header.dst.octets(),
        options: Ipv4Options::new(),
    };
    theirs.header_checksum = theirs.calc_header_checksum();
    theirs
}

proptest! {
    #[test]
    fn agrees_with_etherparse(header in headers()) {
        let octets = datagram(&header, Options::NONE);
        let (theirs, _) = Ipv4Header::from_slice(&octets).unwrap();
        prop_assert_eq!(&theirs, &to_etherparse(&header));
        let theirs: [u8; HEADER_LEN] = theirs.to_bytes()[..].try_into().unwrap();
        prop_assert_eq!(Header::parse(&theirs), Ok(header));
    }

    #[test]
    fn agrees_with_smoltcp(header in headers()) {
        let octets = datagram(&header, Options::NONE);
        let theirs = peer::Ipv4Packet::new_checked(&octets[..]).unwrap();
        prop_assert!(theirs.verify_checksum());
        prop_assert_eq!((theirs.dscp(), theirs.ecn()), (header.dscp(), header.ecn()));
        prop_assert_eq!(usize::from(theirs.total_len()), header.total_len());
        prop_assert_eq!((theirs.ident(), theirs.hop_limit()), (header.id, header.ttl));
        prop_assert_eq!(theirs.dont_frag(), header.fragment.dont());
        prop_assert_eq!(theirs.more_frags(), header.fragment.more());
        prop_assert_eq!(usize::from(theirs.frag_offset()), header.fragment.offset());
        prop_assert_eq!((theirs.src_addr(), theirs.dst_addr()), (header.src, header.dst));
        prop_assert_eq!(u8::from(theirs.next_header()), header.protocol);

        let mut theirs = vec![0; HEADER_LEN + header.payload_len()];
        peer::Ipv4Repr {
            src_addr: header.src,
            dst_addr: header.dst,
            next_header: peer::IpProtocol::from(header.protocol),
            payload_len: header.payload_len(),
            hop_limit: header.ttl,
        }.emit(&mut peer::Ipv4Packet::new_unchecked(&mut theirs[..]), &Default::default());
        let expected = Header { traffic_class: 0, id: 0, fragment: Fragment::DONT, ..header };
        prop_assert_eq!(Packet::parse(&theirs).unwrap().header, expected);
    }

    #[test]
    fn plain_is_what_parse_says_of_whole_datagrams(header in headers(), at in 0usize..40, value: u8, mend: bool) {
        let mut octets = [0; HEADER_LEN];
        header.emit(&mut octets);
        if let Some(octet) = octets.get_mut(at) {
            *octet = value;
        }
        if mend {
            octets[10..12].fill(0);
            let sum = checksum::checksum(&octets).to_be_bytes();
            octets[10..12].copy_from_slice(&sum);
        }
        let expected = Header::parse(&octets).ok();
        let expected = expected.filter(|h| h.header_len() == HEADER_LEN && !h.fragment.is_part());
        let plain = Plain::parse(&octets);
        prop_assert_eq!(plain.is_some(), expected.is_some());
        if let (Some(plain), Some(h)) = (plain, expected) {
            prop_assert_eq!(plain.hosts(), u64::from(h.src.to_bits()) << 32 | u64::from(h.dst.to_bits()));
            prop_assert_eq!((plain.protocol(), plain.total_len()), (h.protocol, h.total_len()));
            prop_assert_eq!(plain.octets(), octets);
        }
    }

    #[test]
    fn template_agrees_with_etherparse(header in headers()) {
        let mut octets = [0; HEADER_LEN];
        let template = Template::new(&Header { id: 7, fragment: Fragment::DONT, ..header });
        let total = (HEADER_LEN + header.payload_len()) as u16;
        template.emit(total, header.id, header.fragment, &mut octets);
        prop_assert_eq!(&octets[..], &to_etherparse(&header).to_bytes()[..]);
    }
}
