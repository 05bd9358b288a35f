//! Senders of what was dropped: a bounded table of the sources with the most drops.
//!
//! It is fed where something is dropped, never on the way of a message that goes on. Strangers
//! choose the sources, so the table has few tallies: a new source takes that of the one with the
//! fewest drops and inherits its count as what it may have had at most ("Space-Saving": Metwally,
//! Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data streams",
//! 2005, section 3). A source with more than its share of all drops is always found in it.

use crate::control::PeerHost;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use xk_core::graph::{ParamSpec, int};
use xk_core::object::ProtocolId;
use xk_core::{Ask, HostAddr, Kernel, ProtocolRef, Reason, SessionRef};
use xk_core::{fields, question};

/// Sources that a table has room for, unless the graph says otherwise.
pub const SOURCES_MAX: usize = 32;
/// Reasons that are counted apart for one source.
const REASONS_MAX: usize = 4;

/// The parameter of every layer that has such a table.
#[rustfmt::skip]
pub const PARAMETER: ParamSpec = int("sources_max", 0..=64, 32,
    "for how many sources drops are counted apart");

/// Source of a message, as the layer that dropped it knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A station.
    Ether([u8; 6]),
    /// A host.
    Host(HostAddr),
    /// A port of a host.
    Port(HostAddr, u16),
}

impl Source {
    /// The peer's `port`, of what came through the session `lower`; on a link there is one peer.
    pub fn port(cx: &Kernel, lower: &SessionRef, port: u16) -> Self {
        Self::Port(lower.ask(cx, PeerHost::default()).unwrap_or_default().host, port)
    }
}

fields!(
    enum Source {
        Ether(address) = 0,
        Host(host) = 1,
        Port(host, port) = 2,
    }
);

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ether(address) => crate::EthAddr(*address).fmt(f),
            Self::Host(host) => host.fmt(f),
            Self::Port(host, port) => write!(f, "port{port}@{host}"),
        }
    }
}

