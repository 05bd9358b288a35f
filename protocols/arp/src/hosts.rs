//! The hosts that are known or asked for: a bounded cache.

use crate::entry::{Entry, REQUEST_INTERVAL};
use crate::wire::{EthAddr, Ipv4};
use alloc::collections::VecDeque;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::Secret;
use xk_core::map::MapStats;
use xk_core::{Kernel, Time};
use xk_kit::Cache;

/// Number of the oldest entries that are looked at for a useless one.
const SCAN_MAX: usize = 64;

/// Number of hosts that are remembered as asked for when they were forgotten within a second after
/// it.
const RECENT_MAX: usize = 256;

/// Entries by host.
pub(crate) struct Hosts {
    entries: Cache<u32, Rc<Entry>>,
    /// Hosts that had no address when they were entered here; some may have one by now.
    unknown: Cache<u32>,
    /// Hosts forgotten shortly after they were asked for, and when that was.
    recent: RefCell<VecDeque<(u32, Time)>>,
}

impl Hosts {
    pub(crate) fn new(secret: Secret, entries_max: usize) -> Self {
        Self {
            entries: Cache::new(secret, entries_max),
            unknown: Cache::new(secret, entries_max),
            recent: RefCell::default(),
        }
    }

    pub(crate) fn get(&self, host: Ipv4) -> Option<Rc<Entry>> {
        self.entries.get(&host.to_bits())
    }

    /// The entry of a host, made if it is missing; in a full cache the oldest useless one gives
    /// way. `None` if none does.
    pub(crate) fn get_or_make(&self, cx: &Kernel, host: Ipv4) -> Option<Rc<Entry>> {
        let key = host.to_bits();
        if let Some(entry) = self.entries.touch(&key) {
            return Some(entry);
        }
        if self.entries.is_full() {
            let is_useless = |_: &u32, entry: &Rc<Entry>| entry.is_useless(cx.now());
            let (_, old) = self.entries.evict(SCAN_MAX, is_useless)?;
            self.removed(cx, &old);
        }
        let entry = Rc::new(Entry::new(host, cx.now()));
        entry.asked.set(self.last_asked(cx, key));
        self.entries.put(key, Rc::clone(&entry));
        self.unknown.put(key, ());
        Some(entry)
    }

    /// Time of the last request for a host that has been evicted since, if that is not long ago.
    fn last_asked(&self, cx: &Kernel, key: u32) -> Option<Time> {
        let mut recent = self.recent.borrow_mut();
        recent.retain(|(_, at)| cx.now().since(*at) < REQUEST_INTERVAL);
        let found = recent.iter().find(|(host, _)| *host == key);
        found.map(|(_, at)| *at)
    }

    /// The entry to give up in a full cache where all are needed: one without an address first,
    /// that was used longest ago; then one to which nothing was sent since the last look.
    pub(crate) fn victim(&self, sent: impl Fn(&Entry) -> u64) -> Option<Rc<Entry>> {
        while let Some((key, ())) = self.unknown.oldest() {
            self.unknown.remove(&key);
            let unknown = self.entries.get(&key).filter(|e| e.address().is_none());
            if unknown.is_some() {
                return unknown;
            }
        }
        let is_unused = |_: &u32, entry: &Rc<Entry>| {
            let sent = sent(entry);
            entry.sent_seen.replace(sent) >= sent
        };
        let (key, entry) = self.entries.evict(SCAN_MAX, is_unused)?;
        // It stays until it is removed.
        self.entries.put(key, Rc::clone(&entry));
        Some(entry)
    }

    /// Notes that a host's address is known no more.
    pub(crate) fn note_unknown(&self, host: Ipv4) {
        let key = host.to_bits();
        if self.entries.contains(&key) && !self.unknown.contains(&key) {
            self.unknown.put(key, ());
        }
    }

    /// Forgets a host.
    pub(crate) fn remove(&self, cx: &Kernel, host: Ipv4) {
        if let Some(entry) = self.entries.remove(&host.to_bits()) {
            self.removed(cx, &entry);
        }
    }

    /// Gives back what an entry has that is none any more.
    fn removed(&self, cx: &Kernel, entry: &Entry) {
        let key = entry.host.to_bits();
        self.unknown.remove(&key);
        cx.cancel(entry.timer.take());
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
        for (_, entry) in self.entries.snapshot() {
            if entry.address() == Some(eth) {
                found = Some(found.map_or(entry.host, |host| host.min(entry.host)));
            }
        }
        found
    }

    /// All entries, by host in rising order.
    pub(crate) fn list(&self) -> Vec<Rc<Entry>> {
        let mut list: Vec<_> = self.entries.snapshot().into_iter().map(|(_, e)| e).collect();
        list.sort_unstable_by_key(|e| e.host);
        list
    }

    pub(crate) fn stats(&self) -> MapStats {
        self.entries.stats()
    }

    pub(crate) fn clear(&self) {
        self.entries.clear();
        self.unknown.clear();
        self.recent.take();
    }
}
