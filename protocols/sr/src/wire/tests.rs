use super::*;
use std::vec::Vec;

/// The sheet's call of operation 9 on vm 2 by vm 1, and its result.
const CALL: &str = "01 05 0001 0001 0002 00000009 00000077 00000001 00000004 0000002a";
const ANSWER: &str = "01 06 0001 0002 0001 00000009 00000077 00000001 00000004 0000002b";

fn octets(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let octet = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(octet).collect()
}

fn call() -> Invoked {
    let (manner, origin) = (Manner::Call, 1);
    Invoked { manner, origin, process: 0, hops: 0, operation: 9, token: 0x77, order: 1 }
}

#[test]
fn a_call_and_its_result_are_the_octets_of_the_sheet() {
    let (header, body) = (Header::invoke(&call(), 2, 4), [0, 0, 0, 42]);
    assert_eq!([&header.emit()[..], &body].concat(), octets(CALL));
    assert_eq!(header.invoked(), Some(call()));
    let (header, body) = (Header::result(&call(), 2, TAKEN, 4), [0, 0, 0, 43]);
    assert_eq!([&header.emit()[..], &body].concat(), octets(ANSWER));
}

#[test]
fn a_header_is_read_as_it_was_written() {
    let invoked = Invoked { process: 200, hops: 15, manner: Manner::CoSend, ..call() };
    let header = Header::invoke(&invoked, 253, 7);
    assert_eq!(Header::parse(&header.emit()), header);
    assert_eq!(header.invoked(), Some(invoked));
    for manner in [0, 5, 15] {
        assert_eq!(Header { manner, ..header }.invoked(), None);
    }
    let reply = Reply { version: VERSION, status: FORWARDED, machine: 3 };
    assert_eq!(reply.emit(), [1, 1, 0, 3]);
    assert_eq!(Reply::parse(&reply.emit()), reply);
}
