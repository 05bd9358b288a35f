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
    /// Number of the invocation among those of its process on the machine that was invoked first;
    /// of one that was forwarded the machine that did so.
    pub order: u32,
}

impl Invoked {
    /// The machine that sent it here.
    #[must_use]
    pub const fn sender(&self) -> u16 {
        if self.hops > 0 { self.order as u16 } else { self.origin }
    }
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

/// Limits of what is held.
#[derive(Clone, Copy, Debug)]
pub struct Most {
    /// Queued invocations.
    pub queued: usize,
    /// Invocations of one other machine, from their arrival until their results have arrived.
    pub of_machine: usize,
    /// Results on the way to one machine, after which none of its invocations begins.
    pub results: u32,
}

/// Invocations of a machine, and results on the way to it.
#[derive(Clone, Copy, Default)]
struct Share {
    held: usize,
    results: u32,
}

/// The queued and executed invocations; each of the queued has a `T`, the work.
pub struct Held<T> {
    own: u16,
    most: Most,
    all: BTreeMap<u32, (Invoked, State<T>)>,
    shares: BTreeMap<u16, Share>,
    queued: usize,
    last: u32,
    forwarded: VecDeque<((u16, u32), u16)>,
}

impl<T> Held<T> {
    /// None yet, on the machine `own`.
    pub fn new(own: u16, most: Most) -> Self {
        let (forwarded, shares) = (VecDeque::new(), BTreeMap::new());
        Self { own, most, all: BTreeMap::new(), shares, queued: 0, last: 0, forwarded }
    }

    /// Queues an invocation behind all others.
    ///
    /// # Errors
    /// The work, if as many are queued, or held of its sender, as may be.
    pub fn add(&mut self, invoked: Invoked, work: T) -> Result<u32, T> {
        let sender = invoked.sender();
        let held = self.shares.get(&sender).map_or(0, |share| share.held);
        if self.queued >= self.most.queued || sender != self.own && held >= self.most.of_machine {
            return Err(work);
        }
        self.shares.entry(sender).or_default().held += 1;
        self.last = self.last.wrapping_add(1).max(1);
        while self.all.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1).max(1);
        }
        self.all.insert(self.last, (invoked, State::Queued(work)));
        self.queued += 1;
        Ok(self.last)
    }

    /// The next queued invocation behind that with this number; behind 0 is the oldest. Those of
    /// machines that do not take their results wait.
    pub fn after(&self, number: u32) -> Option<(u32, &Invoked, &T)> {
        let takes = |invoked: &Invoked| {
            self.shares.get(&invoked.sender()).is_none_or(|of| of.results < self.most.results)
        };
        let behind = self.all.range((Bound::Excluded(number), Bound::Unbounded));
        behind.into_iter().find_map(|(number, (invoked, state))| match state {
            State::Queued(work) if takes(invoked) => Some((*number, invoked, work)),
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

    /// As [`answer`](Self::answer); its result is on the way until [`sent`](Self::sent).
    pub fn reply(&mut self, number: u32) -> Option<Invoked> {
        let invoked = self.answer(number)?;
        self.shares.entry(invoked.sender()).or_default().results += 1;
        Some(invoked)
    }

    /// The result of an invocation is at its caller, or could not be sent.
    pub fn sent(&mut self, invoked: &Invoked) {
        let share = self.shares.entry(invoked.sender()).or_default();
        share.results = share.results.saturating_sub(1);
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
        if let Some((invoked, _)) = self.all.remove(&number) {
            let share = self.shares.entry(invoked.sender()).or_default();
            share.held = share.held.saturating_sub(1);
        }
    }

    /// Takes all queued invocations of these operations out.
    pub fn destroy(&mut self, is: impl Fn(u32) -> bool) -> Vec<(Invoked, T)> {
        let of = self.all.iter().filter(|(_, (invoked, _))| is(invoked.operation));
        let of: Vec<(u32, Invoked)> =
            of.map(|(number, (invoked, _))| (*number, *invoked)).collect();
        let take = |(number, invoked)| {
            let (_, work) = self.take(number)?;
            self.remove(number);
            Some((invoked, work))
        };
        of.into_iter().filter_map(take).collect()
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
