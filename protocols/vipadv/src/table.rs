//! The hosts that have said that they run virtual protocols: a bounded table that ages.

use alloc::vec::Vec;
use core::time::Duration;
use xk_core::HostAddr;
use xk_core::Secret;
use xk_core::Time;
use xk_core::fields;
use xk_core::map::MapStats;
use xk_kit::Cache;

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

/// By host, the oldest the one heard longest ago.
pub(crate) struct Table {
    hosts: Cache<HostAddr, VipHost>,
    /// Hosts that were not asked about.
    unneeded: Cache<HostAddr>,
    lifetime: Duration,
}

impl Table {
    pub(crate) fn new(secret: Secret, entries_max: usize, lifetime: Duration) -> Self {
        Self {
            hosts: Cache::new(secret, entries_max),
            unneeded: Cache::new(secret, entries_max),
            lifetime,
        }
    }

    /// The record of a host.
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
        let gone = match before {
            None if self.hosts.is_full() => self.give_way(),
            _ => None,
        };
        let news = before.is_none_or(|before| before.address != said.address);
        self.hosts.put(key, said);
        match before {
            None => drop(self.unneeded.put(key, ())),
            Some(_) => drop(self.unneeded.touch(&key)),
        }
        (news, gone)
    }

    /// Makes room for one.
    fn give_way(&self) -> Option<Gone> {
        let unneeded = self.unneeded.oldest();
        let oldest = || self.hosts.oldest().map(|(key, _)| key);
        let key = unneeded.map(|(key, ())| key).or_else(oldest)?;
        self.forget(key);
        Some(Gone { host: key, was_needed: unneeded.is_none() })
    }

    fn forget(&self, key: HostAddr) {
        self.unneeded.remove(&key);
        self.hosts.remove(&key);
    }

    /// Forgets those that have been silent for too long; answers them.
    pub(crate) fn expire(&self, now: Time) -> Vec<HostAddr> {
        let mut gone = Vec::new();
        while let Some((key, known)) = self.hosts.oldest() {
            if now < known.heard.after(self.lifetime) {
                break;
            }
            self.forget(key);
            gone.push(key);
        }
        gone
    }

    /// Time from now until the next one is to be forgotten; `None` if there is none.
    pub(crate) fn next(&self, now: Time) -> Option<Duration> {
        let (_, oldest) = self.hosts.oldest()?;
        Some(oldest.heard.after(self.lifetime).since(now))
    }

    /// The lowest host that said so from this address.
    pub(crate) fn find_by_address(&self, address: [u8; 6]) -> Option<HostAddr> {
        let mut found = None::<HostAddr>;
        for (_, known) in self.hosts.snapshot() {
            if known.address == address {
                found = Some(found.map_or(known.host, |host| host.min(known.host)));
            }
        }
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
        self.unneeded.clear();
        self.hosts.clear();
    }
}
