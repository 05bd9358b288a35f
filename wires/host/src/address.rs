//! Addresses and control data as the system calls have them: octets there and back.
//!
//! Source: ip(7), ipv6(7), cmsg(3); `<linux/in.h>`, `<linux/in6.h>`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Octets of the longest address, that of IPv6 (`struct sockaddr_in6`).
pub(crate) const NAME_OCTETS: usize = 28;
/// Octets of an IPv4 address (`struct sockaddr_in`).
const NAME4_OCTETS: usize = 16;

/// An address as a system call takes and gives it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Name(pub(crate) [u8; NAME_OCTETS]);

/// Puts an address into octets; answers how many count.
pub(crate) fn encode(address: SocketAddr, name: &mut Name) -> usize {
    let octets = &mut name.0;
    octets.fill(0);
    octets[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(address) => {
            octets[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            octets[4..8].copy_from_slice(&address.ip().octets());
            NAME4_OCTETS
        }
        SocketAddr::V6(address) => {
            octets[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            octets[4..8].copy_from_slice(&address.flowinfo().to_ne_bytes());
            octets[8..24].copy_from_slice(&address.ip().octets());
            octets[24..28].copy_from_slice(&address.scope_id().to_ne_bytes());
            NAME_OCTETS
        }
    }
}

/// The address in the first octets; `None` if there is none, or of another family. One of IPv4
/// mapped into IPv6 is given as what it is.
pub(crate) fn decode(octets: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*octets.first_chunk()?);
    let port = u16::from_be_bytes(*octets.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => {
            let host: [u8; 4] = *octets.get(4..)?.first_chunk()?;
            Some(SocketAddr::new(Ipv4Addr::from(host).into(), port))
        }
        libc::AF_INET6 => {
            let host: [u8; 16] = *octets.get(8..)?.first_chunk()?;
            Some(SocketAddr::new(Ipv6Addr::from(host).to_canonical(), port))
        }
        _ => None,
    }
}

/// Octets in front of each piece of control data: `struct cmsghdr`.
const HEADER_OCTETS: usize = size_of::<usize>() + 8;
/// Alignment of pieces of control data.
const ALIGN: usize = size_of::<usize>();

/// Room for the control data of one datagram: more than all that is asked for together.
pub(crate) const CONTROL_OCTETS: usize = 128;

/// Control data of one datagram.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control(pub(crate) [u8; CONTROL_OCTETS]);

/// Appends a piece of control data at `at`; answers where the next one goes.
pub(crate) fn put_control(
    control: &mut Control,
    at: usize,
    level: i32,
    kind: i32,
    data: &[u8],
) -> usize {
    let len = HEADER_OCTETS + data.len();
    let next = at + len.next_multiple_of(ALIGN);
    let Some(room) = control.0.get_mut(at..next) else {
        return at;
    };
    room.fill(0);
    let (size, level, kind) = (len.to_ne_bytes(), level.to_ne_bytes(), kind.to_ne_bytes());
    let octets = size.iter().chain(&level).chain(&kind).chain(data);
    for (slot, octet) in room.iter_mut().zip(octets) {
        *slot = *octet;
    }
    next
}

/// The pieces of control data in these octets: level, kind, data.
pub(crate) fn controls(octets: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    let mut left = octets;
    std::iter::from_fn(move || {
        let (size, rest) = left.split_first_chunk()?;
        let (level, rest) = rest.split_first_chunk()?;
        let kind = rest.first_chunk()?;
        let len = usize::from_ne_bytes(*size);
        let data = left.get(HEADER_OCTETS..len)?;
        left = left.get(len.next_multiple_of(ALIGN)..).unwrap_or_default();
        Some((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind), data))
    })
}

/// Notes of the system about an arrival, besides its octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Notes {
    /// Octets of each of the datagrams that lie together in one; 0 if there is one only.
    pub(crate) segment: usize,
    /// Our own host on the interface that it came by.
    pub(crate) local: Option<Ipv4Addr>,
    /// Address that it was sent to.
    pub(crate) destination: Option<Ipv4Addr>,
    /// Arrivals for which the socket had no room since it was opened.
    pub(crate) overflows: Option<u32>,
}

