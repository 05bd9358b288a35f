//! Links: their parameters, and that simulated wires hang on links that exist.

use std::collections::HashMap;
use xk_core::graph::BuildError;
use xk_lang::{Diagnostics, Graph, Host, Link, Span, Spanned, Template, Value, nearest};
use xk_sim::{LINK_BLOCKS, LINK_PARAMETERS, LinkConfig, LinkKind};

use crate::params::Taker;
use crate::plan::count_of;

/// The links of a file, as they are written and as the simulator wants them.
#[derive(Clone, Copy)]
pub(super) struct Links<'a> {
    pub(super) written: &'a [Link],
    pub(super) configs: &'a [LinkConfig],
}

/// The links as the simulator wants them. A link with mistakes is as far like it as can be.
pub(super) fn check(graph: &Graph, diagnostics: &mut Diagnostics) -> Vec<LinkConfig> {
    let links: Vec<LinkConfig> = graph.links.iter().map(|link| config(link, diagnostics)).collect();
    if links.iter().any(|link| !link.partitions.is_empty()) {
        check_partitions(graph, diagnostics);
    }
    links
}

fn config(link: &Link, diagnostics: &mut Diagnostics) -> LinkConfig {
    let taker = Taker {
        what: "a link",
        span: link.name.span,
        scalars: LINK_PARAMETERS,
        blocks: LINK_BLOCKS,
    };
    let before = diagnostics.len();
    let params = taker.take(diagnostics, &link.params, &link.children);
    match LinkConfig::from_params(&link.name, &params) {
        Ok(config) => config,
        Err(error) => {
            if diagnostics.len() == before {
                report(link, error, diagnostics);
            }
            LinkConfig::new(link.name.as_str(), LinkKind::default())
        }
    }
}

fn report(link: &Link, error: BuildError, diagnostics: &mut Diagnostics) {
    let BuildError::Param { name, index, expected } = &error else {
        diagnostics.error(link.name.span, error.to_string());
        return;
    };
    let property = link.param(name).map(|param| param.value.span);
    let block = link.blocks(name).nth(*index).map(|block| block.span);
    let span = property.or(block).unwrap_or(link.name.span);
    diagnostics.error(span, format!("this `{name}` does not do")).expected(expected.as_str());
}

/// The hosts that partitions name.
fn check_partitions(graph: &Graph, diagnostics: &mut Diagnostics) {
    let hosts = graph.expand();
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_ref()).collect();
    let known: std::collections::HashSet<&str> = names.iter().copied().collect();
    let sides = graph
        .links
        .iter()
        .flat_map(|link| link.blocks("partition"))
        .flat_map(|block| [block.param("between"), block.param("and")])
        .flatten();
    for side in sides {
        let Value::Text(text) = &side.value.value else {
            continue;
        };
        for name in text.split([' ', ',']).filter(|name| !name.is_empty()) {
            if !known.contains(name) {
                diagnostics
                    .error(side.value.span, format!("there is no host called `{name}`"))
                    .suggest(name, names.iter().copied());
            }
        }
    }
}

/// A simulated wire's `link=NAME` on one of the hosts alike.
struct Use<'a> {
    host: &'a Host,
    name: &'a Spanned<Value>,
}

/// That every simulated wire hangs on a link of this file, that every link is used, and that two
/// wires share a point-to-point link.
pub(super) fn check_uses(graph: &Graph, diagnostics: &mut Diagnostics) {
    let mut ends: HashMap<String, usize> = HashMap::new();
    for host in &graph.hosts {
        let wires = host.nodes.iter().filter(|n| *n.kind == *xk_sim::ENTRY.kind);
        for wire in wires {
            if let Some(param) = wire.param("link") {
                let found = Use { host, name: &param.value };
                count_ends(graph, &found, &mut ends, diagnostics);
            }
        }
    }
    for link in &graph.links {
        let count = ends.get(link.name.as_str()).copied().unwrap_or(0);
        let kind = link.param("kind").map(|kind| &kind.value.value);
        let two_ends = matches!(kind, Some(Value::Text(word)) if word == "pointtopoint");
        if count == 0 {
            diagnostics
                .warning(link.name.span, format!("no wire hangs on the link `{}`", link.name))
                .help(format!("use it: `sim link={}`", link.name));
        } else if two_ends && count != 2 {
            let what = format!("a point-to-point link has two ends, and on this one hang {count}");
            let span = link.name.span;
            if count > 2 {
                diagnostics.error(span, what).help("make it `kind=switch`");
            } else {
                diagnostics.warning(span, what);
            }
        }
    }
}

fn count_ends(
    graph: &Graph,
    found: &Use<'_>,
    ends: &mut HashMap<String, usize>,
    diagnostics: &mut Diagnostics,
) {
    // What is no text was reported with the parameters.
    let Value::Text(text) = &found.name.value else {
        return;
    };
    let count = count_of(found.host);
    let template = match &found.host.count {
        Some(_) if text.contains('{') => Template::compile(text).ok(),
        _ => None,
    };
    let Some(template) = template else {
        if known(graph, text, found.name.span, ends, diagnostics) {
            *ends.entry(text.clone()).or_default() += count;
        }
        return;
    };
    for index in 0..u32::try_from(count).unwrap_or(u32::MAX) {
        let name = template.fill(index);
        if !known(graph, &name, found.name.span, ends, diagnostics) {
            return;
        }
        *ends.entry(name).or_default() += 1;
    }
}

fn known(
    graph: &Graph,
    name: &str,
    span: Span,
    ends: &HashMap<String, usize>,
    diagnostics: &mut Diagnostics,
) -> bool {
    if ends.contains_key(name) || graph.link(name).is_some() {
        return true;
    }
    let names = graph.links.iter().map(|link| link.name.as_str());
    let error = diagnostics.error(span, format!("there is no link called `{name}`"));
    match nearest(name, names.clone()) {
        Some(near) => error.help(format!("did you mean `{near}`?")),
        None if graph.links.is_empty() => error.help(format!("add a line `link {name}`")),
        None => error.expected(names.take(20).collect::<Vec<_>>().join(", ")),
    };
    false
}
