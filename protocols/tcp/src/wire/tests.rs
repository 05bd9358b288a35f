use super::*;
use crate::options::{Blocks, Cookie, SHIFT_MAX, Tallies, Timestamps};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use proptest::prelude::*;
use std::string::ToString;

fn blocks() -> impl Strategy<Value = Blocks> {
    proptest::collection::vec(any::<(u32, u32)>(), 0..3).prop_map(|list| {
        let mut blocks = Blocks::NONE;
        for (from, to) in list {
            blocks.push((Seq(from), Seq(to)));
        }
        blocks
    })
}

fn options() -> impl Strategy<Value = Options> {
    let timestamps = any::<Option<(u32, u32)>>();
    let offers = (any::<Option<u16>>(), proptest::option::of(0..=SHIFT_MAX), any::<bool>());
    let cookie = any::<([u8; Cookie::OCTETS_MAX], usize)>();
    let tallies = any::<Option<([u32; 3], usize, bool)>>();
    (offers, timestamps, blocks(), cookie, tallies).prop_map(
        |(offers, timestamps, sack, (cookie, length), tallies)| {
            let (segment_max, window_scale, sack_permitted) = offers;
            let options = Options {
                segment_max,
                window_scale,
                sack_permitted,
                timestamps: timestamps.map(|(value, echo)| Timestamps { value, echo }),
                // With everything on a SYN there is no room for blocks, nor are there any.
                sack: if segment_max.is_some() || window_scale.is_some() {
                    Blocks::NONE
                } else {
                    sack
                },
                user_timeout: None,
                fast_open: Cookie::of(&cookie[..length % cookie.len()])
                    .filter(|_| segment_max.is_some() || sack == Blocks::NONE),
                tallies: None,
            };
            let fitting = Tallies::fitting(options.room());
            let tallies = tallies.zip(fitting).map(|((octets, count, is_reversed), fitting)| {
                Tallies::new(octets, count % (fitting + 1), is_reversed)
            });
            Options { tallies, ..options }
        },
    )
}

proptest! {
    #[test]
    fn headers_come_back_as_they_went(
        ports in (1..=u16::MAX, 1..=u16::MAX),
        seq: u32, ack: u32, flags in 0..0x200_u16, window: u16, urgent: u16,
        options in options(),
    ) {
        let mut header = Header::new(ports.0, ports.1, Seq(seq), Seq(ack), Flags(flags));
        (header.window, header.urgent, header.options) = (window, urgent, options);
        let mut octets = [0; HEADER_LEN_MAX];
        let length = header.emit(&mut octets);
        prop_assert_eq!(length, HEADER_LEN + options.length());
        prop_assert_eq!(Header::parse(&octets[..length]), Ok((header, length)));
        for cut in 0..length {
            prop_assert!(Header::parse(&octets[..cut]).is_err());
        }
    }

    #[test]
    fn any_octets_parse_or_do_not(octets in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok((header, length)) = Header::parse(&octets) {
            prop_assert!((HEADER_LEN..=octets.len()).contains(&length));
            let mut again = [0; HEADER_LEN_MAX];
            let written = header.emit(&mut again);
            prop_assert_eq!(Header::parse(&again[..written]).map(|(h, _)| h), Ok(header));
        }
    }
}

#[test]
fn contradictions_are_refused() {
    let header = Header::new(1, 2, Seq(3), Seq(4), Flags::ACK);
    let mut octets = [0; HEADER_LEN_MAX];
    header.emit(&mut octets);
    let with = |at: usize, value: u8| {
        let mut octets = octets;
        octets[at] = value;
        Header::parse(&octets).map(|_| ())
    };
    assert_eq!(with(12, 4 << 4), Err(Error::Offset));
    assert_eq!(with(1, 0), Err(Error::Port));
    octets[12] = 6 << 4;
    // Kind 2 of length 0, of a length behind the end; the last octet a kind alone.
    for body in [[2, 0, 0, 0], [2, 5, 0, 0], [1, 1, 1, 2]] {
        let mut octets = octets;
        octets[20..24].copy_from_slice(&body);
        assert_eq!(Header::parse(&octets[..24]), Err(Error::Option), "{body:?}");
    }
    // A known one of a length that it cannot have is skipped (RFC 9293, section 3.2, MUST-6).
    octets[20..24].copy_from_slice(&[2, 3, 9, 0]);
    let (header, _) = Header::parse(&octets[..24]).unwrap();
    assert_eq!(header.options, Options::NONE);
}