impl Notes {
    pub(crate) fn read(octets: &[u8]) -> Self {
        let mut notes = Self::default();
        for (level, kind, data) in controls(octets) {
            match (level, kind) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let segment = data.first_chunk().map_or(0, |n| i32::from_ne_bytes(*n));
                    notes.segment = usize::try_from(segment).unwrap_or(0);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    notes.overflows = data.first_chunk().map(|n| u32::from_ne_bytes(*n));
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // Interface, our host, destination (ip(7)).
                    let host = |at: usize| -> Option<Ipv4Addr> {
                        let octets: [u8; 4] = *data.get(at..)?.first_chunk()?;
                        Some(octets.into())
                    };
                    notes.local = host(4);
                    notes.destination = host(8);
                }
                _ => {}
            }
        }
        notes
    }
}

/// A report of the system about a datagram sent before (`struct sock_extended_err`, ip(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    /// The error's number.
    pub(crate) errno: i32,
    /// Origin of the report: `SO_EE_ORIGIN_ICMP`, or `SO_EE_ORIGIN_LOCAL`.
    pub(crate) origin: u8,
    /// ICMP's type.
    pub(crate) kind: u8,
    /// ICMP's code.
    pub(crate) code: u8,
    /// The MTU, for a datagram that was too big, in octets.
    pub(crate) info: u32,
    /// The host that reports it.
    pub(crate) offender: Option<IpAddr>,
}

impl Reported {
    /// Reads the address from control data.
    pub(crate) fn read(octets: &[u8]) -> Option<Self> {
        let is_error = |level: i32, kind: i32| {
            (level, kind) == (libc::IPPROTO_IP, libc::IP_RECVERR)
                || (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        };
        let (_, _, data) = controls(octets).find(|(level, kind, _)| is_error(*level, *kind))?;
        let (error, offender) = data.split_first_chunk::<16>()?;
        let [a, b, c, d, origin, kind, code, _, e, f, g, h, ..] = *error;
        Some(Self {
            errno: i32::from_ne_bytes([a, b, c, d]),
            origin,
            kind,
            code,
            info: u32::from_ne_bytes([e, f, g, h]),
            offender: decode(offender).map(|address| address.ip()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_come_back() {
        let mut name = Name([0xff; NAME_OCTETS]);
        for (text, octets) in [("192.0.2.7:4789", 16), ("[2001:db8::1]:7", 28)] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(encode(address, &mut name), octets);
            assert_eq!(decode(&name.0[..octets]), Some(address));
            for short in 0..octets - 12 {
                let _ = decode(&name.0[..short]);
            }
        }
        let mapped: SocketAddr = "[::ffff:192.0.2.7]:7".parse().unwrap();
        encode(mapped, &mut name);
        assert_eq!(decode(&name.0), Some("192.0.2.7:7".parse().unwrap()));
        assert_eq!(decode(&[0; 28]), None);
    }

    #[test]
    fn control_data_comes_back() {
        let mut control = Control([0xff; CONTROL_OCTETS]);
        let segment = 1400_i32.to_ne_bytes();
        let info = [0, 0, 0, 0, 10, 0, 0, 1, 10, 0, 0, 255];
        let at = put_control(&mut control, 0, libc::SOL_UDP, libc::UDP_GRO, &segment);
        let at = put_control(&mut control, at, libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        let at = put_control(&mut control, at, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &[9, 0, 0, 0]);
        let notes = Notes::read(&control.0[..at]);
        let expected = Notes {
            segment: 1400,
            local: Some([10, 0, 0, 1].into()),
            destination: Some([10, 0, 0, 255].into()),
            overflows: Some(u32::from_ne_bytes([9, 0, 0, 0])),
        };
        assert_eq!(notes, expected);
        assert_eq!(put_control(&mut control, 120, 0, 0, &[0; 16]), 120, "no room");
    }

    proptest! {
        #[test]
        fn any_control_data_is_survived(octets in proptest::collection::vec(any::<u8>(), 0..96)) {
            let _ = (Notes::read(&octets), Reported::read(&octets), decode(&octets));
        }
    }
}
