//! The options of an IPv4 header (RFC 791, section 3.1; RFC 2113; RFC 1122, section 3.2.1.8): read,
//! and written into as a packet passes (RFC 1812, sections 5.2.4.1 to 5.3.13).

use super::{Error, HEADER_LEN, Ipv4, OPTIONS_LEN_MAX};

const END: u8 = 0;
const NOP: u8 = 1;
const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
const LOOSE_SOURCE_ROUTE: u8 = 131;
const ROUTER_ALERT: u8 = 148;
const STRICT_SOURCE_ROUTE: u8 = 137;
/// The bit that asks for the option in every fragment.
const COPIED: u8 = 0x80;

/// The options of a header, known to be well formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    /// No options.
    pub const NONE: Self = Self(&[]);
    /// Router Alert alone (RFC 2113, section 2.1).
    pub const ALERT: Options<'static> = Options(&[ROUTER_ALERT, 4, 0, 0]);

    /// Reads options, padding included. An error holds the octet at fault.
    pub fn parse(octets: &'a [u8]) -> Result<Self, Error> {
        let too_long = octets.len() > OPTIONS_LEN_MAX || !octets.len().is_multiple_of(4);
        if too_long {
            return Err(Error::Truncated);
        }
        let mut rest = octets;
        let mut seen = 0u8;
        loop {
            let at = HEADER_LEN + octets.len() - rest.len();
            let fault = |within: usize| Error::Option((at + within) as u8);
            let (option, after) = rest.split_at(first_len(rest).map_err(fault)?);
            let Some(kind) = option.first() else {
                return Ok(Self(octets));
            };
            check(option).map_err(fault)?;
            // RFC 791: these appear at most once, and there is one source route.
            let bit = match *kind {
                RECORD_ROUTE => 1,
                LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => 2,
                TIMESTAMP => 4,
                _ => 0,
            };
            if seen & bit != 0 {
                return Err(fault(0));
            }
            seen |= bit;
            rest = after;
        }
    }

    /// The octets, padding included: 0 to 40, a multiple of 4.
    pub const fn octets(self) -> &'a [u8] {
        self.0
    }

    /// The octets of each option, its type first; end-of-list and what follows it are left out.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let (option, after) = rest.split_at(first_len(rest).ok()?);
            rest = after;
            Some(option).filter(|option| !option.is_empty())
        })
    }

    /// Whether the sender names hosts to pass.
    pub fn has_source_route(self) -> bool {
        self.iter().any(|option| matches!(option[0], LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE))
    }

    /// Whether routers are to look at the packet.
    pub fn alerts(self) -> bool {
        self.iter().any(|option| option[0] == ROUTER_ALERT)
    }

    /// The options that fragments after the first must carry too, put together in `room`.
    #[must_use]
    pub fn copied(self, room: &mut [u8; OPTIONS_LEN_MAX]) -> Options<'_> {
        let mut len = 0;
        for option in self.iter().filter(|option| option[0] & COPIED != 0) {
            room[len..len + option.len()].copy_from_slice(option);
            len += option.len();
        }
        let end = len.next_multiple_of(4);
        room[len..end].fill(END);
        Options(&room[..end])
    }
}

/// Octets of the first option; 0 at the end. An error is the offset of the octet at fault.
fn first_len(octets: &[u8]) -> Result<usize, usize> {
    match octets {
        [] | [END, ..] => Ok(0),
        [NOP, ..] => Ok(1),
        [_] => Err(0),
        [_, len, ..] if *len < 2 || usize::from(*len) > octets.len() => Err(1),
        [_, len, ..] => Ok(usize::from(*len)),
    }
}

/// Looks whether an option of a known type is well formed. An error is the offset of the octet at
/// fault.
fn check(option: &[u8]) -> Result<(), usize> {
    // Where the first slot is, counted from 1, and octets of a slot.
    let (begin, slot) = match option {
        [ROUTER_ALERT, len, ..] if *len != 4 => return Err(1),
        [RECORD_ROUTE | LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, _, _, ..] => (4, 4),
        [TIMESTAMP, _, _, flag, ..] => match *flag & 0xf {
            0 => (5, 4),
            1 | 3 => (5, 8),
            _ => return Err(3),
        },
        [RECORD_ROUTE | LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE | TIMESTAMP, ..] => return Err(1),
        _ => return Ok(()),
    };
    if !(option.len() + 1 - begin).is_multiple_of(slot) {
        return Err(1);
    }
    let offset = usize::from(option[2]).checked_sub(begin);
    if offset.is_some_and(|offset| offset.is_multiple_of(slot)) { Ok(()) } else { Err(2) }
}

/// Writes our host and time where a header's options ask for them. The options are well formed;
/// answers whether anything was written, so that the checksum is to be renewed.
pub fn record(header: &mut [u8], own: Ipv4, now_ms: u32) -> bool {
    let mut rest = header.get_mut(HEADER_LEN..).unwrap_or_default();
    let mut written = false;
    while let Ok(len @ 1..) = first_len(rest) {
        let (option, after) = rest.split_at_mut(len);
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
    written
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
