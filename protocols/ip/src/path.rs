//! The way to a peer, and how large packets may be on it.

use crate::interface::Kind;
use crate::shared::{Shared, TOKEN_PATH_MTU};
use crate::wire::MTU_MIN;
use core::time::Duration;
use xk_core::Secret;
use xk_core::object::{OpenError, SessionRef};
use xk_core::{Kernel, Part, Participants, ProtocolRef, Time, Upper};
use xk_kit::Cache;
use xk_kit::net::addr::Ipv4;

/// Route of packets to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHop {
    /// The way to ourselves.
    Loop,
    /// Over an interface.
    Out { interface: usize, next_hop: Ipv4 },
}

impl Shared {
    /// The way to a peer; a definite local host chooses the interface where routes do not.
    pub(crate) fn next_hop(&self, local: Option<Ipv4>, peer: Ipv4) -> Option<NextHop> {
        let of_local = || local.and_then(|host| self.interfaces.of_host(host));
        let next = match self.interfaces.kind(peer) {
            Kind::Own | Kind::Loopback => NextHop::Loop,
            Kind::Nobody => return None,
            Kind::Broadcast => NextHop::Out {
                interface: self.interfaces.of_broadcast(peer).or_else(of_local).unwrap_or(0),
                next_hop: Ipv4::BROADCAST,
            },
            Kind::Group => {
                // A default route says nothing about groups.
                let route = self.routes.borrow().lookup(peer);
                let route = route.filter(|route| route.network.prefix() >= 4);
                let routed = route.map(|route| route.interface);
                // The host says more than the route, unless that leads over an interface without
                // hosts.
                let is_bare = |at: &usize| self.interfaces.is_bare(*at);
                let interface = routed.filter(is_bare).or_else(of_local).or(routed);
                NextHop::Out { interface: interface.unwrap_or(0), next_hop: peer }
            }
            Kind::Other => {
                let route = self.routes.borrow().lookup(peer)?;
                NextHop::Out { interface: route.interface, next_hop: route.via.unwrap_or(peer) }
            }
        };
        Some(next)
    }

    /// Opens the session to the next hop. Answers the largest packet of the link too.
    pub(crate) fn open_hop(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        interface: usize,
        next_hop: Ipv4,
    ) -> Result<(SessionRef, u16), OpenError> {
        let own = self.interfaces.list.get(interface).ok_or(OpenError::NoRoute)?;
        let source = self.interfaces.source(interface, next_hop);
        let source = source.unwrap_or(Ipv4::UNSPECIFIED);
        let participants = Participants::pair(Part::host(source), Part::host(next_hop));
        let lower = own.lower.open(cx, Upper::new(this), participants)?;
        lower.watch();
        Ok((lower, own.mtu.get()))
    }
}

/// Time for which a path's maximum is believed (RFC 1191, section 6.3).
const AGE: Duration = Duration::from_secs(600);
/// Maxima of the links there are, for routers that do not say theirs (RFC 1191, section 7.1).
const PLATEAUS: [u16; 11] = [65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68];

/// The maxima that routers have reported, per destination.
pub(crate) struct PathMtus {
    paths: Cache<u32, (u16, Time)>,
}

impl PathMtus {
    /// Makes a table of at most `paths_max` paths.
    pub(crate) fn new(secret: Secret, paths_max: usize) -> Self {
        Self { paths: Cache::new(secret, paths_max) }
    }

    /// The maximum that was reported for this destination.
    pub(crate) fn get(&self, to: Ipv4) -> Option<u16> {
        if self.paths.is_empty() {
            return None;
        }
        self.paths.get(&to.to_bits()).map(|(mtu, _)| mtu)
    }

    /// Forgets what is too old. Answers whether there was any, and when the next will be.
    pub(crate) fn expire(&self, now: Time) -> (bool, Option<Time>) {
        let mut next = None::<Time>;
        let mut is_any = false;
        for (to, (_, until)) in self.paths.snapshot() {
            if until <= now {
                is_any |= self.paths.remove(&to).is_some();
            } else {
                next = Some(next.map_or(until, |n| n.min(until)));
            }
        }
        (is_any, next)
    }

    /// Remembers a maximum; true if a timer must be set because it is the only one.
    fn put(&self, to: Ipv4, mtu: u16, now: Time) -> bool {
        let first = self.paths.is_empty();
        self.paths.put(to.to_bits(), (mtu, now.after(AGE)));
        first
    }
}

/// The next lower maximum when a router says `reported` (0: nothing) of a path that carried
/// `current`; `None` if the report is no news.
pub(crate) fn lowered(current: u16, reported: u32) -> Option<u16> {
    let reported = match reported {
        0 => PLATEAUS.into_iter().find(|p| *p < current).unwrap_or(MTU_MIN as u16),
        mtu => u16::try_from(mtu).unwrap_or(u16::MAX).max(MTU_MIN as u16),
    };
    (reported < current).then_some(reported)
}

impl Shared {
    /// Takes a report that packets of `current` octets are too big for the path. Answers the new
    /// maximum.
    pub(crate) fn lower_path_mtu(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        to: Ipv4,
        current: u16,
        reported: u32,
    ) -> u16 {
        let Some(mtu) = lowered(current, reported) else {
            return current;
        };
        if self.path_mtus.put(to, mtu, cx.now()) {
            // Without the timer the maximum is believed for longer than it should; no harm is done.
            let _ = cx.schedule_protocol(this, AGE, TOKEN_PATH_MTU);
        }
        self.invalidate(cx);
        mtu
    }

    /// The timer of the oldest report went off.
    pub(crate) fn expire_path_mtus(&self, cx: &Kernel, this: &ProtocolRef) {
        let (expired, next) = self.path_mtus.expire(cx.now());
        if let Some(next) = next {
            let _ = cx.schedule_protocol(this, next.since(cx.now()), TOKEN_PATH_MTU);
        }
        if expired {
            self.invalidate(cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plateaus_and_bounds() {
        assert_eq!(lowered(1500, 1400), Some(1400));
        assert_eq!(lowered(1500, 1500), None);
        assert_eq!(lowered(1500, 9000), None);
        assert_eq!(lowered(1500, 0), Some(1492));
        assert_eq!(lowered(1492, 0), Some(1006));
        assert_eq!(lowered(1500, 1), Some(68));
        assert_eq!(lowered(68, 0), None);
        assert_eq!(lowered(69, 0), Some(68));
    }

    #[test]
    fn old_reports_are_forgotten_and_many_are_bounded() {
        let mtus = PathMtus::new(Secret::known([1, 2]), 100);
        let to = Ipv4::new(9, 9, 9, 9);
        assert!(mtus.put(to, 1400, Time::ZERO));
        assert_eq!(mtus.get(to), Some(1400));
        assert_eq!(mtus.expire(Time::from_s(599)), (false, Some(Time::from_s(600))));
        assert_eq!(mtus.expire(Time::from_s(600)), (true, None));
        assert_eq!(mtus.get(to), None);
        for n in 0..5000 {
            mtus.put(Ipv4::from_bits(n), 1000, Time::ZERO);
        }
        assert_eq!(mtus.paths.len(), 100);
        assert_eq!(mtus.get(Ipv4::from_bits(4999)), Some(1000));
    }
}
