//! Moves in two phases, as both hosts know them: without a kernel.
//!
//! The host that an object leaves offers it, the other keeps it and says so, without using it. Then
//! the first gives it up ([`Moves::commit`]), the only moment at which its place changes, and tells
//! the other until that has confirmed. A host that keeps an object and hears nothing asks whose it
//! is. Both do so for a bounded time: the second decides by itself before the first stops.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::HostAddr;

/// The wait before the other host is asked, and before it is told again; doubled each time.
pub const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest such wait.
pub const WAIT_MAX: Duration = Duration::from_secs(30);
/// Questions without an answer after which a host decides by itself, after a minute.
pub const ASKS_MAX: u32 = 7;
/// Times that the other host is told, in three minutes and a half.
pub const TELLS_MAX: u32 = 12;

/// Object, and count of its new place.
pub type Subject = (u64, u32);

/// An object that leaves this host, or one that may come.
#[derive(Clone, Copy, Debug)]
struct Half {
    count: u32,
    /// The other host.
    host: HostAddr,
    /// The run of the host that the object leaves.
    boot: u32,
    /// Times that it was due.
    tries: u32,
    /// Next time at which something is due; none before the object has been given up, or before
    /// the other host has confirmed the offer.
    due: Option<Duration>,
}

impl Half {
    /// Notes that it was due at `now`; false if it was not.
    fn was_due(&mut self, now: Duration) -> bool {
        let is_due = self.due.is_some_and(|due| due <= now);
        if is_due {
            let wait = FIRST_WAIT * (1 << self.tries.min(6));
            (self.tries, self.due) = (self.tries + 1, Some(now + wait.min(WAIT_MAX)));
        }
        is_due
    }
}

/// Answer to a host that asks whose an object is which it was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The asker's.
    Yours,
    /// Not the asker's, and never will be by this offer.
    NotYours,
    /// Not known yet.
    Wait,
    /// This host has been started again since the offer.
    Forgotten,
}

/// Something that is to be done for a move now, about the other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Tell it that the object is its own.
    Tell(Subject, HostAddr),
    /// Ask it, of this run, whose the object is.
    Ask(Subject, HostAddr, u32),
    /// Take the object, unless another host has it: this run does not answer.
    Decide(Subject, HostAddr, u32),
}

/// Moves that a host takes part in; `I` is kept of an object that may come.
#[derive(Debug)]
pub struct Moves<I = ()> {
    boot: u32,
    leaving: BTreeMap<u64, Half>,
    coming: BTreeMap<u64, (Half, I)>,
    max: usize,
}

impl<I> Moves<I> {
    /// No moves; there may be so many of objects that leave, and of those that come.
    #[must_use]
    pub fn new(boot: u32, max: usize) -> Self {
        Self { boot, leaving: BTreeMap::new(), coming: BTreeMap::new(), max }
    }

    /// The number of this run of the host.
    #[must_use]
    pub fn boot(&self) -> u32 {
        self.boot
    }

    /// Number of moves: of objects that leave, and of those that come.
    #[must_use]
    pub fn len(&self) -> (usize, usize) {
        (self.leaving.len(), self.coming.len())
    }

    /// Begins to offer an object; false if it, or too many, are on the move.
    pub fn offer(&mut self, (eid, count): Subject, host: HostAddr) -> bool {
        let is_free = !self.leaving.contains_key(&eid) && self.leaving.len() < self.max;
        if is_free {
            let half = Half { count, host, boot: self.boot, tries: 0, due: None };
            self.leaving.insert(eid, half);
        }
        is_free
    }

    /// Gives the object up, which the other host keeps, and is to be told of; false if no such
    /// offer is under way.
    pub fn commit(&mut self, (eid, count): Subject, now: Duration) -> bool {
        let open = |half: &&mut Half| half.count == count && half.due.is_none();
        let half = self.leaving.get_mut(&eid).filter(open);
        half.map(|half| half.due = Some(now)).is_some()
    }

