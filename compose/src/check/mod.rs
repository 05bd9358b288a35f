//! The check: every mistake of a graph in one run, each at its place, before anything is built.
//!
//! The language's own check comes first (syntax, names that must differ, names that must exist);
//! this one goes on from there with the catalog. Hosts alike are checked once, with the first and
//! the last index filled in.

mod domains;
pub(crate) mod faults;
mod host;
mod links;
mod mtu;
mod needs;
mod numbers;
mod order;
mod site;
mod stacking;
mod subsystems;
mod suggest;
mod unique;
mod virtuals;

use xk_core::graph::Catalog;
use xk_lang::{Diagnostics, Span, parse};

use crate::plan::CheckedGraph;
use crate::rehearse;

/// Checks the graph file `source`, called `file` in messages, against `catalog`.
///
/// # Errors
/// All mistakes that were found, warnings included, if one of them is an error. Warnings alone do
/// not fail; see [`CheckedGraph::warnings`].
pub fn check(
    source: &str,
    file: &str,
    catalog: &Catalog,
) -> Result<CheckedGraph, Box<Diagnostics>> {
    let mut checked = read(source, file, catalog);
    if checked.warnings.has_errors() {
        rehearse::parameters(&checked.graph, catalog, &mut checked.warnings);
        return Err(Box::new(checked.warnings));
    }
    rehearse::rehearse(checked)
}

/// As [`check`], without the rehearsal: no protocol is built, so whether the hosts start is not
/// known.
///
/// # Errors
/// As [`check`].
pub fn check_text(
    source: &str,
    file: &str,
    catalog: &Catalog,
) -> Result<CheckedGraph, Box<Diagnostics>> {
    let checked = read(source, file, catalog);
    match checked.warnings.has_errors() {
        true => Err(Box::new(checked.warnings)),
        false => Ok(checked),
    }
}

/// Reads the file; only one without errors is a graph.
fn read(source: &str, file: &str, catalog: &Catalog) -> CheckedGraph {
    let (mut graph, mut diagnostics) = parse(file, source);
    subsystems::join(&mut graph, catalog, &mut diagnostics);
    if graph.hosts.is_empty() && !diagnostics.has_errors() {
        diagnostics
            .error(Span::default(), "this graph has no host")
            .help("begin with `host NAME { ... }`; `xk help graph` shows how");
    }
    let links = links::check(&graph, catalog, &mut diagnostics);
    let site_links = links::Links { written: &graph.links, params: &links };
    let plans = graph
        .hosts
        .iter()
        .map(|host| host::check(host, catalog, site_links, &mut diagnostics))
        .collect();
    links::check_uses(&graph, catalog, &mut diagnostics);
    let [faults, sweep] = faults::check(&graph, &mut diagnostics);
    let mut checked = CheckedGraph {
        graph,
        none: Diagnostics::new(diagnostics.file(), diagnostics.source()),
        warnings: diagnostics,
        plans,
        links,
        faults,
        sweep,
        numbers: catalog.numbers().clone(),
        entries: catalog.entries().to_vec(),
    };
    if !checked.warnings.has_errors() {
        let mut diagnostics = checked.diagnostics();
        unique::addresses(&checked, &mut diagnostics);
        checked.warnings.extend(diagnostics);
    }
    checked
}
