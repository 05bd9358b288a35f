//! A bounded table of a protocol's sessions by their demultiplexing key.

use super::clock::{Clocks, Entry};
use super::crowd::Crowds;
use super::payer::{Charged, USER_SHARE, Whose};
use super::slot_unsafe::KeyedSlot;
use super::{OpenError, ProtocolId, ProtocolRef, Session, SessionHead, SessionRef};
use crate::kernel::Kernel;
use crate::map::{Key, Map, MapStats};
use crate::participant::Participants;
use crate::reason::{self, Reason};
use crate::secret::Secret;
use crate::time::Time;
use alloc::vec::Vec;
use core::cell::Cell;

/// Entries that one `bind` looks at for an idle session to evict, without those in use.
pub(super) const SCAN_MAX: usize = 64;
/// Entries that were in use and that one eviction looks at again.
const RECHECK: usize = 4;
/// Number of sessions from which on a table counts the networks of their sources, at the latest.
const COUNTED_FROM: usize = 64;

/// Measure of a session's use and the time of the last one, for a table that breaks off the one
/// used least; `None` for one that stays.
pub type Rank = fn(&Kernel, &SessionRef) -> Option<(u32, Time)>;

/// Sessions by key, at most `max`. When it is full, an idle session (one without a holder above)
/// is evicted, first of the upper protocol that has the most, so that a flood for one costs the
/// others nothing: one that has received nothing since the last look, or but the message that made
/// it. This is the clock algorithm, which costs the path of a message nothing. Sessions that the
/// clock's hand finds in use are set aside and looked at again a few at a time, or, if there is no
/// other to evict, as many as those before have left over: 64 for each that was bound to a full
/// table. So however many are held, an idle one is found, unless all were looked at in vain just
/// before, and a session bound costs a fixed number of looks on average. Where sources of
/// messages have addresses ([`source`](super::SessionHead::source)), a network that has its share
/// of the table makes room among its own: an eighth for 256 neighbours, a quarter for 65,536. The
/// last quarter of the table is not for such. A user whose programs use the kernel without being
/// trusted ([`Payer`](super::Payer)) has an eighth of the table at most, whatever holds it.
pub struct SessionTable<K> {
    map: Map<K, SessionRef>,
    /// The last hit, with a handle of its own: an even shorter way than the map's cache.
    last: KeyedSlot<K>,
    last_hits: Cell<u64>,
    clocks: Clocks<K>,
    crowds: Crowds,
    charged: Charged,
    max: usize,
    /// Number of sessions from which on an idle one makes room for each that a message makes.
    idle_max: usize,
    /// Sessions made by messages that one upper protocol may have.
    passive_max: usize,
    rank: Option<Rank>,
    /// Number of entries that were in use and may be looked at again.
    looks: Cell<usize>,
    evicted: Cell<u64>,
}

impl<K: Key + Copy + Eq> SessionTable<K> {
    /// An empty table for at most `max` sessions.
    pub fn new(secret: Secret, max: usize) -> Self {
        Self {
            map: Map::new(secret, max.max(1)),
            last: KeyedSlot::new(),
            last_hits: Cell::new(0),
            clocks: Clocks::default(),
            crowds: Crowds::new(secret.hash(&[]), max.max(1)),
            charged: Charged::default(),
            max: max.max(1),
            idle_max: max.max(1),
            passive_max: usize::MAX,
            rank: None,
            looks: Cell::new(0),
            evicted: Cell::new(0),
        }
    }

    /// A table with a bound on the sessions that messages made for one upper protocol; 0 for none
    /// of its own.
    #[must_use]
    pub fn with_passive_max(mut self, passive_max: usize) -> Self {
        if passive_max > 0 {
            self.passive_max = passive_max;
        }
        self
    }

