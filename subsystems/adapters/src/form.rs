//! Addresses, in the form of each subsystem: what of a protocol an adapter has to know is data.
//!
//! In BSD and STREAMS an address is sixteen octets, a `sockaddr`; in the x-kernel it is a stack of
//! participants. A [`Form`] says which octets are which participant, for the protocols of one
//! kind: that of the lower end of an edge.

use crate::edge::Fault;
use core::cell::Cell;
use core::cmp::Ordering;
use core::net::Ipv4Addr;
use xk_bsd::Sock;
use xk_bsd::ether::SNAP_HDR;
use xk_bsd::mbuf::Release;
use xk_bsd::sockaddr::{AF_APPLETALK, AF_INET, Sockaddr};
use xk_core::participant::{AddressError, Label, PORT, Wild};
use xk_core::{HostAddr, Part, Participant};
use xk_kit::EthAddr;

/// Octets of an address behind length and family.
const DATA: usize = 14;

/// An address, whatever subsystem it came from: a zero, the family, and the octets behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Addr([u8; 16]);

impl Ord for Addr {
    /// Compares the octets as one number: maps of addresses do so for each message.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        u128::from_be_bytes(self.0).cmp(&u128::from_be_bytes(other.0))
    }
}

impl PartialOrd for Addr {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Addr {
    /// An address of this family, `AF_INET` or `AF_APPLETALK`, with these octets (`sa_data`); a
    /// field of zeros is one that is not said.
    pub fn new(family: u8, data: [u8; DATA]) -> Self {
        let mut addr = Self::any(family);
        *addr.data_mut() = data;
        addr
    }

    /// An address of this family that says nothing.
    pub const fn any(family: u8) -> Self {
        let mut octets = [0; 16];
        octets[1] = family;
        Self(octets)
    }

    /// The address of a host of the Internet.
    #[inline]
    pub(crate) fn inet(host: Ipv4Addr) -> Self {
        let mut addr = Self::any(AF_INET);
        addr.data_mut()[2..6].copy_from_slice(&host.octets());
        addr
    }

    /// The family.
    pub fn family(&self) -> u8 {
        self.0[1]
    }

    /// The octets behind the family.
    #[inline]
    pub fn data(&self) -> &[u8; DATA] {
        let [_, _, data @ ..] = &self.0;
        data
    }

    /// The octets behind the family, to change.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8; DATA] {
        let [_, _, data @ ..] = &mut self.0;
        data
    }

    /// Family and all as a number, for keys of tables.
    pub(crate) fn number(self) -> u128 {
        u128::from_be_bytes(self.0)
    }

    /// Family and all, for keys of tables.
    pub(crate) fn octets(self) -> [u8; 16] {
        self.0
    }

    /// True if it says nothing.
    #[inline]
    pub fn is_any(&self) -> bool {
        *self.data() == [0; DATA]
    }

    /// As a socket address of this release.
    #[inline]
    pub fn to_sockaddr(self, release: Release) -> Sockaddr {
        let mut octets = self.0;
        if release == Release::Bsd44 {
            octets[0] = 16;
        }
        Sockaddr(octets)
    }

    /// As the address field of a TPI message: a `sockaddr_at` or an address of a link with its
    /// length, or a `sockaddr_in` with the family in host order.
    #[inline]
    pub fn to_tpi(self) -> [u8; 16] {
        let mut octets = self.0;
        match self.family() {
            AF_APPLETALK | AF_LINK => octets[0] = 16,
            family => (octets[0], octets[1]) = (family, 0),
        }
        octets
    }

    /// Reads either form; `None` for fewer octets.
    #[inline]
    pub fn parse(octets: &[u8]) -> Option<Self> {
        let mut octets = *octets.first_chunk::<16>()?;
        let [first, second, ..] = &mut octets;
        if *second == 0 {
            *second = *first;
        }
        *first = 0;
        Some(Self(octets))
    }
}

impl From<Sockaddr> for Addr {
    fn from(sa: Sockaddr) -> Self {
        let mut octets = sa.0;
        octets[0] = 0;
        Self(octets)
    }
}

