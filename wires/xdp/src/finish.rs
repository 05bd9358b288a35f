//! What an interface's checksum offload would have done, for frames whose sender left it to a wire
//! that is memory.
//!
//! Such a sender puts the sum over the pseudo-header into the field, for the interface to go on
//! from. The socket is not told, so the sum itself is looked for. A frame whose right checksum
//! happens to be the same number comes out unchanged.

use xk_kit::net::addr::Ipv4;
use xk_kit::net::checksum::{Checksum, checksum};

/// Offsets in an Ethernet header (IEEE 802.3) and an IPv4 header (RFC 791, section 3.1).
const TYPE_AT: usize = 12;
const PACKET_AT: usize = 14;
const TOTAL_LENGTH_AT: usize = 2;
const FRAGMENT_AT: usize = 6;
const PROTOCOL_AT: usize = 9;
const SOURCE_AT: usize = 12;
const DESTINATION_AT: usize = 16;

const IPV4: u16 = 0x0800;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Computes the transport checksum of a frame whose sender has begun it and left the rest to the
/// wire; any other frame is left alone. True if it did.
pub(crate) fn finish(frame: &mut [u8]) -> bool {
    finish_in(frame).is_some()
}

fn finish_in(frame: &mut [u8]) -> Option<()> {
    if word(frame, TYPE_AT)? != IPV4 {
        return None;
    }
    let packet = frame.get_mut(PACKET_AT..)?;
    let header_octets = usize::from(packet.first()? & 0xf) * 4;
    let total = usize::from(word(packet, TOTAL_LENGTH_AT)?);
    // Neither offset nor "more fragments": a sender leaves nothing open in fragments.
    if word(packet, FRAGMENT_AT)? & 0x3fff != 0 {
        return None;
    }
    let protocol = *packet.get(PROTOCOL_AT)?;
    let field_at = match protocol {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let (source, destination) = (host(packet, SOURCE_AT)?, host(packet, DESTINATION_AT)?);
    let segment = packet.get_mut(header_octets..total)?;
    let octets = u16::try_from(segment.len()).ok()?;
    let begun = !Checksum::pseudo_header(source, destination, protocol, octets.into()).finish();
    if word(segment, field_at)? != begun {
        return None;
    }
    let sum = match checksum(segment) {
        // RFC 768: zero says that there is no checksum. For TCP both mean the same sum.
        0 => 0xffff,
        sum => sum,
    };
    let field = segment.get_mut(field_at..field_at + 2)?;
    field.copy_from_slice(&sum.to_be_bytes());
    Some(())
}

fn word(octets: &[u8], at: usize) -> Option<u16> {
    let octets = octets.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*octets))
}

fn host(octets: &[u8], at: usize) -> Option<Ipv4> {
    octets.get(at..)?.first_chunk().copied().map(Ipv4::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of 10.0.0.1 to 10.0.0.2 in a frame, with this checksum.
    fn frame(protocol: u8, sum: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 45, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        let mut segment: Vec<u8> = (0..25).collect();
        let at = if protocol == TCP { 16 } else { 6 };
        segment[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        frame.extend(segment);
        // Padding is no part of it.
        frame.extend([0xee; 7]);
        frame
    }

    fn pseudo(protocol: u8) -> Checksum {
        let (from, to) = (Ipv4::from([10, 0, 0, 1]), Ipv4::from([10, 0, 0, 2]));
        Checksum::pseudo_header(from, to, protocol, 25)
    }

    #[test]
    fn what_is_begun_is_finished() {
        for protocol in [TCP, UDP] {
            let mut open = frame(protocol, !pseudo(protocol).finish());
            assert!(finish(&mut open));
            let mut sum = pseudo(protocol);
            sum.add(&open[34..59]);
            assert!(sum.is_valid());
            assert!(open.ends_with(&[0xee; 7]));
            let done = open.clone();
            assert!(!finish(&mut open) && open == done);
        }
    }

    #[test]
    fn the_rest_is_left_alone() {
        let begun = !pseudo(UDP).finish();
        let mut others = vec![frame(UDP, begun ^ 1), frame(UDP, 0), frame(1, begun)];
        for (at, octet) in [(12, 0x86), (20, 0x20), (21, 1), (14, 0x4f)] {
            let mut other = frame(UDP, begun);
            other[at] = octet;
            others.push(other);
        }
        for mut other in others {
            let before = other.clone();
            assert!(!finish(&mut other) && other == before);
        }
        let whole = frame(UDP, begun);
        for octets in 0..59 {
            let mut cut = whole[..octets].to_vec();
            assert!(!finish(&mut cut) && cut == whole[..octets]);
        }
    }
}