/// Counters of one source.
struct Tally {
    source: Source,
    /// Drops counted since the tally is this source's, and those of the source before.
    count: u64,
    /// Drops among them of the source before.
    inherited: u64,
    /// Drops by reason; the first reasons that occurred.
    reasons: [Option<(&'static Reason, u64)>; REASONS_MAX],
}

impl Tally {
    fn count(&mut self, reason: &'static Reason) {
        self.count += 1;
        let fits = |slot: &&mut Option<(&'static Reason, u64)>| {
            slot.is_none_or(|(known, _)| *known == *reason)
        };
        if let Some(slot) = self.reasons.iter_mut().find(fits) {
            slot.get_or_insert((reason, 0)).1 += 1;
        }
    }
}

/// Drops of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedFrom {
    /// The source.
    pub source: Source,
    /// Messages that were dropped for certain.
    pub count: u64,
    /// Messages that may have been dropped at most.
    pub count_max: u64,
    /// The certain drops by reason, for the first four reasons that occurred.
    pub reasons: Vec<(&'static Reason, u64)>,
}

fields!(DroppedFrom { source, count, count_max, reasons });

/// Asked of a protocol: whose messages it dropped, the most first.
#[derive(Default)]
pub struct ListDropSources {
    /// Out: the protocol that answered. One without such a table forwards the question down.
    pub by: Option<ProtocolId>,
    /// Out: the sources.
    pub sources: Vec<DroppedFrom>,
}

question!(ListDropSources { by, sources }, "list-drop-sources", Ask);

/// The table of one layer.
pub struct DropSources {
    tallies: RefCell<Vec<Tally>>,
    max: usize,
}

impl DropSources {
    /// A table for `max` sources, which takes memory when there are drops.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self { tallies: RefCell::default(), max }
    }

    /// Counts a message of the peer's `port` through the session `lower` as dropped.
    #[cold]
    pub fn record(&self, cx: &Kernel, lower: &SessionRef, port: u16, reason: &'static Reason) {
        self.count(Source::port(cx, lower, port), reason);
    }

    /// Counts a message of this source as dropped.
    #[cold]
    #[inline(never)]
    pub fn count(&self, source: Source, reason: &'static Reason) {
        let mut tallies = self.tallies.borrow_mut();
        if let Some(tally) = tallies.iter_mut().find(|tally| tally.source == source) {
            return tally.count(reason);
        }
        let mut fresh = Tally { source, count: 0, inherited: 0, reasons: [None; REASONS_MAX] };
        if tallies.len() < self.max {
            fresh.count(reason);
            // One at a time: most tables have a source or two, and there are thousands of tables.
            tallies.reserve_exact(1);
            return tallies.push(fresh);
        }
        if let Some(least) = tallies.iter_mut().min_by_key(|tally| tally.count) {
            (fresh.count, fresh.inherited) = (least.count, least.count);
            fresh.count(reason);
            *least = fresh;
        }
    }

    /// The sources, that with the most certain drops first.
    pub fn list(&self) -> Vec<DroppedFrom> {
        let tallies = self.tallies.borrow();
        let mut list: Vec<_> = tallies
            .iter()
            .map(|tally| DroppedFrom {
                source: tally.source,
                count: tally.count - tally.inherited,
                count_max: tally.count,
                reasons: tally.reasons.iter().flatten().copied().collect(),
            })
            .collect();
        list.sort_by_key(|from| core::cmp::Reverse((from.count, from.count_max)));
        list
    }

    /// Answers [`ListDropSources`] for the protocol `this`; false if it is another question.
    pub fn answer(&self, this: &ProtocolRef, ask: &mut Ask<'_>) -> bool {
        let Some(question) = ask.get::<ListDropSources>() else {
            return false;
        };
        question.by = Some(this.id());
        question.sources = self.list();
        true
    }

    /// Forgets all; for a protocol's `stop`.
    pub fn clear(&self) {
        drop(self.tallies.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::string::ToString;
    use xk_core::reason;

    fn host(n: u32) -> Source {
        Source::Host(HostAddr::from(n.to_be_bytes()))
    }

    #[test]
    fn reasons_are_told_apart() {
        let drop_sources = DropSources::new(4);
        for _ in 0..3 {
            drop_sources.count(host(9), &reason::NO_PORT);
        }
        drop_sources.count(host(9), &reason::BAD_CHECKSUM);
        drop_sources.count(host(8), &reason::NO_PORT);
        let list = drop_sources.list();
        assert_eq!((list[0].source, list[0].count, list[0].count_max), (host(9), 4, 4));
        let expected = [(&reason::NO_PORT, 3), (&reason::BAD_CHECKSUM, 1)];
        assert_eq!(list[0].reasons, expected);
        assert_eq!(list[1].count, 1);
        let none = DropSources::new(0);
        none.count(host(1), &reason::NO_PORT);
        assert!(none.list().is_empty());
    }

    #[test]
    fn sources_read_as_participants_do() {
        let host = HostAddr::from([10, 0, 0, 9]);
        assert_eq!(Source::Host(host).to_string(), "10.0.0.9");
        assert_eq!(Source::Port(host, 7).to_string(), "port7@10.0.0.9");
        assert_eq!(Source::Ether([2, 0, 0, 0, 0, 1]).to_string(), "02:00:00:00:00:01");
    }

    proptest! {
        #[test]
        fn who_talks_most_is_found_whatever_the_others_do(
            others in proptest::collection::vec(1000u32..2000, 0..2000),
            max in 4usize..16,
        ) {
            let drop_sources = DropSources::new(max);
            let mut counts = BTreeMap::<u32, u64>::new();
            // One that has more than its share: a message for every `max - 1` of others.
            for (n, other) in others.iter().enumerate() {
                let sources = if n % (max - 1) == 0 { &[*other, 7][..] } else { &[*other] };
                for source in sources {
                    drop_sources.count(host(*source), &reason::NO_PORT);
                    *counts.entry(*source).or_default() += 1;
                }
            }
            let list = drop_sources.list();
            prop_assert!(list.len() <= max);
            let total: u64 = counts.values().sum();
            prop_assert_eq!(list.iter().map(|d| d.count_max).sum::<u64>(), total);
            for (source, count) in &counts {
                let found = list.iter().find(|d| d.source == host(*source));
                if let Some(found) = found {
                    prop_assert!(found.count <= *count && *count <= found.count_max);
                } else {
                    prop_assert!(*count <= total / max as u64);
                }
            }
        }
    }
}