/// Octets of an address that are one participant.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// A number with this label, big-endian.
    Number { label: Label, at: usize, octets: usize },
    /// An IPv4 host.
    Host { at: usize },
    /// A station of an Ethernet.
    Station { at: usize },
}

impl Place {
    fn take(self, addr: &Addr) -> Part {
        let field = |at, octets| addr.data().get(at..at + octets).unwrap_or_default();
        match self {
            Self::Number { label, at, octets } => {
                let of = |n: u64, octet: &u8| n << 8 | u64::from(*octet);
                match field(at, octets).iter().fold(0, of) {
                    0 => Part::Any,
                    number => Part::Number(label, number),
                }
            }
            Self::Host { at } => match field(at, 4).first_chunk::<4>() {
                Some([0, 0, 0, 0]) | None => Part::Any,
                Some(octets) => Part::Host(HostAddr::v4(Ipv4Addr::from(*octets))),
            },
            Self::Station { at } => match field(at, 6).first_chunk::<6>() {
                Some([0, 0, 0, 0, 0, 0]) | None => Part::Any,
                Some(octets) => Part::Ether(*octets),
            },
        }
    }

    fn put(self, part: &mut Participant, addr: &mut Addr) -> Result<(), AddressError> {
        match self {
            Self::Number { label, at, octets } => {
                let Wild::Is(number) = part.pop_number(label)? else { return Ok(()) };
                let all = number.to_be_bytes();
                let (above, field) = all.split_at(8 - octets);
                if above.iter().any(|octet| *octet != 0) {
                    return Err(AddressError::OutOfRange);
                }
                if let Some(room) = addr.data_mut().get_mut(at..at + octets) {
                    room.copy_from_slice(field);
                }
            }
            Self::Host { at } => {
                let Wild::Is(host) = part.pop_host()? else { return Ok(()) };
                let octets = host.to_v4().ok_or(AddressError::WrongFamily)?.octets();
                if let Some(room) = addr.data_mut().get_mut(at..at + 4) {
                    room.copy_from_slice(&octets);
                }
            }
            Self::Station { at } => {
                let Wild::Is(station) = part.pop_ether()? else { return Ok(()) };
                if let Some(room) = addr.data_mut().get_mut(at..at + 6) {
                    room.copy_from_slice(&station);
                }
            }
        }
        Ok(())
    }
}

/// Service at an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Messages, each with the addresses of its ends.
    Datagrams,
    /// Requests and replies, in BSD and STREAMS datagrams with options.
    Transactions,
    /// A stream of octets, which opens and ends.
    Streams,
    /// Frames of a wire: neither addresses nor numbers.
    Frames,
}

/// An adapter's knowledge of one kind of protocol: that at the lower end of its edge.
#[derive(Debug)]
pub struct Form {
    /// The kind.
    pub kind: &'static str,
    /// The family of its addresses.
    pub family: u8,
    /// Service at the edge.
    pub service: Service,
    /// True if the protocols above are told apart by ports alone: each port is a door of its own.
    /// If not, type numbers tell them apart.
    pub is_by_port: bool,
    /// The sockets of BSD's that reach it, and its number in the protocol switch.
    pub sockets: Option<(Sock, u8)>,
    /// In front of what users send and receive is an octet, the number that selects a protocol.
    pub type_in_front: bool,
    /// The participants, the topmost first.
    places: &'static [Place],
}

const SOCKET: Place = Place::Number { label: Label::new("socket"), at: 0, octets: 1 };
const NODE: Place = Place::Number { label: Label::new("node"), at: 4, octets: 1 };
const NET: Place = Place::Number { label: Label::new("net"), at: 2, octets: 2 };
const PORT_AT: Place = Place::Number { label: PORT, at: 0, octets: 2 };
const HOST: Place = Place::Host { at: 2 };

