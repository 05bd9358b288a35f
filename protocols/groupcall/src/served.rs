//! The calls that this member has executed, and the replies that callers may still lack, as an
//! object without kernel or octets.

use crate::wire::is_before;
use alloc::collections::{BTreeMap, VecDeque};
use core::time::Duration;
use xk_core::Time;

/// Largest number of calls of one caller that are kept.
pub const CALLS_KEPT: usize = 64;
/// Octets of the replies to one caller that are kept, but for the last.
pub const OCTETS_KEPT: usize = 256 << 10;
/// Time between two sendings of one reply, at least.
const REPEAT: Duration = Duration::from_millis(40);

/// The calls of each caller, by its index in the conversation.
pub struct Served<R>(BTreeMap<u8, Caller<R>>);

struct Caller<R> {
    incarnation: u16,
    /// In the order of the conversation.
    calls: VecDeque<Call<R>>,
    octets: usize,
}

struct Call<R> {
    number: u32,
    octets: usize,
    /// None while it is executed.
    reply: Option<R>,
    sent_at: Time,
}

/// A reply that is asked for once more.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked<R> {
    /// Send this.
    Reply(R),
    /// The call is being executed, its reply was just sent, or it is not known, since it is under
    /// way still, over, or forgotten.
    Nothing,
}

impl<R> Default for Served<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R> Served<R> {
    /// Notes a call that is to be executed, and that those before `first` are over; false if it is
    /// known, and not to be executed.
    pub fn begin(&mut self, from: (u8, u16), number: u32, first: u32) -> bool {
        let (member, incarnation) = from;
        let fresh = || Caller { incarnation, calls: VecDeque::new(), octets: 0 };
        let caller = self.0.entry(member).or_insert_with(fresh);
        if caller.incarnation != incarnation {
            *caller = fresh();
        }
        if caller.calls.iter().any(|call| call.number == number) {
            return false;
        }
        caller.forget(|call| is_before(call.number, first));
        if caller.calls.len() >= CALLS_KEPT {
            caller.forget_first();
        }
        caller.calls.push_back(Call { number, octets: 0, reply: None, sent_at: Time::ZERO });
        true
    }

    /// Keeps the reply to a call, which is sent now.
    pub fn end(&mut self, member: u8, number: u32, reply: R, octets: usize, now: Time) {
        let Some(caller) = self.0.get_mut(&member) else {
            return;
        };
        let Some(call) = caller.calls.iter_mut().find(|call| call.number == number) else {
            return;
        };
        (call.reply, call.octets, call.sent_at) = (Some(reply), octets, now);
        caller.octets += octets;
        while caller.octets > OCTETS_KEPT && caller.calls.len() > 1 {
            caller.forget_first();
        }
    }

    /// Looks for a reply that a caller lacks, which then is sent `now`. Calls before `first` are
    /// over.
    pub fn again(&mut self, member: u8, number: u32, first: u32, now: Time) -> Asked<&R> {
        let Some(caller) = self.0.get_mut(&member) else {
            return Asked::Nothing;
        };
        caller.forget(|call| is_before(call.number, first));
        let call = caller.calls.iter_mut().find(|call| call.number == number);
        match call.filter(|call| now.since(call.sent_at) >= REPEAT) {
            Some(Call { reply: Some(reply), sent_at, .. }) => {
                *sent_at = now;
                Asked::Reply(reply)
            }
            _ => Asked::Nothing,
        }
    }

    /// Number of calls that are kept, and octets of their replies.
    #[must_use]
    pub fn kept(&self) -> (usize, usize) {
        let all = self.0.values();
        all.fold((0, 0), |(calls, octets), one| (calls + one.calls.len(), octets + one.octets))
    }
}

impl<R> Caller<R> {
    fn forget(&mut self, is_over: impl Fn(&Call<R>) -> bool) {
        // What is being executed is known until it is not.
        self.calls.retain(|call| call.reply.is_none() || !is_over(call));
        self.octets = self.calls.iter().map(|call| call.octets).sum();
    }

    fn forget_first(&mut self) {
        let gone = self.calls.pop_front();
        self.octets -= gone.map_or(0, |call| call.octets);
    }
}

#[cfg(test)]
mod tests;
