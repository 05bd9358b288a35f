//! Fuzz target of the codec: what parses must come out again as it went in.

use crate::wire::{HEADER_LEN, HEADER_LEN_MAX, OptionsBuf, Packet, decrement_ttl};

/// Parses `data` as a datagram, writes its header again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Ok(packet) = Packet::parse(data) else {
        return;
    };
    let len = packet.header.header_len();
    let mut octets = [0; HEADER_LEN_MAX];
    let written = packet.header.emit_with(packet.options, &mut octets);
    let written = written.expect("what was read fits");
    let again = Packet::parse(&[written, packet.payload].concat()).map(|p| p.header);
    assert_eq!(again, Ok(packet.header), "the header changed");
    let reserved = data[6] & 0x80 != 0;
    // A checksum of ones for zero is valid, but never written.
    if !reserved && data[10..12] != [0xff, 0xff] {
        assert_eq!(written, &data[..len], "the octets changed");
    }
    let mut buf = OptionsBuf::new();
    for option in packet.options {
        buf.push(option)
            .expect("an option that was read can be written");
    }
    assert!(
        buf.options().into_iter().eq(packet.options),
        "the options changed"
    );
    assert!(
        packet
            .options
            .copied()
            .options()
            .into_iter()
            .all(|option| option.is_copied())
    );
    let mut fixed = [0; HEADER_LEN];
    fixed.copy_from_slice(&data[..HEADER_LEN]);
    if decrement_ttl(&mut fixed).is_some() {
        let whole = [&fixed, &data[HEADER_LEN..]].concat();
        let next = Packet::parse(&whole).expect("one hop on it is still valid");
        assert_eq!(next.header.ttl + 1, packet.header.ttl);
    }
}
