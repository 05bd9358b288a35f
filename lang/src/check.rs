//! Checks that need no knowledge of protocols: names that must differ, names that must exist, `{n}`
//! in strings.

use std::collections::{HashMap, HashSet};

use crate::diagnostics::{Diagnostic, Diagnostics, nearest};
use crate::graph::{Graph, Host, Node, Param, ParamBlock};
use crate::span::{Span, Spanned};
use crate::template::{Template, looks_like_one};
use crate::value::Value;
use crate::{HOSTS_MAX, NODES_MAX};

pub(crate) fn check(graph: &Graph, diagnostics: &mut Diagnostics) {
    let hosts = graph.hosts.iter().map(|host| &host.name);
    distinct(hosts, "host", "this file", diagnostics);
    let links = graph.links.iter().map(|link| &link.name);
    distinct(links, "link", "this file", diagnostics);
    for host in &graph.hosts {
        // One without a name has been told of.
        let domains = host.domains.iter().map(|domain| &domain.name);
        let domains = domains.filter(|name| !name.is_empty());
        distinct(domains, "domain", "this host", diagnostics);
        nodes(host, diagnostics);
        templates(host, diagnostics);
    }
    counts(graph, diagnostics);
}

fn distinct<'a>(
    names: impl Iterator<Item = &'a Spanned<String>>,
    what: &str,
    whose: &str,
    diagnostics: &mut Diagnostics,
) {
    let mut seen: HashMap<&str, Span> = HashMap::new();
    for name in names {
        if name.contains(char::is_control) {
            let said = name.escape_debug();
            diagnostics
                .error(name.span, format!("the name `{said}` holds a control character"))
                .expected("characters that can be seen: it is shown on terminals");
        }
        match seen.get(name.as_str()) {
            Some(first) => {
                diagnostics
                    .error(name.span, format!("{whose} has two {what}s called `{name}`"))
                    .also(*first, "the first one")
                    .help(if what == "node" {
                        "give one of them another name: `name=...`"
                    } else {
                        "give one of them another name"
                    });
            }
            None => {
                seen.insert(name, name.span);
            }
        }
    }
}

fn nodes(host: &Host, diagnostics: &mut Diagnostics) {
    // A subsystem without a name has been told of, too.
    let named = host.nodes.iter().map(|node| &node.name).filter(|name| !name.is_empty());
    distinct(named, "node", "this host", diagnostics);
    let names: HashSet<&str> = host.nodes.iter().map(|node| node.name.as_str()).collect();
    for node in &host.nodes {
        for lower in &node.lowers {
            if *lower == node.name {
                diagnostics.error(lower.span, format!("`{lower}` stands on itself"));
            } else if !names.contains(lower.as_str()) {
                let what = format!("host `{}` has no node called `{lower}`", host.name);
                // Beyond what is kept, no time is spent on help that is not shown.
                let kept = diagnostics.left_out() == 0;
                let found = diagnostics.error(lower.span, what);
                if kept {
                    help_find(host, node, lower, found);
                }
            }
        }
    }
}

fn help_find(host: &Host, node: &Node, lower: &str, found: &mut Diagnostic) {
    let of_kind = host.nodes.iter().find(|other| other.kind.as_str() == lower);
    if let Some(of_kind) = of_kind {
        found.help(format!("the node of that kind is called `{}`", of_kind.name));
        return;
    }
    let others = host.nodes.iter().map(|other| other.name.as_str());
    let others = others.filter(|other| *other != node.name.as_str());
    match nearest(lower, others.clone()) {
        Some(_) => found.suggest(lower, others),
        None => found.help(format!("write a line for it, `{lower} ...`, or name another node")),
    };
}

/// Reports placeholders that do not read; and warns of those in hosts that have no count.
fn templates(host: &Host, diagnostics: &mut Diagnostics) {
    let counted = host.count.is_some();
    each_text(host, &mut |text, span| {
        if counted {
            if let Err(wrong) = Template::compile(text) {
                diagnostics
                    .error(span, wrong.to_string())
                    .expected("`{n}`, `{n+2}`, `{n%250}`, `{n/256:02x}`; `{{` and `}}` for braces");
            }
        } else if looks_like_one(text) {
            diagnostics
                .warning(span, "`{n}` stays as it is in a host without a count")
                .help("write `count=...` behind the host's name");
        }
    });
}

fn each_text(host: &Host, look: &mut impl FnMut(&str, Span)) {
    look(&host.name, host.name.span);
    params(&host.params, look);
    for domain in &host.domains {
        look(&domain.name, domain.name.span);
        params(&domain.params, look);
        domain.grants.iter().for_each(|grant| block(grant, look));
    }
    for node in &host.nodes {
        look(&node.name, node.name.span);
        node.lowers.iter().for_each(|lower| look(lower, lower.span));
        params(&node.params, look);
        node.children.iter().for_each(|child| block(child, look));
    }
}

fn block(found: &ParamBlock, look: &mut impl FnMut(&str, Span)) {
    found.args.iter().for_each(|arg| value(arg, look));
    params(&found.params, look);
    found.children.iter().for_each(|child| block(child, look));
}

fn params(found: &[Param], look: &mut impl FnMut(&str, Span)) {
    found.iter().for_each(|param| value(&param.value, look));
}

fn value(found: &Spanned<Value>, look: &mut impl FnMut(&str, Span)) {
    if let Value::Text(text) = &found.value {
        look(text, found.span);
    }
}

/// Checks the number of the counted hosts, and that their names differ from all others.
fn counts(graph: &Graph, diagnostics: &mut Diagnostics) {
    let (mut hosts, mut nodes) = (0_usize, 0_usize);
    for host in &graph.hosts {
        let count = host.count.as_ref().map_or(1, |count| count.value as usize);
        hosts = hosts.saturating_add(count);
        nodes = nodes.saturating_add(count.saturating_mul(host.nodes.len()));
        let span = host.count.as_ref().map_or(host.name.span, |count| count.span);
        if hosts > HOSTS_MAX as usize {
            diagnostics
                .error(span, format!("with this host the graph has {hosts} hosts"))
                .expected(format!("at most {HOSTS_MAX}"));
            return;
        }
        if nodes > NODES_MAX {
            diagnostics
                .error(span, format!("with this host the graph has {nodes} nodes"))
                .expected(format!("at most {NODES_MAX}"));
            return;
        }
    }
    if graph.hosts.iter().all(|host| host.count.is_none()) {
        return;
    }
    let mut seen: HashMap<String, &Host> = HashMap::with_capacity(hosts);
    let mut told: HashSet<Span> = HashSet::new();
    for instance in graph.expand() {
        let host = instance.template;
        let Some(first) = seen.insert(instance.name.to_string(), host) else {
            continue;
        };
        // One example for each host is enough, and two hosts without a count were compared already.
        if (first.count.is_some() || host.count.is_some()) && told.insert(host.name.span) {
            let what = format!("two hosts come to be called `{}`", instance.name);
            let found = diagnostics.error(host.name.span, what);
            if first.name.span == host.name.span {
                found.help("let `{n}` stand in the host's name, or leave braces away altogether");
            } else {
                found.also(first.name.span, "the other one");
            }
        }
    }
}
