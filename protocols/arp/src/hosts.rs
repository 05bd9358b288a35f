//! The hosts that are known or asked for: a bounded cache.

use crate::entry::Entry;
use crate::wire::Ipv4;
use alloc::rc::Rc;
use alloc::vec::Vec;
use xk_core::Kernel;
use xk_core::map::{Lru, Map, MapStats};

/// So many of the oldest entries are looked at for a useless one.
const SCAN_MAX: usize = 64;

/// Entries by host.
pub(crate) struct Hosts {
    map: Map<u32, Rc<Entry>>,
    order: Lru<u32>,
}

impl Hosts {
    pub(crate) fn new(boot_key: [u64; 2], entries_max: usize) -> Self {
        Self {
            map: Map::new(boot_key, entries_max),
            order: Lru::new(boot_key, entries_max),
        }
    }

    pub(crate) fn get(&self, host: Ipv4) -> Option<Rc<Entry>> {
        self.map.get(&host.to_bits())
    }

    /// The entry of a host, made if it is missing; in a full cache the oldest useless one gives way. `None` if none does.
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
        self.map.bind(key, Rc::clone(&entry)).ok()?;
        let _ = self.order.insert(key);
        Some(entry)
    }

    /// Forgets a host.
    pub(crate) fn remove(&self, cx: &Kernel, host: Ipv4) {
        let key = host.to_bits();
        self.order.remove(&key);
        if let Some(entry) = self.map.unbind(&key)
            && let Some(timer) = entry.timer.take()
        {
            cx.cancel(timer);
        }
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
        self.map.clear();
    }
}
