//! Fuzz target of the codec: what parses must come out again as it went in.

use crate::wire::{HEADER_OCTETS, Header};

/// Parses `data` as a packet, writes its header again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Some((octets, payload)) = data.split_first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    let Ok(header) = Header::parse(octets, payload.len()) else {
        return;
    };
    let mut expected = *octets;
    // Nobody reads the second octet.
    expected[1] = 0;
    assert_eq!(header.emit(), expected, "the header changed");
    assert!(usize::from(header.len) <= payload.len(), "the payload grew");
    assert!(
        header.index() < usize::from(header.count),
        "the fragment is one of the message's"
    );
}
