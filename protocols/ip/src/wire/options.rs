//! The options of an IPv4 header (RFC 791, section 3.1; RFC 2113; RFC 1122, section 3.2.1.8): read,
//! put together, and written into as a packet passes (RFC 1812, sections 5.2.4.1 to 5.3.13).

use core::fmt;

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

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip4Option<'a> {
    /// Nothing: fills up to a boundary.
    Nop,
    /// Every router writes its address.
    RecordRoute(Route<'a>),
    /// The addresses to pass, among others.
    LooseSourceRoute(Route<'a>),
    /// The addresses to pass, and no others.
    StrictSourceRoute(Route<'a>),
    /// Every router writes its time.
    Timestamp(Stamps<'a>),
    /// Routers shall look at the datagram; zero: every one (RFC 2113).
    RouterAlert(u16),
    /// Another option: to be ignored (RFC 1122, section 3.2.1.8).
    Other {
        /// Type octet.
        kind: u8,
        /// What follows the length octet.
        data: &'a [u8],
    },
}

/// Addresses of a record route or source route option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route<'a> {
    pointer: u8,
    slots: &'a [[u8; 4]],
}

impl<'a> Route<'a> {
    /// All addresses, written or not yet.
    pub fn slots(self) -> impl ExactSizeIterator<Item = Ipv4> + 'a {
        self.slots.iter().map(|octets| Ipv4::from(*octets))
    }

    /// Addresses before the pointer: recorded or passed.
    #[must_use]
    pub const fn done(self) -> usize {
        (self.pointer as usize - 4) / 4
    }

    /// The address at the pointer: where a source route leads next; `None`
    /// when the route is used up or the record full.
    #[must_use]
    pub fn next(self) -> Option<Ipv4> {
        self.slots.get(self.done()).map(|octets| Ipv4::from(*octets))
    }
}

/// The timestamp option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps<'a> {
    pointer: u8,
    overflow_and_flag: u8,
    slots: &'a [[u8; 4]],
}

impl<'a> Stamps<'a> {
    /// Routers that found no room, 0 to 15.
    #[must_use]
    pub const fn overflow(self) -> u8 {
        self.overflow_and_flag >> 4
    }

    /// Whether each time, in milliseconds since midnight UT, is preceded by
    /// the address of the router that stamps it.
    #[must_use]
    pub const fn has_addresses(self) -> bool {
        self.overflow_and_flag & 0xf != 0
    }

    /// Whether the sender named beforehand which routers shall stamp.
    #[must_use]
    pub const fn is_prespecified(self) -> bool {
        self.overflow_and_flag & 0xf == 3
    }

    /// Octets up to the next free slot, counted in the words of the slots.
    #[must_use]
    pub const fn done(self) -> usize {
        (self.pointer as usize - 5) / 4
    }

    /// All words: times, or addresses and times in turn.
    pub fn words(self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.slots.iter().map(|octets| u32::from_be_bytes(*octets))
    }
}

/// The options of a header, known to be well formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options<'a>(&'a [u8]);

impl<'a> Options<'a> {
    /// No options.
    pub const NONE: Self = Self(&[]);

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
            match split(rest) {
                Ok(None) => return Ok(Self(octets)),
                Ok(Some((option, after))) => {
                    // RFC 791: these appear at most once, and there is one source route.
                    let bit = option.once();
                    if seen & bit != 0 {
                        return Err(Error::Option(at as u8));
                    }
                    seen |= bit;
                    rest = after;
                }
                Err(within) => return Err(Error::Option((at + within) as u8)),
            }
        }
    }

    /// The octets, padding included: 0 to 40, a multiple of 4.
    #[must_use]
    pub const fn octets(self) -> &'a [u8] {
        self.0
    }

    /// The options that fragments after the first must carry too.
    #[must_use]
    pub fn copied(self) -> OptionsBuf {
        let mut buf = OptionsBuf::new();
        for option in self.into_iter().filter(Ip4Option::is_copied) {
            // What fitted with more beside it fits alone.
            let _ = buf.push(option);
        }
        buf
    }
}

