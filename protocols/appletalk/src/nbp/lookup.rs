//! Looking a name up: requests until there are answers enough, or as often as is wished.

use super::{Entity, Function, Packet, Tuple};
use crate::addr::{AtAddr, Node};
use alloc::vec::Vec;
use core::time::Duration;

/// Settings of a search: requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupConfig {
    /// Requests.
    pub tries: u8,
    /// The time from one to the next, and from the last to the end.
    pub interval: Duration,
    /// Answers at which the search ends; never more than these are kept.
    pub answers_max: usize,
}

impl Default for LookupConfig {
    /// Three requests, a second apart, and up to 32 answers.
    fn default() -> Self {
        Self { tries: 3, interval: Duration::from_secs(1), answers_max: 32 }
    }
}

/// A search that goes on.
#[derive(Clone, Debug)]
pub struct Lookup {
    id: u8,
    from: AtAddr,
    entity: Entity,
    config: LookupConfig,
    /// Requests sent.
    sent: u8,
    next: Duration,
    found: Vec<Tuple>,
}

/// Step of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sends this request: to a router if one is known ([`Function::BrRq`]), else to all nodes.
    Send(Packet),
    /// Has ended with these.
    Done(Vec<Tuple>),
}

impl Lookup {
    /// Begins to look for an entity; answers go to `from`. Its first step is due now.
    #[must_use]
    pub const fn new(
        id: u8,
        from: AtAddr,
        entity: Entity,
        config: LookupConfig,
        now: Duration,
    ) -> Self {
        Self { id, from, entity, config, sent: 0, next: now, found: Vec::new() }
    }

    /// Time at which [`tick`](Self::tick) has something to do.
    #[must_use]
    pub const fn next(&self) -> Duration {
        self.next
    }

    /// Tuples found so far.
    #[must_use]
    pub fn found(&self) -> &[Tuple] {
        &self.found
    }

    /// Does what is due; `has_router` says which kind of request it is.
    pub fn tick(&mut self, now: Duration, has_router: bool) -> Option<Step> {
        if self.next > now {
            return None;
        }
        if self.sent >= self.config.tries || self.is_done() {
            self.next = Duration::MAX;
            return Some(Step::Done(core::mem::take(&mut self.found)));
        }
        self.sent += 1;
        self.next = now + self.config.interval;
        let function = if has_router { Function::BrRq } else { Function::LkUp };
        Some(Step::Send(Packet::request(function, self.id, self.from, self.entity)))
    }

    fn is_done(&self) -> bool {
        self.found.len() >= self.config.answers_max
    }

    /// The node has another address: it asks from the beginning, for answers to the one before do
    /// not arrive.
    pub fn moved(&mut self, node: Node, now: Duration) {
        if self.from.at() != node {
            self.from = node.socket(self.from.socket);
            (self.sent, self.next) = (0, now);
        }
    }

    /// Takes an answer in. True if it has what it looks for, and ends: a step is due.
    pub fn heard(&mut self, reply: &Packet, now: Duration) -> bool {
        if reply.function != Function::Reply || reply.id != self.id || self.sent == 0 {
            return false;
        }
        for tuple in &reply.tuples {
            let is_known = |known: &Tuple| {
                known.at == tuple.at
                    && (known.enumerator == tuple.enumerator || known.entity == tuple.entity)
            };
            // A packet of an earlier search with this number does not become an answer.
            let is_meant = tuple.entity.is_meant_by(&self.entity) && tuple.at.at().is_one();
            if is_meant && !self.is_done() && !self.found.iter().any(is_known) {
                self.found.push(*tuple);
            }
        }
        if self.is_done() {
            self.next = now;
        }
        self.is_done()
    }
}

/// The searches of a node, by number; each is for one of the caller's, `T`.
#[derive(Clone, Debug)]
pub struct Lookups<T> {
    running: Vec<(Lookup, T)>,
    last_id: u8,
    max: usize,
}

impl<T> Lookups<T> {
    /// None, and room for so many, of which there are never more than 128.
    #[must_use]
    pub const fn new(max: usize) -> Self {
        Self { running: Vec::new(), last_id: 0, max: if max > 128 { 128 } else { max } }
    }

    /// Begins a search.
    ///
    /// # Errors
    /// There are as many as there may be; what it was for comes back.
    pub fn start(
        &mut self,
        (entity, from): (Entity, AtAddr),
        config: LookupConfig,
        now: Duration,
        of: T,
    ) -> Result<u8, T> {
        if self.running.len() >= self.max {
            return Err(of);
        }
        let is_used = |id: u8| self.running.iter().any(|(lookup, _)| lookup.id == id);
        let mut id = self.last_id.wrapping_add(1);
        while is_used(id) {
            id = id.wrapping_add(1);
        }
        self.last_id = id;
        self.running.push((Lookup::new(id, from, entity, config, now), of));
        Ok(id)
    }

    /// Number of searches that go on.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.running.len()
    }

    /// True if none does.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Time at which [`tick`](Self::tick) has something to do.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        self.running.iter().map(|(lookup, _)| lookup.next()).min()
    }

    /// The node has another address: what goes on begins again.
    pub fn moved(&mut self, node: Node, now: Duration) {
        self.running.iter_mut().for_each(|(lookup, _)| lookup.moved(node, now));
    }

    /// Takes an answer in; false if no search is for it.
    pub fn heard(&mut self, reply: &Packet, now: Duration) -> bool {
        let Some((lookup, _)) = self.running.iter_mut().find(|(lookup, _)| lookup.id == reply.id)
        else {
            return false;
        };
        lookup.heard(reply, now);
        true
    }

    /// Does one thing that is due; to be called until nothing is.
    pub fn tick(&mut self, now: Duration, has_router: bool) -> Option<Due<T>> {
        let at = self.running.iter().position(|(lookup, _)| lookup.next() <= now)?;
        match self.running[at].0.tick(now, has_router)? {
            Step::Send(packet) => Some(Due::Send(packet)),
            Step::Done(found) => Some(Due::Done(self.running.swap_remove(at).1, found)),
        }
    }
}

/// Step of one of several searches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due<T> {
    /// As [`Step::Send`].
    Send(Packet),
    /// As [`Step::Done`], and whose it was.
    Done(T, Vec<Tuple>),
}
