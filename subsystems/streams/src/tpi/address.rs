//! Addresses in primitives: sixteen octets each.

/// Octets of an address.
pub const ADDRESS_OCTETS: usize = 16;
/// The family of the Internet.
const AF_INET: u8 = 2;
/// The family of links, `AF_LINK`.
const AF_LINK: u8 = 18;

/// An address of the Internet: the family in host order, the least octet first.
pub fn inet(host: [u8; 4], port: u16) -> [u8; ADDRESS_OCTETS] {
    let ([a, b, c, d], [high, low]) = (host, port.to_be_bytes());
    [AF_INET, 0, high, low, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Host and port of an address of the Internet.
pub fn inet_parts(address: &[u8]) -> Option<([u8; 4], u16)> {
    let [AF_INET, 0, high, low, a, b, c, d, ..] = *address.first_chunk::<ADDRESS_OCTETS>()? else {
        return None;
    };
    Some(([a, b, c, d], u16::from_be_bytes([high, low])))
}

/// An address of a link: length 16, family 18, the station (6), the number that selects the
/// protocol above (4, in network order), zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The station's hardware.
    pub station: [u8; 6],
    /// The number of the protocol above, as of the x-kernel's `eth`; 0 leaves it open.
    pub number: u32,
}

impl Link {
    /// Octets of the address.
    pub fn octets(self) -> [u8; ADDRESS_OCTETS] {
        let mut octets = [0; ADDRESS_OCTETS];
        (octets[0], octets[1]) = (ADDRESS_OCTETS as u8, AF_LINK);
        octets[2..8].copy_from_slice(&self.station);
        octets[8..12].copy_from_slice(&self.number.to_be_bytes());
        octets
    }

    /// Reads one.
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let octets = octets.first_chunk::<ADDRESS_OCTETS>()?;
        let [_, AF_LINK, a, b, c, d, e, f, g, h, i, j, ..] = *octets else { return None };
        Some(Self { station: [a, b, c, d, e, f], number: u32::from_be_bytes([g, h, i, j]) })
    }
}

/// The address of this end that options begin with, if they do, and the options behind it: the
/// options of a protocol itself are shorter than an address.
pub fn own_end(opt: &[u8]) -> (Option<&[u8; ADDRESS_OCTETS]>, &[u8]) {
    match opt.split_first_chunk() {
        Some((own, rest)) => (Some(own), rest),
        None => (None, opt),
    }
}

/// Options behind the address of this end; `None` for more than there may be.
pub fn with_own_end<'a>(
    room: &'a mut [u8; 32],
    own: &[u8; ADDRESS_OCTETS],
    opt: &[u8],
) -> Option<&'a [u8]> {
    let end = ADDRESS_OCTETS + opt.len();
    room.get_mut(ADDRESS_OCTETS..end)?.copy_from_slice(opt);
    room[..ADDRESS_OCTETS].copy_from_slice(own);
    room.get(..end)
}
