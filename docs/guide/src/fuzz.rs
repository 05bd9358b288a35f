//! Fuzz target of the codec: what parses must come out again as it went in.

use crate::wire::{HEADER_OCTETS, Header};

/// Parses `data` as a message, writes its header again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Some((octets, rest)) = data.split_first_chunk::<HEADER_OCTETS>() else {
        return;
    };
    let Ok(header) = Header::parse(octets, rest.len()) else {
        return;
    };
    assert_eq!(header.emit(), *octets, "the header changed");
    assert!(
        usize::from(header.length) <= rest.len(),
        "a length that the message does not have"
    );
}