#[test]
fn counts_of_octets_are_read_in_both_orders_at_each_length() {
    // RFC 9768, section 3.2.3, figure 4 and table 5.
    let octets = [172, 11, 0, 0x1f, 0x41, 0, 0x07, 0xd0, 0, 0, 1, 1];
    let numbers = [Some(0x1f41), Some(0x07d0), Some(1)];
    for kind in [172, 174] {
        for length in [2, 5, 8, 11] {
            let mut octets = octets;
            (octets[0], octets[1]) = (kind, length as u8);
            octets[length..].fill(1);
            let read = Options::parse(&octets).unwrap();
            let mut told = [None; 3];
            told[..length / 3].copy_from_slice(&numbers[..length / 3]);
            if kind == 174 {
                told.reverse();
            }
            assert_eq!(read.tallies.unwrap().get(), told, "{kind} {length}");
            let mut written = [0; 12];
            let end = read.emit(&mut written);
            let from = end - length;
            assert_eq!((end % 4, &written[..from]), (0, &[1; 4][..from]));
            assert_eq!(written[from..end], octets[..length], "{kind} {length}");
            assert_eq!(read.length() + read.room(), OPTIONS_LEN_MAX);
            for cut in 1..length {
                assert_eq!(Options::parse(&octets[..cut]), None, "{kind} {length} {cut}");
            }
        }
        // What is left behind whole fields is padding.
        for (length, fields) in [(3, 0), (4, 0), (6, 1), (9, 2), (10, 2), (12, 3), (40, 3)] {
            let mut octets = [7; 40];
            (octets[0], octets[1]) = (kind, length as u8);
            let read = Options::parse(&octets[..length]).unwrap();
            let told = read.tallies.unwrap().get().iter().flatten().count();
            assert_eq!(told, fields, "{kind} {length}");
        }
    }
    let read = Options::parse(&octets).unwrap();
    assert_eq!(read.to_string(), ", e0b 8001, ceb 2000, e1b 1");
    let most = Tallies::new([u32::MAX; 3], 9, true).get();
    assert_eq!(most, [Some(Tallies::FIELD_VALUES - 1); 3]);
    assert_eq!([0, 3, 4, 7, 8, 11, 12, 40].map(Tallies::fitting), {
        let [none, empty, two, all] = [None, Some(0), Some(2), Some(3)];
        [none, none, empty, empty, two, two, all, all]
    });
}

#[test]
fn a_syn_of_linux_is_read() {
    let options = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    let read = Options::parse(&options).unwrap();
    assert_eq!(read.to_string(), ", mss 1460, wscale 7, sackOK, ts 1 0");
    assert_eq!(read.length(), 20);
}

#[test]
fn sums_agree_with_a_known_segment() {
    let (src, dst) = (Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
    let header = Header::new(5000, 7, Seq(1), Seq(0), Flags::SYN);
    let mut octets = [0; HEADER_LEN_MAX];
    let length = header.emit(&mut octets);
    let sum = |octets: &[u8]| {
        let mut sum = Checksum::new();
        sum.add(octets);
        checksum(src, dst, octets.len() as u16, sum)
    };
    let value = sum(&octets[..length]);
    octets[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&value.to_be_bytes());
    assert_eq!(sum(&octets[..length]), 0);
    let longer: Vec<u8> = [&octets[..length], b"x"].concat();
    assert_ne!(sum(&longer), 0);
}
