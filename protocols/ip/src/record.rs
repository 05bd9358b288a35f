//! Writing into a passing packet's record route and time stamp options (RFC 791, section 3.1; RFC
//! 1812, sections 5.2.4.1 to 5.3.13).

use crate::wire::{HEADER_LEN, Ipv4};

const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;

/// Writes our host and time where a header's options ask for them. The options are well formed;
/// answers whether anything was written, so that the checksum is to be renewed.
pub(crate) fn record(header: &mut [u8], own: Ipv4, now_ms: u32) -> bool {
    let mut rest = header.get_mut(HEADER_LEN..).unwrap_or_default();
    let mut written = false;
    loop {
        let len = match rest {
            [] | [0, ..] => return written,
            [1, ..] => 1,
            [_, len, ..] => usize::from(*len),
            [_] => return written,
        };
        let Some((option, after)) = rest.split_at_mut_checked(len.max(1)) else {
            return written;
        };
        written |= match option {
            [RECORD_ROUTE, _, _, ..] => put(option, &own.octets()),
            [TIMESTAMP, _, _, flag, ..] => match *flag & 0xf {
                0 => stamp(option, &now_ms.to_be_bytes()),
                1 => stamp(option, &both(own, now_ms)),
                _ if is_named(option, own) => stamp(option, &both(own, now_ms)),
                _ => false,
            },
            _ => false,
        };
        rest = after;
    }
}

fn both(own: Ipv4, now_ms: u32) -> [u8; 8] {
    let ([a, b, c, d], [e, f, g, h]) = (own.octets(), now_ms.to_be_bytes());
    [a, b, c, d, e, f, g, h]
}

/// Writes at the pointer, which counts from 1, and moves it; false if there is no room.
fn put(option: &mut [u8], octets: &[u8]) -> bool {
    let at = usize::from(option[2]);
    let slot = at.checked_sub(1).and_then(|from| option.get_mut(from..from + octets.len()));
    let (Some(slot), Ok(next)) = (slot, u8::try_from(at + octets.len())) else {
        return false;
    };
    slot.copy_from_slice(octets);
    option[2] = next;
    true
}

/// Writes a stamp, or counts that there was no room.
fn stamp(option: &mut [u8], octets: &[u8]) -> bool {
    if put(option, octets) {
        return true;
    }
    match option.get_mut(3) {
        Some(flag) if *flag >> 4 < 15 => {
            *flag += 0x10;
            true
        }
        _ => false,
    }
}

/// Whether the next stamp is asked of this host.
fn is_named(option: &[u8], own: Ipv4) -> bool {
    let from = usize::from(option[2]).wrapping_sub(1);
    option.get(from..from.wrapping_add(4)) == Some(&own.octets())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Ipv4 = Ipv4::new(10, 0, 0, 1);

    fn header(options: &[u8]) -> std::vec::Vec<u8> {
        let mut header = std::vec![0; HEADER_LEN];
        header.extend_from_slice(options);
        header
    }

    #[test]
    fn route_is_recorded_until_full() {
        let mut octets = header(&[1, 7, 11, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(record(&mut octets, OWN, 0));
        assert_eq!(octets[20..], [1, 7, 11, 8, 10, 0, 0, 1, 0, 0, 0, 0]);
        assert!(record(&mut octets, OWN, 0));
        assert_eq!(octets[20..], [1, 7, 11, 12, 10, 0, 0, 1, 10, 0, 0, 1]);
        assert!(!record(&mut octets, OWN, 0));
    }

    #[test]
    fn time_is_stamped_and_overflow_counted() {
        let mut octets = header(&[68, 8, 5, 0, 0, 0, 0, 0]);
        assert!(record(&mut octets, OWN, 0x0102_0304));
        assert_eq!(octets[20..], [68, 8, 9, 0, 1, 2, 3, 4]);
        assert!(record(&mut octets, OWN, 0));
        assert_eq!(octets[20..], [68, 8, 9, 0x10, 1, 2, 3, 4]);
        octets[23] = 0xf0;
        assert!(!record(&mut octets, OWN, 0));
    }

    #[test]
    fn only_who_is_named_stamps() {
        let mut octets = header(&[68, 12, 5, 3, 10, 0, 0, 2, 0, 0, 0, 0]);
        assert!(!record(&mut octets, OWN, 7));
        assert!(record(&mut octets, Ipv4::new(10, 0, 0, 2), 7));
        assert_eq!(octets[20..], [68, 12, 13, 3, 10, 0, 0, 2, 0, 0, 0, 7]);
        let mut octets = header(&[68, 12, 5, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(record(&mut octets, OWN, 7));
        assert_eq!(octets[20..], [68, 12, 13, 1, 10, 0, 0, 1, 0, 0, 0, 7]);
    }

    #[test]
    fn an_option_that_ends_before_its_pointer_is_left_alone() {
        for len in 0..4 {
            let mut header = [0; HEADER_LEN + 4];
            header[HEADER_LEN..].copy_from_slice(&[RECORD_ROUTE, len, 4, 0]);
            assert!(!record(&mut header, OWN, 1), "{len}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_octets_end(mut octets in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            record(&mut octets, OWN, 1);
        }
    }
}
