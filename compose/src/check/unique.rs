//! Checks of what only one node can have: a device on a host, an address on a link.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use xk_core::graph::Shape;
use xk_lang::{Diagnostics, Host, Node, Span, Value};

use super::site::Site;
use crate::plan::{CheckedGraph, HostPlan, count_of, instance};

/// Refuses a second node of a host that names the device or file of a first one of its kind.
pub(super) fn devices(site: &Site<'_>, diagnostics: &mut Diagnostics) {
    let mut taken: HashMap<(&str, &str, String), usize> = HashMap::new();
    for at in 0..site.lowers.len() {
        let Some(entry) = site.entry(at) else {
            continue;
        };
        let names = entry.stacking_rules.map_or(&[][..], |rules| rules.sole);
        let named = |name| Some((name, site.params[at].get(name)?));
        let Some((name, value)) = names.iter().copied().find_map(named) else {
            continue;
        };
        let first = match taken.entry((entry.kind, name, value.to_string())) {
            Slot::Vacant(slot) => {
                slot.insert(at);
                continue;
            }
            Slot::Occupied(slot) => *slot.get(),
        };
        let span = |at: usize| {
            let node = site.node(at);
            let given = node.param(name).map(|param| param.value.span);
            given.unwrap_or(node.kind.span)
        };
        let nodes = [first, at].map(|at| site.node(at).name.as_str());
        let what = format!("`{}` and `{}` have one `{name}`: `{value}`", nodes[0], nodes[1]);
        diagnostics
            .error(span(at), what)
            .also(span(first), format!("`{}`", nodes[0]))
            .help(format!("give one of them another `{name}`"));
    }
}

/// An address that a node has, where the graph says so, and which links it has it on.
struct Own<'a> {
    text: &'a str,
    span: Span,
    links: Vec<String>,
}

/// Refuses an address that two hosts have on one link.
pub(super) fn addresses(graph: &CheckedGraph, diagnostics: &mut Diagnostics) {
    let mut taken: HashMap<(String, String), (String, Span)> = HashMap::new();
    for (host, plan) in graph.graph.hosts.iter().zip(&graph.plans) {
        let before = diagnostics.len();
        for index in 0..u32::try_from(count_of(host)).unwrap_or(u32::MAX) {
            // One mistake of many hosts alike is one mistake.
            if diagnostics.len() > before {
                break;
            }
            one_host(graph, (host, plan), index, &mut taken, diagnostics);
        }
    }
}

fn one_host(
    graph: &CheckedGraph,
    (host, plan): (&Host, &HostPlan),
    index: u32,
    taken: &mut HashMap<(String, String), (String, Span)>,
    diagnostics: &mut Diagnostics,
) {
    let instance = instance(host, index);
    let nodes = instance.nodes();
    for at in 0..nodes.len() {
        for own in own_addresses(plan, &nodes, at, &instance.name) {
            for link in own.links {
                // At the other end of a device is another host, the system.
                let is_system = plan.places[at].entry.shape == Shape::Wire && link.contains('/');
                let owner = match is_system {
                    true => format!("{}'s system", instance.name),
                    false => instance.name.to_string(),
                };
                let address = own.text.to_ascii_lowercase();
                let named = link.rsplit('/').next().unwrap_or_default().to_owned();
                match taken.entry((link, address)) {
                    Slot::Vacant(slot) => {
                        slot.insert((owner, own.span));
                    }
                    Slot::Occupied(slot) if slot.get().0 == owner => {}
                    Slot::Occupied(slot) if apart(graph, &named, [&slot.get().0, &owner]) => {}
                    Slot::Occupied(slot) => {
                        let (first, span) = slot.get();
                        let what = format!(
                            "`{first}` and `{owner}` have one address on `{named}`: {}",
                            own.text
                        );
                        diagnostics
                            .error(own.span, what)
                            .also(*span, format!("that of `{first}`"))
                            .help(remedy(host));
                    }
                }
            }
        }
    }
}

/// Whether a partition of the link keeps one of these hosts from the others for a time: then one
/// may take over from the other.
fn apart(graph: &CheckedGraph, link: &str, hosts: [&str; 2]) -> bool {
    let links = graph.graph.links.iter().filter(|l| *l.name == *link);
    let partitions = links.flat_map(|link| link.blocks("partition"));
    let sides = partitions.flat_map(|block| [block.param("between"), block.param("and")]);
    sides.flatten().any(|side| match &side.value.value {
        Value::Text(text) => text.split([' ', ',']).any(|name| hosts.contains(&name)),
        _ => false,
    })
}

fn remedy(host: &Host) -> &'static str {
    match host.count {
        Some(_) => "let it differ by the host's index, as in \"10.0.0.{n+1}/24\"",
        None => "give one of them another",
    }
}

fn own_addresses<'n>(plan: &HostPlan, nodes: &'n [Node], at: usize, host: &str) -> Vec<Own<'n>> {
    let rules = plan.places[at].entry.stacking_rules;
    let (Some(node), Some(name)) = (nodes.get(at), rules.and_then(|rules| rules.own_address))
    else {
        return Vec::new();
    };
    let own = |value: &'n xk_lang::Spanned<Value>, lower: Option<usize>| match &value.value {
        // The prefix behind an address says nothing of whose it is.
        Value::Text(text) => Some(Own {
            text: text.split('/').next().unwrap_or_default(),
            span: value.span,
            links: links_below(plan, nodes, (at, lower), host),
        }),
        _ => None,
    };
    let property = node.param(name).and_then(|param| own(&param.value, None)).into_iter();
    let blocks = node.blocks(name).filter_map(|block| {
        let on = block.param("on").map(|on| &on.value.value);
        let lowers = &plan.places[at].lowers;
        let named = lowers
            .iter()
            .find(|lower| matches!(on, Some(Value::Text(name)) if *nodes[**lower].name == **name));
        own(block.args.first()?, named.or(lowers.first()).copied())
    });
    property.chain(blocks).collect()
}

/// The links of the wires that lie below a node, through its lower `first` alone if that is given.
/// A link of the graph has its name; one behind a device, that of host and wire.
fn links_below(
    plan: &HostPlan,
    nodes: &[Node],
    (top, first): (usize, Option<usize>),
    host: &str,
) -> Vec<String> {
    let kind = plan.places[top].entry.kind;
    let mut below = match first {
        Some(lower) => vec![lower],
        None => vec![top],
    };
    let mut links = Vec::new();
    let mut seen = 0;
    while let Some(&at) = below.get(seen) {
        seen += 1;
        let place = &plan.places[at];
        if place.entry.kind == kind && at != top {
            // What lies there is inside of another layer's packets.
            continue;
        }
        if place.entry.shape == Shape::Wire {
            let link = nodes[at].param("link").map(|link| &link.value.value);
            links.push(match link {
                Some(Value::Text(name)) => name.clone(),
                _ => format!("{host}/{}", nodes[at].name.as_str()),
            });
        }
        let fresh = place.lowers.iter().copied();
        let fresh: Vec<usize> = fresh.filter(|lower| !below.contains(lower)).collect();
        below.extend(fresh);
    }
    links
}
