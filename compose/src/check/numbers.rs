//! Type numbers: every pair has one, and no protocol has two uppers under the same.

use std::collections::HashMap;
use xk_core::graph::TakesNumbers;
use xk_lang::{Diagnostics, Span, Spanned};

use super::site::Site;
use super::suggest;
use super::virtuals::{self, Edge, Target};

/// Checks the numbers of all nodes; answers for each node those that the graph overrides, and those
/// that follow from others.
pub(super) fn check(
    site: &Site<'_>,
    order: &[usize],
    diagnostics: &mut Diagnostics,
) -> Vec<Vec<(usize, u32)>> {
    let mut overrides = vec![Vec::new(); site.lowers.len()];
    let mut taken: HashMap<(usize, u32), (usize, Span)> = HashMap::new();
    let targets = all_targets(site, order);
    for &at in order {
        let mut edges = edges(site, at, &targets);
        overrides[at] = own_numbers(site, at, &edges, diagnostics);
        let Some(entry) = site.entry(at) else {
            continue;
        };
        if !entry.has_number() {
            continue;
        }
        virtuals::derive(site, &mut edges, &mut overrides[at], diagnostics);
        for edge in edges {
            let Some(lower) = site.entry(edge.target.node) else {
                continue;
            };
            let target = edge.target.node;
            let own = overrides[at].iter().find(|(t, _)| *t == target);
            let known = site.catalog.numbers().find_kinds(entry.kind, lower.kind);
            match own.map(|(_, number)| *number).or(known) {
                None => missing(site, &edge, diagnostics),
                Some(number) => match taken.get(&(target, number)) {
                    Some((first, span)) if *first != at => {
                        clash(site, &edge, number, (*first, *span), diagnostics);
                    }
                    _ => {
                        taken.insert((target, number), (at, edge.span));
                    }
                },
            }
        }
    }
    overrides
}

/// For each node, the protocols that messages from above reach it by number at: itself, or what
/// lies below it if it passes numbers through.
fn all_targets(site: &Site<'_>, order: &[usize]) -> Vec<Vec<Target>> {
    let mut targets: Vec<Vec<Target>> = vec![Vec::new(); site.lowers.len()];
    for &at in order {
        let Some(entry) = site.entry(at) else {
            continue;
        };
        let kinds = site.catalog.numbers().kinds();
        if kinds.iter().any(|number| number.lower == entry.kind) {
            let derived = None;
            targets[at] = vec![Target { node: at, derived }];
        } else if entry.passes_numbers() {
            let mut below: Vec<Target> = Vec::new();
            for (_, lower) in site.known_lowers(at) {
                for &target in &targets[lower] {
                    let derived = target.derived.or(virtuals::rule(site, at, target.node));
                    let target = Target { derived, ..target };
                    // One reached over several ways is told once; the way with a rule says more.
                    match below.iter_mut().find(|known| known.node == target.node) {
                        Some(known) => known.derived = known.derived.or(derived),
                        None => below.push(target),
                    }
                }
            }
            below.sort_unstable_by_key(|target| target.node);
            targets[at] = below;
        }
    }
    targets
}

fn edges(site: &Site<'_>, at: usize, targets: &[Vec<Target>]) -> Vec<Edge> {
    let lowers = &site.node(at).lowers;
    let mut edges = Vec::new();
    for (place, lower) in site.known_lowers(at) {
        if site.misfits.contains(&(at, lower)) {
            continue;
        }
        let span = lowers.get(place).map_or(Span::default(), |l| l.span);
        for &target in &targets[lower] {
            edges.push(Edge { upper: at, target, span });
        }
    }
    edges
}

/// The numbers that `number LOWER=N` gives.
fn own_numbers(
    site: &Site<'_>,
    at: usize,
    edges: &[Edge],
    diagnostics: &mut Diagnostics,
) -> Vec<(usize, u32)> {
    let node = site.node(at);
    let mut own: Vec<(usize, u32)> = Vec::new();
    for (name, number) in node.numbers(diagnostics) {
        let edge = edges.iter().find(|edge| *site.node(edge.target.node).name == *name);
        let Some(edge) = edge else {
            // What it cannot stand on was told, and more about that would mislead.
            let is_told = |(_, lower)| site.misfits.contains(&(at, lower));
            if !site.known_lowers(at).any(is_told) {
                not_below(site, at, &name, edges, diagnostics);
            }
            continue;
        };
        let taken = takes(site, edge.target.node);
        match u32::try_from(*number) {
            Ok(value) if taken.is_some_and(|(takes, _)| !takes(value)) => {
                let which = taken.map_or("", |(_, which)| which);
                diagnostics
                    .error(number.span, format!("there is no type number {value} on `{name}`"))
                    .expected(which);
            }
            Ok(number) => own.push((edge.target.node, number)),
            Err(_) => {
                diagnostics
                    .error(number.span, format!("the type number {number} is too large"))
                    .expected(format!("a whole number from 0 to {}", u32::MAX));
            }
        }
    }
    own
}

/// Numbers that a node's header has room for; `None` for all.
fn takes(site: &Site<'_>, at: usize) -> Option<TakesNumbers> {
    let entry = site.entry(at)?;
    let header = || site.catalog.find(entry.numbers_as?)?.takes_numbers;
    entry.takes_numbers.or_else(header)
}

fn not_below(
    site: &Site<'_>,
    at: usize,
    name: &Spanned<String>,
    edges: &[Edge],
    diagnostics: &mut Diagnostics,
) {
    let node = site.node(at);
    let names: Vec<&str> =
        edges.iter().map(|edge| site.node(edge.target.node).name.as_str()).collect();
    let stands = |(_, lower)| site.node(site.behind(lower)).name.value == name.value;
    let what = if site.known_lowers(at).any(stands) {
        format!("`{name}` does not tell its uppers apart by type numbers")
    } else {
        format!("`{}` does not stand on `{name}`", node.name)
    };
    let error = diagnostics.error(name.span, what);
    if names.is_empty() {
        error.help("leave the number out");
    } else {
        let list: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
        error.expected(list.join(", ")).suggest(name, names.iter().copied());
    }
}

fn missing(site: &Site<'_>, edge: &Edge, diagnostics: &mut Diagnostics) {
    let (upper, lower) = (site.node(edge.upper), site.node(edge.target.node));
    let what = format!("`{}` has no type number on `{}`", upper.kind, lower.kind);
    let mut known: Vec<&str> = site
        .catalog
        .numbers()
        .kinds()
        .iter()
        .filter(|number| number.lower == *lower.kind)
        .map(|number| number.upper)
        .collect();
    known.sort_unstable();
    let between =
        site.entry(edge.upper).and_then(|upper| suggest::between(site, upper, edge.target.node));
    diagnostics
        .error(edge.span, what)
        .expected(format!("a protocol that has one on `{}`: {}", lower.kind, known.join(", ")))
        .help(match between {
            Some(between) => between,
            None => format!(
                "give it one, if its peers know it: `{{ number {}=N }}` behind `{}`",
                lower.name, upper.name
            ),
        });
}

fn clash(
    site: &Site<'_>,
    edge: &Edge,
    number: u32,
    (first, span): (usize, Span),
    diagnostics: &mut Diagnostics,
) {
    let lower = &site.node(edge.target.node).name;
    let what = format!(
        "`{}` has the same type number on `{lower}` as `{}`: {number}",
        site.node(edge.upper).name,
        site.node(first).name
    );
    diagnostics.error(edge.span, what).also(span, format!("`{}`", site.node(first).name)).help(
        format!("give one of them another: `{{ number {lower}=N }}`; the peer's must be the same"),
    );
}
