//! Datagrams of netatalk and Linux, and derived ones; every length; choices.

use super::*;
use crate::tests::hex;
use proptest::prelude::*;

/// Datagrams with checksums: the first four, and the one of RTMP with node 11, were sent by Linux
/// and netatalk 4.2.3.
const REAL: &[&str] = &[
    "0014 e491 0000 000a ff 11 06 06 06 05 00 00000000 00",
    "001d f219 0000 000a ff 11 01 01 01 000a 08 11 000a 80 0013 82 000a 80 0013 82",
    "0025 11bf 0000 000a ff 11 02 02 02 21 01 000a 11 81 00 056775657374 07584b65726e656c 02584b",
    "0019 0d97 000a 000a c8 11 85 06 06 06 20 000a 0013 02 584b 06 090007 0000f9",
    "0012 4c70 000a 000a 12 11 04 81 04 01 70696e67",
    "0012 8910 000a 000a 11 12 81 04 04 02 70696e67",
    "0023 03bc 0000 000a ff 11 02 02 02 21 07 000a 11 82 00 04 6563686f 07 584b65726e656c 01 2a",
    "0023 1bd9 000a 000a 11 12 82 02 02 31 07 000a 12 90 01 04 6563686f 07 584b65726e656c 01 2a",
    "001a 2c58 000a 000a 12 11 90 83 03 60 07 1234 00000001 68656c6c6f",
    "0018 d673 000a 000a 11 12 83 90 03 90 02 1234 00000000 627965",
    "0015 2d17 000a 000a 12 11 90 83 03 c0 00 1234 00000000",
    "001d a27f 0000 000a ff fe 01 01 01 000a 08 fe 000a 80 0013 82 0014 81 001d 82",
];

#[test]
fn real_datagrams_are_read_and_made_again() {
    for text in REAL {
        let mut octets = hex(text);
        // The answer's length was not noted with its checksum.
        let len = octets.len();
        octets[..2].copy_from_slice(&(len as u16).to_be_bytes());
        let (header, data) = split(&octets).expect(text);
        assert!(header.is_intact(data), "{text}: {:x}", header.with_checksum(data).checksum);
        assert_eq!(header.data_len(), data.len());
        let again = join(header.to, header.from, header.kind, data, true);
        assert_eq!(again.as_ref(), Some(&octets), "{text}");
        for changed in SUMMED_FROM..len {
            let mut bad = octets.clone();
            bad[changed] ^= 0x10;
            if let Ok((header, data)) = split(&bad) {
                assert!(!header.is_intact(data), "{text}: octet {changed}");
            }
        }
        for short in 0..len {
            let error = if short < LONG_LEN { Error::Truncated } else { Error::Length };
            assert_eq!(split(&octets[..short]), Err(error), "{text}: {short} octets");
        }
        octets.extend([0; 40]);
        assert_eq!(split(&octets), Ok((header, data_of(&octets, len))), "padding");
    }
}

fn data_of(octets: &[u8], len: usize) -> &[u8] {
    &octets[LONG_LEN..len]
}

#[test]
fn headers_that_cannot_be() {
    let good: [u8; LONG_LEN] = hex(REAL[4])[..LONG_LEN].try_into().unwrap();
    let with = |at: usize, octet: u8| {
        let mut octets = good;
        octets[at] = octet;
        Long::parse(&octets)
    };
    assert_eq!(with(1, 12), Err(Error::Length));
    assert_eq!(with(0, 3), Err(Error::Length));
    assert_eq!((with(10, 0), with(10, 255)), (Err(Error::Socket), Err(Error::Socket)));
    assert_eq!((with(11, 0), with(11, 255)), (Err(Error::Socket), Err(Error::Socket)));
    assert_eq!((with(9, 0), with(9, 255)), (Err(Error::Source), Err(Error::Source)));
    // The two bits in front of the hops mean nothing.
    assert_eq!(with(0, 0xc0), Long::parse(&good));
    let some = AtAddr::new(10, 17, 4);
    assert_eq!(Long::new(some, some, 4, DATA_LEN_MAX + 1), None);
    assert_eq!(Short::new(4, 4, 4, DATA_LEN_MAX + 1), None);
}

#[test]
fn hops_end() {
    let some = AtAddr::new(10, 17, 4);
    let mut header = Long::new(some, some, 4, 0).unwrap().with_checksum(&[]);
    for hops in 0..HOPS_MAX {
        assert_eq!(header.hops(), hops);
        assert_eq!(Long::parse(&header.octets()), Ok(header));
        header = header.forwarded().unwrap();
        assert!(header.is_intact(&[]), "no hop changes the checksum");
    }
    assert_eq!(header.forwarded(), None);
}

#[test]
fn short_headers() {
    // LocalTalk, from tailtalk: node 157 to 42, "ping-lt" echoed.
    let octets = hex("000d 81 04 04 02 70696e672d6c74");
    let header = Short::parse(octets.first_chunk().unwrap()).unwrap();
    assert_eq!((header.to, header.from, header.kind, header.data_len()), (0x81, 4, 4, 8));
    assert_eq!(header.octets()[..], octets[..SHORT_LEN]);
    assert_eq!(header.data_of(8), Ok(8));
    assert_eq!(header.data_of(7), Err(Error::Length));
    let long = header.lengthened(0, 42, 157).unwrap();
    assert_eq!((long.to, long.from), (AtAddr::new(0, 42, 0x81), AtAddr::new(0, 157, 4)));
    assert_eq!(Long::parse(&long.octets()), Ok(long));
    assert_eq!(header.lengthened(0, 42, 0), Err(Error::Source));
}

