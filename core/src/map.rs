//! The map: from a demultiplexing key to a session or an enable.
//!
//! A protocol keeps two: the active map finds the session that a message
//! belongs to, the passive map the enable that would accept a new one. Keys
//! come from packets, so strangers choose them; the hash is keyed
//! (SipHash-1-3) with a secret drawn at boot, which leaves them no way to aim at
//! one bucket, and the number of entries is bounded.
//!
//! In front of the table stand two caches: one of a single entry, since messages come in trains for
//! the same session, and one of up to 16,384, for sessions in turn, unless there are more than
//! 65,536. They remember *where* a key was found, not what: it is compared with the key in that
//! very place, so no change of the map can leave them stale. The larger is by another hash, quicker
//! and easier to guess: a key aimed at its places is searched for in the table, as if it were not
//! there.

mod key;
mod places;
#[cfg(test)]
mod tests;

pub use key::Key;

use crate::object::{Payer, ProtocolRef, USER_SHARE};
use crate::secret::Secret;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;
use core::hash::Hasher;
use hashbrown::HashTable;
use places::{Mix, Places};

/// A bounded table from keys to values, changed through a shared reference.
///
/// Every operation takes constant time, growing apart: when the table is full
/// it doubles, and all entries are moved. No borrow is held when an operation
/// returns or runs a closure, so what is called may use the map again. The
/// one exception is `V::clone`, which must not: it is meant for counted
/// references and small values.
pub struct Map<K, V> {
    secret: Secret,
    mix: Mix,
    entries_max: usize,
    table: RefCell<Table<K, V>>,
    /// The bucket of the last hit. Any number is safe here.
    last: Cell<usize>,
    cache_hits: Cell<u64>,
    cache_misses: Cell<u64>,
}

struct Table<K, V> {
    entries: HashTable<(K, V)>,
    places: Places,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { entries: HashTable::new(), places: Places::default() }
    }
}

/// Receives for an enable: an upper protocol, or what a layer keeps for one.
pub trait Receives {
    /// The user that it is charged to, if it is to any.
    fn payer(&self) -> Option<Payer>;
}

impl Receives for ProtocolRef {
    fn payer(&self) -> Option<Payer> {
        self.head().payer()
    }
}

impl<K: Key, V: Clone + Receives> Map<K, V> {
    /// Binds the key of an enable, which must be free, to what receives for it. `is_same` says
    /// which keys are for the same number, such as a port, whatever local host they name: that
    /// belongs to the user that has it.
    ///
    /// # Errors
    /// As of [`bind`](Self::bind); [`BindError::Exists`] if [another](Self::is_anothers) has a key
    /// for the same number; the map is full for a user that has its [share](USER_SHARE) of it.
    pub fn enable(
        &self,
        key: K,
        receiver: V,
        is_same: impl Fn(&K) -> bool,
    ) -> Result<(), BindError> {
        let Some(user) = receiver.payer() else {
            return self.bind(key, receiver);
        };
        let mut own = 0;
        for (bound, other) in &self.table.borrow().entries {
            if other.payer() == Some(user) {
                own += 1;
            } else if is_same(bound) {
                return Err(BindError::Exists);
            }
        }
        if own >= (self.entries_max / USER_SHARE).max(1) {
            return Err(BindError::Full);
        }
        self.bind(key, receiver)
    }

    /// Whether a key that `is_same` is bound for another than this user. What is charged to no user
    /// is the host's own, which may have what it likes.
    pub fn is_anothers(&self, user: Option<Payer>, is_same: impl Fn(&K) -> bool) -> bool {
        let is_anothers = |(key, other): &(K, V)| other.payer() != user && is_same(key);
        user.is_some() && self.table.borrow().entries.iter().any(is_anothers)
    }
}

/// Why a key was not bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BindError {
    /// The key is bound already; its value was left as it is.
    #[error("the key is bound already")]
    Exists,
    /// The map holds as many entries as it may.
    #[error("the map is full")]
    Full,
}

