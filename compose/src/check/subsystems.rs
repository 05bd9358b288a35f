//! Subsystems of a host: which there are, and the adapters where an edge joins two of them.
//!
//! Adapters are nodes like others, put into what was read before anything else looks at it: their
//! names and places in the file are those of the edges.

use xk_core::Entry;
use xk_core::graph::{Catalog, Family, Realm, Shape};
use xk_lang::{Diagnostics, Graph, Host, Node, Param, Spanned, Value, nearest};

use super::site::find_entry;

/// Name of the x-kernel in adapters' kinds.
const OWN: &str = "xk";

/// Puts an adapter into each edge between protocols of two subsystems; an edge for which there is
/// none is reported, and stays.
pub(super) fn join(graph: &mut Graph, catalog: &Catalog, diagnostics: &mut Diagnostics) {
    for host in &mut graph.hosts {
        named(host, catalog, diagnostics);
        if host.subsystems.is_empty() {
            continue;
        }
        let edges = |at: usize| (0..host.nodes[at].lowers.len()).map(move |place| (at, place));
        let edges: Vec<_> = (0..host.nodes.len()).flat_map(edges).collect();
        // All are found before any is put in: what lies below a filter is looked for by name.
        let found = edges.into_iter().filter_map(|edge| {
            adapter(host, edge, catalog, diagnostics).map(|adapter| (edge, adapter))
        });
        let adapters: Vec<_> = found.collect();
        for ((upper, place), adapter) in adapters {
            host.nodes[upper].lowers[place].value.clone_from(&adapter.name.value);
            host.nodes.push(adapter);
        }
    }
}

/// True for the node that stands for a subsystem.
fn stands_for(host: &Host, at: usize) -> bool {
    host.subsystems.iter().any(|subsystem| subsystem.node == at)
}

/// Checks that the subsystems are those of the catalog, and are written as such.
fn named(host: &Host, catalog: &Catalog, diagnostics: &mut Diagnostics) {
    let is = |entry: &&&Entry| entry.shape == Shape::Framework;
    let known = || catalog.entries().iter().filter(is).map(|entry| entry.kind);
    // One without a name has been told of.
    for subsystem in host.subsystems.iter().filter(|subsystem| !subsystem.name.is_empty()) {
        let name = subsystem.name.as_str();
        if known().any(|kind| kind == name) {
            continue;
        }
        let error =
            diagnostics.error(subsystem.name.span, format!("there is no subsystem `{name}`"));
        match nearest(name, known()) {
            Some(near) => error.help(format!("did you mean `{near}`?")),
            None if known().next().is_none() => error.help("write its lines into the host"),
            None => error.expected(known().collect::<Vec<_>>().join(", ")),
        };
    }
    for (at, node) in host.nodes.iter().enumerate() {
        let shape = find_entry(host, node, catalog).map(|entry| entry.shape);
        let (what, help) = match shape {
            Some(Shape::Framework) if !stands_for(host, at) => (
                format!("`{}` is a subsystem, and cannot be a line of the file", node.kind),
                format!("write `subsystem {} {{ ... }}` around its protocols", node.kind),
            ),
            Some(Shape::Adapter) => (
                format!(
                    "`{}` is inserted by the check, and cannot be a line of the file",
                    node.kind
                ),
                "leave it out, and put the line above it on the line below it".to_owned(),
            ),
            _ => continue,
        };
        diagnostics.error(node.kind.span, what).help(help);
    }
}

/// The adapter for an edge, if that joins two subsystems.
fn adapter(
    host: &Host,
    (at, place): (usize, usize),
    catalog: &Catalog,
    diagnostics: &mut Diagnostics,
) -> Option<Node> {
    let upper = &host.nodes[at];
    let name = &upper.lowers[place];
    let lower_at = host.nodes.iter().position(|node| node.name.value == name.value)?;
    let lower = &host.nodes[lower_at];
    let (above, below) = (host.subsystem(upper), host.subsystem(lower));
    if above == below || lower_at == at || stands_for(host, lower_at) {
        return None;
    }
    // What is of no known kind has been told of, or will be.
    let entries = (find_entry(host, upper, catalog)?, find_entry(host, lower, catalog)?);
    let kind = format!("{}-on-{}", above.unwrap_or(OWN), below.unwrap_or(OWN));
    let found = catalog.find(&kind).filter(|entry| entry.shape == Shape::Adapter);
    let domain = match (above, below) {
        (Some(_), Some(_)) if upper.domain != lower.domain => {
            let what = format!("`{}` and `{}` lie in two domains", upper.name, lower.name);
            diagnostics
                .error(name.span, what)
                .expected("both in one: only edges of the x-kernel's protocols are cut");
            return None;
        }
        // The adapter lies beside the protocol that is not the x-kernel's.
        (None, _) => lower.domain,
        (Some(_), _) => upper.domain,
    };
    if entries.0.realm == Realm::Control || entries.1.realm == Realm::Control {
        let asks = if entries.0.realm == Realm::Control { upper } else { lower };
        let what = format!(
            "`{}` cannot stand on `{}`, which is of {}: no adapter passes on questions to and from `{}`",
            upper.name,
            lower.name,
            of(below),
            asks.name
        );
        diagnostics
            .error(name.span, what)
            .help(format!("let it stand on a protocol of {}", of(above)));
        return None;
    }
    let (near, end) = below_filters(host, lower, catalog)?;
    let is_told = found.is_some_and(|adapter| !adapter.joins.is_empty());
    let joins = found.map_or(&[][..], |adapter| adapter.joins);
    let form = form(joins, near, end, catalog);
    if let Some(adapter) = found.filter(|_| is_told && form.is_none()) {
        let what = format!(
            "`{}` cannot stand on `{}`, which is of {}: no adapter translates the addresses of `{}`",
            upper.name,
            lower.name,
            of(below),
            end.kind
        );
        diagnostics.error(name.span, what).help(format!(
            "let it stand on a protocol of {}; adapters to {} translate only {}",
            of(above),
            of(below),
            adapter.joins.join(", ")
        ));
        return None;
    }
    if found.is_none() {
        let what = format!(
            "`{}` is of {}, `{}` of {}, and there is no adapter `{kind}`",
            upper.name,
            of(above),
            lower.name,
            of(below)
        );
        diagnostics
            .error(name.span, what)
            .help(format!("let it stand on a protocol of {}", of(above)));
        return None;
    }
    let spanned = |text: &str| Spanned::new(text.to_owned(), name.span);
    let below = Spanned::new(Value::Text(form.unwrap_or_default().into()), name.span);
    let below = is_told.then(|| Param { name: spanned("below"), value: below });
    Some(Node {
        domain,
        params: below.into_iter().collect(),
        kind: Spanned::new(kind, name.span),
        name: Spanned::new(format!("{}/{}", upper.name, lower.name), name.span),
        lowers: vec![name.clone()],
        span: name.span,
        ..Node::default()
    })
}

