//! Suggestions of layers to put between two protocols that do not fit.

use std::collections::{HashMap, VecDeque};
use xk_core::Entry;
use xk_core::graph::{Family, Guarantees, Shape};

use super::site::Site;

/// Largest number of protocols to put between.
const BETWEEN_MAX: usize = 3;

/// Addresses that a layer takes from above, and its guarantees there.
type Gives = (Family, Guarantees);

/// The shortest tower of catalog kinds that `upper` can stand on and that can stand on the node
/// `lower`, as help.
pub(super) fn between(site: &Site<'_>, upper: &'static Entry, lower: usize) -> Option<String> {
    if upper.shape == Shape::Adapter {
        return None;
    }
    let lower = site.behind(lower);
    let bottom = site.entry(lower)?;
    let name = site.node(lower).name.as_str();
    let taken = site.above[lower]?;
    // Backwards from the bottom: what is found first needs the fewest steps.
    let first = (vec![], (taken, site.gives[lower]));
    let mut queue: VecDeque<(Vec<&'static Entry>, Gives)> = VecDeque::from([first]);
    let mut seen: HashMap<&str, ()> = HashMap::new();
    while let Some((tower, given)) = queue.pop_front() {
        let top = tower.last().copied().unwrap_or(bottom);
        let below = || tower.iter().rev().copied().chain([bottom]);
        if !tower.is_empty() && stands(upper, top, given) && numbered(site, upper, below()) {
            return Some(words(upper, &tower, name));
        }
        if tower.len() == BETWEEN_MAX {
            continue;
        }
        for next in site.catalog.entries() {
            let one_below = next.below.max > 0 && next.below.min <= 1;
            // A layer of many speaks to others than a layer of two expects.
            let is_many = next.service.over(Guarantees::NONE).has(Guarantees::MANY)
                && !upper.below.needs.has(Guarantees::MANY);
            let ordinary = !matches!(next.shape, Shape::Top | Shape::Filter | Shape::Adapter)
                && one_below
                && !is_many;
            if !ordinary
                || next.subsystem != upper.subsystem
                || next.above == Family::Inherit
                || next.kind == upper.kind
                || seen.contains_key(next.kind)
                || !stands(next, top, given)
                || !numbered(site, next, below())
            {
                continue;
            }
            seen.insert(next.kind, ());
            let mut taller = tower.clone();
            taller.push(next);
            queue.push_back((taller, (next.above, next.service.over(given.1))));
        }
    }
    None
}

/// Realm, participants and guarantees fit.
fn stands(upper: &Entry, lower: &Entry, (taken, gives): Gives) -> bool {
    let realms = upper.below.realms;
    (realms.is_empty() || realms.contains(&lower.realm))
        && family_fits(upper, taken)
        && gives.has(upper.below.needs)
}

/// Whether what `upper` opens below goes together with what the layer there takes.
pub(super) fn family_fits(upper: &Entry, taken: Family) -> bool {
    let opens = upper.below.families;
    opens.is_empty()
        || matches!(taken, Family::Any | Family::Inherit)
        || opens
            .iter()
            .any(|family| matches!(family, Family::Any | Family::Inherit) || *family == taken)
}

/// `upper` would have a type number on the node `lower`, or need none.
pub(super) fn is_numbered(site: &Site<'_>, upper: &Entry, lower: usize) -> bool {
    let mut at = lower;
    if !upper.has_number() {
        return true;
    }
    // As many steps as there are nodes: enough for any tower, and an end in any circle.
    for _ in 0..=site.lowers.len() {
        let Some(entry) = site.entry(at) else {
            return false;
        };
        let numbers = site.catalog.numbers();
        if numbers.kinds().iter().any(|n| n.lower == entry.kind) {
            return numbers.find_kinds(upper.kind, entry.kind).is_some();
        }
        match site.known_lowers(at).next() {
            Some((_, below)) if entry.passes_numbers() => at = below,
            _ => return true,
        }
    }
    false
}

/// `upper` has a type number on the first of these, from the top, that tells its uppers apart by
/// one.
fn numbered<'a>(site: &Site<'_>, upper: &Entry, below: impl Iterator<Item = &'a Entry>) -> bool {
    let numbers = site.catalog.numbers();
    if !upper.has_number() {
        return true;
    }
    for lower in below {
        if numbers.kinds().iter().any(|n| n.lower == lower.kind) {
            return numbers.find_kinds(upper.kind, lower.kind).is_some();
        }
        if !lower.passes_numbers() {
            return true;
        }
    }
    true
}

fn words(upper: &Entry, tower: &[&'static Entry], bottom: &str) -> String {
    let names: Vec<String> = tower.iter().map(|e| format!("`{}`", e.kind)).collect();
    let mut lower = bottom;
    let mut lines = Vec::new();
    for entry in tower.iter().map(|e| e.kind).chain([upper.kind]) {
        lines.push(format!("{entry} {lower}"));
        lower = entry;
    }
    format!("put {} between: `{}`", names.join(" and "), lines.join("; "))
}
