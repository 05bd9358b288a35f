//! Fuzz target of the codec: what parses must come out again as it went in.

use crate::wire::{Frame, HEADER_LEN, Kind, Payload, SNAP_LEN};

/// Parses `data` as a frame, writes it again and compares.
///
/// # Panics
/// If the codec does not keep what it reads.
pub fn fuzz_wire(data: &[u8]) {
    let Ok(frame) = Frame::parse(data) else {
        return;
    };
    let mut header = [0; HEADER_LEN];
    frame.header.emit(&mut header);
    assert_eq!(header, data[..HEADER_LEN], "the header changed");
    let rest = &data[HEADER_LEN..];
    let trimmed = match frame.header.kind {
        Kind::Type(_) => rest,
        Kind::Length(length) => &rest[..usize::from(length.get())],
    };
    match frame.payload {
        Payload::Ethernet(_, payload) => assert_eq!(payload, trimmed),
        Payload::Llc(llc, payload) => {
            let mut octets = [0; 4];
            let head = llc.emit(&mut octets);
            assert_eq!(trimmed.strip_prefix(head), Some(payload), "LLC changed");
        }
        Payload::Snap(snap, payload) => {
            let mut octets = [0; SNAP_LEN];
            snap.emit(&mut octets);
            assert_eq!(trimmed.strip_prefix(&octets), Some(payload), "SNAP changed");
        }
    }
}