/// Figures of a map: entries, and lookups so far.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MapStats {
    /// Keys bound now.
    pub entries: usize,
    /// Calls of [`Map::get`].
    pub lookups: u64,
    /// Lookups that a cache answered.
    pub cache_hits: u64,
}

crate::fields!(MapStats { entries, lookups, cache_hits });

impl<K: Key, V: Clone> Map<K, V> {
    /// An empty map of at most `entries_max` entries, which allocates nothing
    /// until the first is bound.
    ///
    /// `secret` must be unknown to the source of the keys.
    #[must_use]
    pub fn new(secret: Secret, entries_max: usize) -> Map<K, V> {
        Map {
            secret,
            mix: Mix::new(&secret),
            entries_max,
            table: RefCell::default(),
            last: Cell::new(0),
            cache_hits: Cell::new(0),
            cache_misses: Cell::new(0),
        }
    }

    /// The value bound to `key`.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Option<V> {
        self.last(key).or_else(|| self.find(key))
    }

    /// The value of `key` if it is the one that was found, or bound, last.
    #[inline(always)]
    pub(crate) fn last(&self, key: &K) -> Option<V> {
        let table = self.table.borrow();
        let (bound, value) = table.entries.get_bucket(self.last.get())?;
        (bound == key).then(|| {
            self.cache_hits.set(self.cache_hits.get().wrapping_add(1));
            value.clone()
        })
    }

    /// The value of a key that is not the last.
    #[inline(never)]
    fn find(&self, key: &K) -> Option<V> {
        match self.recall(key) {
            Some((value, _)) => Some(value),
            None => self.search(key),
        }
    }

    /// The value of `key` if it is among those that were found of late, and whether it is the one
    /// that was found last.
    #[inline(always)]
    pub(crate) fn recall(&self, key: &K) -> Option<(V, bool)> {
        let table = self.table.borrow();
        let bucket = table.places.find(self.mix.of(key))?;
        let (bound, value) = table.entries.get_bucket(bucket)?;
        (bound == key).then(|| {
            self.cache_hits.set(self.cache_hits.get().wrapping_add(1));
            (value.clone(), self.last.replace(bucket) == bucket)
        })
    }

    /// The value of a key that no cache holds.
    #[inline(never)]
    pub(crate) fn search(&self, key: &K) -> Option<V> {
        let mut table = self.table.borrow_mut();
        let Table { entries, places } = &mut *table;
        let misses = self.cache_misses.get().wrapping_add(1);
        self.cache_misses.set(misses);
        let bucket =
            entries.find_bucket_index(hash(&self.secret, key), |(bound, _)| bound == key)?;
        self.last.set(bucket);
        places.note(entries.len(), self.mix.of(key), bucket, misses);
        entries.get_bucket(bucket).map(|(_, value)| value.clone())
    }

    /// Whether `key` is bound. Not counted as a lookup.
    pub fn contains(&self, key: &K) -> bool {
        self.look(key, |_| ()).is_some()
    }

    /// Returns the result of `see` on the value bound to `key`. This is not counted as a lookup.
    /// `see` must not change the map.
    pub(crate) fn look<R>(&self, key: &K, see: impl FnOnce(&V) -> R) -> Option<R> {
        let hash = hash(&self.secret, key);
        let table = self.table.borrow();
        table.entries.find(hash, |(bound, _)| bound == key).map(|(_, value)| see(value))
    }

    /// Binds `key`, which must be free, to `value`.
    ///
    /// # Errors
    /// [`BindError::Exists`] when the key is bound, [`BindError::Full`] when
    /// there are `entries_max` entries. The value is dropped then.
    pub fn bind(&self, key: K, value: V) -> Result<(), BindError> {
        let hash_of_key = hash(&self.secret, &key);
        let mut table = self.table.borrow_mut();
        let entries = &mut table.entries;
        let refusal = if entries.find(hash_of_key, |(k, _)| *k == key).is_some() {
            BindError::Exists
        } else if entries.len() >= self.entries_max {
            BindError::Full
        } else {
            self.insert(entries, hash_of_key, key, value);
            return Ok(());
        };
        // The value may be the last reference to something that asks this map.
        drop(table);
        drop(value);
        Err(refusal)
    }

    /// Binds `key` to `value`, bound before or not, and returns what it was
    /// bound to.
    ///
    /// # Errors
    /// [`BindError::Full`] when the key is not bound and there are
    /// `entries_max` entries. The value is dropped then.
    pub fn replace(&self, key: K, value: V) -> Result<Option<V>, BindError> {
        let hash_of_key = hash(&self.secret, &key);
        let mut table = self.table.borrow_mut();
        let entries = &mut table.entries;
        if let Some((_, bound)) = entries.find_mut(hash_of_key, |(k, _)| *k == key) {
            return Ok(Some(core::mem::replace(bound, value)));
        }
        if entries.len() < self.entries_max {
            self.insert(entries, hash_of_key, key, value);
            return Ok(None);
        }
        drop(table);
        drop(value);
        Err(BindError::Full)
    }

    /// Frees `key` and returns the value it was bound to.
    pub fn unbind(&self, key: &K) -> Option<V> {
        let hash = hash(&self.secret, key);
        let mut table = self.table.borrow_mut();
        let found = table.entries.find_entry(hash, |(bound, _)| bound == key);
        let ((_, value), _) = found.ok()?.remove();
        Some(value)
    }

    /// Frees all keys, and the memory of the table.
    pub fn clear(&self) {
        // Taken out first: values are dropped while nothing is borrowed.
        let entries = self.table.take();
        drop(entries);
    }

    /// Keeps the entries for which `keep` says true, and returns how many it
    /// did not keep. Takes a copy of all entries first.
    pub fn retain(&self, mut keep: impl FnMut(&K, &V) -> bool) -> usize {
        let mut removed = 0;
        for (key, value) in self.snapshot() {
            if !keep(&key, &value) && self.unbind(&key).is_some() {
                removed += 1;
            }
        }
        removed
    }

    /// Shows each entry to `see`, in no useful order, but in the same one for
    /// the same secret and history. Takes a copy of all entries first, so
    /// `see` may change the map.
    pub fn for_each(&self, mut see: impl FnMut(&K, &V)) {
        for (key, value) in self.snapshot() {
            see(&key, &value);
        }
    }

    /// A copy of all entries, in the order of [`Map::for_each`].
    pub fn snapshot(&self) -> Vec<(K, V)> {
        self.table.borrow().entries.iter().cloned().collect()
    }

    fn insert(&self, entries: &mut HashTable<(K, V)>, hash_of_key: u64, key: K, value: V) {
        let entry = entries
            .insert_unique(hash_of_key, (key, value), |(bound, _)| hash(&self.secret, bound));
        // What was just bound is what the next message asks for.
        self.last.set(entry.bucket_index());
    }
}

impl<K, V> Map<K, V> {
    /// Number of bound keys.
    pub fn len(&self) -> usize {
        self.table.borrow().entries.len()
    }

    /// Whether no key is bound.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Largest number of bound keys.
    pub fn entries_max(&self) -> usize {
        self.entries_max
    }

    /// Figures: entries, lookups, and lookups that the cache answered.
    pub fn stats(&self) -> MapStats {
        let cache_hits = self.cache_hits.get();
        MapStats {
            entries: self.len(),
            lookups: cache_hits.wrapping_add(self.cache_misses.get()),
            cache_hits,
        }
    }
}

/// Without the entries, whose values may know the map in turn.
impl<K, V> fmt::Debug for Map<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("len", &self.len())
            .field("entries_max", &self.entries_max)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

#[inline]
fn hash<K: Key>(secret: &Secret, key: &K) -> u64 {
    let mut hasher = secret.hasher();
    key.put(&mut hasher);
    hasher.finish()
}
