//! Attributes that several protocols set on or read from messages.

use core::net::SocketAddr;
use xk_core::message::{ATTRIBUTE_OCTETS, Attribute, Crossing, Sender};
use xk_core::{HostAddr, Part, Participant};

/// Link address of a frame that was not sent to us alone. Set by the link layer on arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkCast {
    /// To everybody.
    Broadcast,
    /// To a group.
    Multicast,
}

impl Attribute for LinkCast {
    const KEY: u32 = xk_core::name_key("link-cast");
    const CROSSES: Crossing = Crossing::UP;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[0] = self as u8;
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        if octets[0] == 0 { LinkCast::Broadcast } else { LinkCast::Multicast }
    }
}

/// The peer of a message on an unconnected session: where it is to go, or where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The peer's host.
    pub host: HostAddr,
    /// The peer's port.
    pub port: u16,
}

impl From<SocketAddr> for Peer {
    fn from(address: SocketAddr) -> Self {
        let host = match address {
            SocketAddr::V4(address) => (*address.ip()).into(),
            SocketAddr::V6(address) => HostAddr::v6(*address.ip(), address.scope_id()),
        };
        Self { host, port: address.port() }
    }
}

impl From<Peer> for Participant {
    /// Returns the host, with the port in front if there is one.
    fn from(peer: Peer) -> Self {
        let host = Self::of(Part::Host(peer.host));
        if peer.port == 0 { host } else { host.with(Part::port(peer.port)) }
    }
}

impl From<Peer> for SocketAddr {
    fn from(peer: Peer) -> Self {
        let mut address = SocketAddr::new(peer.host.into(), peer.port);
        if let SocketAddr::V6(address) = &mut address {
            address.set_scope_id(peer.host.scope());
        }
        address
    }
}

impl Attribute for Peer {
    const KEY: u32 = xk_core::name_key("peer");
    const CROSSES: Crossing = Crossing::BOTH;

    #[inline]
    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let (host, scope) = self.host.to_parts();
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[..16].copy_from_slice(&host);
        octets[16..20].copy_from_slice(&scope.to_be_bytes());
        octets[20..22].copy_from_slice(&self.port.to_be_bytes());
        octets
    }

    #[inline]
    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let (host, rest) = octets.split_first_chunk().unwrap_or((&[0; 16], &[]));
        let [a, b, c, d, e, f] = *rest.first_chunk().unwrap_or(&[0; 6]);
        let host = HostAddr::from_parts((*host, u32::from_be_bytes([a, b, c, d])));
        Peer { host, port: u16::from_be_bytes([e, f]) }
    }
}

/// The two bits of the network header by which routers tell of congestion (RFC 3168, section 5).
/// Set by TCP on what it sends, and taken off by the network layer, which never sends CE; set by
/// the network layer on what arrives with CE, and on nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// ECT(1): its sender can be told.
    CapableOne,
    /// ECT(0): its sender can be told.
    CapableZero,
    /// CE: a router had congestion.
    Experienced,
}

impl Ecn {
    /// The two bits as a header has them.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Ecn::CapableOne => 1,
            Ecn::CapableZero => 2,
            Ecn::Experienced => 3,
        }
    }

    /// Reads the two lowest bits of `bits`; `None` if the sender cannot be told.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits & 3 {
            1 => Some(Ecn::CapableOne),
            2 => Some(Ecn::CapableZero),
            3 => Some(Ecn::Experienced),
            _ => None,
        }
    }
}

impl Attribute for Ecn {
    const KEY: u32 = xk_core::name_key("ecn");
    const CROSSES: Crossing = Crossing::BOTH;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let mut octets = [0; ATTRIBUTE_OCTETS];
        octets[0] = self.bits();
        octets
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        Ecn::from_bits(octets[0]).unwrap_or(Ecn::CapableZero)
    }
}

/// Set on a message: send it whole or not at all (RFC 791, section 2.3). The network layer takes it
/// off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DontFragment;

impl Attribute for DontFragment {
    const KEY: u32 = xk_core::name_key("dont-fragment");
    const CROSSES: Crossing = Crossing::DOWN;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        [0; ATTRIBUTE_OCTETS]
    }

    fn decode(_: [u8; ATTRIBUTE_OCTETS]) -> Self {
        DontFragment
    }
}

