use super::*;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// RFC 1071, section 4.1, word by word.
fn naive(octets: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in octets.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[test]
fn rfc1071_vectors() {
    // RFC 1071, section 3.
    let octets = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(checksum(&octets), !0xddf2);
    for cut in 0..=octets.len() {
        let mut sum = Checksum::new();
        sum.add(&octets[..cut]);
        sum.add(&octets[cut..]);
        assert_eq!(sum.finish(), !0xddf2, "cut at {cut}");
    }
}

#[test]
fn a_kept_sum_goes_on() {
    let octets: Vec<u8> = (0..700u32).map(|n| (n * 37 + n / 5) as u8).collect();
    for cut in [0, 2, 12, 64, 256, 600] {
        let mut kept = Checksum::new();
        kept.add(&octets[..cut]);
        let mut sum = Checksum::resume(kept.folded());
        sum.add(&octets[cut..]);
        assert_eq!(sum.finish(), naive(&octets), "cut at {cut}");
    }
}

#[test]
fn rfc1624_example() {
    // RFC 1624, section 4: the case in which RFC 1141 yields 0xffff.
    assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn empty_and_extremes() {
    assert_eq!(checksum(&[]), 0xffff);
    assert_eq!(checksum(&[0; 1460]), 0xffff);
    for len in [2, 64, 1460, 65536, 1 << 20] {
        assert_eq!(checksum(&vec![0xff; len]), 0, "{len} octets of ones");
        assert_eq!(checksum(&vec![0; len]), 0xffff, "{len} octets of zeros");
        assert_eq!(checksum(&vec![0x80; len]), naive(&vec![0x80; len]), "{len}");
    }
    assert!(!is_valid(&[0; 20]));
}

#[test]
fn a_carry_of_the_last_word_is_kept() {
    for len in 0..600 {
        let ones = vec![0xff; len];
        for sum in [0, 1, u64::MAX - 1, u64::MAX] {
            let plain = add_end_around(sum, sum_plain(&ones));
            assert_eq!(fold(add_octets(sum, &ones)), fold(plain), "{len} on {sum:#x}");
        }
    }
}

#[test]
fn every_length_agrees_with_naive() {
    let octets: Vec<u8> = (0..400u32).map(|n| (n * 151 + n / 7) as u8).collect();
    for start in 0..9 {
        for end in start..octets.len() {
            let part = &octets[start..end];
            assert_eq!(checksum(part), naive(part), "{start}..{end}");
        }
    }
}

#[test]
fn pseudo_header_is_the_sum_of_its_octets() {
    let (src, dst) =
        (core::net::Ipv4Addr::new(192, 0, 2, 1), core::net::Ipv4Addr::new(198, 51, 100, 77));
    let octets = [192, 0, 2, 1, 198, 51, 100, 77, 0, 17, 0x12, 0x34];
    let sum = Checksum::pseudo_header(src, dst, 17, 0x1234);
    assert_eq!(sum.finish(), naive(&octets));
}

proptest! {
    #[test]
    fn agrees_with_naive_and_oracles(octets in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let ours = checksum(&octets);
        prop_assert_eq!(ours, naive(&octets));
        let etherparse = etherparse::checksum::Sum16BitWords::new().add_slice(&octets);
        prop_assert_eq!(ours, etherparse.ones_complement().to_be());
    }

    /// The chain of carries, the plain loop, and that with the processor's vectors.
    #[test]
    fn all_ways_agree(octets in proptest::collection::vec(any::<u8>(), 0..2000), sum: u64) {
        let plain = fold(add_end_around(sum, sum_plain(&octets)));
        prop_assert_eq!(fold(add_short(sum, &octets)), plain);
        prop_assert_eq!(fold(add_end_around(sum, wide_unsafe::sum_long(&octets))), plain);
    }

    #[test]
    fn ones_are_what_folds_to_ones(any: u64, quotient in 0..=u64::MAX / 0xffff) {
        for sum in [any, quotient * 0xffff, quotient, 0, 0xffff, u64::MAX - 1, u64::MAX] {
            prop_assert_eq!(is_ones(sum), fold(sum) == 0xffff, "{:#x}", sum);
        }
    }

    #[test]
    fn pieces_add_up(pieces in proptest::collection::vec(
        proptest::collection::vec(any::<u8>(), 0..150), 0..8), word: u16, long: u32) {
        let mut sum = Checksum::new();
        let mut joined = Checksum::new();
        let mut flat = Vec::new();
        for piece in &pieces {
            sum.add(piece);
            let mut one = Checksum::new();
            one.add(piece);
            joined.join(one);
            flat.extend_from_slice(piece);
        }
        prop_assert_eq!(sum.finish(), naive(&flat));
        prop_assert_eq!(joined.finish(), naive(&flat));
        sum.add_u16(word);
        sum.add_u32(long);
        flat.extend_from_slice(&word.to_be_bytes());
        flat.extend_from_slice(&long.to_be_bytes());
        prop_assert_eq!(sum.finish(), naive(&flat));
    }

    #[test]
    fn update_equals_a_fresh_sum(words in proptest::collection::vec(
        prop_oneof![Just(0u16), Just(0xffff), any::<u16>()], 4..12),
        new in prop_oneof![Just(0u16), Just(0xffff), any::<u16>()]) {
        let octets = |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
        // One word that stays and is not zero, as in every IP header.
        let mut words = words;
        words[3] |= 1;
        let before = naive(&octets(&words));
        let mut after = words.clone();
        after[1] = new;
        prop_assert_eq!(update_u16(before, words[1], new), naive(&octets(&after)));
    }
}
