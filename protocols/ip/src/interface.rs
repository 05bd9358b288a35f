//! Interfaces and their hosts: which addresses are ours, and what others mean here.

use crate::groups::Memberships;
use alloc::vec::Vec;
use core::cell::Cell;
use xk_core::{ProtocolRef, SessionRef};
use xk_kit::Cidr;
use xk_kit::net::addr::Ipv4;

/// One interface: a protocol below.
pub(crate) struct Interface {
    pub(crate) lower: ProtocolRef,
    pub(crate) addresses: Vec<Cidr>,
    /// Octets of the largest packet; known when the graph starts.
    pub(crate) mtu: Cell<u16>,
}

/// Meaning of a destination here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One of our hosts.
    Own,
    /// 127/8: ours, but never on a wire (RFC 1122, section 3.2.1.3).
    Loopback,
    /// The limited broadcast, or that of one of our networks.
    Broadcast,
    /// 224/4.
    Group,
    /// 0/8 and 240/4: no host.
    Nobody,
    /// Another host.
    Other,
}

/// All interfaces, and the groups that we are in.
pub(crate) struct Interfaces {
    pub(crate) list: Vec<Interface>,
    pub(crate) memberships: Memberships,
}

impl Interfaces {
    fn addresses(&self) -> impl Iterator<Item = (usize, Cidr)> {
        self.list
            .iter()
            .enumerate()
            .flat_map(|(at, i)| i.addresses.iter().map(move |cidr| (at, *cidr)))
    }

    /// Whether this is one of our hosts.
    pub(crate) fn is_own(&self, host: Ipv4) -> bool {
        self.addresses().any(|(_, cidr)| cidr.addr() == host)
    }

    /// The interface that has this host.
    pub(crate) fn of_host(&self, host: Ipv4) -> Option<usize> {
        self.addresses().find(|(_, cidr)| cidr.addr() == host).map(|(at, _)| at)
    }

    /// Whether this interface has no host of ours.
    pub(crate) fn is_bare(&self, at: usize) -> bool {
        self.list.get(at).is_some_and(|interface| interface.addresses.is_empty())
    }

    /// The interface whose network has this directed broadcast.
    pub(crate) fn of_broadcast(&self, host: Ipv4) -> Option<usize> {
        self.addresses().find(|(_, cidr)| cidr.broadcast() == Some(host)).map(|(at, _)| at)
    }

    /// The interface whose network the host lies in.
    pub(crate) fn of_network(&self, host: Ipv4) -> Option<usize> {
        self.addresses().find(|(_, cidr)| cidr.contains(host)).map(|(at, _)| at)
    }

    /// Meaning of a destination here.
    pub(crate) fn kind(&self, host: Ipv4) -> Kind {
        if self.is_own(host) {
            return Kind::Own;
        }
        match host.octets()[0] {
            127 => Kind::Loopback,
            0 => Kind::Nobody,
            224..=239 => Kind::Group,
            240.. if host != Ipv4::BROADCAST => Kind::Nobody,
            _ if host == Ipv4::BROADCAST || self.of_broadcast(host).is_some() => Kind::Broadcast,
            _ => Kind::Other,
        }
    }

    /// Whether this is a broadcast or a group.
    pub(crate) fn is_many(&self, host: Ipv4) -> bool {
        matches!(self.kind(host), Kind::Broadcast | Kind::Group)
    }

    /// Whether we take packets of this group on one interface at least.
    pub(crate) fn is_joined(&self, group: Ipv4) -> bool {
        (0..self.list.len()).any(|at| self.memberships.is_joined(at, group))
    }

    /// The interfaces by which a session below may bring packets: its own, or all if it is of none.
    /// `arp` has frames come up from the layer below it.
    pub(crate) fn of_session(&self, lower: &SessionRef) -> core::ops::Range<usize> {
        let of = lower.head().protocol();
        let reaches = |interface: &Interface| {
            let mut below = core::iter::successors(Some(&interface.lower), |lower| lower.lower());
            below.any(|lower| lower.id() == of)
        };
        let at = self.list.iter().position(reaches);
        at.map_or(0..self.list.len(), |at| at..at + 1)
    }

    /// Whether a packet from outside may not come from this host (RFC 1122, section 3.2.1.3; RFC
    /// 1812, section 5.3.7). 0.0.0.0 is for a host that asks for its address, by broadcast.
    pub(crate) fn is_bad_source(&self, source: Ipv4, to: Kind) -> bool {
        match self.kind(source) {
            Kind::Other => false,
            Kind::Nobody => !(source == Ipv4::UNSPECIFIED && to == Kind::Broadcast),
            _ => true,
        }
    }

    /// The host of ours that packets over this interface come from: the one in the next hop's
    /// network, else the interface's first, else the first of all.
    pub(crate) fn source(&self, interface: usize, next_hop: Ipv4) -> Option<Ipv4> {
        let own = self.list.get(interface)?;
        own.addresses
            .iter()
            .find(|cidr| cidr.contains(next_hop))
            .or(own.addresses.first())
            .map(|cidr| cidr.addr())
            .or_else(|| self.first())
    }

    /// The first of our hosts.
    pub(crate) fn first(&self) -> Option<Ipv4> {
        self.addresses().next().map(|(_, cidr)| cidr.addr())
    }
}
