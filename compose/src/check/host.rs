//! One host: its protocols, their parameters, and which stands on which.

use std::collections::{HashMap, HashSet};
use xk_core::Entry;
use xk_core::graph::{Catalog, Guarantees, Params};
use xk_lang::{Diagnostics, Host, Node};

use super::links::Links;
use super::site::{Site, find_entry};
use super::{domains, mtu, needs, numbers, order, stacking, subsystems, unique};
use crate::plan::{HostPlan, Place, count_of, instance, params_of};

pub(super) fn check(
    host: &Host,
    catalog: &Catalog,
    links: Links<'_>,
    diagnostics: &mut Diagnostics,
) -> HostPlan {
    for param in &host.params {
        let what = format!("a host has no parameter `{}`", param.name);
        diagnostics
            .error(param.name.span, what)
            .expected("`count=N` or nothing")
            .suggest(&param.name, ["count"]);
    }
    let names: HashMap<&str, usize> =
        (0..host.nodes.len()).rev().map(|at| (host.nodes[at].name.as_str(), at)).collect();
    let lowers = host.nodes.iter().enumerate().map(|(at, node)| {
        // That a node stands on itself was reported when the file was read.
        let find = |name: &xk_lang::Spanned<String>| {
            names.get(name.as_str()).copied().filter(|lower| *lower != at)
        };
        node.lowers.iter().map(find).collect()
    });
    let lowers: Vec<Vec<Option<usize>>> = lowers.collect();
    let mut site = Site {
        host,
        catalog,
        entries: host
            .nodes
            .iter()
            .map(|node| find_kind(host, node, catalog, diagnostics))
            .collect(),
        uppers: turn_round(&lowers),
        lowers,
        above: vec![None; host.nodes.len()],
        gives: vec![Guarantees::ALL; host.nodes.len()],
        misfits: HashSet::new(),
        params: params(host, catalog, diagnostics),
    };
    let order = order::check(&site, diagnostics);
    order::depths(&site, &order, diagnostics);
    for &at in &order {
        stacking::check(&mut site, at, diagnostics);
    }
    stacking::check_wires(&site, diagnostics);
    for &at in &order {
        needs::check(&site, at, diagnostics);
    }
    let overrides = numbers::check(&site, &order, diagnostics);
    unique::devices(&site, diagnostics);
    mtu::check(&site, &order, links, diagnostics);
    let domains = domains::check(&site, diagnostics);
    plan(site, order, overrides, domains)
}

/// From the lowers of each to the uppers of each.
fn turn_round(lowers: &[Vec<Option<usize>>]) -> Vec<Vec<usize>> {
    let mut uppers = vec![Vec::new(); lowers.len()];
    for (upper, lowers) in lowers.iter().enumerate() {
        for lower in lowers.iter().flatten() {
            if uppers[*lower].last() != Some(&upper) {
                uppers[*lower].push(upper);
            }
        }
    }
    uppers
}

fn find_kind(
    host: &Host,
    node: &Node,
    catalog: &Catalog,
    diagnostics: &mut Diagnostics,
) -> Option<&'static Entry> {
    let found = find_entry(host, node, catalog);
    if found.is_none() {
        subsystems::unknown_kind(host, node, catalog, diagnostics);
    }
    found
}

/// The parameters of every node of the first host alike; the last one's are checked as well.
fn params(host: &Host, catalog: &Catalog, diagnostics: &mut Diagnostics) -> Vec<Params> {
    let mut of = |index: u32| -> Vec<Params> {
        let nodes = instance(host, index).nodes();
        let one = |node: &Node| match find_entry(host, node, catalog) {
            Some(entry) => params_of(diagnostics, entry, node),
            None => Params::default(),
        };
        nodes.iter().map(one).collect()
    };
    let first = of(0);
    if count_of(host) > 1 {
        of(u32::try_from(count_of(host) - 1).unwrap_or(u32::MAX));
    }
    first
}

fn plan(
    site: Site<'_>,
    order: Vec<usize>,
    overrides: Vec<Vec<(usize, u32)>>,
    found: domains::Found,
) -> HostPlan {
    let mut places = Vec::with_capacity(site.entries.len());
    let nodes = site.host.nodes.iter().zip(site.params).zip(overrides);
    for (at, ((node, params), numbers)) in nodes.enumerate() {
        // Without an entry the check has failed, and the plan is not used.
        let Some(entry) = site.entries[at] else {
            break;
        };
        places.push(Place {
            entry,
            lowers: site.lowers[at].iter().copied().flatten().collect(),
            domain: node.domain.map_or(0, |domain| domain + 1),
            above: site.above[at],
            numbers,
            params: (site.host.count.is_none() || !has_placeholder(node)).then_some(params),
        });
    }
    HostPlan { places, order, domains: found.domains, domain_order: found.order }
}

/// Whether anything in the node differs between hosts alike.
fn has_placeholder(node: &Node) -> bool {
    let text = |value: &xk_lang::Value| matches!(value, xk_lang::Value::Text(t) if t.contains('{'));
    let in_params = |params: &[xk_lang::Param]| params.iter().any(|p| text(&p.value));
    in_params(&node.params)
        || node
            .children
            .iter()
            .any(|block| in_params(&block.params) || block.args.iter().any(|value| text(value)))
}