    /// A table for a layer whose sessions those of other tables hold: from `idle_max` sessions
    /// on, each that a message makes takes the place of an idle one. If there is none within reach,
    /// they are held, and bounded, by the tables above, and it finds room up to the table's `max`.
    #[must_use]
    pub fn with_idle_max(mut self, idle_max: usize) -> Self {
        self.idle_max = idle_max.clamp(1, self.max);
        self.crowds.set_room(self.idle_max);
        self
    }

    /// A table for sessions that a peer loses by an eviction: of those that the clock's hand
    /// comes to next the lowest by `rank` goes, held or not, however often the hand has passed
    /// since it was used.
    #[must_use]
    pub fn with_rank(mut self, rank: Rank) -> Self {
        self.rank = Some(rank);
        self
    }

    /// The session with this key.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Option<SessionRef> {
        match self.latest(key) {
            Some(session) => Some(session),
            None => self.find(key),
        }
    }

    /// The session with this key if it is the one that was found last. `None` says nothing:
    /// [`SessionTable::get`] knows. A `demux` that first asks here keeps the search out of the way
    /// of messages that come in trains.
    #[inline(always)]
    pub fn latest(&self, key: &K) -> Option<SessionRef> {
        let session = self.last.get(key)?;
        self.last_hits.set(self.last_hits.get() + 1);
        Some(session)
    }

    /// The session with this key, for a `demux` that has asked [`latest`](Self::latest) in vain.
    #[inline(never)]
    pub fn find(&self, key: &K) -> Option<SessionRef> {
        let (session, is_again) = match self.map.recall(key) {
            Some(found) => found,
            None => match self.map.last(key) {
                Some(session) => (session, true),
                None => return self.map.search(key),
            },
        };
        if is_again {
            self.remember(key, &session);
        }
        Some(session)
    }

    /// Makes it the last hit; for one that was found twice in succession. Of others the next is
    /// likely another.
    #[cold]
    fn remember(&self, key: &K, session: &SessionRef) {
        drop(self.last.replace(Some((*key, session.clone()))));
    }

    /// Forgets the last hit if it is this key's.
    fn forget(&self, key: &K) {
        if self.last.has(key) {
            drop(self.last.replace(None));
        }
    }

    /// Binds a session; if the table is full, or its upper protocol's share is, evicts an idle one
    /// first.
    ///
    /// # Errors
    /// [`reason::TABLE_FULL`] if the key is bound already, or the table is full of sessions in use;
    /// [`reason::CLOSED`] if what the session stands on has ended meanwhile.
    pub fn bind(&self, cx: &Kernel, key: K, session: SessionRef) -> Result<(), &'static Reason> {
        if session.lost_lower().is_some() {
            return Err(&reason::CLOSED);
        }
        if self.map.contains(&key) {
            // No session is evicted for one that cannot be bound.
            return Err(&reason::TABLE_FULL);
        }
        let head = session.head();
        if let Some(payer) = head.payer()
            && self.charged.of(payer) >= (self.max / USER_SHARE).max(1)
        {
            self.may_look();
            if !self.evict_from(cx, head.upper(), Whose::Payer(payer)) {
                return Err(&reason::TABLE_FULL);
            }
        }
        let (passive, len) = (head.is_passive(), self.map.len());
        let full = len >= self.max;
        // Only strangers share out what there is. The last quarter is for sources that have less
        // than their share.
        let shared_from = self.idle_max.min(self.max - self.max / 4);
        if passive && len >= shared_from.min(COUNTED_FROM) {
            self.count_crowds();
        }
        let crowds = match passive && len >= shared_from {
            true => self.crowds.of(head.source()),
            false => [None; 2],
        };
        let crowds = || crowds.iter().copied().flatten().map(Whose::Crowd);
        let crowded = crowds().next().is_some() && len >= self.max - self.max / 4;
        let share_full = passive && self.clocks.passive(head.upper()) >= self.passive_max;
        if full || share_full || crowded || passive && len >= self.idle_max {
            self.may_look();
            // What goes from a full share makes room in a full table as well.
            let evict = |whose| match share_full {
                true => self.evict_from(cx, head.upper(), whose),
                false => self.evict(cx, whose),
            };
            // A network that only seems to have a share, for it is counted with another, has
            // nothing within reach: neither where the hand was, nor where it is now.
            let is_met = || crowds().any(|crowd| self.clocks.meets(SCAN_MAX, crowd));
            let evicted = crowds().any(evict)
                || match is_met() {
                    true => crowds().any(evict),
                    false => evict(Whose::Anyone),
                };
            if !evicted && (full || share_full || crowded && is_met()) {
                return Err(&reason::TABLE_FULL);
            }
        }
        self.map.bind(key, session.clone()).map_err(|_| &reason::TABLE_FULL)?;
        if self.clocks.len() >= 2 * self.max {
            self.clocks.clean(|entry| self.is_bound(entry));
        }
        if passive {
            self.crowds.enter(session.head().source());
        }
        self.charged.enter(session.head());
        self.clocks.enter(key, session);
        Ok(())
    }

    /// Allows looks at a number of entries that were in use, for one that was bound.
    fn may_look(&self) {
        self.looks.set((self.looks.get() + SCAN_MAX).min(self.clocks.len()));
    }

    /// The session of `upper` with this key, held once more; `None` if there is none.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if the key is that of another protocol's session.
    pub fn found(&self, key: &K, upper: &ProtocolRef) -> Result<Option<SessionRef>, OpenError> {
        let found = self.get(key);
        if let Some(session) = &found {
            if session.head().upper() != upper.id() {
                return Err(OpenError::InUse);
            }
            session.hold();
        }
        Ok(found)
    }

    /// The session of `upper` with this key, held once more, or else a new one with this body. A
    /// body that is not needed is closed, and gives back what it holds, such as the session below:
    /// by then one that was found holds that itself.
    ///
    /// # Errors
    /// [`OpenError::InUse`] if the key is that of another protocol's session, [`OpenError::Full`]
    /// if there is no room.
    pub fn open<S: Session + 'static>(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        key: K,
        body: S,
    ) -> Result<SessionRef, OpenError> {
        let session = cx.new_session(this, upper, body);
        let opened = match self.found(&key, upper) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => match self.bind(cx, key, session.clone()) {
                Ok(()) => return Ok(session),
                Err(_) => Err(OpenError::Full),
            },
            Err(error) => Err(error),
        };
        session.abort(cx);
        opened
    }

    /// The session that a message begins, and that `upper` agrees to: `make` gives its body, and
    /// the participants for its [`open_done`](crate::Protocol::open_done). `source` is as of
    /// [`Kernel::new_passive_session`]. If another message has made the session while the body was,
    /// it is that.
    ///
    /// # Errors
    /// Why there is none: [`reason::TABLE_FULL`], what `upper` says, or [`reason::NO_ANSWER`] if
    /// `make` lost a question.
    pub fn accept<S: Session + 'static>(
        &self,
        cx: &Kernel,
        this: &ProtocolRef,
        upper: &ProtocolRef,
        key: K,
        source: u64,
        make: impl FnOnce() -> (S, Participants),
    ) -> Result<SessionRef, &'static Reason> {
        let (body, ends) = cx.unless_lost(make)?;
        let session = cx.new_passive_session(this, upper, source, body);
        if let Some(found) = self.get(&key) {
            session.retire(cx);
            return Ok(found);
        }
        self.bind(cx, key, session.clone()).inspect_err(|_| session.retire(cx))?;
        if let Err(unwanted) = session.announce(cx, upper, ends) {
            // One whose `close` would leave it bound as an idle one goes too.
            self.release(&key, &session);
            session.abort(cx);
            return Err(unwanted);
        }
        Ok(session)
    }

    /// Whether an entry of the clock is still the one that is bound under its key.
    fn is_bound(&self, entry: &Entry<K>) -> bool {
        let is_same = |session: &SessionRef| *session == entry.session;
        self.map.look(&entry.key, is_same) == Some(true)
    }

    /// Evicts one idle session of the upper protocol that has the most sessions, else of the next
    /// one; of those that are meant.
    fn evict(&self, cx: &Kernel, whose: Whose) -> bool {
        let uppers = self.clocks.by_size();
        uppers.into_iter().any(|upper| self.evict_from(cx, upper, whose))
    }

    /// Evicts one idle session of an upper protocol, if there is one within reach of the clock's
    /// hand, or among those that were in use when it passed.
    fn evict_from(&self, cx: &Kernel, upper: ProtocolId, whose: Whose) -> bool {
        let evict = || match self.rank {
            Some(rank) => self.evict_least(cx, upper, whose, rank),
            None => self.evict_idle(cx, upper, whose),
        };
        self.recheck(cx, upper, RECHECK);
        evict() || self.recheck(cx, upper, usize::MAX) && evict()
    }

    /// Looks again at so many of the entries that were in use, or as many as may be looked at; true
    /// if one is back in the hand's way.
    fn recheck(&self, cx: &Kernel, upper: ProtocolId, most: usize) -> bool {
        let most = self.clocks.set_aside_len(upper).min(most).min(self.looks.get());
        self.looks.set(self.looks.get() - most);
        let mut is_any = false;
        for _ in 0..most {
            let Some(entry) = self.clocks.pop_set_aside(upper) else {
                break;
            };
            if !self.is_bound(&entry) {
                continue;
            }
            match self.is_in_use(cx, &entry.session) {
                true => self.clocks.set_aside(upper, entry),
                false => {
                    self.clocks.put_back(upper, entry);
                    is_any = true;
                }
            }
        }
        is_any
    }

    /// Whether a session is to stay, for whichever other.
    fn is_in_use(&self, cx: &Kernel, session: &SessionRef) -> bool {
        let head = session.head();
        // One that is closed but was left bound is not.
        !head.is_closed()
            && match self.rank {
                Some(rank) => rank(cx, session).is_none(),
                None => head.opens() > 0,
            }
    }

    /// The next entry under an upper protocol's hand that is bound and not in use, taken out.
    fn next(&self, cx: &Kernel, upper: ProtocolId) -> Option<Entry<K>> {
        while let Some(entry) = self.clocks.pop(upper) {
            if !self.is_bound(&entry) {
                continue;
            }
            if !self.is_in_use(cx, &entry.session) {
                return Some(entry);
            }
            self.clocks.set_aside(upper, entry);
        }
        None
    }

    fn evict_idle(&self, cx: &Kernel, upper: ProtocolId, whose: Whose) -> bool {
        let is_meant = |head: &SessionHead| whose.has(head);
        for _ in 0..SCAN_MAX {
            let Some(mut entry) = self.next(cx, upper) else {
                return false;
            };
            let head = entry.session.head();
            let received = head.received();
            let is_idle = is_meant(head) && entry.received >= received;
            if head.is_closed() || is_idle {
                self.expel(cx, &entry);
                return true;
            }
            if is_meant(head) {
                entry.received = received;
            }
            self.clocks.put_back(upper, entry);
        }
        // Everything near the hand was active: take the first one that is not in use all the same.
        // Not one that is bound no more: by now its key may be another's.
        let is_idle = |e: &Entry<K>| {
            let head = e.session.head();
            head.opens() == 0 && is_meant(head) && self.is_bound(e)
        };
        let Some(victim) = self.clocks.take_first(upper, SCAN_MAX, is_idle) else {
            return false;
        };
        self.expel(cx, &victim);
        true
    }

    /// Evicts the session of an upper protocol that `rank` puts lowest of those within reach of the
    /// clock's hand and are meant.
    fn evict_least(&self, cx: &Kernel, upper: ProtocolId, whose: Whose, rank: Rank) -> bool {
        let is_meant = |head: &SessionHead| whose.has(head);
        let mut least: Option<((u32, Time), Entry<K>)> = None;
        for _ in 0..SCAN_MAX {
            let Some(entry) = self.next(cx, upper) else {
                break;
            };
            let head = entry.session.head();
            let ranked = match is_meant(head) {
                true if head.is_closed() => Some((0, Time::ZERO)),
                true => rank(cx, &entry.session),
                false => None,
            };
            let lowest = least.as_ref().map(|(lowest, _)| *lowest);
            let back = match ranked {
                Some(ranked) if lowest.is_none_or(|lowest| ranked < lowest) => {
                    least.replace((ranked, entry)).map(|(_, entry)| entry)
                }
                _ => Some(entry),
            };
            if let Some(entry) = back {
                self.clocks.put_back(upper, entry);
            }
        }
        if let Some((_, victim)) = &least {
            self.expel(cx, victim);
        }
        least.is_some()
    }

    fn expel(&self, cx: &Kernel, victim: &Entry<K>) {
        self.forget(&victim.key);
        self.map.unbind(&victim.key);
        self.uncount(&victim.session);
        self.clocks.leave(&victim.session);
        self.evicted.set(self.evicted.get() + 1);
        victim.session.abort(cx);
    }

    /// Begins to count the networks of sources: of all sessions bound so far that messages made.
    fn count_crowds(&self) {
        self.crowds.begin(|enter| {
            self.map.for_each(|_, session| {
                if session.head().is_passive() {
                    enter(session.head().source());
                }
            });
        });
    }

    fn uncount(&self, session: &SessionRef) {
        if session.head().is_passive() {
            self.crowds.leave(session.head().source());
        }
        self.charged.leave(session.head());
    }

    /// Unbinds the session with this key.
    pub fn unbind(&self, key: &K) -> Option<SessionRef> {
        self.forget(key);
        let found = self.map.unbind(key);
        if let Some(session) = &found {
            self.uncount(session);
        }
        if let Some(session) = &found
            && !self.clocks.leave(session)
            && self.clocks.len() > 32
            && self.clocks.len() > 2 * self.map.len()
        {
            self.clocks.clean(|entry| self.is_bound(entry));
        }
        found
    }

    /// Unbinds this session, unless its key is another's by now; for a `close`.
    pub fn release(&self, key: &K, session: &SessionRef) {
        if self.get(key).as_ref() == Some(session) {
            self.unbind(key);
        }
    }

    /// Whether this session, which a message made, stays bound as an idle one until the table needs
    /// the room; if not, it is [released](Self::release).
    pub fn rests(&self, key: &K, session: &SessionRef) -> bool {
        let (head, is_bound) = (session.head(), self.get(key).as_ref() == Some(session));
        let rests = is_bound && head.is_passive() && !head.is_aborted();
        if is_bound && !rests {
            self.unbind(key);
        }
        rests
    }

    /// Number of bound sessions.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// True if no session is bound.
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// Number of idle sessions that were evicted for others.
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

    /// Figures of the map.
    pub fn stats(&self) -> MapStats {
        let stats = self.map.stats();
        let last = self.last_hits.get();
        MapStats { lookups: stats.lookups + last, cache_hits: stats.cache_hits + last, ..stats }
    }

    /// Number of upper protocols of which it keeps anything.
    #[cfg(test)]
    pub(super) fn uppers(&self) -> usize {
        self.clocks.by_size().len()
    }

    /// Unbinds all sessions, without closing them; for a protocol's `stop`.
    pub fn clear(&self) {
        let (clocks, last) = (self.clocks.take(), self.last.replace(None));
        self.map.clear();
        self.crowds.clear();
        self.charged.clear();
        drop((clocks, last));
    }
}
