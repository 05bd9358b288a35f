//! The header between UDP and the frame (RFC 7348, section 5).

/// Octets of the header.
pub const HEADER_LEN: usize = 8;
/// The largest number of a network.
pub const VNI_MAX: u32 = 0xff_ffff;
/// Says that the number of the network is valid.
const VALID: u8 = 0x08;

/// The header for frames of the network `vni`.
#[must_use]
pub fn emit(vni: u32) -> [u8; HEADER_LEN] {
    let [_, a, b, c] = vni.to_be_bytes();
    [VALID, 0, 0, 0, a, b, c, 0]
}

/// The network that a frame behind this header belongs to; `None` if the header names none.
/// Reserved bits are ignored, as the standard has it.
#[must_use]
pub fn parse(octets: &[u8; HEADER_LEN]) -> Option<u32> {
    let [flags, _, _, _, a, b, c, _] = *octets;
    (flags & VALID != 0).then(|| u32::from_be_bytes([0, a, b, c]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_comes_back() {
        for vni in [0, 7, 0x12_3456, VNI_MAX] {
            assert_eq!(parse(&emit(vni)), Some(vni));
        }
        assert_eq!(emit(0x01_0203), [8, 0, 0, 0, 1, 2, 3, 0]);
        assert_eq!(parse(&[0xf7, 0, 0, 0, 1, 2, 3, 0]), None);
        assert_eq!(parse(&[0xff, 1, 2, 3, 0, 0, 7, 9]), Some(7));
    }
}
