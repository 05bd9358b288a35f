//! Type numbers as data: which number selects which upper protocol on which lower one.
//!
//! Protocols of the catalog bring the numbers that their standards assign, per pair of kinds; a
//! graph may give a pair of its own protocols another one.

use crate::object::ProtocolId;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// One entry of the table, by kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The kind above.
    pub upper: &'static str,
    /// The kind below.
    pub lower: &'static str,
    /// Number in the lower's header that stands for the upper.
    pub number: u32,
}

/// Two entries of the table that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The entry that was there.
    pub first: Number,
    /// The entry that was to be added.
    pub second: Number,
}

/// The merged table.
#[derive(Clone, Default)]
pub struct Numbers {
    /// One copy for all kernels of a graph until one of them adds an entry of its own.
    kinds: Arc<Vec<Number>>,
    overrides: Vec<(ProtocolId, ProtocolId, u32)>,
}

impl Numbers {
    /// Merges an entry.
    ///
    /// # Errors
    /// [`Conflict`] if the pair has another number already. Two uppers may share a number (a client
    /// and a server of one conversation do); whether both may stand on one protocol is the graph's
    /// matter.
    pub fn add(&mut self, entry: Number) -> Result<(), Conflict> {
        let clash = |old: &&Number| {
            (old.lower, old.upper) == (entry.lower, entry.upper) && old.number != entry.number
        };
        if let Some(&first) = self.kinds.iter().find(clash) {
            return Err(Conflict { first, second: entry });
        }
        if !self.kinds.contains(&entry) {
            Arc::make_mut(&mut self.kinds).push(entry);
        }
        Ok(())
    }

    /// Merges the entries by kinds of a whole table.
    ///
    /// # Errors
    /// [`Conflict`], of the first entry whose pair has another number already.
    pub fn merge(&mut self, other: &Numbers) -> Result<(), Conflict> {
        if self.kinds.is_empty() {
            self.kinds = Arc::clone(&other.kinds);
            return Ok(());
        }
        other.kinds.iter().try_for_each(|entry| self.add(*entry))
    }

    /// Gives one protocol of the graph another number on one below.
    pub fn override_pair(&mut self, upper: ProtocolId, lower: ProtocolId, number: u32) {
        self.overrides.retain(|(u, l, _)| (*u, *l) != (upper, lower));
        self.overrides.push((upper, lower, number));
    }

    /// Takes back the numbers that one protocol of the graph was given.
    pub(crate) fn forget(&mut self, upper: ProtocolId) {
        self.overrides.retain(|(u, _, _)| *u != upper);
    }

    /// The number of `upper` on `lower`, each given by its id and kind.
    pub fn find(&self, upper: (ProtocolId, &str), lower: (ProtocolId, &str)) -> Option<u32> {
        let own = self.overrides.iter().find(|(u, l, _)| (*u, *l) == (upper.0, lower.0));
        own.map(|(_, _, n)| *n).or_else(|| self.find_kinds(upper.1, lower.1))
    }

    /// The number of the kind `upper` on the kind `lower`.
    pub fn find_kinds(&self, upper: &str, lower: &str) -> Option<u32> {
        self.kinds.iter().find(|n| n.upper == upper && n.lower == lower).map(|n| n.number)
    }

    /// The entries by kinds.
    pub fn kinds(&self) -> &[Number] {
        &self.kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: Number = Number { upper: "udp", lower: "ip", number: 17 };

    #[test]
    fn contradictions_are_found() {
        let mut table = Numbers::default();
        assert_eq!(table.add(UDP), Ok(()));
        assert_eq!(table.add(UDP), Ok(()));
        assert!(table.add(Number { number: 18, ..UDP }).is_err());
        assert_eq!(table.add(Number { lower: "vip", ..UDP }), Ok(()));
    }

    #[test]
    fn a_merged_table_is_shared_until_it_differs() {
        let mut of_the_catalog = Numbers::default();
        of_the_catalog.add(UDP).unwrap();
        let mut one = Numbers::default();
        one.merge(&of_the_catalog).unwrap();
        assert!(Arc::ptr_eq(&one.kinds, &of_the_catalog.kinds));
        one.add(Number { lower: "vip", ..UDP }).unwrap();
        assert_eq!((one.kinds().len(), of_the_catalog.kinds().len()), (2, 1));
        assert_eq!(one.merge(&of_the_catalog), Ok(()));
        let mut other = Numbers::default();
        other.add(Number { number: 18, ..UDP }).unwrap();
        assert!(one.merge(&other).is_err());
    }

    #[test]
    fn a_graphs_own_number_wins() {
        let mut table = Numbers::default();
        table.add(UDP).unwrap();
        table.override_pair(ProtocolId(3), ProtocolId(2), 99);
        assert_eq!(table.find((ProtocolId(3), "udp"), (ProtocolId(2), "ip")), Some(99));
        assert_eq!(table.find((ProtocolId(4), "udp"), (ProtocolId(2), "ip")), Some(17));
        assert_eq!(table.find((ProtocolId(4), "x"), (ProtocolId(2), "ip")), None);
    }
}
