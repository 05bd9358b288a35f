//! The order of building: every protocol after all that it stands on. A cycle has none.

use xk_lang::Diagnostics;

use super::site::Site;

/// Largest number of layers one on another. A message and the answer to it pass them on the stack
/// of one shepherd, 64 KiB: `fault`, the largest, takes 2.3 KiB there and back without
/// optimization.
const LAYERS_MAX: usize = 24;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    Open,
    Done,
}

/// The indices of the nodes in an order to build them, without those that a cycle keeps from being
/// built. Each cycle is reported once.
pub(super) fn check(site: &Site<'_>, diagnostics: &mut Diagnostics) -> Vec<usize> {
    let count = site.lowers.len();
    let mut marks = vec![Mark::New; count];
    let mut order = Vec::with_capacity(count);
    // A path of nodes, each with the number of lowers already looked at: no recursion, so that a
    // tower of a million nodes does not exhaust the stack.
    let mut path: Vec<(usize, usize)> = Vec::new();
    let mut cyclic = vec![false; count];
    // What stands for a subsystem is there before its protocols.
    let first = site.host.subsystems.iter().map(|subsystem| subsystem.node);
    for start in first.chain(0..count) {
        if marks[start] != Mark::New {
            continue;
        }
        marks[start] = Mark::Open;
        path.push((start, 0));
        while let Some((at, place)) = path.last_mut() {
            let at = *at;
            let Some(lower) = site.lowers[at].get(*place).copied() else {
                marks[at] = Mark::Done;
                path.pop();
                if site.lowers[at].iter().flatten().any(|l| cyclic[*l]) {
                    cyclic[at] = true;
                }
                if !cyclic[at] {
                    order.push(at);
                }
                continue;
            };
            *place += 1;
            let Some(lower) = lower else { continue };
            match marks[lower] {
                Mark::Done => {}
                Mark::New => {
                    marks[lower] = Mark::Open;
                    path.push((lower, 0));
                }
                Mark::Open => {
                    let from = path.iter().position(|(n, _)| *n == lower).unwrap_or(0);
                    let cycle: Vec<usize> = path[from..].iter().map(|(n, _)| *n).collect();
                    cycle.iter().for_each(|n| cyclic[*n] = true);
                    report(site, &cycle, diagnostics);
                }
            }
        }
    }
    order
}

/// Refuses a node with more layers below than a message can pass on the stack of a shepherd.
pub(super) fn depths(site: &Site<'_>, order: &[usize], diagnostics: &mut Diagnostics) {
    let mut depths = vec![0; site.lowers.len()];
    for &at in order {
        let lowers = site.lowers[at].iter().flatten();
        depths[at] = 1 + lowers.map(|lower| depths[*lower]).max().unwrap_or(0);
        if depths[at] == LAYERS_MAX + 1 {
            let what = format!("`{}` is layer {} of its host", site.node(at).name, depths[at]);
            diagnostics
                .error(site.node(at).kind.span, what)
                .expected(format!("at most {LAYERS_MAX} layers, one on another"))
                .help(
                    "a message passes through all of them on one stack of 64 KiB; leave some out",
                );
            return;
        }
    }
}

/// `cycle` holds each node once, in the order of standing on each other; the last stands on the
/// first.
fn report(site: &Site<'_>, cycle: &[usize], diagnostics: &mut Diagnostics) {
    let mut names: Vec<String> =
        cycle.iter().map(|n| format!("`{}`", site.node(*n).name)).collect();
    names.extend(names.first().cloned());
    let edge = |upper: usize, lower: usize| {
        let lowers = &site.node(upper).lowers;
        let place = site.lowers[upper].iter().position(|l| *l == Some(lower));
        place.and_then(|place| lowers.get(place)).map(|l| l.span)
    };
    let mut edges = (0..cycle.len()).filter_map(|i| {
        let (upper, lower) = (cycle[i], cycle[(i + 1) % cycle.len()]);
        Some((edge(upper, lower)?, upper, lower))
    });
    let Some((span, ..)) = edges.next() else {
        return;
    };
    let what = format!("a cycle: {}", names.join(" stands on "));
    let error = diagnostics.error(span, what);
    for (span, upper, lower) in edges {
        let words = format!("`{}` stands on `{}`", site.node(upper).name, site.node(lower).name);
        error.also(span, words);
    }
    error.help("let one of them stand on something outside the cycle, such as a wire");
}
