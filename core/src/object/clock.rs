//! The order in which a table looks for a session to evict: a clock for each upper protocol.

use super::payer::Whose;
use super::{ProtocolId, SessionRef};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::RefCell;

/// A session of the table. It may have been unbound since.
pub(super) struct Entry<K> {
    pub(super) key: K,
    pub(super) session: SessionRef,
    /// Number of messages up to which the session counts as unused when the hand comes: the number
    /// that it had received when the hand last passed. A session that a message made has received
    /// that message.
    pub(super) received: u64,
}

/// The sessions of one upper protocol.
struct Clock<K> {
    upper: ProtocolId,
    entries: VecDeque<Entry<K>>,
    /// Entries that the hand found in use. They are out of its way until they are looked at again.
    in_use: VecDeque<Entry<K>>,
    /// Number of bound sessions that messages made.
    passive: usize,
}

/// All clocks of a table, in the order of their upper protocols: of as many as have entries or
/// sessions there, for those of programs come and go. Nothing is borrowed while a handle is
/// dropped, for what that drops may come back.
pub(super) struct Clocks<K>(RefCell<Vec<Clock<K>>>);

impl<K> Default for Clocks<K> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<K> Clock<K> {
    fn len(&self) -> usize {
        self.entries.len() + self.in_use.len()
    }

    fn is_of_use(&self) -> bool {
        self.len() > 0 || self.passive > 0
    }
}

impl<K> Clocks<K> {
    /// Uses a clock, which is made if there is none and goes if it is of no use any more.
    fn with<R>(&self, upper: ProtocolId, act: impl FnOnce(&mut Clock<K>) -> R) -> R {
        let mut clocks = self.0.borrow_mut();
        let at = match clocks.binary_search_by_key(&upper, |clock| clock.upper) {
            Ok(at) => at,
            Err(at) => {
                let (entries, in_use) = (VecDeque::new(), VecDeque::new());
                // Most tables serve one or two, and there are thousands of tables.
                if clocks.len() < 4 {
                    clocks.reserve_exact(1);
                }
                clocks.insert(at, Clock { upper, entries, in_use, passive: 0 });
                at
            }
        };
        let done = act(&mut clocks[at]);
        if !clocks[at].is_of_use() {
            let _ = clocks.remove(at);
        }
        done
    }

    /// Number of bound sessions of an upper protocol that messages made.
    pub(super) fn passive(&self, upper: ProtocolId) -> usize {
        let clocks = self.0.borrow();
        let at = clocks.binary_search_by_key(&upper, |clock| clock.upper);
        at.map_or(0, |at| clocks[at].passive)
    }

    /// Number of entries, with those of sessions unbound since.
    pub(super) fn len(&self) -> usize {
        self.0.borrow().iter().map(Clock::len).sum()
    }

    /// The upper protocols, that with the most entries first.
    pub(super) fn by_size(&self) -> Vec<ProtocolId> {
        let clocks = self.0.borrow();
        let mut sizes: Vec<_> = clocks.iter().map(|c| (c.len(), c.upper)).collect();
        sizes.sort_unstable_by_key(|size| core::cmp::Reverse(*size));
        sizes.into_iter().map(|(_, upper)| upper).collect()
    }

    /// Enters a session that has just been bound.
    pub(super) fn enter(&self, key: K, session: SessionRef) {
        let passive = session.head().is_passive();
        let entry = Entry { key, received: if passive { 1 } else { 0 }, session };
        self.with(entry.session.head().upper(), |clock| {
            clock.passive += usize::from(passive);
            if clock.entries.capacity() == 0 {
                clock.entries.reserve_exact(1);
            }
            clock.entries.push_back(entry);
        });
    }

    /// Notes that a session was unbound. Near either end it is taken out at once, and then the
    /// answer is true; elsewhere the hand or a clean-up finds it.
    pub(super) fn leave(&self, session: &SessionRef) -> bool {
        let gone = self.with(session.head().upper(), |clock| {
            if session.head().is_passive() {
                clock.passive = clock.passive.saturating_sub(1);
            }
            let is = |entry: &Entry<K>| entry.session == *session;
            let ends = |entries: &mut VecDeque<Entry<K>>| match entries.back().is_some_and(is) {
                true => entries.pop_back(),
                false => entries.pop_front_if(|entry| is(entry)),
            };
            ends(&mut clock.entries).or_else(|| ends(&mut clock.in_use))
        });
        gone.is_some()
    }

    /// The entry under an upper protocol's hand, taken out.
    pub(super) fn pop(&self, upper: ProtocolId) -> Option<Entry<K>> {
        self.with(upper, |clock| clock.entries.pop_front())
    }

    /// Puts one back, behind all others.
    pub(super) fn put_back(&self, upper: ProtocolId, entry: Entry<K>) {
        self.with(upper, |clock| clock.entries.push_back(entry));
    }

    /// Puts one that is in use out of the hand's way.
    pub(super) fn set_aside(&self, upper: ProtocolId, entry: Entry<K>) {
        self.with(upper, |clock| clock.in_use.push_back(entry));
    }

    /// Takes out the entry that was set aside whose last look is the longest ago.
    pub(super) fn pop_set_aside(&self, upper: ProtocolId) -> Option<Entry<K>> {
        self.with(upper, |clock| clock.in_use.pop_front())
    }

    /// Number of entries that are set aside.
    pub(super) fn set_aside_len(&self, upper: ProtocolId) -> usize {
        self.with(upper, |clock| clock.in_use.len())
    }

    /// Takes out the first of the next `scan_max` entries that `fits`.
    pub(super) fn take_first(
        &self,
        upper: ProtocolId,
        scan_max: usize,
        fits: impl Fn(&Entry<K>) -> bool,
    ) -> Option<Entry<K>> {
        self.with(upper, |clock| {
            let at = clock.entries.iter().take(scan_max).position(fits)?;
            clock.entries.remove(at)
        })
    }

    /// Whether one of the next `scan_max` entries of an upper protocol is of these.
    #[cold]
    pub(super) fn meets(&self, scan_max: usize, whose: Whose) -> bool {
        let clocks = self.0.borrow();
        let near = |entries: &VecDeque<Entry<K>>| {
            entries.iter().take(scan_max).any(|entry| whose.has(entry.session.head()))
        };
        clocks.iter().any(|clock| near(&clock.entries) || near(&clock.in_use))
    }

    /// Takes the entries out that are not to be kept.
    #[cold]
    pub(super) fn clean(&self, keep: impl Fn(&Entry<K>) -> bool) {
        let mut gone = Vec::new();
        let mut clocks = self.0.borrow_mut();
        for clock in clocks.iter_mut() {
            for entries in [&mut clock.entries, &mut clock.in_use] {
                let all = core::mem::take(entries);
                let (kept, left): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(&keep);
                *entries = kept;
                gone.push(left);
            }
        }
        clocks.retain(Clock::is_of_use);
        drop(clocks);
        // The last handles of some may be among them, and what they drop may come back here.
        drop(gone);
    }

    /// Takes everything out.
    pub(super) fn take(&self) -> impl Sized + use<K> {
        self.0.take()
    }
}
