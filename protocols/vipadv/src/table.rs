//! The hosts that have said that they run virtual protocols: a bounded table that ages.

use alloc::vec::Vec;
use core::time::Duration;
use xk_core::HostAddr;
use xk_core::Secret;
use xk_core::Time;
use xk_core::fields;
use xk_core::map::{Lru, Map, MapStats};

/// A host that runs virtual protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VipHost {
    /// The host.
    pub host: HostAddr,
    /// The hardware address from which it said so.
    pub address: [u8; 6],
    /// When it did last.
    pub heard: Time,
}

fields!(VipHost { host, address, heard });

/// A host that had to go for another.
pub(crate) struct Gone {
    pub(crate) host: HostAddr,
    /// Whether it had been asked about.
    pub(crate) was_needed: bool,
}

/// By host; the one heard longest ago first in `order`, and in `unneeded` of those that were not
/// asked about.
pub(crate) struct Table {
    hosts: Map<HostAddr, VipHost>,
    order: Lru<HostAddr>,
    unneeded: Lru<HostAddr>,
    lifetime: Duration,
}

impl Table {
    pub(crate) fn new(secret: Secret, entries_max: usize, lifetime: Duration) -> Self {
        Self {
            hosts: Map::new(secret, entries_max),
            order: Lru::new(secret, entries_max),
            unneeded: Lru::new(secret, entries_max),
            lifetime,
        }
    }

    /// What is known of a host.
    pub(crate) fn get(&self, host: HostAddr) -> Option<VipHost> {
        self.hosts.get(&host)
    }

    /// Notes that a protocol wants to know of a host.
    pub(crate) fn need(&self, host: HostAddr) {
        self.unneeded.remove(&host);
    }

    /// Takes in what a host says. Answers whether that is news, and which other host had to go for
    /// it: one that was not asked about if there is one, or else a station that makes up many hosts
    /// would drive out those that are spoken to.
    pub(crate) fn hear(&self, said: VipHost) -> (bool, Option<Gone>) {
        let key = said.host;
        let before = self.hosts.get(&key);
        let is_full = self.hosts.len() >= self.hosts.entries_max();
        let gone = match before {
            None if is_full => self.give_way(),
            _ => None,
        };
        let news = before.is_none_or(|before| before.address != said.address);
        if self.hosts.replace(key, said).is_err() {
            return (false, gone);
        }
        if !self.order.touch(&key) {
            let _ = self.order.insert(key);
            let _ = self.unneeded.insert(key);
        } else {
            self.unneeded.touch(&key);
        }
        (news, gone)
    }

    /// Makes room for one.
    fn give_way(&self) -> Option<Gone> {
        let unneeded = self.unneeded.oldest();
        let key = unneeded.or_else(|| self.order.oldest())?;
        self.forget(key);
        Some(Gone { host: key, was_needed: unneeded.is_none() })
    }

    fn forget(&self, key: HostAddr) {
        self.order.remove(&key);
        self.unneeded.remove(&key);
        self.hosts.unbind(&key);
    }

    /// Forgets those that have been silent for too long; answers them.
    pub(crate) fn expire(&self, now: Time) -> Vec<HostAddr> {
        let mut gone = Vec::new();
        while let Some(key) = self.order.oldest() {
            let known = self.hosts.get(&key);
            let is_old = known.is_none_or(|known| now >= known.heard.after(self.lifetime));
            if !is_old {
                break;
            }
            self.forget(key);
            gone.push(key);
        }
        gone
    }

    /// How long from now the next one is to be forgotten; `None` if there is none.
    pub(crate) fn next(&self, now: Time) -> Option<Duration> {
        let oldest = self.hosts.get(&self.order.oldest()?)?;
        Some(oldest.heard.after(self.lifetime).since(now))
    }

    /// The lowest host that said so from this address.
    pub(crate) fn find_by_address(&self, address: [u8; 6]) -> Option<HostAddr> {
        let mut found = None::<HostAddr>;
        self.hosts.for_each(|_, known| {
            if known.address == address {
                found = Some(found.map_or(known.host, |host| host.min(known.host)));
            }
        });
        found
    }

    /// All of them, by host in rising order.
    pub(crate) fn list(&self) -> Vec<VipHost> {
        let mut list: Vec<_> = self.hosts.snapshot().into_iter().map(|(_, h)| h).collect();
        list.sort_unstable_by_key(|known| known.host);
        list
    }

    pub(crate) fn stats(&self) -> MapStats {
        self.hosts.stats()
    }

    pub(crate) fn clear(&self) {
        self.order.clear();
        self.unneeded.clear();
        self.hosts.clear();
    }
}
