//! The host under check, as every check sees it.

use std::collections::HashSet;
use xk_core::Entry;
use xk_core::graph::{Catalog, Family, Guarantees, Params, Shape};
use xk_lang::{Host, Node};

/// A host under check.
pub(super) struct Site<'a> {
    pub(super) host: &'a Host,
    pub(super) catalog: &'a Catalog,
    /// Catalog entry of each node's kind.
    pub(super) entries: Vec<Option<&'static Entry>>,
    /// For each node the indices of its lowers; `None` for a name that no node has.
    pub(super) lowers: Vec<Vec<Option<usize>>>,
    /// For each node those that stand on it.
    pub(super) uppers: Vec<Vec<usize>>,
    /// For each node the family that it takes from above, as far as it is known yet.
    pub(super) above: Vec<Option<Family>>,
    /// For each node what it guarantees to those above it; of what is not known yet, everything.
    pub(super) gives: Vec<Guarantees>,
    /// Pairs that cannot stand on each other, as reported: nothing more needs saying about such a
    /// pair.
    pub(super) misfits: HashSet<(usize, usize)>,
    /// For each node its parameters, of the first host alike.
    pub(super) params: Vec<Params>,
}

impl<'a> Site<'a> {
    pub(super) fn node(&self, at: usize) -> &'a Node {
        &self.host.nodes[at]
    }

    pub(super) fn entry(&self, at: usize) -> Option<&'static Entry> {
        self.entries.get(at).copied().flatten()
    }

    /// The lowers of a node that exist and are of a known kind.
    pub(super) fn known_lowers(&self, at: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
        let lowers = self.lowers[at].iter().enumerate();
        lowers.filter_map(|(place, lower)| {
            let lower = (*lower)?;
            self.entry(lower).map(|_| (place, lower))
        })
    }

    /// The nodes that stand on this one.
    pub(super) fn uppers(&self, at: usize) -> &[usize] {
        self.uppers.get(at).map_or(&[], |uppers| uppers)
    }

    /// True for a node that looks on, and for an adapter: its edges are those of what it stands on.
    pub(super) fn is_filter(&self, at: usize) -> bool {
        let is = |entry: &Entry| matches!(entry.shape, Shape::Filter | Shape::Adapter);
        self.entry(at).is_some_and(is)
    }

    /// True if what stands on the node reaches the layers below as itself.
    pub(super) fn is_headless(&self, at: usize) -> bool {
        let is =
            |entry: &Entry| matches!(entry.shape, Shape::Virtual | Shape::Filter | Shape::Adapter);
        self.entry(at).is_some_and(is)
    }

    /// The node that its neighbour above meets: behind an adapter that is the adapter's lower.
    pub(super) fn behind(&self, at: usize) -> usize {
        match self.lowers[at].first() {
            Some(&Some(lower)) if self.is_adapter(at) => lower,
            _ => at,
        }
    }

    /// The name of a node in messages: an adapter's is that of what stands on it.
    pub(super) fn name(&self, at: usize) -> &'a str {
        let shown = match self.uppers(at) {
            [upper, ..] if self.is_adapter(at) => *upper,
            _ => at,
        };
        self.node(shown).name.as_str()
    }

    fn is_adapter(&self, at: usize) -> bool {
        self.entry(at).is_some_and(|entry| entry.shape == Shape::Adapter)
    }
}

/// Catalog entry of a node's kind in its subsystem.
pub(super) fn find_entry(host: &Host, node: &Node, catalog: &Catalog) -> Option<&'static Entry> {
    catalog.find(&host.qualified(node))
}
