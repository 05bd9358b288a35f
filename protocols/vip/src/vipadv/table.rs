//! The hosts that have said that they run virtual protocols: a bounded table that ages.

use alloc::vec::Vec;
use core::time::Duration;
use xk_core::{HostAddr, Secret, Time, fields};
use xk_kit::Cache;

/// A host that runs virtual protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VipHost {
    /// The host.
    pub host: HostAddr,
    /// The hardware address from which it said so.
    pub address: [u8; 6],
    /// Time of its last announcement.
    pub heard: Time,
}

fields!(VipHost { host, address, heard });

/// The hosts, the oldest the one heard longest ago.
pub(crate) struct Table {
    pub(super) hosts: Cache<HostAddr, VipHost>,
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

    /// The record of a host that a protocol wants to know of.
    pub(crate) fn need(&self, host: HostAddr) -> Option<VipHost> {
        self.unneeded.remove(&host);
        self.hosts.get(&host)
    }

    /// Takes in what a host says. Answers whether that is news, and which other host had to go for
    /// it, and whether that had been asked about.
    pub(crate) fn hear(&self, said: VipHost) -> (bool, Option<(HostAddr, bool)>) {
        let before = self.hosts.get(&said.host);
        let gone = match before {
            None if self.hosts.is_full() => self.give_way(),
            _ => None,
        };
        self.hosts.put(said.host, said);
        match before {
            None => drop(self.unneeded.put(said.host, ())),
            Some(_) => drop(self.unneeded.touch(&said.host)),
        }
        (before.is_none_or(|before| before.address != said.address), gone)
    }

    /// Makes room for one: a host that was not asked about goes if there is one, or else a station
    /// that makes up many hosts would drive out those that are spoken to.
    fn give_way(&self) -> Option<(HostAddr, bool)> {
        let unneeded = self.unneeded.oldest();
        let oldest = || self.hosts.oldest().map(|(host, _)| host);
        let host = unneeded.map(|(host, ())| host).or_else(oldest)?;
        self.forget(host);
        Some((host, unneeded.is_none()))
    }

    fn forget(&self, host: HostAddr) {
        self.unneeded.remove(&host);
        self.hosts.remove(&host);
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
        self.list().into_iter().find(|known| known.address == address).map(|known| known.host)
    }

    /// All of them, by host in rising order.
    pub(crate) fn list(&self) -> Vec<VipHost> {
        let mut list: Vec<_> = self.hosts.snapshot().into_iter().map(|(_, known)| known).collect();
        list.sort_unstable_by_key(|known| known.host);
        list
    }

    pub(crate) fn clear(&self) {
        self.unneeded.clear();
        self.hosts.clear();
    }
}
