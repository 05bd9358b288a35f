//! The hosts that are known or asked for: a bounded cache.

use crate::entry::{Entry, REQUEST_INTERVAL};
use crate::wire::{EthAddr, Ipv4};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::Secret;
use xk_core::map::{Lru, Map, MapStats};
use xk_core::{Kernel, Time};

/// So many of the oldest entries are looked at for a useless one.
const SCAN_MAX: usize = 64;

/// Of so many hosts forgotten within a second after they were asked for it is remembered that they
/// were.
const RECENT_MAX: usize = 256;

/// Entries by host.
pub(crate) struct Hosts {
    map: Map<u32, Rc<Entry>>,
    order: Lru<u32>,
    /// Those that had no address when they were entered here; some may have one by now.
    unknown: Lru<u32>,
    /// Hosts forgotten shortly after they were asked for, and when that was.
    recent: RefCell<VecDeque<(u32, Time)>>,
}

impl Hosts {
    pub(crate) fn new(secret: Secret, entries_max: usize) -> Self {
        Self {
            map: Map::new(secret, entries_max),
            order: Lru::new(secret, entries_max),
            unknown: Lru::new(secret, entries_max),
            recent: RefCell::default(),
        }
    }

    pub(crate) fn get(&self, host: Ipv4) -> Option<Rc<Entry>> {
        self.map.get(&host.to_bits())
    }

    /// The entry of a host, made if it is missing; in a full cache the oldest useless one gives
    /// way. `None` if none does.
    pub(crate) fn get_or_make(&self, cx: &Kernel, host: Ipv4) -> Option<Rc<Entry>> {
        let key = host.to_bits();
        if let Some(entry) = self.map.get(&key) {
            self.order.touch(&key);
            return Some(entry);
        }
        if self.map.len() >= self.map.entries_max() {
            let useless = |key: &u32| self.map.get(key).is_none_or(|e| e.is_useless(cx.now()));
            let old = self.order.evict(SCAN_MAX, useless)?;
            self.remove(cx, Ipv4::from_bits(old));
        }
        let entry = Rc::new(Entry::new(host, cx.now()));
        entry.asked.set(self.last_asked(cx, key));
        self.map.bind(key, Rc::clone(&entry)).ok()?;
        let _ = self.order.insert(key);
        let _ = self.unknown.insert(key);
        Some(entry)
    }

    /// When a host was asked for that has been forgotten since, if that is not long ago.
    fn last_asked(&self, cx: &Kernel, key: u32) -> Option<Time> {
        let mut recent = self.recent.borrow_mut();
        recent.retain(|(_, at)| cx.now().since(*at) < REQUEST_INTERVAL);
        let found = recent.iter().find(|(host, _)| *host == key);
        found.map(|(_, at)| *at)
    }

    /// The entry to give up in a full cache where all are needed: one without an address first,
    /// that was used longest ago; then one to which nothing was sent since the last look.
    pub(crate) fn victim(&self, sent: impl Fn(&Entry) -> u64) -> Option<Rc<Entry>> {
        while let Some(key) = self.unknown.oldest() {
            self.unknown.remove(&key);
            let unknown = self.map.get(&key).filter(|e| e.address().is_none());
            if unknown.is_some() {
                return unknown;
            }
        }
        let unused = |key: &u32| {
            self.map.get(key).is_some_and(|entry| {
                let sent = sent(&entry);
                entry.sent_seen.replace(sent) >= sent
            })
        };
        let key = self.order.evict(SCAN_MAX, unused)?;
        // In its place again until it is removed.
        let _ = self.order.insert(key);
        self.map.get(&key)
    }

    /// Notes that a host's address is known no more.
    pub(crate) fn note_unknown(&self, host: Ipv4) {
        if self.map.contains(&host.to_bits()) {
            let _ = self.unknown.insert(host.to_bits());
        }
    }

    /// Forgets a host.
    pub(crate) fn remove(&self, cx: &Kernel, host: Ipv4) {
        let key = host.to_bits();
        self.order.remove(&key);
        self.unknown.remove(&key);
        let Some(entry) = self.map.unbind(&key) else {
            return;
        };
        if let Some(timer) = entry.timer.take() {
            cx.cancel(timer);
        }
        if entry.is_asked_recently(cx.now())
            && let Some(at) = entry.asked.get()
        {
            let mut recent = self.recent.borrow_mut();
            if recent.len() >= RECENT_MAX {
                recent.pop_front();
            }
            recent.push_back((key, at));
        }
    }

    /// The lowest host whose address this is.
    pub(crate) fn find_by_address(&self, eth: EthAddr) -> Option<Ipv4> {
        let mut found = None::<Ipv4>;
        self.map.for_each(|_, entry| {
            if entry.address() == Some(eth) {
                found = Some(found.map_or(entry.host, |host| host.min(entry.host)));
            }
        });
        found
    }

    /// All entries, by host in rising order.
    pub(crate) fn list(&self) -> Vec<Rc<Entry>> {
        let mut list: Vec<_> = self.map.snapshot().into_iter().map(|(_, e)| e).collect();
        list.sort_unstable_by_key(|e| e.host);
        list
    }

    pub(crate) fn stats(&self) -> MapStats {
        self.map.stats()
    }

    pub(crate) fn clear(&self) {
        self.order.clear();
        self.unknown.clear();
        self.map.clear();
        self.recent.take();
    }
}
