//! Addresses and routes (`netinet/in.c`, `net/route.c`).

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use xk_bsd::sockaddr::AF_INET;
use xk_bsd::{Bsd, Ifnet};

/// A way to a network.
#[derive(Clone, Copy)]
pub(crate) struct Rtentry {
    pub(crate) net: Ipv4Addr,
    pub(crate) prefix: u8,
    pub(crate) gateway: Ipv4Addr,
}

/// Route of a packet.
pub(crate) struct Route {
    pub(crate) ifp: Rc<Ifnet>,
    /// The next hop.
    pub(crate) gateway: Ipv4Addr,
    /// Our address there.
    pub(crate) source: Ipv4Addr,
    pub(crate) is_broadcast: bool,
}

pub(crate) fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}

/// Addresses of an interface: address, mask, broadcast.
fn in_ifaddrs(ifp: &Ifnet) -> impl Iterator<Item = (Ipv4Addr, u32, Ipv4Addr)> + use<> {
    let all = ifp.addresses();
    let ours = all.into_iter().filter(|a| a.addr.family() == AF_INET);
    ours.map(|a| (a.addr.addr(), a.netmask.addr().to_bits(), a.broadaddr.addr()))
}

/// Whether an address is one of ours.
pub(crate) fn is_ours(bsd: &Bsd, addr: Ipv4Addr) -> bool {
    bsd.interfaces().iter().any(|ifp| in_ifaddrs(ifp).any(|(mine, ..)| mine == addr))
}

/// Whether an address names all hosts of the network of an interface: `in_broadcast`.
pub(crate) fn in_broadcast(ifp: &Ifnet, addr: Ipv4Addr) -> bool {
    addr.is_broadcast()
        || addr.is_unspecified()
        || in_ifaddrs(ifp).any(|(mine, mask, broad)| {
            addr == broad || mask != u32::MAX && addr.to_bits() == mine.to_bits() & mask
        })
}

/// Whether an address is of a network of this interface's.
pub(crate) fn is_on(ifp: &Ifnet, addr: Ipv4Addr) -> bool {
    in_ifaddrs(ifp).any(|(mine, mask, _)| (mine.to_bits() ^ addr.to_bits()) & mask == 0)
}

/// The way to an address: our own, on a network of ours, or by the longest prefix of `routes`.
pub(crate) fn rtalloc(
    bsd: &Bsd,
    lo: &Rc<Ifnet>,
    routes: &[Rtentry],
    dst: Ipv4Addr,
) -> Option<Route> {
    if is_ours(bsd, dst) || dst.is_loopback() {
        let is_broadcast = false;
        return Some(Route { ifp: Rc::clone(lo), gateway: dst, source: dst, is_broadcast });
    }
    let interfaces = bsd.interfaces();
    if dst.is_broadcast() || dst.is_multicast() {
        let (ifp, source) = interfaces.iter().find_map(|ifp| {
            in_ifaddrs(ifp).next().filter(|_| ifp.if_index != lo.if_index).map(|a| (ifp, a.0))
        })?;
        let is_broadcast = dst.is_broadcast();
        return Some(Route { ifp: Rc::clone(ifp), gateway: dst, source, is_broadcast });
    }
    direct(&interfaces, dst).or_else(|| {
        let covers = |rt: &&Rtentry| (rt.net.to_bits() ^ dst.to_bits()) & mask(rt.prefix) == 0;
        let best = routes.iter().filter(covers).max_by_key(|rt| rt.prefix)?;
        let on = direct(&interfaces, best.gateway)?;
        Some(Route { is_broadcast: false, ..on })
    })
}

fn direct(interfaces: &Vec<Rc<Ifnet>>, dst: Ipv4Addr) -> Option<Route> {
    for ifp in interfaces {
        for (mine, mask, _) in in_ifaddrs(ifp) {
            if (mine.to_bits() ^ dst.to_bits()) & mask == 0 {
                let is_broadcast = in_broadcast(ifp, dst);
                return Some(Route {
                    ifp: Rc::clone(ifp),
                    gateway: dst,
                    source: mine,
                    is_broadcast,
                });
            }
        }
    }
    None
}