#[test]
fn a_sum_of_zero_is_sent_as_ones() {
    assert_eq!(Sum::default().checksum(), 0xffff);
    let mut sum = Sum::default();
    sum.add(b"XK");
    assert_eq!(sum.checksum(), 0x01f6, "as atalkd's zone XK has it");
}

#[test]
fn ways() {
    let me = Node::new(10, 17);
    let range = NetRange::new(10, 19).unwrap();
    let [router, best] = [Node::new(10, 254), Node::new(11, 3)];
    let alone = Cable::new(Node::new(0xff01, 17));
    let cable = Cable { me, range, router: Some(router) };
    let table = [
        (cable, Node::new(10, 17), Some(NextHop::Here)),
        (cable, Node::new(0, 17), Some(NextHop::Here)),
        (cable, Node::new(11, 17), Some(NextHop::Node(Node::new(11, 17)))),
        (cable, Node::new(0, 18), Some(NextHop::Node(Node::new(10, 18)))),
        (cable, Node::new(0, 255), Some(NextHop::All)),
        (cable, Node::new(12, 255), Some(NextHop::All)),
        (cable, Node::new(0, 0), Some(NextHop::Node(router))),
        (cable, Node::new(0xff33, 9), Some(NextHop::Node(Node::new(0xff33, 9)))),
        (cable, Node::new(20, 9), Some(NextHop::Node(router))),
        (cable, Node::new(20, 255), Some(NextHop::Node(router))),
        (alone, Node::new(0xfffe, 9), Some(NextHop::Node(Node::new(0xfffe, 9)))),
        (alone, Node::new(20, 9), None),
        (alone, Node::new(0, 0), None),
    ];
    for (cable, to, way) in table {
        assert_eq!(cable.way(to, None), way, "{to}");
    }
    assert_eq!(cable.way(Node::new(20, 9), Some(best)), Some(NextHop::Node(best)));
    assert_eq!(cable.way(Node::new(12, 9), Some(best)), Some(NextHop::Node(Node::new(12, 9))));
    let mine = [(10, 17), (0, 17), (10, 255), (0, 255)];
    assert!(mine.iter().all(|(net, node)| cable.is_for_me(Node::new(*net, *node))));
    let others = [(11, 17), (10, 18), (11, 255), (20, 255), (0, 0)];
    assert!(!others.iter().any(|(net, node)| cable.is_for_me(Node::new(*net, *node))));
}

#[test]
fn best_routers_age_and_are_bounded() {
    let at = Duration::from_secs;
    let mut table = BestRouters::new(2);
    let [one, two] = [1, 2].map(|last| [2, 0, 0, 0, 0, last]);
    assert!(table.heard(20, one, at(0)));
    assert!(!table.heard(20, one, at(1)), "as before");
    assert!(table.heard(20, two, at(10)), "by another one");
    assert_eq!((table.best(20, at(49)), table.next()), (Some(two), Some(at(50))));
    assert_eq!(table.best(20, at(50)), None);
    assert!(!table.expire(at(49)) && table.expire(at(50)) && table.is_empty());
    for (net, when) in [(20, 10), (21, 12), (22, 11), (21, 13), (23, 14)] {
        table.heard(net, one, at(when));
    }
    let known = [20, 21, 22, 23].map(|net| table.best(net, at(14)).is_some());
    assert_eq!(known, [false, true, false, true], "those heard last");
    let mut none = BestRouters::new(0);
    assert!(!none.heard(20, one, at(0)));
    assert!(none.is_empty());
}

proptest! {
    #[test]
    fn headers_round_trip(octets: [u8; LONG_LEN], short: [u8; SHORT_LEN]) {
        if let Ok(header) = Long::parse(&octets) {
            let mut expected = octets;
            expected[0] &= 0x3f;
            prop_assert_eq!(header.octets(), expected);
        }
        if let Ok(header) = Short::parse(&short) {
            let mut expected = short;
            expected[0] &= 3;
            prop_assert_eq!(header.octets(), expected);
            prop_assert!(header.data_len() <= DATA_LEN_MAX);
        }
    }

    #[test]
    fn any_octets_are_split_within_bounds(octets in prop::collection::vec(any::<u8>(), 0..700)) {
        if let Ok((header, data)) = split(&octets) {
            prop_assert_eq!(header.data_len(), data.len());
            let again = join(header.to, header.from, header.kind, data, true).unwrap();
            let (header, data) = split(&again).unwrap();
            prop_assert!(header.checksum != 0 && header.is_intact(data));
        }
    }

    #[test]
    fn sums_do_not_depend_on_cuts(octets in prop::collection::vec(any::<u8>(), 0..64), at: usize) {
        let (front, back) = octets.split_at(at % (octets.len() + 1));
        let (mut whole, mut cut) = (Sum::default(), Sum::default());
        whole.add(&octets);
        cut.add(front);
        cut.add(back);
        prop_assert_eq!(whole.checksum(), cut.checksum());
    }
}