impl<'a> IntoIterator for Options<'a> {
    type Item = Ip4Option<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        Iter(self.0)
    }
}

/// Iterator over options, end-of-list and what follows it left out.
#[derive(Clone, Debug)]
pub struct Iter<'a>(&'a [u8]);

impl<'a> Iterator for Iter<'a> {
    type Item = Ip4Option<'a>;

    fn next(&mut self) -> Option<Ip4Option<'a>> {
        let (option, rest) = split(self.0).ok()??;
        self.0 = rest;
        Some(option)
    }
}

/// The first option and what follows; `None` at the end. An error is the
/// offset of the octet at fault.
fn split(octets: &[u8]) -> Result<Option<(Ip4Option<'_>, &[u8])>, usize> {
    let (kind, len) = match octets {
        [] | [END, ..] => return Ok(None),
        [NOP, rest @ ..] => return Ok(Some((Ip4Option::Nop, rest))),
        [_] => return Err(0),
        [kind, len, ..] => (*kind, usize::from(*len)),
    };
    let Some((option, rest)) = octets.split_at_checked(len) else {
        return Err(1);
    };
    let data = option.get(2..).ok_or(1usize)?;
    let option = match kind {
        RECORD_ROUTE => Ip4Option::RecordRoute(route(data)?),
        LOOSE_SOURCE_ROUTE => Ip4Option::LooseSourceRoute(route(data)?),
        STRICT_SOURCE_ROUTE => Ip4Option::StrictSourceRoute(route(data)?),
        TIMESTAMP => Ip4Option::Timestamp(stamps(data)?),
        ROUTER_ALERT => {
            Ip4Option::RouterAlert(u16::from_be_bytes(data.try_into().map_err(|_| 1usize)?))
        }
        kind => Ip4Option::Other { kind, data },
    };
    Ok(Some((option, rest)))
}

fn route(data: &[u8]) -> Result<Route<'_>, usize> {
    let (&pointer, slots) = data.split_first().ok_or(1usize)?;
    let (slots, rest) = slots.as_chunks::<4>();
    if !rest.is_empty() {
        return Err(1);
    }
    if pointer < 4 || !pointer.is_multiple_of(4) {
        return Err(2);
    }
    Ok(Route { pointer, slots })
}

fn stamps(data: &[u8]) -> Result<Stamps<'_>, usize> {
    let (&[pointer, overflow_and_flag], slots) = data.split_first_chunk().ok_or(1usize)?;
    let words = match overflow_and_flag & 0xf {
        0 => 1,
        1 | 3 => 2,
        _ => return Err(3),
    };
    let (slots, rest) = slots.as_chunks::<4>();
    if !rest.is_empty() || !slots.len().is_multiple_of(words) {
        return Err(1);
    }
    match pointer.checked_sub(5) {
        Some(offset) if usize::from(offset).is_multiple_of(4 * words) => {}
        _ => return Err(2),
    }
    Ok(Stamps { pointer, overflow_and_flag, slots })
}

impl Ip4Option<'_> {
    /// The type octet.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Nop => NOP,
            Self::RecordRoute(_) => RECORD_ROUTE,
            Self::LooseSourceRoute(_) => LOOSE_SOURCE_ROUTE,
            Self::StrictSourceRoute(_) => STRICT_SOURCE_ROUTE,
            Self::Timestamp(_) => TIMESTAMP,
            Self::RouterAlert(_) => ROUTER_ALERT,
            Self::Other { kind, .. } => *kind,
        }
    }

    /// Whether every fragment carries the option.
    #[must_use]
    pub const fn is_copied(&self) -> bool {
        self.kind() & COPIED != 0
    }

    /// A bit for each option that may appear only once.
    const fn once(&self) -> u8 {
        match self {
            Self::RecordRoute(_) => 1,
            Self::LooseSourceRoute(_) | Self::StrictSourceRoute(_) => 2,
            Self::Timestamp(_) => 4,
            _ => 0,
        }
    }
}

