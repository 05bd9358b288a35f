//! Graphs that are checked, simulated and asked for what has come of them.

use std::path::{Path, PathBuf};
use std::time::Duration;
use xk_compose::{CheckedGraph, SimulationConfig, check, simulate, start_world};
use xk_core::Kernel;
use xk_core::control::{Question, Report};
use xk_sim::World;

/// A folder or file of the repository.
pub(crate) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name)
}

/// The text of an example of `graphs`.
pub(crate) fn source(name: &str) -> String {
    std::fs::read_to_string(folder("graphs").join(name)).unwrap()
}

/// A graph that passes the check.
pub(crate) fn checked(text: &str) -> CheckedGraph {
    check(text, "test.kdl", &xk_catalog::standard()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// An example of `graphs`.
pub(crate) fn example(name: &str) -> CheckedGraph {
    checked(&source(name))
}

pub(crate) fn config(seed: u64) -> SimulationConfig {
    SimulationConfig { seed, ..SimulationConfig::default() }
}

/// The hosts of a graph, built.
pub(crate) fn built(graph: &CheckedGraph, config: SimulationConfig) -> World {
    simulate(graph, config).unwrap_or_else(|e| panic!("XK_SEED={}: {e}", config.seed))
}

/// The hosts of a graph, started.
pub(crate) fn started(graph: &CheckedGraph, seed: u64) -> World {
    let mut world = built(graph, config(seed));
    start(graph, &mut world, &format!("XK_SEED={seed}"));
    world
}

pub(crate) fn start(graph: &CheckedGraph, world: &mut World, what: &str) {
    start_world(graph, world).unwrap_or_else(|e| panic!("{what}: {e}"));
}

/// Lets time pass.
pub(crate) fn pass(world: &mut World, time: Duration) {
    let until = world.now().after(time);
    world.run_until(until);
}

pub(crate) fn kernel<'w>(world: &'w World, host: &str) -> &'w Kernel {
    let kernel = world.find(host).and_then(|id| world.kernel(id));
    kernel.unwrap_or_else(|| panic!("no host {host}"))
}

/// The answer of a node of a host.
pub(crate) fn ask<Q: Question>(world: &World, host: &str, node: &str, question: Q) -> Q {
    let kernel = kernel(world, host);
    let found = kernel.find_protocol(node).and_then(|found| found.ask(kernel, question));
    found.unwrap_or_else(|| panic!("{host}/{node} does not answer"))
}

pub(crate) fn report(world: &World, host: &str, node: &str) -> Report {
    ask(world, host, node, Report::default())
}

/// A figure of a report; 0 if it has none of this name.
pub(crate) fn figure(report: &Report, line: &str) -> u64 {
    let found = report.lines.iter().find(|(name, _)| name == line);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}
