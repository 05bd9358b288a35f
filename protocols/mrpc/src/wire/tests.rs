//! The sheet's vectors (docs of the header: "RPC in the x-Kernel", appendix), both directions, and
//! what is no packet.

use super::*;
use std::vec::Vec;

fn octets(text: &str) -> [u8; HEADER_LEN] {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    let octets: Vec<u8> = digits.chunks(2).map(|d| digit(d[0]) << 4 | digit(d[1])).collect();
    octets.try_into().unwrap()
}

const CALL_7: Header = Header {
    flags: REQUEST | SERVER,
    client_host: 0x0a00_0001,
    server_host: 0x0a00_0002,
    channel: 3,
    process: 0,
    sequence: 7,
    fragments: 0,
    mask: 0,
    command: 1,
    boot: 0x2a00_0001,
    sizes: [0, 0],
    offsets: [0, 0],
};

fn vectors() -> [(&'static str, Header); 4] {
    [
        (
            "0110 0a000001 0a000002 0003 0000 00000007 0000 0000 0001 2a000001 0000 0000 0000 0000",
            CALL_7,
        ),
        (
            "0400 0a000001 0a000002 0003 0005 00000007 0000 0000 0001 2b000002 0000 0000 0000 0000",
            Header { flags: REPLY, process: 5, boot: 0x2b00_0002, ..CALL_7 },
        ),
        (
            "0112 0a000001 0a000002 0003 0005 00000008 0003 0004 0003 2a000001 0000 03b8 0000 0800",
            Header {
                flags: REQUEST | SERVER | LASTFRAG,
                process: 5,
                sequence: 8,
                fragments: 3,
                mask: 4,
                command: 3,
                sizes: [0, 952],
                offsets: [0, 2048],
                ..CALL_7
            },
        ),
        (
            "0202 0a000001 0a000002 0003 0005 00000008 0000 0005 0003 2b000002 0000 0000 0000 0000",
            Header {
                flags: ACK | LASTFRAG,
                process: 5,
                sequence: 8,
                mask: 5,
                command: 3,
                boot: 0x2b00_0002,
                ..CALL_7
            },
        ),
    ]
}

#[test]
fn the_vectors_both_ways() {
    for (text, header) in vectors() {
        assert_eq!(Header::parse(&octets(text)), header);
        assert_eq!(header.emit(), octets(text));
        assert_eq!(header.check(header.body_len()), Ok(()));
        if header.body_len() > 0 {
            assert_eq!(header.check(header.body_len() - 1), Err(Error::Truncated));
        }
    }
}

#[test]
fn one_kind_and_no_reserved_bits() {
    for flags in [0, SERVER, ECHO, REQUEST | REPLY, ACK | NACK, REQUEST | 0x2000, REPLY | 0x8000] {
        let header = Header { flags, ..CALL_7 };
        assert_eq!(header.check(0), Err(Error::Flags), "{flags:#06x}");
    }
    for flags in [ACK | CLOSE, REPLY | ERROR, NACK | ERROR, REQUEST | ECHO, REQUEST | ROUND] {
        assert_eq!(Header { flags, ..CALL_7 }.check(0), Ok(()), "{flags:#06x}");
    }
}

#[test]
fn impossible_fragments_and_sizes() {
    let with = |fragments, mask, offsets, sizes| {
        let header = Header { fragments, mask, offsets, sizes, ..CALL_7 };
        header.check(40_000)
    };
    assert_eq!(with(17, 1, [0, 0], [0, 0]), Err(Error::Fragment));
    assert_eq!(with(16, 0x8000, [0, 15_360], [0, 1024]), Ok(()));
    assert_eq!(with(16, 0, [0, 0], [0, 0]), Err(Error::Fragment));
    assert_eq!(with(16, 3, [0, 0], [0, 0]), Err(Error::Fragment), "several bits");
    assert_eq!(with(3, 8, [0, 0], [0, 0]), Err(Error::Fragment), "beyond the count");
    assert_eq!(with(0, 1, [0, 0], [0, 0]), Err(Error::Fragment));
    assert_eq!(with(0, 0, [0, 1], [0, 0]), Err(Error::Fragment));
    assert_eq!(with(2, 1, [0, 16_384], [0, 1]), Err(Error::TooBig));
    assert_eq!(with(2, 1, [1000, 0], [25, 0]), Err(Error::TooBig));
    assert_eq!(with(2, 1, [0xffff, 0xffff], [0xffff, 0xffff]), Err(Error::Truncated));
    assert_eq!(with(0, 0, [0, 0], [1024, 16_384]), Ok(()));
}
