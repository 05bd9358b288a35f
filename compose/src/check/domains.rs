//! Domains of a host: what is said of each, which stand on which, and what may cross between them.

use std::collections::HashMap;
use xk_core::graph::{Params, Shape};
use xk_kit::net::ports::USER_PORT_FIRST;
use xk_kit::questions::SHARED;
use xk_lang::{Diagnostics, Domain, DomainKind, Span, Value};

use super::site::Site;
use crate::domain::{DomainPlan, params_of, range};

/// The longest path of a socket, in octets: `sun_path` without the octet that ends it (unix(7)).
const PATH_OCTETS_MAX: usize = 107;

/// Largest number of domains of a host, with the first.
const DOMAINS_MAX: usize = 64;

/// The domains of a host, and the order in which they start.
#[derive(Default)]
pub(super) struct Found {
    pub(super) domains: Vec<DomainPlan>,
    pub(super) order: Vec<usize>,
}

/// The domain of a node; 0 is the host's first.
pub(super) fn domain_of(site: &Site<'_>, at: usize) -> usize {
    site.node(at).domain.map_or(0, |domain| domain + 1)
}

pub(super) fn check(site: &Site<'_>, diagnostics: &mut Diagnostics) -> Found {
    let written = &site.host.domains;
    if let Some(surplus) = written.get(DOMAINS_MAX - 1) {
        diagnostics
            .error(surplus.name.span, format!("this host has {} domains", written.len() + 1))
            .expected(format!("at most {DOMAINS_MAX}, the first included"));
        return Found::default();
    }
    for (at, domain) in written.iter().enumerate() {
        one(site, at, domain, diagnostics);
    }
    paths(written, diagnostics);
    let mut edges: Vec<Edge> = Vec::new();
    for upper in 0..site.lowers.len() {
        for (place, lower) in site.known_lowers(upper) {
            let (above, below) = (domain_of(site, upper), domain_of(site, lower));
            if above == below {
                continue;
            }
            unknown_questions(site, (upper, place, lower), diagnostics);
            if !edges.iter().any(|edge| (edge.above, edge.below) == (above, below)) {
                edges.push(Edge { above, below, upper, place });
            }
        }
    }
    let count = written.len() + 1;
    let near = |wanted: &dyn Fn(&Edge) -> Option<usize>| edges.iter().filter_map(wanted).collect();
    let plan = |at: usize| DomainPlan {
        lowers: near(&|edge| (edge.above == at).then_some(edge.below)),
        uppers: near(&|edge| (edge.below == at).then_some(edge.above)),
    };
    let domains: Vec<DomainPlan> = (0..count).map(plan).collect();
    let order = order(site, &domains, &edges, diagnostics);
    Found { domains, order }
}

/// The first edge between two domains.
struct Edge {
    above: usize,
    below: usize,
    /// The node above, and which of its lowers it is.
    upper: usize,
    place: usize,
}

impl Edge {
    fn span(&self, site: &Site<'_>) -> Span {
        site.node(self.upper).lowers.get(self.place).map_or(Span::default(), |lower| lower.span)
    }
}

/// Checks one domain of the file.
fn one(site: &Site<'_>, at: usize, domain: &Domain, diagnostics: &mut Diagnostics) {
    let params = params_of(diagnostics, domain);
    let mut nodes = site.host.nodes.iter().filter(|node| node.domain == Some(at));
    match (domain.kind, nodes.next()) {
        (DomainKind::Open, Some(node)) => {
            diagnostics
                .error(node.kind.span, "an open domain has no protocols in the file")
                .expected("`grant NODE ...`; programs that attach bring protocols of their own");
        }
        (DomainKind::Open, None) => grants(site, domain, &params, diagnostics),
        (_, None) => {
            let what = format!("the domain `{}` has no protocol", domain.name);
            diagnostics.error(domain.name.span, what).help("leave it out, or move lines into it");
        }
        (_, Some(_)) => {}
    }
}

/// Checks that each path can be a socket's, and belongs to one domain.
fn paths(written: &[Domain], diagnostics: &mut Diagnostics) {
    let mut taken: HashMap<&str, (&str, Span)> = HashMap::new();
    for domain in written.iter().filter(|domain| domain.kind == DomainKind::Open) {
        let given = domain.param("path").map(|param| (&param.value.value, param.value.span));
        let Some((Value::Text(path), span)) = given else {
            continue;
        };
        if path.len() > PATH_OCTETS_MAX {
            diagnostics
                .error(span, format!("a path of {} octets is too long for a socket", path.len()))
                .expected(format!("at most {PATH_OCTETS_MAX} octets"));
        }
        if let Some((first, at)) = taken.get(path.as_str()) {
            let what = format!("`{first}` and `{}` have one `path`: `{path}`", domain.name);
            diagnostics
                .error(span, what)
                .also(*at, format!("`{first}`"))
                .help("give one of them another `path`");
        } else {
            taken.insert(path, (domain.name.as_str(), span));
        }
    }
}

