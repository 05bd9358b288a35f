//! Layers that look on fit any edge: what works without one works with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use xk_compose::{CheckedGraph, SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;
use xk_lang::Value;

/// Filters put at every edge, each without an effect on messages.
const FILTERS: [&str; 3] = ["tracer", "fault", "pcap file=\"/dev/null\""];
/// Virtual time that a graph runs.
const RUN: Duration = Duration::from_secs(60);
/// Graphs with more hosts, or with a flood, are simulated with filters in the long run alone.
const HOSTS_FEW: usize = 20;

/// Reports of every upper end: its host, its name, whether it has finished and not failed, and its
/// counts of arrivals, without those that depend on chance.
pub(crate) type Told = Vec<(String, String, bool, Vec<String>)>;

/// Starts a graph and lets its upper ends finish.
pub(crate) fn told(graph: &CheckedGraph, exactly: bool) -> Result<Told, String> {
    let config = SimulationConfig::default();
    let mut world = simulate(graph, config).map_err(|mistakes| mistakes.to_string())?;
    start_world(graph, &mut world).map_err(|mistakes| mistakes.to_string())?;
    world.run_until_finished(Time::ZERO + RUN);
    let mut told = Told::new();
    for host in graph.graph().expand() {
        let Some(kernel) = world.find(&host.name).and_then(|id| world.kernel(id)) else {
            continue;
        };
        for protocol in kernel.protocols() {
            if let Some(report) = protocol.ask(kernel, Report::default()) {
                let lines = report.lines.into_iter();
                let lines =
                    lines.filter(|(name, _)| exactly && ["received", "replies"].contains(&&**name));
                let lines = lines.map(|(name, count)| format!("{name} {count}")).collect();
                let done = report.finished && !report.failed;
                told.push((host.name.to_string(), protocol.name().into(), done, lines));
            }
        }
    }
    told.sort();
    Ok(told)
}

/// A host, a node of it, and the place of the lower that the edge leads down to.
pub(crate) type Edge = (usize, usize, usize);

/// All edges of a graph, those together that join the same kinds at the same place: of these, each
/// filter is tried at one, and the next filter at the next, so that clients and servers have some.
fn edges(graph: &CheckedGraph) -> Vec<Vec<Edge>> {
    let mut edges = BTreeMap::<_, Vec<Edge>>::new();
    for (host, of) in graph.graph().hosts.iter().enumerate() {
        for (at, node) in of.nodes.iter().enumerate() {
            for (place, lower) in node.lowers.iter().enumerate() {
                let lower = of.nodes.iter().find(|node| *node.name == *lower.value);
                let kinds = (node.kind.value.clone(), lower.map(|l| l.kind.value.clone()));
                edges.entry((kinds, place)).or_default().push((host, at, place));
            }
        }
    }
    edges.into_values().collect()
}

/// `source` with `filter`, by this name, at the edge from the node `at` of a host down to its lower
/// `place`.
pub(crate) fn with_filter(
    (source, graph): (&str, &CheckedGraph),
    (host, at, place): Edge,
    (filter, name): (&str, &str),
) -> String {
    let node = &graph.graph().hosts[host].nodes[at];
    let lower = &node.lowers[place];
    let mut edits = vec![(lower.span, name.to_owned())];
    for block in &node.children {
        let on = block.param("on").map(|on| &on.value);
        if let Some(on) = on.filter(|on| on.value == Value::Text(lower.value.clone())) {
            edits.push((on.span, name.to_owned()));
        }
    }
    edits.sort_by_key(|(span, _)| span.offset);
    let mut text = source.to_owned();
    for (span, with) in edits.iter().rev() {
        text.replace_range(span.offset..span.end(), with);
    }
    let (kind, params) = filter.split_once(' ').unwrap_or((filter, ""));
    let line = format!("{kind} {} name={name} {params}\n", lower.span.of(source));
    text.insert_str(node.span.offset, &line);
    text
}

/// Difference between the upper ends' reports and those before.
pub(crate) fn difference(before: &Told, after: Result<Told, String>) -> Option<String> {
    let after = match after {
        Ok(after) if after == *before => return None,
        Ok(after) => after,
        Err(mistakes) => return Some(mistakes),
    };
    let pairs = before.iter().zip(&after).filter(|(b, a)| b != a);
    let pairs = pairs.map(|(b, a)| format!("{a:?} instead of {b:?}"));
    Some(pairs.collect::<Vec<_>>().join("; "))
}

#[test]
fn a_filter_fits_every_edge() {
    let catalog = xk_catalog::standard();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../graphs");
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|e| e == "kdl")).collect();
    files.sort();
    let long = std::env::var_os("XK_LONG").is_some();
    let (mut tried, mut wrong) = (0, Vec::new());
    for path in files {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let source = fs::read_to_string(&path).unwrap();
        // Nothing is left in a folder; one file has one writer, by its name.
        let source = source.replace("\"faults.pcapng\"", "\"/dev/./null\"");
        let graph = check(&source, &name, &catalog).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        if !long && (graph.host_count() > HOSTS_FEW || source.contains("noise ")) {
            continue;
        }
        // Filters are the x-kernel's, and fit none of another framework's edges.
        if source.contains("subsystem ") {
            continue;
        }
        // Where a link loses frames, the number of frames decides what is lost.
        let exactly = !["loss", "corrupt"].iter().any(|word| source.contains(word));
        let Ok(before) = told(&graph, exactly) else {
            // It reaches outside of the simulation.
            continue;
        };
        for alike in edges(&graph) {
            for (n, filter) in FILTERS.iter().enumerate() {
                let at: &[Edge] = match long {
                    true => &alike,
                    false => &alike[n % alike.len()..][..1],
                };
                for edge in at {
                    let text = with_filter((&source, &graph), *edge, (filter, "looking_on"));
                    let with = check(&text, &name, &catalog).map_err(|e| e.to_string());
                    let after = with.and_then(|with| told(&with, exactly));
                    tried += 1;
                    if let Some(what) = difference(&before, after) {
                        let of = &graph.graph().hosts[edge.0];
                        let node = &of.nodes[edge.1];
                        let edge = format!("{} > {}", node.name, node.lowers[edge.2].value);
                        wrong.push(format!("{name} {}: {filter} at {edge}: {what}", of.name));
                    }
                }
            }
        }
    }
    println!("{tried} edges with filters");
    assert!(tried > 500);
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
