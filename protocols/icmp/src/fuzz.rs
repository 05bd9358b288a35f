//! Fuzz target of the codec: what parses must come out again as it went in.

use crate::wire::{HEADER_LEN, Message, TIMES_LEN, echo_reply};

/// Parses `data` as a message, writes it again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Ok(message) = Message::parse(data) else {
        return;
    };
    let mut octets = message.header_octets();
    let whole = [&octets, message.body].concat();
    assert_eq!(Message::parse(&whole), Ok(message), "the message changed");
    // Unused octets are written as zero, so only queries come out to the bit.
    if !message.header.is_error() && data[2..4] != [0xff, 0xff] {
        assert_eq!(octets, data[..HEADER_LEN], "the octets changed");
    }
    assert_eq!(message.quoted().is_some(), message.header.is_error());
    if let Some(times) = message.times() {
        let mut octets = [0; TIMES_LEN];
        times.emit(&mut octets);
        assert_eq!(octets, message.body[..TIMES_LEN], "the times changed");
    }
    if echo_reply(&mut octets).is_some() {
        let whole = [&octets, message.body].concat();
        let reply = Message::parse(&whole).expect("the reply to a valid request is valid");
        assert_eq!(Some(reply.header), message.header.reply());
    }
}
