//! The null protocol: the codec.

/// Parses `data` as a header, writes it again and compares.
pub(crate) fn wire(data: &[u8]) {
    let Some(octets) = data.first_chunk() else {
        return;
    };
    let header = xk_null::wire::Header::parse(octets);
    assert_eq!(header.emit(), *octets, "the header changed");
}
