use super::*;
use proptest::prelude::*;
use std::format;
use std::string::String;
use std::vec;

const GROUP: Ipv4 = Ipv4::new(239, 1, 2, 3);
const SPECIFIC: Ipv4 = Ipv4::new(232, 1, 2, 3);

/// Kind, group and sources.
type Record<'a> = (Kind, Ipv4, &'a [Ipv4]);

fn octets(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// A record as a line: kind, group, sources.
pub(crate) fn records(octets: &[u8]) -> Vec<String> {
    assert!(matches!(Packet::parse(octets), Ok(Packet::Records(_))), "{octets:?}");
    let count = u16::from_be_bytes([octets[6], octets[7]]);
    let mut rest = &octets[HEADER_LEN..];
    let mut lines = Vec::new();
    for _ in 0..count {
        let (head, behind) = rest.split_first_chunk::<RECORD_LEN>().unwrap();
        assert_eq!(head[1], 0, "no auxiliary data");
        let count = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (sources, next) = behind.split_at(count * SOURCE_LEN);
        let kind = ["", "IS_IN", "IS_EX", "TO_IN", "TO_EX", "ALLOW", "BLOCK"][usize::from(head[0])];
        let group = ipv4(head.last_chunk().unwrap());
        let sources: Vec<_> = sources.as_chunks().0.iter().map(ipv4).collect();
        lines.push(format!("{kind} {group} {sources:?}"));
        rest = next;
    }
    assert_eq!(rest, [], "nothing is behind the records");
    lines
}

/// Octets, version, milliseconds of the response time, group, robustness and interval, sources.
type Asked = (&'static str, u8, u64, Option<Ipv4>, (u8, u64), &'static [Ipv4]);

/// Queries of Linux's bridge, versions 2 and 3, as captured; that of version 1 is made by hand, as
/// RFC 1112's appendix has it.
const QUERIES: &[Asked] = &[
    ("1100eeff00000000", 1, 10_000, None, (0, 0), &[]),
    ("1105eefa00000000", 2, 500, None, (0, 0), &[]),
    ("110afdf0ef010203", 2, 1000, Some(GROUP), (0, 0), &[]),
    ("1105ecf90000000002010000", 3, 500, None, (2, 1), &[]),
    ("110afbefef01020302010000", 3, 1000, Some(GROUP), (2, 1), &[]),
    ("110af3efef0102030a010000", 3, 1000, Some(GROUP), (2, 1), &[]),
    (
        "110a7edde801020302010002c0000208c0000207",
        3,
        1000,
        Some(SPECIFIC),
        (2, 1),
        &[Ipv4::new(192, 0, 2, 8), Ipv4::new(192, 0, 2, 7)],
    ),
];

#[test]
fn queries_of_linux_are_read_and_cut_ones_refused() {
    for (digits, version, response_ms, group, (robustness, interval), sources) in QUERIES {
        let octets = octets(digits);
        let Ok(Packet::Query(query)) = Packet::parse(&octets) else { panic!("{digits}") };
        assert_eq!((query.version, query.group), (*version, *group), "{digits}");
        assert_eq!(query.response, Duration::from_millis(*response_ms));
        assert_eq!(query.robustness, *robustness);
        assert_eq!(query.interval, Duration::from_secs(*interval));
        assert_eq!(query.sources().collect::<Vec<_>>(), *sources);
        for len in 0..octets.len() {
            let read = Packet::parse(&octets[..len]);
            assert!(read.is_err(), "{digits}, {len}");
            assert_eq!(read == Err(Error::Truncated), len < HEADER_LEN);
            // With a checksum that fits, the length decides.
            if len >= HEADER_LEN {
                let mut cut = octets[..len].to_vec();
                cut[2..4].fill(0);
                let cut = finish(cut);
                // Eight octets are a query of version 2.
                let read = Packet::parse(&cut);
                assert_eq!(read.is_ok(), len == HEADER_LEN, "{digits}, {len}: {read:?}");
            }
        }
        // What is behind a query of version 3 counts in the checksum alone (section 4.1.10).
        if *version == 3 {
            let mut longer = octets.clone();
            longer.extend([1, 2, 3]);
            longer[2..4].fill(0);
            let longer = finish(longer);
            assert_eq!(Packet::parse(&longer), Ok(Packet::Query(query)));
        }
    }
}

#[test]
fn reports_are_those_of_linux() {
    for (version, group, digits) in [
        (1, SPECIFIC, "120003fbe8010203"),
        (1, GROUP, "1200fcfaef010203"),
        (2, SPECIFIC, "1600fffae8010203"),
        (2, GROUP, "1600f8faef010203"),
    ] {
        let octets = octets(digits);
        assert_eq!(report(version, group), octets);
        assert_eq!(Packet::parse(&octets), Ok(Packet::Report { version, group }));
    }
    let left = octets("1700f7faef010203");
    assert_eq!((leave(GROUP), Packet::parse(&left)), (left.clone(), Ok(Packet::Leave(GROUP))));
    let [seven, eight] = [7, 8].map(|last| Ipv4::new(192, 0, 2, last));
    let mdns = Ipv4::new(224, 0, 0, 106);
    let all: [(&str, &[Record<'_>]); 6] = [
        ("2200f9930000000104000000e000006a", &[(Kind::ToExclude, mdns, &[])]),
        ("2200fb930000000102000000e000006a", &[(Kind::IsExclude, mdns, &[])]),
        (
            "220037eb0000000205000001e8010203c000020704000000ef010203",
            &[(Kind::Allow, SPECIFIC, &[seven]), (Kind::ToExclude, GROUP, &[])],
        ),
        (
            "22003deb0000000201000001e8010203c000020702000000ef010203",
            &[(Kind::IsInclude, SPECIFIC, &[seven]), (Kind::IsExclude, GROUP, &[])],
        ),
        ("22002cf00000000105000001e8010203c0000208", &[(Kind::Allow, SPECIFIC, &[eight])]),
        (
            "220075e10000000206000002e8010203c0000208c000020703000000ef010203",
            &[(Kind::Block, SPECIFIC, &[eight, seven]), (Kind::ToInclude, GROUP, &[])],
        ),
    ];
    for (digits, list) in all {
        let mut reports = Reports::new(1476);
        list.iter().for_each(|(kind, group, sources)| reports.add(*kind, *group, sources));
        let octets = octets(digits);
        assert_eq!(reports.finish(), core::slice::from_ref(&octets));
        assert!(matches!(Packet::parse(&octets), Ok(Packet::Records(_))));
        assert_eq!(records(&octets).len(), list.len());
    }
}

#[test]
fn response_times_and_intervals_are_small_floats() {
    // RFC 3376, section 4.1.1.
    let all = [(0, 0), (1, 1), (127, 127), (128, 128), (0x8f, 248), (0x90, 256), (0xff, 31_744)];
    for (code, value) in all {
        assert_eq!(number(code), value);
    }
    for at in 1..=255 {
        let (value, below) = (u128::from(number(at)), number(at - 1));
        assert!(value > below.into());
        assert_eq!((code(value), code(value - 1)), (at, at - 1));
    }
}

#[test]
fn general_queries_are_those_of_linux() {
    for digits in ["1100eeff00000000", "1105eefa00000000", "1105ecf90000000002010000"] {
        let octets = octets(digits);
        let Ok(Packet::Query(query)) = Packet::parse(&octets) else { panic!("{digits}") };
        let Query { version, response, robustness, interval, .. } = query;
        assert_eq!(general_query(version, response, robustness, interval), octets);
    }
}

#[test]
fn what_is_no_message_has_its_own_error() {
    let with = |octets: &[u8]| finish(octets.to_vec());
    let all: &[(Vec<u8>, Error)] = &[
        (vec![], Error::Truncated),
        (vec![0x11; 7], Error::Truncated),
        (vec![0x11, 0, 0, 1, 0, 0, 0, 0], Error::Checksum),
        (with(&[0x13, 0, 0, 0, 0, 0, 0, 0]), Error::Type(0x13)),
        (with(&[0x11, 10, 0, 0, 10, 0, 0, 1]), Error::Group),
        (with(&[0x16, 0, 0, 0, 10, 0, 0, 1]), Error::Group),
        (with(&[0x12, 0, 0, 0, 0, 0, 0, 0]), Error::Group),
        (with(&[0x17, 0, 0, 0, 0, 0, 0, 0]), Error::Group),
        (with(&[0x11, 10, 0, 0, 0, 0, 0, 0, 2]), Error::Length),
        (with(&[0x11, 10, 0, 0, 0, 0, 0, 0, 2, 1, 0]), Error::Length),
        (with(&[0x11, 10, 0, 0, 239, 0, 0, 1, 2, 1, 0, 1, 1, 1, 1]), Error::Length),
        (with(&[0x11, 10, 0, 0, 0, 0, 0, 0, 2, 1, 0, 1, 1, 1, 1, 1]), Error::Group),
    ];
    for (octets, error) in all {
        assert_eq!(Packet::parse(octets), Err(*error), "{octets:?}");
    }
}

#[test]
fn reports_fit_their_room() {
    let source = |n: usize| Ipv4::from_bits(0x0a00_0000 + n as u32);
    let sources: Vec<_> = (0..10).map(source).collect();
    // Three sources a report.
    for room in [0, 28, 29, 31] {
        let most = if room < 28 { 1 } else { 3 };
        for kind in [Kind::IsInclude, Kind::ToInclude, Kind::Allow, Kind::Block] {
            let mut reports = Reports::new(room);
            reports.add(kind, GROUP, &sources);
            assert_eq!(reports.finish().len(), 10_usize.div_ceil(most), "{room}");
        }
        for kind in [Kind::IsExclude, Kind::ToExclude] {
            let mut reports = Reports::new(room);
            reports.add(kind, GROUP, &sources);
            let all = reports.finish();
            assert_eq!((all.len(), all[0].len()), (1, 16 + 4 * most), "the first ones alone");
        }
    }
}

proptest! {
    #[test]
    fn any_octets_are_read_without_harm(mut octets: Vec<u8>) {
        let _ = Packet::parse(&octets);
        if let Some(sum) = octets.get_mut(2..4) {
            sum.fill(0);
            let octets = finish(octets);
            if let Ok(Packet::Query(query)) = Packet::parse(&octets) {
                prop_assert!(query.sources().count() * SOURCE_LEN <= octets.len());
            }
        }
    }

    #[test]
    fn all_that_is_added_is_in_reports_that_fit(
        room in 20_usize..200,
        list in proptest::collection::vec((1_u8..=6, any::<u8>(), 0_usize..40), 0..20),
    ) {
        let kinds = [Kind::IsInclude, Kind::IsExclude, Kind::ToInclude, Kind::ToExclude,
            Kind::Allow, Kind::Block];
        let mut reports = Reports::new(room);
        let (mut wanted, mut got) = (0, 0);
        for (kind, group, count) in &list {
            let kind = kinds[usize::from(*kind) - 1];
            let sources: Vec<_> = (0..*count as u32).map(Ipv4::from_bits).collect();
            reports.add(kind, Ipv4::new(239, 0, 0, *group), &sources);
            let is_cut = matches!(kind, Kind::IsExclude | Kind::ToExclude);
            wanted += if is_cut { (*count).min((room - 16) / 4) } else { *count };
        }
        for octets in reports.finish() {
            prop_assert!(octets.len() <= room);
            let lines = records(&octets);
            prop_assert!(!lines.is_empty());
            got += lines.iter().map(|l| l.matches('.').count() / 3 - 1).sum::<usize>();
        }
        prop_assert_eq!(got, wanted);
    }
}