/// Checks that granted nodes exist, and that protocols can stand on them.
fn grants(site: &Site<'_>, domain: &Domain, params: &Params, diagnostics: &mut Diagnostics) {
    // The domain of the first, and its name: a program has one way to all of them.
    let mut lies_in = None;
    for (grant, params) in domain.grants.iter().zip(params.blocks("grant")) {
        let span = grant.args.first().map_or(grant.name.span, |arg| arg.span);
        let Some(name) = params.text("node") else {
            continue;
        };
        let at = site.host.nodes.iter().position(|node| *node.name == *name);
        match at.and_then(|at| site.entry(at)) {
            None => {
                let what = format!("host `{}` has no node called `{name}`", site.host.name);
                let names = site.host.nodes.iter().map(|node| node.name.as_str());
                diagnostics.error(span, what).suggest(name, names);
            }
            Some(entry) if entry.subsystem.is_some() => {
                let of = entry.subsystem.unwrap_or_default();
                let what =
                    format!("`{name}` is of `{of}`: programs attach to the x-kernel's protocols");
                diagnostics.error(span, what).help("grant an x-kernel protocol that stands on it");
            }
            Some(entry) if matches!(entry.shape, Shape::Top | Shape::Framework) => {
                let what = format!("nothing can stand on `{name}`, so it cannot be granted");
                diagnostics.error(span, what);
            }
            Some(_) => {
                let of = |at: usize| site.host.nodes.get(at).and_then(|node| node.domain);
                let (first, domain) =
                    (*lies_in.get_or_insert((at.and_then(of), name)), at.and_then(of));
                if first.0 != domain {
                    let what = format!("`{name}` and `{}` lie in different domains", first.1);
                    diagnostics
                        .error(span, what)
                        .help("open a domain for each, at paths of their own");
                }
            }
        }
        let reads = |name| {
            params.text(name).is_none_or(|text| match name {
                "port" => range::<u16>(text).is_some(),
                _ => range::<u32>(text).is_some(),
            })
        };
        for (name, example) in [("port", "5000..5999"), ("number", "253..254")] {
            if let Some(param) = grant.param(name).filter(|_| !reads(name)) {
                let expected =
                    format!("one or a range of them, the lower one first: \"{example}\"");
                let what = format!("this `{name}` cannot be read");
                diagnostics.error(param.value.span, what).expected(expected);
            }
        }
        let ports = params.text("port").and_then(range::<u16>);
        if let (Some(ports), Some(param)) = (ports, grant.param("port"))
            && *ports.start() < USER_PORT_FIRST
            && *ports.end() >= USER_PORT_FIRST
        {
            let what = format!("this range has ports below {USER_PORT_FIRST} without naming them");
            diagnostics.error(param.value.span, what).help(format!(
                "grant those in a line of their own, such as `grant {name} port=53`, and begin the \
                 range at {USER_PORT_FIRST}"
            ));
        }
        if grant.param("uid").is_none() && grant.param("gid").is_none() {
            diagnostics
                .warning(span, format!("`{name}` is granted to every user of the machine"))
                .help("say whose programs may have it: `uid=1000`, or `gid=` for a group");
        }
    }
}

/// Warns of questions that what lies below a cut answers and that have no form to cross in.
fn unknown_questions(
    site: &Site<'_>,
    (upper, place, lower): (usize, usize, usize),
    diagnostics: &mut Diagnostics,
) {
    let Some(entry) = site.entry(lower) else {
        return;
    };
    let crosses = |name: &str| SHARED.iter().any(|question| question.name == name);
    let lost = entry.all_questions().filter(|info| info.own.is_none() && !crosses(info.name));
    let lost: Vec<String> = lost.map(|info| format!("`{}`", info.name)).collect();
    if lost.is_empty() {
        return;
    }
    let (above, below) = (&site.node(upper).name, &site.node(lower).name);
    let what = format!("`{above}` is not answered {} across this cut", lost.join(", "));
    let span = site.node(upper).lowers.get(place).map_or(Span::default(), |lower| lower.span);
    diagnostics
        .warning(span, what)
        .help(format!("put `{above}` into the domain of `{below}` if it asks that"));
}

/// The domains, each after all that it stands on. A cycle of them, each of which would wait for
/// another to start, is reported.
fn order(
    site: &Site<'_>,
    domains: &[DomainPlan],
    edges: &[Edge],
    diagnostics: &mut Diagnostics,
) -> Vec<usize> {
    let mut order = Vec::with_capacity(domains.len());
    while order.len() < domains.len() {
        let is_next = |at: &usize| {
            !order.contains(at) && domains[*at].lowers.iter().all(|lower| order.contains(lower))
        };
        let Some(next) = (0..domains.len()).find(is_next) else {
            report(site, &order, edges, diagnostics);
            break;
        };
        order.push(next);
    }
    order
}

/// Reports a cycle among the edges of domains that have no place in the order.
fn report(site: &Site<'_>, order: &[usize], edges: &[Edge], diagnostics: &mut Diagnostics) {
    let leads_on = |from: usize| {
        let mut of = edges.iter();
        of.find(|edge| edge.above == from && !order.contains(&edge.below))
    };
    // Each of these domains stands on another one of them, so that the way comes to an edge again.
    let start = (0..).find(|at| !order.contains(at)).unwrap_or(0);
    let mut way: Vec<&Edge> = Vec::new();
    let mut at = start;
    let cycle = loop {
        if let Some(from) = way.iter().position(|edge| edge.above == at) {
            break &way[from..];
        }
        let Some(edge) = leads_on(at) else {
            return;
        };
        way.push(edge);
        at = edge.below;
    };
    let name = |domain: usize| match domain.checked_sub(1).map(|at| &site.host.domains[at].name) {
        Some(name) => format!("`{name}`"),
        None => "the first domain".to_owned(),
    };
    let mut names: Vec<String> = cycle.iter().map(|edge| name(edge.above)).collect();
    names.extend(names.first().cloned());
    let Some((first, rest)) = cycle.split_first() else {
        return;
    };
    let what = format!("a cycle of domains: {}", names.join(" stands on "));
    let error = diagnostics.error(first.span(site), what);
    for edge in rest {
        let words = format!("{} stands on {}", name(edge.above), name(edge.below));
        error.also(edge.span(site), words);
    }
    error.help("each would wait for the other to start; move a line so that one lies completely below the other");
}