/// All kinds that adapters join. Another one is a line here.
#[rustfmt::skip]
pub(crate) const FORMS: &[Form] = &[
    Form { sockets: Some((Sock::Dgram, 0)), type_in_front: true, ..form("ddp", AF_APPLETALK, Service::Datagrams, &[SOCKET, NODE, NET]) },
    Form { sockets: Some((Sock::Dgram, 3)), is_by_port: true, ..form("atp", AF_APPLETALK, Service::Transactions, &[SOCKET, NODE, NET]) },
    Form { sockets: Some((Sock::Dgram, 17)), is_by_port: true, ..form("udp", AF_INET, Service::Datagrams, &[PORT_AT, HOST]) },
    Form { sockets: Some((Sock::Stream, 6)), is_by_port: true, ..form("tcp", AF_INET, Service::Streams, &[PORT_AT, HOST]) },
    form("ip", AF_INET, Service::Datagrams, &[HOST]),
];

/// Links: a station, and behind it the number of the protocol above, which is no participant.
pub(crate) static ETHER: Form =
    form("ether", AF_LINK, Service::Datagrams, &[Place::Station { at: 0 }]);
/// The family of links.
pub(crate) const AF_LINK: u8 = 18;
/// The octets of an address of a link that are the number.
const NUMBER: core::ops::Range<usize> = 6..10;

/// The kinds of [`FORMS`], for the check of graphs: what adapters join.
pub(crate) static KINDS: [&str; FORMS.len()] = kinds();
/// The kinds that adapters join whose lower end can be a link.
pub(crate) static KINDS_AND_LINKS: [&str; FORMS.len() + 1] = kinds();

const fn kinds<const N: usize>() -> [&'static str; N] {
    let mut kinds = [ETHER.kind; N];
    let mut at = 0;
    while at < FORMS.len() {
        kinds[at] = FORMS[at].kind;
        at += 1;
    }
    kinds
}

/// The form of a wire of the x-kernel.
pub(crate) static FRAMES: Form = form("", 0, Service::Frames, &[]);

/// One that no socket reaches.
const fn form(kind: &'static str, family: u8, service: Service, places: &'static [Place]) -> Form {
    Form { kind, family, service, is_by_port: false, sockets: None, type_in_front: false, places }
}

