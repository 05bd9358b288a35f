//! In which order a table looks for a session to evict: a clock for each upper protocol.

use super::crowd::Crowd;
use super::{ProtocolId, SessionRef};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::cell::RefCell;

/// A session of the table. It may have been unbound since.
pub(super) struct Entry<K> {
    pub(super) key: K,
    pub(super) session: SessionRef,
    /// Up to how many messages it may have received, and count as unused, when the hand comes: what
    /// it had when the hand last passed. One that a message made has received that one.
    pub(super) received: u64,
}

/// The sessions of one upper protocol.
struct Clock<K> {
    upper: ProtocolId,
    entries: VecDeque<Entry<K>>,
    /// How many sessions are bound that messages made.
    passive: usize,
}

/// All clocks of a table: as many as upper protocols have had sessions there. Nothing is borrowed
/// while a handle is dropped, for what that drops may come back.
pub(super) struct Clocks<K>(RefCell<Vec<Clock<K>>>);

impl<K> Default for Clocks<K> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<K> Clocks<K> {
    fn with<R>(&self, upper: ProtocolId, act: impl FnOnce(&mut Clock<K>) -> R) -> R {
        let mut clocks = self.0.borrow_mut();
        let at = match clocks.iter().position(|clock| clock.upper == upper) {
            Some(at) => at,
            None => {
                clocks.push(Clock { upper, entries: VecDeque::new(), passive: 0 });
                clocks.len() - 1
            }
        };
        act(&mut clocks[at])
    }

    /// How many sessions of an upper protocol are bound that messages made.
    pub(super) fn passive(&self, upper: ProtocolId) -> usize {
        let clocks = self.0.borrow();
        let clock = clocks.iter().find(|clock| clock.upper == upper);
        clock.map_or(0, |clock| clock.passive)
    }

    /// How many entries there are, those of sessions unbound since included.
    pub(super) fn len(&self) -> usize {
        self.0.borrow().iter().map(|c| c.entries.len()).sum()
    }

    /// The upper protocols, that with the most entries first.
    pub(super) fn by_size(&self) -> Vec<ProtocolId> {
        let clocks = self.0.borrow();
        let mut sizes: Vec<_> = clocks.iter().map(|c| (c.entries.len(), c.upper)).collect();
        sizes.sort_unstable_by_key(|size| core::cmp::Reverse(*size));
        sizes.into_iter().map(|(_, upper)| upper).collect()
    }

    /// Enters a session that has just been bound.
    pub(super) fn enter(&self, key: K, session: SessionRef) {
        let passive = session.head().is_passive();
        let entry = Entry { key, received: if passive { 1 } else { 0 }, session };
        self.with(entry.session.head().upper(), |clock| {
            clock.passive += usize::from(passive);
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
            if clock.entries.back().is_some_and(is) {
                clock.entries.pop_back()
            } else if clock.entries.front().is_some_and(is) {
                clock.entries.pop_front()
            } else {
                None
            }
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

    /// Whether one of the next `scan_max` entries of an upper protocol is of a crowd.
    #[cold]
    pub(super) fn meets(&self, scan_max: usize, crowd: Crowd) -> bool {
        let clocks = self.0.borrow();
        let mut next = clocks.iter().flat_map(|clock| clock.entries.iter().take(scan_max));
        next.any(|entry| crowd.has(entry.session.head().source()))
    }

    /// Takes the entries out that are not to be kept.
    #[cold]
    pub(super) fn clean(&self, keep: impl Fn(&Entry<K>) -> bool) {
        let mut gone = Vec::new();
        for clock in self.0.borrow_mut().iter_mut() {
            let entries = core::mem::take(&mut clock.entries);
            let (kept, left): (VecDeque<_>, VecDeque<_>) = entries.into_iter().partition(&keep);
            clock.entries = kept;
            gone.push(left);
        }
        // The last handles of some may be among them, and what they drop may come back here.
        drop(gone);
    }

    /// Takes everything out.
    pub(super) fn take(&self) -> impl Sized + use<K> {
        self.0.take()
    }
}
