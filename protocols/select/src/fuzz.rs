//! Fuzz target of the codec: what parses must come out again as it went in, but for the octet that
//! means nothing.

use crate::wire::{HEADER_OCTETS, Header};

/// Parses `data` as a header, writes it again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Some(octets) = data.first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    let Ok(header) = Header::parse(octets) else {
        return;
    };
    let emitted = header.emit();
    assert_eq!(emitted[..5], octets[..5], "the header changed");
    assert_eq!(Header::parse(&emitted), Ok(header), "it reads differently");
}
