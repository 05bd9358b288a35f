//! `faults` and `sweep` of a file: what is to go wrong while it is simulated, and what is to be run
//! many times.

use std::collections::HashSet;
use xk_core::graph::{
    BlockSpec, ParamKind, ParamSpec, Params, block, optional, required, text, word,
};
use xk_lang::{Diagnostics, Graph, ParamBlock, Span};

use crate::params::Parametrized;

use core::time::Duration;

const TIME: ParamKind = ParamKind::Duration { min: Duration::from_nanos(1) };
const MOMENT: ParamKind = ParamKind::Duration { min: Duration::ZERO };
const HOSTS: ParamKind = ParamKind::Text("names of hosts, such as \"a b\"");

const AT: ParamSpec = optional("at", MOMENT, "when it begins, once");
const EVERY: ParamSpec = optional(
    "every",
    TIME,
    "in place of `at`: the average time between two beginnings, which the seed draws",
);
const FOR: ParamSpec = optional(
    "for",
    TIME,
    "how long it lasts, with `every` at most; without it, to the end of the run",
);

const LOSS: ParamSpec = optional("loss", ParamKind::Fraction, "the share of frames lost");
const DUPLICATE: ParamSpec =
    optional("duplicate", ParamKind::Fraction, "the share of frames that arrive twice");
const REORDER: ParamSpec =
    optional("reorder", ParamKind::Fraction, "the share of frames that arrive late");
const CORRUPT: ParamSpec =
    optional("corrupt", ParamKind::Fraction, "the share of frames with one bit flipped");
const DELAY: ParamSpec = optional("delay", MOMENT, "from the last bit sent to the arrival");
const JITTER: ParamSpec = optional("jitter", MOMENT, "the largest random delay of a frame");
const RATE: ParamSpec = optional("rate", ParamKind::Rate, "bits per second");

/// The parameters of a link that a fault may change.
#[cfg(feature = "simulate")]
pub(crate) const CHANGES: &[ParamSpec] = &[LOSS, DUPLICATE, REORDER, CORRUPT, DELAY, JITTER, RATE];

/// The lines of `faults`.
#[rustfmt::skip]
const FAULTS: &[BlockSpec] = &[
    block("crash", 0..=1000,
        &[text("name", "a host, or a domain as \"HOST/DOMAIN\"", "",
            "the host or domain; without it, the seed draws one: a domain if a host has several, else a host")],
        &[AT, EVERY,
            optional("away", TIME, "time until it starts again, with `every` at most; without it, it stays down")],
        "a host or a domain loses its power, and sends nothing more"),
    block("partition", 0..=1000, &[],
        &[required("between", HOSTS, "the hosts of one side"),
            optional("and", HOSTS, "the hosts of the other side; without it, all others"),
            AT, EVERY, FOR],
        "two sets of hosts are separated"),
    block("link", 0..=1000,
        &[required("name", ParamKind::Text("the name of a link"), "the link")],
        &[AT, EVERY, FOR, LOSS, DUPLICATE, REORDER, CORRUPT, DELAY, JITTER, RATE],
        "a link loses, damages, delays or slows down frames"),
];

/// The lines of `sweep`.
#[rustfmt::skip]
const SWEEP: &[BlockSpec] = &[
    block("seeds", 0..=1,
        &[required("range", ParamKind::Text("a range such as \"0..1000\""), "the seeds")], &[],
        "the seeds that each combination is run with"),
    block("until", 0..=1, &[required("time", TIME, "virtual time")], &[],
        "the end of a run that has not finished"),
    block("set", 0..=16,
        &[required("path", ParamKind::Text("a parameter, such as \"lan.loss\""), "the parameter"),
            text("values", "values, such as \"0%,1%,5%\"", "", "its values")],
        &[
            optional("from", ParamKind::Text("a value, such as \"1ms\""), "the first of a range of values"),
            optional("to", ParamKind::Text("a value, such as \"100ms\""), "the last of it"),
            optional("steps", ParamKind::Integer { min: 2, max: 1000 }, "how many values it has"),
            word("scale", &["linear", "log"], "linear", "equal distances, or equal proportions"),
        ],
        "a parameter, and the values that it takes: every combination is run"),
    block("draw", 0..=16,
        &[required("path", ParamKind::Text("a parameter, such as \"lan.delay\""), "the parameter")],
        &[
            required("from", ParamKind::Text("a value, such as \"1ms\""), "the least value"),
            required("to", ParamKind::Text("a value, such as \"100ms\""), "the greatest value"),
            word("scale", &["linear", "log"], "linear", "how values are spread"),
        ],
        "a parameter that is drawn for each seed"),
];

