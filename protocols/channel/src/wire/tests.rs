use super::*;
use alloc::vec::Vec;

fn octets(hex: &str) -> [u8; HEADER_OCTETS] {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    let octets: Vec<u8> = digits.chunks(2).map(|d| (d[0] << 4 | d[1]) as u8).collect();
    octets[..].try_into().expect("18 octets")
}

/// The sheet's example: call 7 on channel 3 for SELECT, boot id 2a000001.
fn call() -> Header {
    Header {
        kind: Kind::Request,
        for_server: true,
        please_ack: false,
        payload: None,
        channel: 3,
        number: 0x65,
        sequence: 7,
        error: 0,
        boot: 0x2a00_0001,
    }
}

#[test]
fn real_octets_both_ways() {
    let reply = Header { kind: Kind::Reply, for_server: false, ..call() };
    let cases = [
        ("0110 0003 00000065 00000007 0000 2a000001", call()),
        ("0400 0003 00000065 00000007 0000 2a000001", reply),
        (
            "0111 0003 00000065 00000007 8123 2a000001",
            Header { please_ack: true, error: 0x8123, ..call() },
        ),
        (
            "0208 0003 00000065 00000007 0123 2a000001",
            Header { kind: Kind::Nack, error: 0x123, ..reply },
        ),
        (
            "0210 0003 00000065 00000008 0123 2a000001",
            Header { kind: Kind::Ack, sequence: 8, error: 0x123, ..call() },
        ),
        (
            "0409 0003 00000065 00000007 0001 2a000001",
            Header { kind: Kind::Refusal, please_ack: true, error: 1, ..reply },
        ),
        (
            // A payload of six octets, marked.
            "3910 0003 00000065 00000007 0000 2a000001",
            Header { payload: Some(6), ..call() },
        ),
    ];
    for (hex, header) in cases {
        assert_eq!(header.emit(), octets(hex), "{header:?}");
        assert_eq!(Header::parse(&octets(hex)), Ok(header));
    }
}

#[test]
fn every_set_of_flags_is_a_packet_or_malformed() {
    let mut good = 0;
    for flags in 0..=u16::MAX {
        let mut octets = call().emit();
        octets[..2].copy_from_slice(&flags.to_be_bytes());
        if let Ok(header) = Header::parse(&octets) {
            assert_eq!(header.emit(), octets, "{flags:04x}");
            good += 1;
        }
    }
    // Requests, replies and refusals, each with and without a question; two probes, two acks, two
    // nacks.
    assert_eq!(good, (2 + 2 + 2 + 2 + 2 + 2) * 32);
}

#[test]
fn nobody_has_boot_id_0() {
    let nobody = Header { boot: 0, ..call() };
    assert_eq!(Header::parse(&nobody.emit()), Err(Malformed));
}

#[test]
fn sequence_numbers_go_round() {
    assert!(is_newer(1, 0) && !is_newer(0, 1) && !is_newer(5, 5));
    assert!(is_newer(0, u32::MAX) && is_newer(7, u32::MAX - 7));
    assert!(!is_newer(u32::MAX, 0));
}