impl Form {
    /// The form of a kind.
    pub fn of(kind: &str) -> Option<&'static Self> {
        FORMS.iter().chain([&ETHER]).find(|form| form.kind == kind)
    }

    /// Whether addresses are stations of a link.
    pub fn is_link(&self) -> bool {
        self.family == AF_LINK
    }

    /// An address of a link without its number, or any other as it is.
    pub fn bare(&self, addr: &Addr) -> Addr {
        let mut bare = *addr;
        if self.is_link() {
            bare.data_mut()[NUMBER].fill(0);
        }
        bare
    }

    /// A station with a number.
    pub(crate) fn link(station: [u8; 6], number: u32) -> Addr {
        let mut link = Addr::any(AF_LINK);
        link.data_mut()[..6].copy_from_slice(&station);
        link.data_mut()[NUMBER].copy_from_slice(&number.to_be_bytes());
        link
    }

    /// The station and the number of an address of a link; a number of 0 is not said.
    pub(crate) fn link_parts(addr: &Addr) -> ([u8; 6], u32) {
        let [a, b, c, d, e, f, g, h, i, j, ..] = *addr.data();
        ([a, b, c, d, e, f], u32::from_be_bytes([g, h, i, j]))
    }

    /// Octets that the link of this number puts behind its header: LLC and SNAP, where it is none
    /// of Ethernet's types.
    pub(crate) fn link_octets(number: u32) -> usize {
        if number >> 16 == 0 { 0 } else { SNAP_HDR }
    }

    /// An address that says nothing.
    pub fn any(&self) -> Addr {
        Addr::any(self.family)
    }

    /// Octets of the port, with which addresses begin that have one.
    #[inline]
    fn port_octets(&self) -> Option<usize> {
        match self.places.first()? {
            Place::Number { octets, .. } => Some(*octets),
            Place::Host { .. } | Place::Station { .. } => None,
        }
    }

    /// Part of an address of ours that tells its uppers apart: the port, or all of it if addresses
    /// have none.
    #[inline]
    pub fn port_of(&self, addr: &Addr) -> Addr {
        match self.port_number(addr) {
            None => *addr,
            Some(number) => {
                let mut port = self.any();
                self.set_port(&mut port, number);
                port
            }
        }
    }

    /// The port as a number; 0 is none yet. `None` if addresses have no port.
    #[inline]
    pub fn port_number(&self, addr: &Addr) -> Option<u16> {
        let [first, second, ..] = *addr.data();
        match self.port_octets()? {
            1 => Some(first.into()),
            _ => Some(u16::from_be_bytes([first, second])),
        }
    }

    /// Sets the port.
    #[inline]
    pub fn set_port(&self, addr: &mut Addr, port: u16) {
        let [first, second, ..] = addr.data_mut();
        match (self.port_octets(), port.to_be_bytes()) {
            (None, _) => {}
            (Some(1), [_, low]) => *first = low,
            (Some(_), octets) => [*first, *second] = octets,
        }
    }

    /// All ports, if there are few: of AppleTalk the sockets 1 to 254.
    pub fn all_ports(&self) -> Option<(u16, u16)> {
        (self.port_octets()? == 1).then_some((1, 254))
    }

    /// The ports that may be chosen for what names none: of AppleTalk the sockets 128 to 254
    /// (Inside AppleTalk, chapter 4), of the Internet those of RFC 6335, section 6.
    pub fn free_ports(&self) -> Option<(u16, u16)> {
        self.port_octets()?;
        Some(if self.family == AF_APPLETALK { (128, 254) } else { (49_152, 65_534) })
    }

    /// A participant as an address; what it does not say, or leaves open, is zeros.
    ///
    /// # Errors
    /// [`AddressError`] for one of another family, or a number beyond its octets.
    pub fn to_addr(&self, participant: &Participant) -> Result<Addr, AddressError> {
        let (mut addr, mut rest) = (self.any(), participant.clone());
        for place in self.places {
            if rest.is_empty() {
                break;
            }
            place.put(&mut rest, &mut addr)?;
        }
        match rest.parts().all(|part| *part == Part::Any) {
            true => Ok(addr),
            false => Err(AddressError::WrongFamily),
        }
    }

    /// An address as a participant, with all of its places.
    pub fn to_participant(&self, addr: &Addr) -> Participant {
        let parts = self.places.iter().rev().map(|place| place.take(addr));
        parts.fold(Participant::new(), Participant::with)
    }

    /// Returns the source of messages from this address, as of [`HostAddr::source`]: the places
    /// without those of ports and sockets, which come first in an address.
    pub(crate) fn source(&self, addr: &Addr) -> u64 {
        let places = self.places.iter().rev();
        let places = places.filter(|place| !matches!(place, Place::Number { at: 0, .. }));
        places.fold(0, |source, place| match place.take(addr) {
            Part::Host(host) => host.source(),
            Part::Ether(octets) => EthAddr(octets).source(),
            Part::Number(_, number) => source << 8 | number,
            _ => source,
        })
    }

    /// An address of ours as a participant: open places below the last that is said are left out,
    /// for the layers below to choose.
    pub fn to_local(&self, addr: &Addr) -> Participant {
        let parts = self.places.iter().rev().map(|place| place.take(addr));
        let parts = parts.skip_while(|part| *part == Part::Any);
        let local = parts.fold(Participant::new(), Participant::with);
        if local.is_empty() { Part::Any.into() } else { local }
    }
}

/// Chooses ports for addresses that have none yet, each time from another one on.
#[derive(Default)]
pub(crate) struct Ports(Cell<u16>);

impl Ports {
    /// The ports that may be chosen, each once.
    pub(crate) fn each(&self, form: &Form) -> impl Iterator<Item = u16> + use<> {
        let (first, last) = form.free_ports().unwrap_or((0, 0));
        let count = last - first + 1;
        let start = self.0.get();
        self.0.set((start + 1) % count);
        (0..count).map(move |n| first + (start + n) % count)
    }

