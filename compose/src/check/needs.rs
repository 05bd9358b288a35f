//! Needs of a protocol on some layers and not on others: a parameter, one peer or several, and its
//! lowers in a certain order.

use xk_core::graph::{Needed, NeededOn, ParamKind};
use xk_lang::{Diagnostics, Span};

use super::site::Site;

pub(super) fn check(site: &Site<'_>, at: usize, diagnostics: &mut Diagnostics) {
    several_peers(site, at, diagnostics);
    let Some(rules) = site.entry(at).and_then(|entry| entry.stacking_rules) else {
        return;
    };
    for needed in rules.needed {
        parameter(site, at, needed, diagnostics);
    }
    if let Some(block) = rules.rising {
        rising(site, at, block, diagnostics);
    }
}

/// Refuses a list of peers on a layer whose sessions have one.
fn several_peers(site: &Site<'_>, at: usize, diagnostics: &mut Diagnostics) {
    let (node, parameters) = (site.node(at), site.entry(at).map_or(&[][..], |e| e.parameters));
    for spec in parameters.iter().filter(|spec| matches!(spec.kind, ParamKind::Peers(_))) {
        let peers = site.params[at].peers(spec.name);
        let Some(param) = node.param(spec.name).filter(|_| peers.is_ok_and(|all| all.len() > 1))
        else {
            continue;
        };
        let takes_one = |&(_, lower): &(usize, usize)| {
            !site.misfits.contains(&(at, lower)) && !takes_peers(site, lower)
        };
        let Some((_, lower)) = site.known_lowers(at).find(takes_one) else {
            continue;
        };
        let lower = &site.node(lower).name;
        let all = site.catalog.entries().iter().filter(|entry| entry.takes_peers);
        let all: Vec<String> = all.map(|entry| format!("`{}`", entry.kind)).collect();
        let what =
            format!("`{}` has several peers, and a session of `{lower}` takes one", node.name);
        diagnostics
            .error(param.value.span, what)
            .expected(format!("one peer, or a layer that takes several: {}", all.join(", ")))
            .help(format!("write one line `{}` for each peer", node.kind));
    }
}

/// Whether a session of a node may have several peers: it says so, or is a filter on one that does.
fn takes_peers(site: &Site<'_>, at: usize) -> bool {
    let layers = below(site, at, |node| site.is_filter(node));
    let mut layers = layers.into_iter().filter(|node| !site.is_filter(*node));
    layers.all(|node| site.entry(node).is_none_or(|entry| entry.takes_peers))
}

/// Refuses a node that lacks a parameter which one of its lowers makes necessary.
fn parameter(site: &Site<'_>, at: usize, needed: &Needed, diagnostics: &mut Diagnostics) {
    let node = site.node(at);
    if node.param(needed.parameter).is_some() {
        return;
    }
    let wants = |&(_, lower): &(usize, usize)| {
        !site.misfits.contains(&(at, lower)) && is_needed(site, at, needed, lower)
    };
    let Some((place, lower)) = site.known_lowers(at).find(wants) else {
        return;
    };
    let span = node.lowers.get(place).map_or(Span::default(), |l| l.span);
    let what = format!(
        "`{}` needs `{}` on `{}`: {}",
        node.name,
        needed.parameter,
        site.node(lower).name,
        needed.why
    );
    diagnostics.error(span, what).help(needed.instead);
}

fn is_needed(site: &Site<'_>, at: usize, needed: &Needed, lower: usize) -> bool {
    match needed.on {
        NeededOn::Family(family) => site.above[lower] == Some(family),
        NeededOn::Kind { kind, unless } => {
            let is = |node: usize, kind: &str| site.entry(node).is_some_and(|e| e.kind == kind);
            let own = site.node(at).kind.as_str();
            let says = |node: usize| {
                is(node, unless)
                    || is(node, own) && site.node(node).param(needed.parameter).is_some()
            };
            let layers = below(site, lower, |node| site.is_headless(node));
            let mut these = layers.into_iter().filter(|&layer| is(layer, kind));
            these.any(|layer| {
                let stands = |node: usize| {
                    let mut lowers = site.known_lowers(node).map(|(_, lower)| lower);
                    lowers.any(|lower| below(site, lower, |n| site.is_headless(n)).contains(&layer))
                };
                !(0..site.lowers.len()).any(|node| says(node) && stands(node))
            })
        }
    }
}

/// The node `from` and all that lie below it, as far as `through` says of each that it leads on.
fn below(site: &Site<'_>, from: usize, through: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut found = vec![from];
    let mut seen = 0;
    while let Some(&at) = found.get(seen) {
        seen += 1;
        if !through(at) {
            continue;
        }
        for (_, lower) in site.known_lowers(at) {
            if !found.contains(&lower) {
                found.push(lower);
            }
        }
    }
    found
}

/// Whether all that goes through `upper` goes through `lower` as well.
fn passes(site: &Site<'_>, upper: usize, lower: usize) -> bool {
    let before = below(site, upper, |node| node != lower);
    let is_end = |node: &usize| *node != lower && site.lowers[*node].is_empty();
    upper != lower && before.contains(&lower) && !before.iter().any(is_end)
}

/// Refuses lowers of which an earlier one goes through a later one: that one carries by itself
/// whatever goes to the earlier, in one packet as well. Where `block` says what goes to a place,
/// the graph knows better.
fn rising(site: &Site<'_>, at: usize, block: &str, diagnostics: &mut Diagnostics) {
    let node = site.node(at);
    let lowers: Vec<(usize, usize)> = site.known_lowers(at).collect();
    let said = node.blocks(block).count();
    let wrong = lowers.iter().filter(|(place, _)| *place >= said);
    let wrong = wrong.into_iter().find_map(|&(place, upper)| {
        let mut later = lowers.iter().filter(|(other, _)| *other > place);
        let lower = later.find(|(_, lower)| passes(site, upper, *lower));
        lower.map(|&(_, lower)| (place, upper, lower))
    });
    let Some((place, upper, lower)) = wrong else {
        return;
    };
    let span = node.lowers.get(place).map_or(Span::default(), |l| l.span);
    let name = |node: usize| site.node(node).name.as_str();
    let what = format!(
        "`{}` needs the layer for the smallest messages first: a message that `{}` carries whole can go by `{}` directly",
        node.name,
        name(upper),
        name(lower)
    );
    let all: Vec<usize> = lowers.iter().map(|(_, lower)| *lower).collect();
    let mut order = all.clone();
    order.sort_by_key(|&upper| all.iter().filter(|&&low| passes(site, upper, low)).count());
    let names: Vec<&str> = order.into_iter().map(name).collect();
    diagnostics.error(span, what).help(format!("write `{} {}`", node.kind, names.join(" ")));
}
