//! A bounded map that forgets the key used longest ago.

use alloc::vec::Vec;
use core::cell::RefCell;
use xk_core::Secret;
use xk_core::map::{Key, Map, MapStats};

/// No node.
const NONE: u32 = u32::MAX;

/// A bounded table that knows which of its keys was used longest ago, for what strangers can fill.
///
/// All operations take constant time, growing and copies of all entries apart. No borrow is held
/// when an operation returns. `V::clone` must not come back: it is meant for counted references and
/// small values. Without values it is an order of keys.
///
/// ```
/// use xk_core::Secret;
/// use xk_kit::Cache;
///
/// let names = Cache::new(Secret::known([1, 2]), 2);
/// assert_eq!(names.put(7u16, "echo"), None);
/// assert_eq!(names.put(9, "discard"), None);
/// assert_eq!(names.touch(&7), Some("echo"));
/// // The oldest makes room.
/// assert_eq!(names.put(13, "daytime"), Some((9, "discard")));
/// assert_eq!((names.get(&7), names.get(&9)), (Some("echo"), None));
/// ```
#[derive(Debug)]
pub struct Cache<K, V = ()> {
    /// The node of each key.
    places: Map<K, u32>,
    list: RefCell<List<K, V>>,
}

#[derive(Debug)]
struct List<K, V> {
    nodes: Vec<Node<K, V>>,
    /// The first of the nodes without an entry, chained through `older`.
    free: u32,
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
struct Node<K, V> {
    entry: Option<(K, V)>,
    newer: u32,
    older: u32,
}

impl<K: Key, V: Clone> Cache<K, V> {
    /// An empty one of at most `entries_max` entries, from 1 to 2^32 - 2; `secret` as for
    /// [`Map::new`].
    #[must_use]
    pub fn new(secret: Secret, entries_max: usize) -> Self {
        Self {
            places: Map::new(secret, entries_max.clamp(1, NONE as usize - 1)),
            list: RefCell::default(),
        }
    }

    /// The value of `key`, whose place in the order stays.
    #[inline]
    pub fn get(&self, key: &K) -> Option<V> {
        self.list.borrow().value(self.places.get(key)?)
    }

    /// The value of `key`, which becomes the newest. For the newest this is a comparison more than
    /// [`get`](Self::get).
    #[inline]
    pub fn touch(&self, key: &K) -> Option<V> {
        self.touch_if(key, |_| true)
    }

    /// The value of `key`, which becomes the newest if `is_use` says true. That must not come back
    /// here.
    #[inline]
    pub fn touch_if(&self, key: &K, is_use: impl FnOnce(&V) -> bool) -> Option<V> {
        let place = self.places.get(key)?;
        let list = self.list.borrow();
        let value = list.value(place)?;
        let is_used = list.newest != place && is_use(&value);
        drop(list);
        if is_used {
            self.list.borrow_mut().renew(place);
        }
        Some(value)
    }

    /// Enters a value as the newest; answers the entry whose place it takes: that of the key, or,
    /// of a full cache, the oldest.
    pub fn put(&self, key: K, value: V) -> Option<(K, V)> {
        if let Some(place) = self.places.get(&key) {
            let mut list = self.list.borrow_mut();
            list.renew(place);
            return list.nodes.get_mut(place as usize)?.entry.replace((key, value));
        }
        let oldest = if self.is_full() { self.oldest() } else { None };
        let gone = oldest.and_then(|(key, _)| Some((key, self.remove(&key)?)));
        let mut list = self.list.borrow_mut();
        let place = list.occupy((key, value));
        // There is room, and the key is free.
        let _ = self.places.bind(key, place);
        gone
    }

    /// Takes `key` out.
    pub fn remove(&self, key: &K) -> Option<V> {
        let place = self.places.unbind(key)?;
        self.list.borrow_mut().vacate(place).map(|(_, value)| value)
    }

    /// The entry used longest ago.
    pub fn oldest(&self) -> Option<(K, V)> {
        let list = self.list.borrow();
        list.nodes.get(list.oldest as usize)?.entry.clone()
    }

    /// Takes out the oldest entry of which `is_idle` says true.
    ///
    /// At most `tries_max` are asked about, the oldest first. One that is not idle becomes the
    /// newest, so that the next eviction does not meet it again. `None` if none asked about was
    /// idle.
    pub fn evict(
        &self,
        tries_max: usize,
        mut is_idle: impl FnMut(&K, &V) -> bool,
    ) -> Option<(K, V)> {
        for _ in 0..tries_max.min(self.len()) {
            let (key, value) = self.oldest()?;
            // Nothing is borrowed here: `is_idle` may use this cache.
            if is_idle(&key, &value) {
                self.remove(&key);
                return Some((key, value));
            }
            self.touch(&key);
        }
        None
    }

    /// All entries, the oldest first.
    pub fn snapshot(&self) -> Vec<(K, V)> {
        let list = self.list.borrow();
        let mut entries = Vec::with_capacity(self.places.len());
        let mut place = list.oldest;
        while let Some(node) = list.nodes.get(place as usize) {
            entries.extend(node.entry.clone());
            place = node.newer;
        }
        entries
    }

    /// Whether `key` is in it. Not counted as a lookup.
    pub fn contains(&self, key: &K) -> bool {
        self.places.contains(key)
    }

    /// Takes out all entries.
    pub fn clear(&self) {
        self.places.clear();
        // Taken out first: values are dropped while nothing is borrowed.
        let gone = self.list.take();
        drop(gone);
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether a new key takes the place of the oldest.
    pub fn is_full(&self) -> bool {
        self.len() >= self.places.entries_max()
    }

    /// Figures: entries and lookups.
    pub fn stats(&self) -> MapStats {
        self.places.stats()
    }
}

impl<K, V> Default for List<K, V> {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: NONE, newest: NONE, oldest: NONE }
    }
}

impl<K, V: Clone> List<K, V> {
    #[inline]
    fn value(&self, place: u32) -> Option<V> {
        let (_, value) = self.nodes.get(place as usize)?.entry.as_ref()?;
        Some(value.clone())
    }

    /// Enters as the newest; answers where.
    fn occupy(&mut self, entry: (K, V)) -> u32 {
        let place = match self.nodes.get_mut(self.free as usize) {
            Some(node) => {
                node.entry = Some(entry);
                core::mem::replace(&mut self.free, node.older)
            }
            None => {
                self.nodes.push(Node { entry: Some(entry), newer: NONE, older: NONE });
                self.nodes.len() as u32 - 1
            }
        };
        self.attach_newest(place);
        place
    }

    fn vacate(&mut self, place: u32) -> Option<(K, V)> {
        self.detach(place);
        let node = &mut self.nodes[place as usize];
        node.older = core::mem::replace(&mut self.free, place);
        node.entry.take()
    }

    fn renew(&mut self, place: u32) {
        self.detach(place);
        self.attach_newest(place);
    }

    fn attach_newest(&mut self, place: u32) {
        let second = core::mem::replace(&mut self.newest, place);
        let node = &mut self.nodes[place as usize];
        (node.newer, node.older) = (NONE, second);
        match self.nodes.get_mut(second as usize) {
            Some(node) => node.newer = place,
            None => self.oldest = place,
        }
    }

    fn detach(&mut self, place: u32) {
        let node = &self.nodes[place as usize];
        let (newer, older) = (node.newer, node.older);
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests;
