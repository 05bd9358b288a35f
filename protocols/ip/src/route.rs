//! The table of routes: longest prefix match (RFC 1812, section 5.2.4.3).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use xk_kit::Cidr;
use xk_kit::net::addr::Ipv4;

/// Largest number of routes.
pub(crate) const ROUTES_MAX: usize = 65_536;

/// A way to a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) network: Cidr,
    pub(crate) via: Option<Ipv4>,
    pub(crate) interface: usize,
    pub(crate) metric: u32,
}

/// Routes by prefix. A lookup asks once per length of prefix that occurs, the longest first.
#[derive(Default)]
pub(crate) struct Routes {
    /// The routes by length and network; those of one prefix by rising metric, equal ones as they
    /// were added.
    table: BTreeMap<(u8, u32), Vec<Route>>,
    /// A bit for each length from 0 to 32 that a prefix has.
    lengths: u64,
    len: usize,
}

impl Routes {
    /// Adds a route; false if the table is full or has this one.
    pub(crate) fn add(&mut self, route: Route) -> bool {
        if self.len >= ROUTES_MAX {
            return false;
        }
        let prefix = route.network.prefix();
        let same = self.table.entry((prefix, route.network.network().to_bits())).or_default();
        let twin = |r: &Route| (r.via, r.interface) == (route.via, route.interface);
        if same.iter().any(twin) {
            return false;
        }
        if same.is_empty() {
            self.lengths |= 1 << prefix;
            // Most prefixes have one.
            same.reserve_exact(1);
        }
        let at = same.partition_point(|r| r.metric <= route.metric);
        same.insert(at, route);
        self.len += 1;
        true
    }

    /// Removes the routes to this network, or only the one over `via`. Answers how many.
    pub(crate) fn remove(&mut self, network: Cidr, via: Option<Ipv4>) -> usize {
        let key = (network.prefix(), network.network().to_bits());
        let Some(same) = self.table.get_mut(&key) else {
            return 0;
        };
        let before = same.len();
        same.retain(|r| via.is_some() && r.via != via);
        let removed = before - same.len();
        if same.is_empty() {
            self.table.remove(&key);
            let prefix = network.prefix();
            if self.table.range((prefix, 0)..=(prefix, u32::MAX)).next().is_none() {
                self.lengths &= !(1 << prefix);
            }
        }
        self.len -= removed;
        removed
    }

    /// The route with the longest prefix that `to` lies in, and of those the one with the least
    /// metric.
    pub(crate) fn lookup(&self, to: Ipv4) -> Option<Route> {
        (0..=32u8)
            .rev()
            .filter(|prefix| self.lengths & (1 << prefix) != 0)
            .find_map(|prefix| {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                self.table.get(&(prefix, to.to_bits() & mask))?.first()
            })
            .copied()
    }

    /// All routes, the longest prefix first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Route> {
        self.table.values().rev().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn route(network: &str, interface: usize, metric: u32) -> Route {
        Route { network: network.parse().unwrap(), via: None, interface, metric }
    }

    #[test]
    fn longest_prefix_then_least_metric() {
        let mut routes = Routes::default();
        for r in [
            route("0.0.0.0/0", 0, 1),
            route("10.0.0.0/8", 1, 1),
            route("10.1.2.3/16", 2, 5),
            route("10.1.0.0/16", 3, 2),
            route("10.1.2.3/32", 4, 9),
        ] {
            assert!(routes.add(r));
        }
        let to = |a, b, c, d| routes.lookup(Ipv4::new(a, b, c, d)).map(|r| r.interface);
        assert_eq!(to(9, 0, 0, 1), Some(0));
        assert_eq!(to(10, 9, 0, 1), Some(1));
        assert_eq!(to(10, 1, 0, 1), Some(3));
        assert_eq!(to(10, 1, 2, 3), Some(4));
        assert!(!routes.add(route("10.0.0.0/8", 1, 7)), "the same again");
        assert_eq!(routes.remove("10.1.0.0/16".parse().unwrap(), None), 2);
        assert_eq!(routes.lookup(Ipv4::new(10, 1, 0, 1)).map(|r| r.interface), Some(1));
        assert_eq!(routes.remove("0.0.0.0/0".parse().unwrap(), None), 1);
        assert_eq!(routes.lookup(Ipv4::new(9, 0, 0, 1)), None);
    }

    fn linear(routes: &[Route], to: Ipv4) -> Option<(u8, u32)> {
        routes
            .iter()
            .filter(|r| r.network.contains(to))
            .map(|r| (r.network.prefix(), r.metric))
            .min_by_key(|(prefix, metric)| (32 - prefix, *metric))
    }

    proptest! {
        #[test]
        fn agrees_with_a_linear_search(
            list in proptest::collection::vec((any::<u32>(), 0u8..=32, 0u32..4), 0..40),
            removed in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
            asked in proptest::collection::vec((any::<prop::sample::Index>(), 0u8..=32, any::<u32>()), 1..40),
        ) {
            let mut routes = Routes::default();
            let mut model: Vec<Route> = Vec::new();
            for (interface, (bits, prefix, metric)) in list.iter().enumerate() {
                let network = Cidr::new(Ipv4::from_bits(*bits), *prefix).unwrap();
                let route = Route { network, via: None, interface, metric: *metric };
                prop_assert!(routes.add(route));
                model.push(route);
            }
            for index in removed {
                if model.is_empty() { break; }
                let gone = index.get(&model).network;
                let same = |r: &Route| r.network.prefix() == gone.prefix() && gone.contains(r.network.network());
                let count = model.iter().filter(|r| same(r)).count();
                prop_assert_eq!(routes.remove(gone, None), count);
                model.retain(|r| !same(r));
            }
            prop_assert_eq!(routes.iter().count(), model.len());
            for (index, keep, bits) in asked {
                // Near one of the networks, so that long prefixes are hit too.
                let mask = u32::MAX.checked_shl(32 - u32::from(keep)).unwrap_or(0);
                let near = if list.is_empty() { 0 } else { index.get(&list).0 };
                let to = Ipv4::from_bits((near & mask) | (bits & !mask));
                let found = routes.lookup(to).map(|r| (r.network.prefix(), r.metric));
                prop_assert_eq!(found, linear(&model, to));
            }
        }
    }
}
