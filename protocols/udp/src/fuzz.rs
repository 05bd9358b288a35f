//! Fuzz target of the codec: what parses must come out again as it went in.

use crate::wire::{Datagram, HEADER_LEN, has_checksum};
use xk_kit::addr::Ipv4;

/// Parses `data` as a datagram, writes it again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let (src, dst) = (Ipv4::new(192, 0, 2, 1), Ipv4::new(198, 51, 100, 2));
    let Ok(datagram) = Datagram::parse(data, src, dst) else {
        return;
    };
    let octets = datagram.header_octets(src, dst);
    assert_eq!(octets[..6], data[..6], "the header changed");
    if data.first_chunk::<HEADER_LEN>().is_some_and(has_checksum) {
        assert_eq!(octets[6..], data[6..HEADER_LEN], "the checksum changed");
    }
    let end = HEADER_LEN + datagram.payload.len();
    assert_eq!(
        datagram.payload,
        &data[HEADER_LEN..end],
        "the payload changed"
    );
}
