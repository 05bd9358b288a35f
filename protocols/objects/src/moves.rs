//! Moves in two phases, as both hosts know them: without a kernel.
//!
//! The host that an object leaves offers it, the other keeps it and says so, without using it. Then
//! the first gives it up ([`Moves::commit`]), the only moment at which its place changes, and tells
//! the other until that has confirmed. A host that keeps an object and hears nothing asks whose it
//! is.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use xk_core::HostAddr;

/// The wait before the other host is told, or asked, again; doubled each time.
pub const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest such wait.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// An object that leaves this host, or one that may come.
#[derive(Clone, Copy, Debug)]
struct Half {
    /// Count of the new place.
    count: u32,
    /// The other host.
    host: HostAddr,
    /// The run of the host that the object leaves.
    boot: u32,
    /// Whether the object has been given up here; it may be asked for.
    is_settled: bool,
    due: Duration,
    wait: Duration,
}

impl Half {
    fn new((count, host): (u32, HostAddr), boot: u32, now: Duration) -> Self {
        let wait = FIRST_WAIT;
        Self { count, host, boot, is_settled: false, due: now + wait, wait }
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

/// Something that is to be done for a move now: object, count, other host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Tell the other host that the object is its own.
    Tell(u64, u32, HostAddr),
    /// Ask the other host, of this run, whose the object is.
    Ask(u64, u32, HostAddr, u32),
}

/// Moves that a host takes part in.
#[derive(Debug)]
pub struct Moves {
    boot: u32,
    leaving: BTreeMap<u64, Half>,
    coming: BTreeMap<u64, Half>,
    max: usize,
}

impl Moves {
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
    pub fn offer(&mut self, eid: u64, count: u32, to: HostAddr, now: Duration) -> bool {
        if self.leaving.contains_key(&eid) || self.leaving.len() >= self.max {
            return false;
        }
        self.leaving.insert(eid, Half::new((count, to), self.boot, now));
        true
    }

    /// Gives the object up, which the other host keeps; false if no such offer is under way.
    pub fn commit(&mut self, eid: u64, count: u32) -> bool {
        match self.leaving.get_mut(&eid).filter(|half| half.count == count) {
            Some(half) => !core::mem::replace(&mut half.is_settled, true),
            None => false,
        }
    }

    /// Takes an offer back; false once the object has been given up.
    pub fn abort(&mut self, eid: u64) -> bool {
        let is_offered = self.leaving.get(&eid).is_some_and(|half| !half.is_settled);
        is_offered && self.leaving.remove(&eid).is_some()
    }

    /// Notes that the other host knows the object as its own.
    pub fn confirmed(&mut self, eid: u64, count: u32) {
        if self.leaving.get(&eid).is_some_and(|half| half.is_settled && half.count == count) {
            self.leaving.remove(&eid);
        }
    }

    /// Answers a host that asks whose an object is.
    #[must_use]
    pub fn whose(&self, (eid, count): (u64, u32), asker: HostAddr, boot: u32) -> Whose {
        match self.leaving.get(&eid) {
            _ if boot != self.boot => Whose::Forgotten,
            Some(half) if (half.count, half.host) == (count, asker) => match half.is_settled {
                true => Whose::Yours,
                false => Whose::Wait,
            },
            _ => Whose::NotYours,
        }
    }

    /// Keeps an object that is offered by a run of another host; false if too many are kept, or the
    /// offer is older than one before.
    pub fn keep(
        &mut self,
        (eid, count): (u64, u32),
        from: HostAddr,
        boot: u32,
        now: Duration,
    ) -> bool {
        let is_known = match self.coming.get(&eid) {
            // An offer that comes twice is one.
            Some(half) if half.count >= count => {
                return (half.count, half.host, half.boot) == (count, from, boot);
            }
            known => known.is_some(),
        };
        let keeps = is_known || self.coming.len() < self.max;
        if keeps {
            self.coming.insert(eid, Half::new((count, from), boot, now));
        }
        keeps
    }

    /// Ends the keeping of an object which `from`, or with `None` this host, says to be ours or
    /// not; false if it is not kept from there with this count.
    pub fn release(&mut self, eid: u64, count: u32, from: Option<HostAddr>) -> bool {
        let is_meant =
            |half: &Half| half.count == count && from.is_none_or(|from| from == half.host);
        self.coming.get(&eid).is_some_and(is_meant) && self.coming.remove(&eid).is_some()
    }

    /// Time at which something is due next.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        let left = self.leaving.values().filter(|half| half.is_settled);
        left.chain(self.coming.values()).map(|half| half.due).min()
    }

    /// All that is due; each is due again after twice the wait.
    pub fn due(&mut self, now: Duration) -> Vec<Due> {
        let mut all = Vec::new();
        let mut look = |eid: u64, half: &mut Half, is_leaving: bool| {
            if half.due > now {
                return;
            }
            half.wait = (2 * half.wait).min(WAIT_MAX);
            half.due = now + half.wait;
            all.push(match is_leaving {
                true => Due::Tell(eid, half.count, half.host),
                false => Due::Ask(eid, half.count, half.host, half.boot),
            });
        };
        let left = self.leaving.iter_mut().filter(|(_, half)| half.is_settled);
        left.for_each(|(eid, half)| look(*eid, half, true));
        self.coming.iter_mut().for_each(|(eid, half)| look(*eid, half, false));
        all
    }
}

#[cfg(test)]
mod tests;
