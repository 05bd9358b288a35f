//! The places of a host where programs attach.

use std::path::Path;
use xk_attach::{Door, Grant};
use xk_core::{Kernel, ProtocolRef};
use xk_domains::Known;
use xk_lang::{Diagnostics, HostInstance, Span};

use crate::plan::CheckedGraph;

/// Adds a door to a kernel for each open domain that grants nodes of `domain`, which is built there
/// as `protocols` ([`BuiltDomain`](crate::BuiltDomain)): before its runner is made.
///
/// # Errors
/// A path at which no socket can be, or another process listens.
pub fn open_doors(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    domain: usize,
    kernel: &Kernel,
    protocols: &[Option<ProtocolRef>],
) -> Result<Vec<ProtocolRef>, Box<Diagnostics>> {
    let mut doors = Vec::new();
    let places = graph.plan_of(host).map_or(&[][..], |plan| plan.places());
    for (at, setup) in graph.domains(host).iter().enumerate() {
        let is_there = |place: usize| places.get(place).is_some_and(|p| p.domain() == domain);
        let granted =
            setup.grants.iter().filter(|grant| is_there(grant.place)).filter_map(|grant| {
                Some(Grant {
                    ports: grant.ports.clone(),
                    types: grant.numbers.clone(),
                    uid: grant.uid,
                    gid: grant.gid,
                    ..Grant::new(protocols.get(grant.place)?.as_ref()?)
                })
            });
        let granted: Vec<Grant> = granted.collect();
        let Some(path) = setup.path.as_ref().filter(|_| !granted.is_empty()) else {
            continue;
        };
        let entries = graph.entries().to_vec();
        let known = move || Known::of(&entries);
        let door = Door::open(kernel, &setup.name, Path::new(path), granted, known);
        doors.push(door.map_err(|error| fails(graph, host, at, path, &error.to_string()))?);
    }
    Ok(doors)
}

/// A door that cannot be there, at its place in the file.
fn fails(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    domain: usize,
    path: &str,
    error: &str,
) -> Box<Diagnostics> {
    let mut diagnostics = graph.diagnostics();
    let written = domain.checked_sub(1).and_then(|at| host.template.domains.get(at));
    let span = written.map_or(Span::default(), |domain| domain.name.span);
    diagnostics.error(span, format!("no program can attach at {path:?}: {error}"));
    Box::new(diagnostics)
}