/// The kind of `joins` whose addresses are those of a lower end: its own, or one of the same realm
/// and family; empty for the frames of a wire.
fn form(
    joins: &[&'static str],
    near: &Entry,
    end: &Entry,
    catalog: &Catalog,
) -> Option<&'static str> {
    if end.shape == Shape::Wire && end.above == Family::Link {
        return Some("");
    }
    let is_alike = |kind: &&str| {
        let of = |entry: &&&Entry| entry.kind == *kind;
        let mut entries = catalog.entries().iter().filter(of);
        entries.any(|entry| (entry.realm, entry.above) == (near.realm, end.above))
    };
    let own = joins.iter().copied().find(|kind| *kind == near.kind);
    own.or_else(|| joins.iter().copied().find(is_alike))
}

/// Finds a node or, for a filter, which passes on what it is asked, the node below it; and the node
/// below that has addresses of its own.
fn below_filters(
    host: &Host,
    node: &Node,
    catalog: &Catalog,
) -> Option<(&'static Entry, &'static Entry)> {
    let (mut at, mut near) = (node, None);
    for _ in 0..host.nodes.len() {
        let entry = find_entry(host, at, catalog)?;
        if entry.shape != Shape::Filter {
            let near = *near.get_or_insert(entry);
            if entry.above != Family::Inherit {
                return Some((near, entry));
            }
        }
        let below = at.lowers.first()?;
        at = host.nodes.iter().find(|node| node.name.value == below.value)?;
    }
    None
}

/// A subsystem in words.
fn of(subsystem: Option<&str>) -> String {
    subsystem.map_or_else(|| "the x-kernel".to_owned(), |name| format!("`{name}`"))
}

/// Reports a line of a kind that its subsystem, or the x-kernel, does not have.
pub(super) fn unknown_kind(
    host: &Host,
    node: &Node,
    catalog: &Catalog,
    diagnostics: &mut Diagnostics,
) {
    let own = host.subsystem(node);
    // What is said of a subsystem that does not exist says it of its lines, too.
    let is_own = |name: &str| catalog.find(name).is_some_and(|e| e.shape == Shape::Framework);
    let stands_for = host.subsystems.iter().any(|subsystem| subsystem.name == node.kind);
    if own.is_some_and(|name| !is_own(name)) || own.is_none() && stands_for {
        return;
    }
    let kinds = |of: Option<&str>| {
        let is = move |entry: &&Entry| {
            let written = !matches!(entry.shape, Shape::Framework | Shape::Adapter);
            written && entry.subsystem.map(str::to_owned).as_deref() == of
        };
        catalog.entries().iter().copied().filter(is).map(|entry| entry.kind).collect::<Vec<_>>()
    };
    let what = match own {
        None => format!("there is no protocol `{}`", node.kind),
        Some(subsystem) => format!("`{subsystem}` has no protocol `{}`", node.kind),
    };
    let error = diagnostics.error(node.kind.span, what);
    let elsewhere = catalog.entries().iter().find(|entry| entry.kind == node.kind.as_str());
    let known = kinds(own);
    let near = nearest(&node.kind, known.iter().copied());
    match (near, elsewhere) {
        (_, Some(entry)) => error.help(match entry.subsystem {
            None => format!("`{}` is the x-kernel's: write it outside of the block", node.kind),
            Some(other) => format!("write it within `subsystem {other} {{ ... }}`"),
        }),
        (Some(near), None) => error.help(format!("did you mean `{near}`?")),
        (None, None) if known.is_empty() => error.help("leave it out"),
        (None, None) => error.expected(known.join(", ")),
    };
    // It would have that name, and what asks for it is no second mistake.
    let lowers = host.nodes.iter().flat_map(|node| &node.lowers);
    for lower in lowers.filter(|lower| elsewhere.is_none() && near == Some(lower.as_str())) {
        if let Some(missing) = diagnostics.at(lower.span) {
            let (kind, name) = (&node.kind, &lower.value);
            missing
                .help(format!("the line `{kind} ...` has that name once it begins with `{name}`"));
        }
    }
}