/// Checks `faults` and `sweep` of a file; the parameters of each line come back.
pub(super) fn check(
    graph: &Graph,
    diagnostics: &mut Diagnostics,
) -> [Vec<(&'static str, Params)>; 2] {
    let faults = lines(&graph.faults, "`faults`", FAULTS, diagnostics);
    let sweep = lines(&graph.sweep, "`sweep`", SWEEP, diagnostics);
    if graph.faults.is_empty() {
        return [faults, sweep];
    }
    let hosts = graph.expand();
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_ref()).collect();
    let known: HashSet<&str> = names.iter().copied().collect();
    for line in graph.faults.iter().flat_map(|block| &block.children) {
        moments(line, diagnostics);
        let mut hosts = Vec::new();
        match line.name.as_str() {
            "crash" => {
                let name = line.args.first().and_then(|name| Some((text_of(name)?, name.span)));
                if let Some((name, span)) = name {
                    hosts.push((name.split('/').next().unwrap_or(name), span));
                    domain(graph, name, span, diagnostics);
                }
            }
            "partition" => {
                for side in [line.param("between"), line.param("and")].into_iter().flatten() {
                    let text = text_of(&side.value).unwrap_or_default();
                    hosts.extend(parts(text).map(|name| (name, side.value.span)));
                }
            }
            "link" => {
                let name = line.args.first().and_then(|name| Some((text_of(name)?, name.span)));
                if let Some((name, span)) = name
                    && graph.link(name).is_none()
                {
                    let names = graph.links.iter().map(|link| link.name.as_str());
                    diagnostics
                        .error(span, format!("there is no link called `{name}`"))
                        .suggest(name, names);
                }
                let given = line.params.iter().map(|param| param.name.as_str());
                if given.clone().all(|name| ["at", "every", "for"].contains(&name)) {
                    diagnostics.error(line.span, "this does not change the link").help(
                        "give at least one parameter of the link: `loss`, `delay`, `rate`, ...",
                    );
                }
            }
            _ => {}
        }
        for (name, span) in hosts {
            if !known.contains(name) {
                diagnostics
                    .error(span, format!("there is no host called `{name}`"))
                    .suggest(name, names.iter().copied());
            }
        }
    }
    [faults, sweep]
}

/// The names of hosts in a text.
pub(crate) fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',']).filter(|name| !name.is_empty())
}

/// As [`parts`], for keeping.
#[cfg(feature = "simulate")]
pub(crate) fn names(text: &str) -> Vec<String> {
    parts(text).map(String::from).collect()
}

fn text_of(value: &xk_lang::Spanned<xk_lang::Value>) -> Option<&str> {
    match &value.value {
        xk_lang::Value::Text(text) => Some(text),
        _ => None,
    }
}

/// Checks that a domain which a fault names is there.
fn domain(graph: &Graph, name: &str, span: Span, diagnostics: &mut Diagnostics) {
    let Some((host, domain)) = name.split_once('/') else { return };
    let Some(host) = graph.host(host).filter(|_| !domain.is_empty()) else { return };
    let names: Vec<&str> = host.domains.iter().map(|domain| domain.name.as_str()).collect();
    if !names.contains(&domain) {
        diagnostics
            .error(span, format!("host `{}` has no domain `{domain}`", host.name.as_str()))
            .suggest(domain, names.iter().copied());
    }
}

/// Checks that a fault has one kind of moments.
fn moments(line: &ParamBlock, diagnostics: &mut Diagnostics) {
    let given = ["at", "every"].map(|name| line.param(name).is_some());
    let what = match given {
        [true, false] | [false, true] => return,
        [false, false] => format!("`{}` does not say when", line.name.as_str()),
        [true, true] => format!("`{}` says twice when", line.name.as_str()),
    };
    diagnostics
        .error(line.span, what)
        .expected("`at=\"2s\"` for one moment, or `every=\"10s\"` for many");
}

fn lines(
    blocks: &[ParamBlock],
    what: &str,
    specs: &'static [BlockSpec],
    diagnostics: &mut Diagnostics,
) -> Vec<(&'static str, Params)> {
    let mut lines = Vec::new();
    for written in blocks {
        if let Some(value) = written.args.first() {
            diagnostics
                .error(value.span, format!("{what} takes no value"))
                .help(format!("write its lines in braces: {what} {{ ... }}"));
        }
        let own = Parametrized { what, span: written.name.span, scalars: &[], blocks: specs };
        let properties: Vec<_> =
            written.params.iter().filter(|param| *param.name != "graph").cloned().collect();
        let params = own.take(diagnostics, &properties, &written.children);
        for spec in specs {
            lines.extend(params.blocks(spec.name).map(|line| (spec.name, line.clone())));
        }
    }
    lines
}