    /// Opens an address; where its port is open, with the first port that is not in use.
    ///
    /// # Errors
    /// That of the opening; [`Fault::InUse`] if all ports are.
    pub(crate) fn open<T>(
        &self,
        form: &Form,
        mut local: Addr,
        mut open: impl FnMut(Addr) -> Result<T, Fault>,
    ) -> Result<(Addr, T), Fault> {
        if form.port_number(&local) != Some(0) {
            return open(local).map(|opened| (local, opened));
        }
        for port in self.each(form) {
            form.set_port(&mut local, port);
            match open(local) {
                Err(Fault::InUse) => {}
                opened => return opened.map(|opened| (local, opened)),
            }
        }
        Err(Fault::InUse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn addr(kind: &str, text: &str) -> Result<Addr, AddressError> {
        let participant = text.parse().expect("a participant");
        Form::of(kind).expect("a form").to_addr(&participant)
    }

    #[test]
    fn an_address_of_appletalk_is_sixteen_octets() {
        let found = addr("ddp", "socket4@node18@net10").unwrap();
        let octets = [16, 16, 4, 0, 0, 10, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(found.to_tpi(), octets);
        assert_eq!(found.to_sockaddr(Release::Bsd44).0, octets);
        assert_eq!(
            xk_appletalk::addr::AtAddr::from_sockaddr(&octets).unwrap().to_string(),
            "10.18:4"
        );
        assert_eq!(
            Form::of("ddp").unwrap().to_participant(&found).to_string(),
            "socket4@node18@net10"
        );
        assert_eq!(found.to_sockaddr(Release::Bsd43).0[..2], [0, 16]);
    }

    #[test]
    fn an_address_of_the_internet_is_that_of_tpi() {
        let found = addr("udp", "port2005@10.0.0.2").unwrap();
        let octets = [2, 0, 7, 0xd5, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(found.to_tpi(), octets);
        assert_eq!(found.to_sockaddr(Release::Bsd43).0[..8], [0, 2, 7, 0xd5, 10, 0, 0, 2]);
        let ip = Form::of("ip").unwrap();
        assert_eq!(ip.to_participant(&found).to_string(), "10.0.0.2");
    }

    #[test]
    fn what_is_not_said_is_left_open() {
        let ddp = Form::of("ddp").unwrap();
        let local = addr("ddp", "socket4").unwrap();
        assert_eq!(ddp.to_local(&local).to_string(), "socket4");
        assert_eq!(ddp.to_participant(&local).to_string(), "socket4@*@*");
        assert_eq!(ddp.to_local(&ddp.any()).to_string(), "*");
        assert!(addr("ddp", "*").unwrap().is_any());
        assert!(addr("ddp", "*@node3").unwrap().data()[4] == 3);
        assert_eq!(addr("ddp", "port4"), Err(AddressError::WrongFamily));
        assert_eq!(addr("ddp", "socket256"), Err(AddressError::OutOfRange));
        assert_eq!(addr("ip", "10.0.0.1@node3"), Err(AddressError::WrongFamily));
    }

    proptest! {
        #[test]
        fn addresses_come_back(data: [u8; 14], family in prop::sample::select(&[2u8, 16, 18][..])) {
            let addr = Addr::new(family, data);
            prop_assert_eq!(Addr::parse(&addr.to_tpi()), Some(addr));
            for release in [Release::Bsd43, Release::Bsd44] {
                prop_assert_eq!(Addr::from(addr.to_sockaddr(release)), addr);
                prop_assert_eq!(Addr::parse(&addr.to_sockaddr(release).0), Some(addr));
            }
            for form in FORMS.iter().chain([&ETHER]).filter(|form| form.family == family) {
                let participant = form.to_participant(&addr);
                let back = form.to_addr(&participant).unwrap();
                prop_assert_eq!(form.to_participant(&back), participant);
            }
        }

        #[test]
        fn octets_that_are_no_address_are_refused(octets in prop::collection::vec(any::<u8>(), 0..16)) {
            prop_assert_eq!(Addr::parse(&octets), None);
        }
    }
}