/// Options being put together.
#[derive(Clone, Copy, Debug)]
pub struct OptionsBuf {
    octets: [u8; OPTIONS_LEN_MAX],
    len: usize,
}

/// No room among 40 octets, or the option stands there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionsFull;

impl Default for OptionsBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl OptionsBuf {
    /// No options yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { octets: [END; OPTIONS_LEN_MAX], len: 0 }
    }

    /// The options so far, padded to a multiple of 4 octets.
    #[must_use]
    pub fn options(&self) -> Options<'_> {
        Options(&self.octets[..self.len.next_multiple_of(4)])
    }

    /// Appends an option.
    pub fn push(&mut self, option: Ip4Option<'_>) -> Result<(), OptionsFull> {
        let start = self.len;
        let pushed = self.push_octets(option);
        // A made-up `Other` may be malformed or stand there twice.
        if pushed.is_err() || Options::parse(self.options().octets()).is_err() {
            self.octets[start..].fill(END);
            self.len = start;
            return Err(OptionsFull);
        }
        Ok(())
    }

    /// Appends a record route with room for `slots` addresses, at most 9.
    pub fn push_record_route(&mut self, slots: usize) -> Result<(), OptionsFull> {
        let empty = [[0; 4]; 9];
        let slots = empty.get(..slots).ok_or(OptionsFull)?;
        self.push(Ip4Option::RecordRoute(Route { pointer: 4, slots }))
    }

    /// Appends a source route over `hops`, at most 9; the last is the receiver, the first goes into
    /// the header's own destination and is not among them.
    pub fn push_source_route(&mut self, strict: bool, hops: &[Ipv4]) -> Result<(), OptionsFull> {
        let mut slots = [[0; 4]; 9];
        let slots = slots.get_mut(..hops.len()).ok_or(OptionsFull)?;
        for (slot, hop) in slots.iter_mut().zip(hops) {
            *slot = hop.octets();
        }
        let route = Route { pointer: 4, slots };
        self.push(match strict {
            true => Ip4Option::StrictSourceRoute(route),
            false => Ip4Option::LooseSourceRoute(route),
        })
    }

    fn push_octets(&mut self, option: Ip4Option<'_>) -> Result<(), OptionsFull> {
        match option {
            Ip4Option::Nop => self.append(&[NOP]),
            Ip4Option::RecordRoute(route)
            | Ip4Option::LooseSourceRoute(route)
            | Ip4Option::StrictSourceRoute(route) => {
                self.append(&[option.kind(), 3 + 4 * route.slots.len() as u8, route.pointer])?;
                self.append(route.slots.as_flattened())
            }
            Ip4Option::Timestamp(stamps) => {
                let len = 4 + 4 * stamps.slots.len() as u8;
                self.append(&[TIMESTAMP, len, stamps.pointer, stamps.overflow_and_flag])?;
                self.append(stamps.slots.as_flattened())
            }
            Ip4Option::RouterAlert(value) => {
                let [a, b] = value.to_be_bytes();
                self.append(&[ROUTER_ALERT, 4, a, b])
            }
            Ip4Option::Other { kind, data } => {
                let len = u8::try_from(data.len() + 2).map_err(|_| OptionsFull)?;
                self.append(&[kind, len])?;
                self.append(data)
            }
        }
    }

    fn append(&mut self, octets: &[u8]) -> Result<(), OptionsFull> {
        let end = self.len + octets.len();
        self.octets.get_mut(self.len..end).ok_or(OptionsFull)?.copy_from_slice(octets);
        self.len = end;
        Ok(())
    }
}

impl fmt::Display for OptionsFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no room for the option, or it stands there already")
    }
}

impl core::error::Error for OptionsFull {}

/// Writes our host and time where a header's options ask for them. The options are well formed;
/// answers whether anything was written, so that the checksum is to be renewed.
pub fn record(header: &mut [u8], own: Ipv4, now_ms: u32) -> bool {
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
