//! Layers without a header that choose among those below: how their uppers are known there.

use xk_core::graph::DerivedNumber;
use xk_lang::{Diagnostics, Span};

use super::site::Site;

/// A protocol that tells its uppers apart by number, as it is reached from above.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) node: usize,
    /// Rule by which a number follows for uppers that have none of their own.
    pub(super) derived: Option<Derived>,
}

/// An upper protocol on one lower that tells its uppers apart by number.
pub(super) struct Edge {
    pub(super) upper: usize,
    /// The lower, perhaps below layers without a header.
    pub(super) target: Target,
    /// Place in the graph that sets the number.
    pub(super) span: Span,
}

/// A number that follows from another.
#[derive(Clone, Copy)]
pub(super) struct Derived {
    rule: &'static DerivedNumber,
    /// Offset that is added.
    base: u32,
    /// The layer that says so.
    by: usize,
}

impl PartialEq for Derived {
    fn eq(&self, other: &Self) -> bool {
        (self.by, self.rule.on) == (other.by, other.rule.on)
    }
}

impl Eq for Derived {}

/// The rule of the node `at` for its uppers' numbers on `target`, if it has one.
pub(super) fn rule(site: &Site<'_>, at: usize, target: usize) -> Option<Derived> {
    let rules = site.entry(at)?.stacking_rules?;
    let on = site.entry(target)?;
    let is_its = |rule: &&DerivedNumber| rule.on == on.kind || on.numbers_as == Some(rule.on);
    let rule = rules.derived.iter().find(is_its)?;
    let base = site.params[at].number(rule.base, 0);
    Some(Derived { rule, base, by: at })
}

/// Adds the numbers of one node that follow from others to its own, `numbers`. Edges about which
/// all is said are taken out.
pub(super) fn derive(
    site: &Site<'_>,
    edges: &mut Vec<Edge>,
    numbers: &mut Vec<(usize, u32)>,
    diagnostics: &mut Diagnostics,
) {
    let table = site.catalog.numbers();
    let kind = |node: usize| site.entry(node).map(|entry| entry.kind);
    let all: Vec<(usize, &str)> =
        edges.iter().filter_map(|edge| Some((edge.target.node, kind(edge.target.node)?))).collect();
    edges.retain(|edge| {
        let target = edge.target.node;
        let (Some(derived), Some(upper)) = (edge.target.derived, kind(edge.upper)) else {
            return true;
        };
        let rule = derived.rule;
        let has_own = numbers.iter().any(|(node, _)| *node == target);
        if has_own || table.find_kinds(upper, rule.on).is_some() {
            return true;
        }
        let there = all.iter().find(|(_, kind)| *kind == rule.from);
        let own = there.and_then(|(node, _)| numbers.iter().find(|(n, _)| n == node));
        let known = own.map(|(_, number)| *number).or_else(|| table.find_kinds(upper, rule.from));
        let Some(from) = known else {
            // That it has none to follow from is told of that layer, if it stands on it.
            return there.is_none();
        };
        if from >= rule.below {
            too_large(site, edge, derived, from, diagnostics);
            return false;
        }
        numbers.push((target, derived.base.saturating_add(from)));
        true
    });
}

fn too_large(
    site: &Site<'_>,
    edge: &Edge,
    derived: Derived,
    from: u32,
    diagnostics: &mut Diagnostics,
) {
    let rule = derived.rule;
    let upper = site.node(edge.upper);
    let what = format!(
        "no type number on `{}` follows from the number {from} of `{}` on `{}`",
        rule.on, upper.name, rule.from
    );
    diagnostics
        .error(edge.span, what)
        .expected(format!("a number from 0 to {}", rule.below - 1))
        .help(format!(
            "give it one by itself: `{{ number {}=N }}` behind `{}`; the peer's must be the same",
            site.node(edge.target.node).name,
            upper.name
        ));
}
