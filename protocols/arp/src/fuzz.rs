//! Fuzz target of the codec: what parses must come out again as it went in.

use crate::wire::{PACKET_LEN, Packet};

/// Parses `data` as a packet, writes it again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Ok(packet) = Packet::parse_slice(data) else {
        return;
    };
    let mut octets = [0; PACKET_LEN];
    packet.emit(&mut octets);
    assert_eq!(octets, data[..PACKET_LEN], "the packet changed");
    let reply = packet.reply(packet.target_eth);
    reply.emit(&mut octets);
    assert_eq!(Packet::parse(&octets), Ok(reply), "the reply changed");
}
