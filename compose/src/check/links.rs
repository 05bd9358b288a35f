//! Links: their parameters, and that simulated wires hang on links that exist.

use std::collections::HashMap;
use xk_core::graph::{self, BuildError, Catalog, Params};
use xk_lang::{Diagnostics, Graph, Host, Link, Span, Spanned, Template, Value, nearest};

use crate::params::Parametrized;
use crate::plan::count_of;

/// The links of a file, as they are written and what they say.
#[derive(Clone, Copy)]
pub(super) struct Links<'a> {
    pub(super) written: &'a [Link],
    pub(super) params: &'a [Params],
}

/// The parameters of the links, as far as they are right.
pub(super) fn check(
    graph: &Graph,
    catalog: &Catalog,
    diagnostics: &mut Diagnostics,
) -> Vec<Params> {
    let Some(kind) = catalog.links() else {
        if let Some(link) = graph.links.first() {
            let what = "this program's catalog has no wire for links";
            diagnostics.error(link.name.span, what);
        }
        return Vec::new();
    };
    let links = graph.links.iter().map(|link| params_of(kind, link, diagnostics)).collect();
    check_partitions(graph, diagnostics);
    links
}

fn params_of(kind: &graph::Links, link: &Link, diagnostics: &mut Diagnostics) -> Params {
    let parametrized = Parametrized {
        what: "a link",
        span: link.name.span,
        scalars: kind.parameters,
        blocks: kind.blocks,
    };
    let before = diagnostics.len();
    let params = parametrized.take(diagnostics, &link.params, &link.children);
    if let Err(error) = (kind.check)(&link.name, &params)
        && diagnostics.len() == before
    {
        report(link, error, diagnostics);
    }
    params
}

fn report(link: &Link, error: BuildError, diagnostics: &mut Diagnostics) {
    let BuildError::Param { name, index, expected } = &error else {
        diagnostics.error(link.name.span, error.to_string());
        return;
    };
    let property = link.param(name).map(|param| param.value.span);
    let block = link.blocks(name).nth(*index).map(|block| block.span);
    let span = property.or(block).unwrap_or(link.name.span);
    diagnostics.error(span, format!("this `{name}` is not valid")).expected(expected.as_str());
}

/// The hosts that partitions name.
fn check_partitions(graph: &Graph, diagnostics: &mut Diagnostics) {
    if graph.links.iter().all(|link| link.blocks("partition").next().is_none()) {
        return;
    }
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

/// Checks that every simulated wire hangs on a link of this file, that every link is used, and that
/// two wires share a point-to-point link.
pub(super) fn check_uses(graph: &Graph, catalog: &Catalog, diagnostics: &mut Diagnostics) {
    let mut ends: HashMap<String, usize> = HashMap::new();
    for host in &graph.hosts {
        let hangs = |kind: &str| catalog.find(kind).is_some_and(|entry| entry.links.is_some());
        let wires = host.nodes.iter().filter(|node| hangs(&node.kind));
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
                .warning(link.name.span, format!("no wire is attached to the link `{}`", link.name))
                .help(format!("use it: `sim link={}`", link.name));
        } else if two_ends && count != 2 {
            let what = format!(
                "a point-to-point link has two ends, and {count} wires are attached to this one"
            );
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
