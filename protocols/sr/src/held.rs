//! Invocations on this machine: those queued, among which guards choose, and those being executed,
//! of which each is answered once. An object without a kernel.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;
use xk_kit::rpc::invoke::Manner;

/// Forwarded invocations whose new machine is known.
pub const FORWARDED_MAX: usize = 1024;
/// Machines that may forward one invocation.
pub const HOPS_MAX: u8 = 15;

/// An invocation, as the first caller made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invoked {
    /// Manner of the invocation.
    pub manner: Manner,
    /// Machine of the first caller.
    pub origin: u16,
    /// Process of the first caller.
    pub process: u8,
    /// Number of times that it has been forwarded.
    pub hops: u8,
    /// The operation.
    pub operation: u32,
    /// Token of the first caller.
    pub token: u32,
    /// Number of the invocation among those of its process on the machine that was invoked first.
    pub order: u32,
}

/// Whereabouts of an invocation, as its caller asks for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Queued or executed here, or its result is on the way.
    Here,
    /// Forwarded to this machine.
    Forwarded(u16),
    /// Not known here.
    Unknown,
}

enum State<T> {
    Queued(T),
    Running,
    /// The answer was sent, or it was forwarded.
    Answered,
}

/// The queued and executed invocations; each of the queued has a `T`, the work.
pub struct Held<T> {
    all: BTreeMap<u32, (Invoked, State<T>)>,
    queued: usize,
    queued_max: usize,
    last: u32,
    forwarded: VecDeque<((u16, u32), u16)>,
}

impl<T> Held<T> {
    /// None yet; at most `queued_max` are queued.
    pub fn new(queued_max: usize) -> Self {
        let forwarded = VecDeque::new();
        Self { all: BTreeMap::new(), queued: 0, queued_max, last: 0, forwarded }
    }

    /// Queues an invocation behind all others.
    ///
    /// # Errors
    /// The work, if as many are queued as may be.
    pub fn add(&mut self, invoked: Invoked, work: T) -> Result<u32, T> {
        if self.queued >= self.queued_max {
            return Err(work);
        }
        self.last = self.last.wrapping_add(1).max(1);
        while self.all.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1).max(1);
        }
        self.all.insert(self.last, (invoked, State::Queued(work)));
        self.queued += 1;
        Ok(self.last)
    }

    /// The next queued invocation behind that with this number; behind 0 is the oldest.
    pub fn after(&self, number: u32) -> Option<(u32, &Invoked, &T)> {
        let behind = self.all.range((Bound::Excluded(number), Bound::Unbounded));
        behind.into_iter().find_map(|(number, (invoked, state))| match state {
            State::Queued(work) => Some((*number, invoked, work)),
            _ => None,
        })
    }

    /// Takes a queued invocation to execute it.
    pub fn take(&mut self, number: u32) -> Option<(Manner, T)> {
        let (invoked, state) = self.all.get_mut(&number)?;
        match core::mem::replace(state, State::Running) {
            State::Queued(work) => {
                self.queued -= 1;
                Some((invoked.manner, work))
            }
            before => {
                *state = before;
                None
            }
        }
    }

    /// Marks an invocation that is being executed as answered, which it is once; `None` for any
    /// other.
    pub fn answer(&mut self, number: u32) -> Option<Invoked> {
        let (invoked, state) = self.all.get_mut(&number)?;
        matches!(state, State::Running).then(|| {
            *state = State::Answered;
            *invoked
        })
    }

    /// Takes [`answer`](Self::answer) back: it could not be forwarded.
    pub fn restore(&mut self, number: u32) {
        if let Some((_, state @ State::Answered)) = self.all.get_mut(&number) {
            *state = State::Running;
        }
    }

    /// Notes where an invocation went on.
    pub fn forward(&mut self, invoked: &Invoked, to: u16) {
        if self.forwarded.len() >= FORWARDED_MAX {
            self.forwarded.pop_front();
        }
        self.forwarded.push_back(((invoked.origin, invoked.token), to));
    }

    /// Forgets an invocation that is over.
    pub fn remove(&mut self, number: u32) {
        self.all.remove(&number);
    }

    /// Takes all queued invocations of these operations out.
    pub fn destroy(&mut self, is: impl Fn(u32) -> bool) -> Vec<(Invoked, T)> {
        let mut taken = Vec::new();
        let mut number = 0;
        while let Some((next, invoked, _)) = self.after(number) {
            let invoked = *invoked;
            number = next;
            if is(invoked.operation)
                && let Some((_, work)) = self.take(next)
            {
                self.remove(next);
                taken.push((invoked, work));
            }
        }
        taken
    }

    /// Looks where an invocation is.
    pub fn find(&self, origin: u16, token: u32) -> Whereabouts {
        let mut forwarded = self.forwarded.iter().rev();
        let is = |invoked: &Invoked| (invoked.origin, invoked.token) == (origin, token);
        match forwarded.find(|(of, _)| *of == (origin, token)) {
            _ if self.all.values().any(|(i, s)| is(i) && !matches!(s, State::Answered)) => {
                Whereabouts::Here
            }
            Some((_, to)) => Whereabouts::Forwarded(*to),
            // It may be on its way to another machine.
            None if self.all.values().any(|(i, _)| is(i)) => Whereabouts::Here,
            None => Whereabouts::Unknown,
        }
    }

    /// Number of queued invocations, and of all.
    pub fn len(&self) -> (usize, usize) {
        (self.queued, self.all.len())
    }

    /// Whether nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.queued == 0
    }
}

/// The queued invocation that is executed next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice(Option<(i64, u32)>);

impl Choice {
    /// Hears what a guard says of an invocation. Older ones are heard first.
    pub fn hear(&mut self, number: u32, may: bool, by: i64) {
        if may && self.0.is_none_or(|(best, _)| by < best) {
            self.0 = Some((by, number));
        }
    }

    /// The one that is chosen.
    pub fn chosen(self) -> Option<u32> {
        self.0.map(|(_, number)| number)
    }
}

#[cfg(test)]
mod tests;
