//! Layers without a header that choose among those below: how their uppers are known there, and who
//! cannot stand on them.

use xk_core::graph::{DerivedNumber, Exclusion, Way};
use xk_lang::{Diagnostics, Span};

use super::host::Site;
use super::numbers::{Edge, Target};
use super::stacking;

/// A number that follows from another.
#[derive(Clone, Copy)]
pub(super) struct Derived {
    rule: &'static DerivedNumber,
    /// What is added.
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
    let on = site.entry(target)?.kind;
    let rule = rules.derived.iter().find(|rule| rule.on == on)?;
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

/// Refuses a node that stands, perhaps through others without a header, on a layer that cannot
/// carry its kind. True if so.
pub(super) fn refuse(site: &Site<'_>, at: usize, diagnostics: &mut Diagnostics) -> bool {
    let Some(entry) = site.entry(at) else {
        return false;
    };
    let mut refused = false;
    for (place, lower) in site.known_lowers(at) {
        let Some((by, exclusion)) = excluded(site, lower, entry.kind) else {
            continue;
        };
        if site.misfits.contains(&(at, lower)) {
            continue;
        }
        let node = site.node(at);
        let span = node.lowers.get(place).map_or(Span::default(), |l| l.span);
        let layer = &site.node(by).name;
        let what = match by == lower {
            true => format!("`{}` cannot stand on `{layer}`: {}", node.name, exclusion.why),
            false => format!(
                "`{}` cannot stand on `{layer}`, which lies below `{}`: {}",
                node.name,
                site.node(lower).name,
                exclusion.why
            ),
        };
        diagnostics.error(span, what).help(exclusion.instead);
        refused = true;
    }
    refused
}

/// The first layer from `lower` downwards, among those without a header, that excludes uppers of
/// this kind.
fn excluded(site: &Site<'_>, lower: usize, upper: &str) -> Option<(usize, &'static Exclusion)> {
    let mut seen = vec![false; site.lowers.len()];
    let mut stack = vec![lower];
    while let Some(at) = stack.pop() {
        if std::mem::replace(&mut seen[at], true) {
            continue;
        }
        let rules = site.entry(at).and_then(|entry| entry.stacking_rules);
        let found = rules.and_then(|r| r.excluded.iter().find(|e| e.upper == upper));
        if let Some(found) = found {
            return Some((at, found));
        }
        if site.is_virtual(at) {
            stack.extend(site.known_lowers(at).map(|(_, below)| below));
        }
    }
    None
}

/// Refuses a lower in a place where the layer wants another, as far as that is known: the two of
/// `vip` the wrong way round.
pub(super) fn ways(
    site: &Site<'_>,
    at: usize,
    targets: &[Vec<Target>],
    diagnostics: &mut Diagnostics,
) {
    let rules = site.entry(at).and_then(|entry| entry.stacking_rules);
    let ways = rules.map_or(&[][..], |rules| rules.ways);
    let leads = |node: usize, way: &Way| {
        let ends = targets.get(node).map_or(&[][..], Vec::as_slice);
        let on = |target: &Target| site.entry(target.node).is_some_and(|e| e.kind == way.on);
        ends.is_empty() || ends.iter().all(on) == way.straight
    };
    let lowers = &site.lowers[at];
    let wrong = ways.iter().zip(lowers).enumerate().find(|(_, (way, lower))| {
        lower.is_some_and(|lower| !site.misfits.contains(&(at, lower)) && !leads(lower, way))
    });
    let Some((place, (way, Some(lower)))) = wrong else {
        return;
    };
    let node = site.node(at);
    let span = node.lowers.get(place).map_or(Span::default(), |l| l.span);
    let lower = &site.node(*lower).name;
    let what = format!("`{}` wants {} in this place, and `{lower}` is not that", node.name, way.is);
    let error = diagnostics.error(span, what);
    // Those that were given go first, then whatever the host has.
    let fitting = |way: &Way| {
        let fits = |other: &usize| {
            let has_ends = targets.get(*other).is_some_and(|ends| !ends.is_empty());
            has_ends && leads(*other, way) && stacking::could_stand(site, at, *other)
        };
        let given = lowers.iter().flatten().copied();
        given.chain(0..site.lowers.len()).find(fits)
    };
    let names: Option<Vec<&str>> =
        ways.iter().map(|way| Some(site.node(fitting(way)?).name.as_str())).collect();
    if let Some(names) = names {
        error.help(format!("write `{} {}`", node.kind, names.join(" ")));
    }
}
