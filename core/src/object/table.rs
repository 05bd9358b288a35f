//! A bounded table of a protocol's sessions by their demultiplexing key.

use super::SessionRef;
use super::slot_unsafe::KeyedSlot;
use crate::kernel::Kernel;
use crate::map::{Key, Map, MapStats};
use crate::reason::{self, Reason};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};

/// How many entries one `bind` looks at for an idle session to evict.
const SCAN_MAX: usize = 64;

struct Entry<K> {
    key: K,
    session: SessionRef,
    /// What the session had received when the hand last passed.
    received: u64,
}

/// Sessions by key, at most `max`. When it is full, an idle session (one that nobody above holds) that
/// has received nothing since the last look is evicted: the clock algorithm, which costs the path of a
/// message nothing.
pub struct SessionTable<K> {
    map: Map<K, SessionRef>,
    /// The last hit, with a handle of its own: an even shorter way than the map's cache.
    last: KeyedSlot<K>,
    last_hits: Cell<u64>,
    clock: RefCell<VecDeque<Entry<K>>>,
    max: usize,
    evicted: Cell<u64>,
}

impl<K: Key + Copy + Eq> SessionTable<K> {
    /// An empty table for at most `max` sessions.
    pub fn new(cx_key: [u64; 2], max: usize) -> Self {
        Self {
            map: Map::new(cx_key, max.max(1)),
            last: KeyedSlot::new(),
            last_hits: Cell::new(0),
            clock: RefCell::default(),
            max: max.max(1),
            evicted: Cell::new(0),
        }
    }

    /// The session with this key.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Option<SessionRef> {
        match self.latest(key) {
            Some(session) => Some(session),
            None => self.find(key),
        }
    }

    /// The session with this key if it is the one that was found last. `None` says nothing: [`SessionTable::get`]
    /// knows. A `demux` that first asks here keeps the search out of the way of messages that come in trains.
    #[inline(always)]
    pub fn latest(&self, key: &K) -> Option<SessionRef> {
        let session = self.last.get(key)?;
        self.last_hits.set(self.last_hits.get() + 1);
        Some(session)
    }

    #[inline(never)]
    fn find(&self, key: &K) -> Option<SessionRef> {
        let session = self.map.get(key)?;
        let before = self.last.replace(Some((*key, session.clone())));
        drop(before);
        Some(session)
    }

    /// Forgets the last hit if it is this key's.
    fn forget(&self, key: &K) {
        if self.last.has(key) {
            drop(self.last.replace(None));
        }
    }

    /// Binds a session; if the table is full, evicts an idle one first.
    ///
    /// # Errors
    /// [`reason::TABLE_FULL`] if the key is bound already, or the table is full of sessions in use.
    pub fn bind(&self, cx: &Kernel, key: K, session: SessionRef) -> Result<(), &'static Reason> {
        if self.map.len() >= self.max && !self.evict(cx) {
            return Err(&reason::TABLE_FULL);
        }
        self.map
            .bind(key, session.clone())
            .map_err(|_| &reason::TABLE_FULL)?;
        if self.clock.borrow().len() >= 2 * self.max {
            self.clean();
        }
        self.clock.borrow_mut().push_back(Entry {
            key,
            session,
            received: u64::MAX,
        });
        Ok(())
    }

    /// Whether an entry of the clock is still the one that is bound under its key.
    fn is_bound(&self, entry: &Entry<K>) -> bool {
        self.map.get(&entry.key).as_ref() == Some(&entry.session)
    }

    /// Takes the entries of sessions that are bound no more out of the clock.
    #[cold]
    fn clean(&self) {
        let entries = self.clock.take();
        let (kept, gone): (VecDeque<_>, VecDeque<_>) =
            entries.into_iter().partition(|e| self.is_bound(e));
        self.clock.replace(kept);
        // The last handles of some may be among them, and what they drop may come back here.
        drop(gone);
    }

    /// Evicts one idle session, if there is one within reach of the clock's hand.
    fn evict(&self, cx: &Kernel) -> bool {
        for _ in 0..SCAN_MAX {
            let Some(mut entry) = self.clock.borrow_mut().pop_front() else {
                return false;
            };
            let head = entry.session.head();
            if !self.is_bound(&entry) {
                continue;
            }
            let received = head.received();
            // One that is closed but was left bound is in nobody's use either.
            if head.is_closed() || head.opens() == 0 && entry.received == received {
                self.expel(cx, &entry);
                return true;
            }
            entry.received = received;
            self.clock.borrow_mut().push_back(entry);
        }
        // Everything near the hand was in use or active: take the first idle one all the same.
        let victim = {
            let mut clock = self.clock.borrow_mut();
            let found = clock
                .iter()
                .take(SCAN_MAX)
                // Not one that is bound no more: by now its key may be another's.
                .position(|e| e.session.head().opens() == 0 && self.is_bound(e));
            found.and_then(|at| clock.remove(at))
        };
        let Some(victim) = victim else { return false };
        self.expel(cx, &victim);
        true
    }

    fn expel(&self, cx: &Kernel, victim: &Entry<K>) {
        self.forget(&victim.key);
        self.map.unbind(&victim.key);
        self.evicted.set(self.evicted.get() + 1);
        victim.session.abort(cx);
    }

    /// Unbinds the session with this key.
    pub fn unbind(&self, key: &K) -> Option<SessionRef> {
        self.forget(key);
        let found = self.map.unbind(key);
        if let Some(session) = &found {
            let mut clock = self.clock.borrow_mut();
            // Near either end it is found at once; elsewhere the hand or a clean-up finds it.
            if clock.back().is_some_and(|e| e.session == *session) {
                clock.pop_back();
            } else if clock.front().is_some_and(|e| e.session == *session) {
                clock.pop_front();
            } else if clock.len() > 32 && clock.len() > 2 * self.map.len() {
                drop(clock);
                self.clean();
            }
        }
        found
    }

    /// How many sessions are bound.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// True if no session is bound.
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// How many idle sessions were evicted for others.
    pub fn evicted(&self) -> u64 {
        self.evicted.get()
    }

    /// The sessions, at most `max`.
    pub fn sessions(&self, max: usize) -> Vec<SessionRef> {
        let mut list = Vec::new();
        self.map.for_each(|_, session| {
            if list.len() < max {
                list.push(session.clone());
            }
        });
        list
    }

    /// How the map is used.
    pub fn stats(&self) -> MapStats {
        let stats = self.map.stats();
        let last = self.last_hits.get();
        MapStats {
            lookups: stats.lookups + last,
            cache_hits: stats.cache_hits + last,
            ..stats
        }
    }

    /// Unbinds all sessions, without closing them; for a protocol's `stop`.
    pub fn clear(&self) {
        let (clock, last) = (self.clock.take(), self.last.replace(None));
        self.map.clear();
        drop((clock, last));
    }
}
