//! Where the checksum is that a sender left to a wire which is memory: the ring tells that there is
//! one, and not where.

/// Offsets in an Ethernet header (IEEE 802.3) and an IPv4 header (RFC 791 section 3.1).
const TYPE_AT: usize = 12;
const TOTAL_LENGTH_AT: usize = 2;
const FRAGMENT_AT: usize = 6;
const PROTOCOL_AT: usize = 9;

const VLAN: u16 = 0x8100;
const IPV4: u16 = 0x0800;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Where the sum goes that the sender of a frame left open: the first octet to be summed, and the
/// field's place from there on. `None` if the frame is no whole IPv4 packet of TCP or UDP.
pub(crate) fn find(frame: &[u8]) -> Option<(usize, usize)> {
    let mut packet_at = TYPE_AT + 2;
    let mut kind = word(frame, TYPE_AT)?;
    if kind == VLAN {
        kind = word(frame, TYPE_AT + 4)?;
        packet_at += 4;
    }
    if kind != IPV4 {
        return None;
    }
    let packet = frame.get(packet_at..)?;
    let header_octets = usize::from(packet.first()? & 0xf) * 4;
    let total = usize::from(word(packet, TOTAL_LENGTH_AT)?);
    // Neither offset nor "more fragments": a sender leaves nothing open in fragments.
    if word(packet, FRAGMENT_AT)? & 0x3fff != 0 {
        return None;
    }
    let field_at = match *packet.get(PROTOCOL_AT)? {
        TCP => 16,
        UDP => 6,
        _ => return None,
    };
    let segment = packet.get(header_octets..total)?;
    segment.get(field_at..field_at + 2)?;
    Some((packet_at + header_octets, field_at))
}

fn word(octets: &[u8], at: usize) -> Option<u16> {
    let octets = octets.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*octets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use xk_core::Pool;
    use xk_core::message::PoolConfig;
    use xk_kit::Checksum;
    use xk_kit::wire::offload;

    /// A UDP packet of 10.0.0.1 to 10.0.0.2 in a frame, with the sum over the pseudo-header in the
    /// checksum's place.
    fn frame(tagged: bool) -> (Vec<u8>, usize) {
        let mut frame = vec![2; 12];
        if tagged {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend([8, 0]);
        let payload = b"hello";
        let total = 28 + payload.len() as u16;
        frame.extend([0x45, 0]);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let udp_at = frame.len();
        let length = 8 + payload.len() as u16;
        frame.extend([0x30, 0x39, 0, 7]);
        frame.extend(length.to_be_bytes());
        let partial = Checksum::pseudo_header([10, 0, 0, 1], [10, 0, 0, 2], UDP, length.into());
        frame.extend((!partial.finish()).to_be_bytes());
        frame.extend(payload);
        frame.resize(frame.len().max(60), 0);
        (frame, udp_at)
    }

    #[test]
    fn the_place_is_found_and_the_checksum_becomes_right() {
        let pool = Pool::new(&PoolConfig::default()).unwrap();
        for tagged in [false, true] {
            let (octets, udp_at) = frame(tagged);
            assert_eq!(find(&octets), Some((udp_at, 6)));
            let mut message = pool.copy_from(0, &octets).unwrap();
            // It is padded: completed at once.
            offload::note_partial(&pool, &mut message, (udp_at, 6)).unwrap();
            let mut octets = vec![0; octets.len()];
            message.copy_to(0, &mut octets);
            let mut sum = Checksum::pseudo_header([10, 0, 0, 1], [10, 0, 0, 2], UDP, 13);
            sum.add(&octets[udp_at..udp_at + 13]);
            assert!(sum.is_valid());
        }
    }

    #[test]
    fn nothing_else_is_found() {
        let (good, _) = frame(false);
        for at in [12, 20, 23] {
            let mut other = good.clone();
            other[at] ^= 0x1f;
            assert_eq!(find(&other), None);
        }
        for octets in 0..42 {
            assert_eq!(find(&good[..octets]), None);
        }
    }
}
