//! SELECT: the codec.

use xk_select::wire::{HEADER_OCTETS, Header};

/// Parses `data` as a header, writes it again and compares, but for the octet that means nothing.
pub(crate) fn wire(data: &[u8]) {
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