/// The fields that the sender of a message asks for in its headers, as programs do with the control
/// messages and options of their sockets. A transport that serves all peers at one port takes the
/// host from it, and the network layer the rest and takes it off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sending {
    /// Our host that it comes from; unspecified for the usual one.
    pub from: HostAddr,
    /// The hops that it may go; 0 for as many as usual.
    pub hops: u8,
    /// The class of its traffic (RFC 2474), if it is not the usual one.
    pub class: Option<u8>,
    /// True if none of what goes to a group comes back to this host, though it is joined here.
    pub stays_out: bool,
    /// True if what goes to a group is for this host alone: it goes no hops.
    pub stays_in: bool,
}

impl Attribute for Sending {
    const KEY: u32 = xk_core::name_key("sending");
    /// A program that is granted a protocol is not to choose the host that it speaks for.
    const CROSSES: Crossing = Crossing { down: Some(Sender::Domain), up: None };

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        let class = self.class.map_or([0, 0], |class| [1, class]);
        let stays = u8::from(self.stays_out) | u8::from(self.stays_in) << 1;
        with_host(self.from, [self.hops, class[0], class[1], stays])
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let (from, [hops, has_class, class, stays]) = host_of(octets);
        let class = (has_class != 0).then_some(class);
        let (stays_out, stays_in) = (stays & 1 != 0, stays & 2 != 0);
        Self { from, hops, class, stays_out, stays_in }
    }
}

/// The fields of the header of a message that has arrived. Set by the network layer for the
/// protocol that has asked for it ([`TellArrivals`](crate::control::TellArrivals)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The host that it was sent to: ours, a broadcast or a group.
    pub to: HostAddr,
    /// The hops that it had left.
    pub hops: u8,
    /// The class of its traffic (RFC 2474), with the marks of congestion (RFC 3168).
    pub class: u8,
}

impl Attribute for Arrived {
    const KEY: u32 = xk_core::name_key("arrived");
    const CROSSES: Crossing = Crossing::UP;

    fn encode(self) -> [u8; ATTRIBUTE_OCTETS] {
        with_host(self.to, [self.hops, self.class, 0, 0])
    }

    fn decode(octets: [u8; ATTRIBUTE_OCTETS]) -> Self {
        let (to, [hops, class, _, _]) = host_of(octets);
        Self { to, hops, class }
    }
}

/// A host of any family, and four octets more.
fn with_host(host: HostAddr, rest: [u8; 4]) -> [u8; ATTRIBUTE_OCTETS] {
    let (host, scope) = host.to_parts();
    let mut octets = [0; ATTRIBUTE_OCTETS];
    octets[..16].copy_from_slice(&host);
    octets[16..20].copy_from_slice(&scope.to_be_bytes());
    octets[20..24].copy_from_slice(&rest);
    octets
}

/// The host, and the four octets more.
fn host_of(octets: [u8; ATTRIBUTE_OCTETS]) -> (HostAddr, [u8; 4]) {
    let (host, rest) = octets.split_first_chunk().unwrap_or((&[0; 16], &[]));
    let [a, b, c, d, last @ ..] = *rest.first_chunk().unwrap_or(&[0; 8]);
    (HostAddr::from_parts((*host, u32::from_be_bytes([a, b, c, d]))), last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_peer_of_any_family_is_carried(octets: [u8; 16], scope: u32, v4: [u8; 4], port: u16) {
            for host in [HostAddr::from_parts((octets, scope)), v4.into(), HostAddr::UNSPECIFIED] {
                let peer = Peer { host, port };
                prop_assert_eq!(Peer::decode(peer.encode()), peer);
            }
        }

        #[test]
        fn what_is_asked_of_headers_and_told_of_them_is_carried(
            v4: [u8; 4],
            hops: u8,
            class: Option<u8>,
            stays: [bool; 2],
            octets: [u8; 24],
        ) {
            let [stays_out, stays_in] = stays;
            let sending = Sending { from: v4.into(), hops, class, stays_out, stays_in };
            prop_assert_eq!(Sending::decode(sending.encode()), sending);
            let arrived = Arrived { to: v4.into(), hops, class: class.unwrap_or(0) };
            prop_assert_eq!(Arrived::decode(arrived.encode()), arrived);
            let other = Arrived::decode(octets);
            prop_assert_eq!(Arrived::decode(other.encode()), other);
        }

        #[test]
        fn what_another_domain_wrote_is_some_peer(octets: [u8; 22]) {
            let mut encoded = [0xff; ATTRIBUTE_OCTETS];
            encoded[..22].copy_from_slice(&octets);
            let peer = Peer::decode(encoded);
            prop_assert_eq!(Peer::decode(peer.encode()), peer);
        }
    }
}