    /// Takes an offer back; false once the object has been given up.
    pub fn abort(&mut self, eid: u64) -> bool {
        let is_open = self.leaving.get(&eid).is_some_and(|half| half.due.is_none());
        is_open && self.leaving.remove(&eid).is_some()
    }

    /// Notes that the other host has answered what it was told.
    pub fn confirmed(&mut self, (eid, count): Subject) {
        if self.leaving.get(&eid).is_some_and(|half| half.due.is_some() && half.count == count) {
            self.leaving.remove(&eid);
        }
    }

    /// Answers a host that asks whose an object is.
    #[must_use]
    pub fn whose(&self, (eid, count): Subject, asker: HostAddr, boot: u32) -> Whose {
        match self.leaving.get(&eid) {
            _ if boot != self.boot => Whose::Forgotten,
            Some(half) if (half.count, half.host) != (count, asker) => Whose::NotYours,
            Some(half) if half.due.is_none() => Whose::Wait,
            Some(_) => Whose::Yours,
            None => Whose::NotYours,
        }
    }

    /// Keeps an object that is offered by a run of another host, with what `image` gives; `None`
    /// if another offer of it, or too many, in all or of that host, are kept, and false if this one
    /// is. Without `now` the offer may be forged, and counts once it is [confirmed](Self::offered).
    pub fn keep(
        &mut self,
        (eid, count): Subject,
        (host, boot): (HostAddr, u32),
        now: Option<Duration>,
        image: impl FnOnce() -> I,
    ) -> Option<bool> {
        let of_host = self.coming.values().filter(|(half, _)| half.host == host).count();
        let has_room = self.coming.len() < self.max && of_host < self.max.div_ceil(4);
        match self.coming.entry(eid) {
            Entry::Occupied(kept) => {
                let half = kept.get().0;
                let is_this = (half.count, half.host, half.boot) == (count, host, boot);
                (is_this && half.due.is_some()).then_some(false)
            }
            Entry::Vacant(free) => has_room.then(|| {
                let due = now.map(|now| now + FIRST_WAIT);
                let half = Half { count, host, boot, tries: 0, due };
                free.insert((half, image()));
                true
            }),
        }
    }

    /// Notes that the host that an offer seems to be from has confirmed it.
    pub fn offered(&mut self, eid: u64, now: Duration) {
        if let Some((half, _)) = self.coming.get_mut(&eid) {
            half.due = Some(now + FIRST_WAIT);
        }
    }

    /// Ends the keeping of an object that is meant by this run of a host; `None` if it is not kept.
    pub fn release(&mut self, (eid, count): Subject, (from, boot): (HostAddr, u32)) -> Option<I> {
        let (half, _) = self.coming.get(&eid)?;
        let is_meant = (half.count, half.host, half.boot) == (count, from, boot);
        (is_meant && half.due.is_some()).then(|| self.coming.remove(&eid))?.map(|(_, image)| image)
    }

    /// Time at which something is due next.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        let coming = self.coming.values().map(|(half, _)| half);
        self.leaving.values().chain(coming).filter_map(|half| half.due).min()
    }

    /// All that is due; each is due again after twice the wait, or is over.
    pub fn due(&mut self, now: Duration) -> Vec<Due> {
        let mut all = Vec::new();
        self.leaving.retain(|eid, half| {
            let (is_due, goes_on) = (half.was_due(now), half.tries <= TELLS_MAX);
            if is_due && goes_on {
                all.push(Due::Tell((*eid, half.count), half.host));
            }
            goes_on
        });
        for (eid, (half, _)) in &mut self.coming {
            if half.was_due(now) {
                let subject = (*eid, half.count);
                all.push(match half.tries <= ASKS_MAX {
                    true => Due::Ask(subject, half.host, half.boot),
                    false => Due::Decide(subject, half.host, half.boot),
                });
            }
        }
        all
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.leaving.clear();
        self.coming.clear();
    }
}

#[cfg(test)]
mod tests;
