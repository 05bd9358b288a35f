//! Linearizability of a history: whether there is an order of all operations, each between its call
//! and its return, in which an object that executes one after the other answers as it did.
//!
//! The search is that of Wing and Gong, "Testing and Verifying Concurrent Objects" (1993), with the
//! memory of visited states of Lowe, "Testing for Linearizability" (2017). Linearizability is
//! local, so each object is checked by itself.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// Largest number of operations of one object.
pub const OPERATIONS_MAX: usize = 64;
/// Largest number of states that are visited for one object.
pub const STATES_MAX: usize = 1_000_000;

/// An operation as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation<V> {
    /// Number of the event at which it was called. Events are numbered in the order of time.
    pub called: u64,
    /// Number of the event at which it returned; `None` if its outcome is unknown, so that it may
    /// take effect at any time after its call, or not at all.
    pub returned: Option<u64>,
    /// The operation and its outcome.
    pub act: Act<V>,
}

/// An operation on a register, which holds a value or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act<V> {
    /// This was read.
    Read(Option<V>),
    /// This was written.
    Write(Option<V>),
    /// A value was to be replaced by another.
    Swap {
        /// Value that is replaced.
        from: Option<V>,
        /// Value that replaces it.
        to: Option<V>,
        /// Whether it was replaced, as the client knows: it is not if another value was there.
        is_done: Option<bool>,
    },
}

/// Verdict on the operations of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is such an order.
    Linearizable,
    /// There is none.
    NotLinearizable,
    /// There are more operations than are checked.
    TooMany,
    /// More states were visited than are allowed.
    OverBudget,
}

impl<V: Clone + Ord> Act<V> {
    /// The value after the operation; `None` if its outcome is another where `value` is held.
    fn apply(&self, value: &Option<V>) -> Option<Option<V>> {
        match self {
            Act::Read(found) => (found == value).then(|| value.clone()),
            Act::Write(to) => Some(to.clone()),
            Act::Swap { from, to, is_done } => {
                let is_there = from == value;
                let is_so = is_done.is_none_or(|is_done| is_done == is_there);
                is_so.then(|| if is_there { to.clone() } else { value.clone() })
            }
        }
    }
}

/// Checks the operations of each object, all of which hold nothing at the beginning; returns the
/// first object whose operations are not linearizable, and why.
///
/// # Errors
/// The object and the verdict.
pub fn check_all<K: Ord, V: Clone + Ord>(
    history: impl IntoIterator<Item = (K, Operation<V>)>,
) -> Result<(), (K, Verdict)> {
    let mut objects = BTreeMap::<K, Vec<Operation<V>>>::new();
    for (object, operation) in history {
        objects.entry(object).or_default().push(operation);
    }
    for (object, operations) in objects {
        match check(&operations, STATES_MAX) {
            Verdict::Linearizable => {}
            verdict => return Err((object, verdict)),
        }
    }
    Ok(())
}

/// Checks the operations of one object that holds nothing at the beginning, in any order, and
/// visits at most `states_max` states.
#[must_use]
pub fn check<V: Clone + Ord>(operations: &[Operation<V>], states_max: usize) -> Verdict {
    if operations.len() > OPERATIONS_MAX {
        return Verdict::TooMany;
    }
    // Sets of operations are bits. Those that returned before another was called precede it.
    let those = |is: &dyn Fn(&Operation<V>) -> bool| {
        let bit = |(at, operation): (usize, &Operation<V>)| u64::from(is(operation)) << at;
        operations.iter().enumerate().map(bit).sum::<u64>()
    };
    let precede = |operation: &Operation<V>| {
        those(&|other| other.returned.is_some_and(|returned| returned < operation.called))
    };
    let before: Vec<u64> = operations.iter().map(precede).collect();
    let returned = those(&|operation| operation.returned.is_some());

    let mut seen = BTreeSet::new();
    let mut left = alloc::vec![(0_u64, None)];
    while let Some((done, value)) = left.pop() {
        if returned & !done == 0 {
            return Verdict::Linearizable;
        }
        let mut next = Vec::new();
        let is_next = |at: &usize| done >> at & 1 == 0 && before[*at] & !done == 0;
        for at in (0..operations.len()).filter(is_next) {
            let Operation { act, returned, .. } = &operations[at];
            let Some(state) = act.apply(&value) else { continue };
            let is_same = state == value;
            // One of unknown outcome need not be there.
            if is_same && returned.is_none() {
                continue;
            }
            let state = (done | 1 << at, state);
            // One that would answer otherwise where it changed something may come first, without
            // loss of other orders.
            let is_look = matches!(act, Act::Read(_) | Act::Swap { is_done: Some(_), .. });
            if is_same && is_look {
                next = alloc::vec![state];
                break;
            }
            next.push(state);
        }
        for state in next.into_iter().rev() {
            if seen.insert(state.clone()) {
                left.push(state);
            }
        }
        if seen.len() > states_max {
            return Verdict::OverBudget;
        }
    }
    Verdict::NotLinearizable
}

#[cfg(test)]
mod tests;
