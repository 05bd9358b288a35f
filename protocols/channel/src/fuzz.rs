//! Fuzz target of the codec: what parses must come out again as it went in.

use crate::wire::{HEADER_OCTETS, Header};

/// Parses `data` as a packet, writes its header again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Some((octets, _)) = data.split_first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    if let Ok(header) = Header::parse(octets) {
        assert_eq!(header.emit(), *octets, "the header changed");
    }
}
