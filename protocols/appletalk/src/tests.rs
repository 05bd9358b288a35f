//! Parts that the tests of several modules use.

use std::vec::Vec;

/// Octets from digits; white space between them means nothing.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|octet| !octet.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| core::str::from_utf8(pair).expect("ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal digits")).collect()
}
