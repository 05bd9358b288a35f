//! Hosts in several domains, in one world: every graph of the repository, cut at every edge, does
//! what it does uncut.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::sim::{checked, folder, started};
use xk_compose::{CheckedGraph, SimulationConfig, simulate};
use xk_core::Time;
use xk_core::control::Report;
use xk_core::graph::Realm;
use xk_core::random::Random;
use xk_sim::{HostId, World};
use xk_testkit::seeds;

/// Domain of a node, if not the first: by the places of the host and of the node.
pub(crate) type Apart<'a> = &'a dyn Fn(usize, usize) -> Option<usize>;

/// The file of a graph with domains in it.
pub(crate) fn cut(source: &str, graph: &CheckedGraph, apart: Apart<'_>) -> String {
    let mut text = source.to_owned();
    // From the back, so that the places in front stay.
    for (at, host) in graph.graph().hosts.iter().enumerate().rev() {
        let Some(inside) = host.span.of(source).strip_suffix('}') else { continue };
        let mut domains: BTreeMap<usize, String> = BTreeMap::new();
        let mut moved = BTreeSet::new();
        for (place, node) in host.nodes.iter().enumerate() {
            if let Some(domain) = apart(at, place) {
                let own = &source[node.span.offset..][..node.span.len];
                domains.entry(domain).or_default().push_str(&format!("{own}\n"));
                moved.insert((node.span.offset, node.span.len));
            }
        }
        let blocks =
            domains.iter().map(|(domain, nodes)| format!("\ndomain d{domain} {{\n{nodes}}}\n"));
        text.insert_str(host.span.offset + inside.len(), &blocks.collect::<String>());
        for (offset, len) in moved.into_iter().rev() {
            text.replace_range(offset..offset + len, "");
        }
    }
    text
}

/// All that stand on a node of a host, itself included.
fn above(graph: &CheckedGraph, host: usize, node: usize) -> BTreeSet<usize> {
    let plan = graph.plan(host).expect("a plan");
    let mut found = BTreeSet::from([node]);
    for &at in plan.order() {
        if plan.places()[at].lowers().iter().any(|lower| found.contains(lower)) {
            found.insert(at);
        }
    }
    found
}

/// Reports of the upper ends of a run.
type Told = BTreeMap<(String, String), Report>;

fn told(world: &World) -> Told {
    let catalog = xk_catalog::standard();
    let mut told = Told::new();
    for id in (0..world.len()).map(|at| HostId(at as u32)) {
        let (kernel, name) = (world.kernel(id).unwrap(), world.name(id).unwrap());
        let host = name.split('/').next().unwrap();
        for protocol in kernel.protocols().iter().filter(|protocol| !protocol.is_proxy()) {
            let realm = catalog.find(protocol.head().kind()).map(|entry| entry.realm);
            if realm == Some(Realm::Top)
                && let Some(report) = protocol.ask(kernel, Report::default())
            {
                told.insert((host.to_owned(), protocol.name().to_owned()), report);
            }
        }
    }
    told
}

fn run(graph: &CheckedGraph, seed: u64) -> Told {
    let mut world = started(graph, seed);
    world.run_until_finished(Time::ZERO + Duration::from_secs(50));
    told(&world)
}

fn figure(report: &Report, line: &str) -> Option<u64> {
    report.lines.iter().find(|(name, _)| name == line)?.1.parse().ok()
}

/// Checks that a cut run has the result of the uncut one. Chance is drawn in another order, so
/// different frames are lost on a link.
fn alike(what: &str, exact: bool, uncut: &Told, cut: &Told) {
    assert_eq!(
        uncut.keys().collect::<Vec<_>>(),
        cut.keys().collect::<Vec<_>>(),
        "{what}: each upper end is in one domain"
    );
    for (name, was) in uncut {
        let is = &cut[name];
        let both = format!("{what}: {name:?} {:?}, uncut {:?}", is.lines, was.lines);
        assert_eq!((is.finished, is.failed), (was.finished, was.failed), "{both}");
        for line in ["sent", "received", "replies", "corrupt", "duplicates", "lost"] {
            let (was, is) = (figure(was, line), figure(is, line));
            match exact {
                true => assert_eq!(is, was, "{both}: {line}"),
                // What a bad link loses is another message, and none on another day.
                false if line == "lost" || line == "duplicates" => {}
                false => assert_eq!(is.map(|n| n > 0), was.map(|n| n > 0), "{both}: {line}"),
            }
        }
    }
}

#[test]
fn every_graph_does_cut_what_it_does_uncut() {
    let is_long = std::env::var_os("XK_LONG").is_some();
    // Names of files, without their ending, with commas between; without it all.
    let only = std::env::var("XK_FILES").ok();
    let is_wanted = |path: &PathBuf| {
        let is_it = |name| path.file_stem().is_some_and(|stem| stem == name);
        only.as_ref().is_none_or(|only| only.split(',').any(is_it))
    };
    let all = fs::read_dir(folder("graphs")).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = all.filter(is_wanted).collect();
    files.sort();
    let cuts = seeds::of(300).sum(|seed| [cuts(&files, seed, is_long && seed == 0)]);
    let is_enough = |[cuts]: [u64; 1]| cuts > 20 || only.is_some();
    assert!(cuts.is_none_or(is_enough), "most graphs are cut: {cuts:?}");
}

/// Cuts each graph at all edges, and then at one edge at a time: at all of them, or at some. Counts
/// the latter.
fn cuts(files: &[PathBuf], seed: u64, is_whole: bool) -> u64 {
    let mut cuts = 0;
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let source = fs::read_to_string(path).unwrap_or_default();
        // Some write a file; what is of many hosts alike takes long.
        if !name.ends_with(".kdl") || source.contains("pcap") || source.contains("domain ") {
            continue;
        }
        // Edges of other frameworks are not cut.
        if source.contains("subsystem ") {
            continue;
        }
        let graph = checked(&source);
        if graph.host_count() > 100 || simulate(&graph, SimulationConfig::default()).is_err() {
            continue;
        }
        // Where nothing is lost, and nothing of what is sent is up to chance.
        let chance = ["loss", "duplicate", "corrupt", "reorder", "noise", "count=0"];
        let is_sound = !chance.iter().any(|word| source.contains(word));
        let uncut = run(&graph, seed);
        let try_one = |what: &str, apart: Apart<'_>| {
            let cut = cut(&source, &graph, apart);
            println!("{name} {what}, XK_SEED={seed}");
            let what = format!("{name} {what}, XK_SEED={seed}");
            alike(&what, is_sound, &uncut, &run(&checked(&cut), seed));
        };
        try_one("at all edges", &|_, node| Some(node));
        let mut edges: Vec<(usize, usize)> = Vec::new();
        for (host, template) in graph.graph().hosts.iter().enumerate() {
            let nodes = template.nodes.iter().enumerate();
            edges.extend(nodes.filter(|(_, n)| !n.lowers.is_empty()).map(|(at, _)| (host, at)));
        }
        if !is_whole {
            let random = Random::new(seed);
            let some = (0..2).map(|_| edges[random.below(edges.len() as u64) as usize]);
            edges = some.collect();
        }
        for (host, node) in edges {
            let apart = above(&graph, host, node);
            let what = format!(
                "below {}/{}",
                graph.graph().hosts[host].name,
                graph.graph().hosts[host].nodes[node].name
            );
            try_one(&what, &|at, place| (at == host && apart.contains(&place)).then_some(0));
            cuts += 1;
        }
    }
    cuts
}
