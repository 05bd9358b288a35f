//! Records that a server keeps of the channels or entities of its clients: bounded, and of each
//! host a share.

use alloc::rc::Rc;
use alloc::vec::Vec;
use xk_core::map::{Key, Map, MapStats};
use xk_core::{PeerName, Secret, Time};

/// One record.
pub trait Record {
    /// Name of the client's host.
    fn peer(&self) -> PeerName;

    /// Time at which the client was last heard.
    fn heard(&self) -> Time;
}

/// All records of a server.
pub struct Records<K, R> {
    map: Map<K, Rc<R>>,
    max: usize,
    share_max: usize,
}

impl<K: Key, R: Record> Records<K, R> {
    /// A table of at most `max` records, `share_max` of them of one host.
    pub fn new(secret: Secret, max: usize, share_max: usize) -> Self {
        let max = max.max(1);
        Self { map: Map::new(secret, max), max, share_max: share_max.clamp(1, max) }
    }

    /// The record with this key.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Option<Rc<R>> {
        self.map.get(key)
    }

    /// A place for one more record of this host. In a full table, or if the host has its share, one
    /// of which `may_go` says true gives way, the one not heard for longest, and is returned; the
    /// caller removes it. `Err` if there is none.
    #[allow(clippy::result_unit_err, reason = "the caller knows what it means")]
    pub fn room(&self, peer: PeerName, may_go: impl Fn(&R) -> bool) -> Result<Option<Rc<R>>, ()> {
        let all = self.list();
        let is_full = all.iter().filter(|record| record.peer() == peer).count() >= self.share_max;
        if !is_full && all.len() < self.max {
            return Ok(None);
        }
        let fits = |record: &&Rc<R>| may_go(record) && (!is_full || record.peer() == peer);
        let victim = all.iter().filter(fits).min_by_key(|record| record.heard());
        victim.cloned().map(Some).ok_or(())
    }

    /// Enters a record, for which there is [`room`](Self::room).
    pub fn enter(&self, key: K, record: R) -> Option<Rc<R>> {
        let record = Rc::new(record);
        self.map.bind(key, Rc::clone(&record)).ok()?;
        Some(record)
    }

    /// Takes the record with this key out.
    pub fn remove(&self, key: &K) {
        self.map.unbind(key);
    }

    /// All records.
    pub fn list(&self) -> Vec<Rc<R>> {
        let mut all = Vec::new();
        self.map.for_each(|_, record| all.push(Rc::clone(record)));
        all
    }

    /// Number of records for which `is` is true.
    pub fn number(&self, is: impl Fn(&R) -> bool) -> usize {
        let mut number = 0;
        self.map.for_each(|_, record| number += usize::from(is(record)));
        number
    }

    /// Number of all records.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// Figures of the table.
    pub fn stats(&self) -> MapStats {
        self.map.stats()
    }
}
