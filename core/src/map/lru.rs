//! Which key was used longest ago.

use super::{BindError, Key, Map};
use crate::secret::Secret;
use alloc::vec::Vec;
use core::cell::RefCell;

/// No node.
const NONE: u32 = u32::MAX;

/// Keys in the order of their last use, for caches that strangers can fill.
///
/// It stands beside a [`Map`] with the same keys: `insert` where the map
/// binds, `remove` where it unbinds, `touch` where a session is used. When the
/// map is full, [`Lru::evict`] names the key to unbind. All operations take
/// constant time; `touch` on the key touched last is one comparison, so a
/// train of messages for one session costs nothing here.
///
/// ```
/// use xk_core::Secret;
/// use xk_core::map::{Lru, Map};
///
/// let secret = Secret::known([1, 2]);
/// let (sessions, order) = (Map::new(secret, 2), Lru::new(secret, 2));
/// for port in [7u16, 9, 13] {
///     if sessions.len() == sessions.entries_max()
///         && let Some(oldest) = order.evict(8, |_| true)
///     {
///         sessions.unbind(&oldest);
///     }
///     sessions.bind(port, "a session").unwrap();
///     order.insert(port).unwrap();
/// }
/// assert!(!sessions.contains(&7) && sessions.contains(&13));
/// ```
#[derive(Debug)]
pub struct Lru<K> {
    places: Map<K, u32>,
    list: RefCell<List<K>>,
}

#[derive(Debug)]
struct List<K> {
    nodes: Vec<Node<K>>,
    /// The first of the nodes without a key, chained through `older`.
    free: u32,
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
struct Node<K> {
    key: K,
    newer: u32,
    older: u32,
}

impl<K: Key> Lru<K> {
    /// An empty order of at most `keys_max` keys; `secret` as for
    /// [`Map::new`]. More than 2^32 - 2 keys are not possible.
    #[must_use]
    pub fn new(secret: Secret, keys_max: usize) -> Lru<K> {
        Lru {
            places: Map::new(secret, keys_max.min(NONE as usize - 1)),
            list: RefCell::new(List { nodes: Vec::new(), free: NONE, newest: NONE, oldest: NONE }),
        }
    }

    /// Enters `key` as the newest.
    ///
    /// # Errors
    /// [`BindError::Exists`] when it is in the order, [`BindError::Full`] when
    /// there are `keys_max` keys.
    pub fn insert(&self, key: K) -> Result<(), BindError> {
        let mut list = self.list.borrow_mut();
        // The list is left alone until the key is known to fit.
        let place = list.vacancy();
        self.places.bind(key, place)?;
        list.occupy(place, key);
        Ok(())
    }

    /// Makes `key` the newest; false when it is not in the order.
    #[inline]
    pub fn touch(&self, key: &K) -> bool {
        {
            let list = self.list.borrow();
            if list.key(list.newest) == Some(*key) {
                return true;
            }
        }
        let Some(place) = self.places.get(key) else {
            return false;
        };
        let mut list = self.list.borrow_mut();
        list.detach(place);
        list.attach_newest(place);
        true
    }

    /// Takes `key` out; false when it was not in the order.
    pub fn remove(&self, key: &K) -> bool {
        let Some(place) = self.places.unbind(key) else {
            return false;
        };
        self.list.borrow_mut().vacate(place);
        true
    }

    /// The key used longest ago.
    pub fn oldest(&self) -> Option<K> {
        let list = self.list.borrow();
        list.key(list.oldest)
    }

    /// Takes out, and returns, the oldest key of which `idle` says true.
    ///
    /// At most `tries_max` keys are asked about, the oldest first. A key that
    /// is not idle becomes the newest, so that the next eviction does not meet
    /// it again. `None` when no key asked about was idle.
    pub fn evict(&self, tries_max: usize, mut idle: impl FnMut(&K) -> bool) -> Option<K> {
        for _ in 0..tries_max.min(self.len()) {
            let key = self.oldest()?;
            // Nothing is borrowed here: `idle` may use this order.
            if idle(&key) {
                self.remove(&key);
                return Some(key);
            }
            self.touch(&key);
        }
        None
    }

    /// All keys, the oldest first.
    pub fn snapshot(&self) -> Vec<K> {
        let list = self.list.borrow();
        let mut keys = Vec::with_capacity(self.places.len());
        let mut place = list.oldest;
        while let Some(node) = list.nodes.get(place as usize) {
            keys.push(node.key);
            place = node.newer;
        }
        keys
    }

    /// Takes out all keys.
    pub fn clear(&self) {
        self.places.clear();
        let mut list = self.list.borrow_mut();
        list.nodes = Vec::new();
        (list.free, list.newest, list.oldest) = (NONE, NONE, NONE);
    }

    /// How many keys are in the order.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no key is in the order.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

impl<K: Copy> List<K> {
    #[inline]
    fn key(&self, place: u32) -> Option<K> {
        self.nodes.get(place as usize).map(|node| node.key)
    }

    /// The place that the next key will take.
    fn vacancy(&self) -> u32 {
        match self.free {
            NONE => self.nodes.len() as u32,
            free => free,
        }
    }

    fn occupy(&mut self, place: u32, key: K) {
        match self.nodes.get_mut(place as usize) {
            Some(node) => {
                node.key = key;
                self.free = node.older;
            }
            None => self.nodes.push(Node { key, newer: NONE, older: NONE }),
        }
        self.attach_newest(place);
    }

    fn vacate(&mut self, place: u32) {
        self.detach(place);
        self.nodes[place as usize].older = self.free;
        self.free = place;
    }

    fn attach_newest(&mut self, place: u32) {
        let second = self.newest;
        let node = &mut self.nodes[place as usize];
        (node.newer, node.older) = (NONE, second);
        match self.nodes.get_mut(second as usize) {
            Some(node) => node.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
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
