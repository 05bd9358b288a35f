//! Filters and cuts change nothing. A graph that passes the check is given filters at random edges
//! and has random lines in domains of their own. If that passes the check it starts, and the client
//! gets what it got before; if the filters lose messages, no more are missing than are counted as
//! dropped.
//!
//! Half of the graphs mix the x-kernel, BSD and STREAMS, and work as well. What fails is made as
//! small as it can be before it is told.

use super::lines::Hosts;
use super::{Drawn, Faults, REASONS, graphs, mixed};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use xk_compose::{CheckedGraph, SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;
use xk_core::graph::Catalog;
use xk_core::random::Random;
use xk_sim::{Ended, HostId, World};
use xk_testkit::conformance::{CountingAllocator, octets_live};

#[global_allocator]
static COUNTED: CountingAllocator = CountingAllocator;

/// Graphs that a run draws, unless `XK_GRAPHS` says; and in the long form.
const GRAPHS: u64 = 200;
const GRAPHS_LONG: u64 = 100_000;
/// Graphs of which a run looks whether they leave memory.
const GRAPHS_LEFT: u64 = 60;
/// Bounds a conversation, in virtual time.
const TIME_MAX: Duration = Duration::from_secs(600);
/// Bounds the events of a run: one without an end has more.
const EVENTS_MAX: u64 = 4_000_000;
/// Mistakes that the check may find of filters and domains, and of nothing else.
const REFUSALS: &[&str] = &[
    // Each would wait for the other.
    "a cycle of domains",
    // The edges of frameworks are not cut.
    "lie in two domains",
    // An interface is no layer to look at: its protocols send through it.
    "adapter translates the addresses of `ether`",
    // Towers have a bound.
    "is layer",
];

/// Counts of a client, by name; those of messages that came back, or were said to be too long.
type Counts = BTreeMap<String, u64>;
/// Report of a client, without times: whether it has finished, and its counts.
type Told = BTreeMap<String, (bool, Counts)>;

/// Outcome of a run.
struct Run {
    told: Told,
    /// All drops that are counted anywhere.
    drops: u64,
}

fn asks_report(kind: &str) -> bool {
    matches!(kind, "probe" | "caller" | "ether")
}

fn told(world: &World) -> Run {
    let mut run = Run { told: Told::new(), drops: 0 };
    for id in (0..world.len()).map(|at| HostId(at as u32)) {
        let kernel = world.kernel(id).expect("a host");
        for protocol in kernel.protocols() {
            run.drops += protocol.head().drops().total();
            let is_own = !protocol.is_proxy() && asks_report(protocol.head().kind());
            let report = is_own.then(|| protocol.ask(kernel, Report::default()));
            let Some(report) = report.flatten() else { continue };
            if protocol.head().kind() == "ether" {
                // BSD's way to count a packet whose place another one took, or that was given up.
                let held = report.lines.iter().filter(|(name, _)| name.starts_with("held"));
                run.drops += held.filter_map(|(_, count)| count.parse::<u64>().ok()).sum::<u64>();
                continue;
            }
            let mut counts = Counts::new();
            for (name, count) in report.lines {
                // Sizes are by chance, of which each kernel has its own.
                let name = match name.as_str() {
                    "octets" | "waiting at most" => continue,
                    // Words for the counts beside it.
                    "why" => continue,
                    name if name.starts_with("rtt") => continue,
                    "received" | "replies" => "taken",
                    name if REASONS.iter().any(|reason| name.contains(reason)) => "taken",
                    name => name,
                };
                *counts.entry(name.into()).or_default() += count.parse().unwrap_or(1);
            }
            run.told.insert(protocol.name().into(), (report.finished, counts));
        }
    }
    run
}

/// Runs a graph that has passed the check.
fn run(graph: &CheckedGraph, seed: u64) -> Result<Run, String> {
    catch_unwind(AssertUnwindSafe(|| unguarded(graph, seed)))
        .unwrap_or_else(|_| Err("it panics".into()))
}

fn unguarded(graph: &CheckedGraph, seed: u64) -> Result<Run, String> {
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = simulate(graph, config).map_err(|e| format!("not built: {e}"))?;
    start_world(graph, &mut world).map_err(|e| format!("not started: {e}"))?;
    world.set_events_max(EVENTS_MAX);
    let ended = world.run_until_finished(Time::ZERO + TIME_MAX);
    let told = told(&world);
    match ended {
        Ended::Events => Err("it has no end".into()),
        _ => Ok(told),
    }
}

/// Runs a graph that is to do as one that has told this: whether it passes the check, or what
/// differs.
fn compare(hosts: &Hosts, uncut: &Told, seed: u64, catalog: &Catalog) -> Result<bool, String> {
    let graph = match check(&hosts.source(), "drawn", catalog) {
        Ok(graph) => graph,
        Err(mistakes) => {
            let text = mistakes.to_text();
            let is_known = REFUSALS.iter().any(|refusal| text.contains(refusal));
            return if is_known { Ok(false) } else { Err(format!("refused: {text}")) };
        }
    };
    match run(&graph, seed)? {
        is if is.told != *uncut => Err(format!("{:?}, uncut {uncut:?}", is.told)),
        _ => Ok(true),
    }
}

/// The least filters and domains with which something differs, and what.
fn least(
    mut hosts: Hosts,
    mut fault: String,
    compare: impl Fn(&Hosts) -> Result<bool, String>,
) -> (Hosts, String) {
    loop {
        let smaller = hosts.smaller().into_iter();
        let mut worse =
            smaller.filter_map(|hosts| compare(&hosts).err().map(|fault| (hosts, fault)));
        match worse.next() {
            Some(found) => (hosts, fault) = found,
            None => return (hosts, fault),
        }
    }
}

/// Describes messages that a client misses without a count that explains them: where the layers
/// below send nothing again, more than are counted as dropped; where calls are made, those without
/// an answer.
fn missing(run: &Run) -> Option<String> {
    let mut missing = 0;
    for (name, (finished, counts)) in &run.told {
        let count = |of: &str| counts.get(of).copied().unwrap_or(0);
        let others = counts
            .iter()
            .filter(|(name, _)| !matches!(&***name, "sent" | "calls" | "waiting" | "duplicates"));
        let told: u64 = others.map(|(_, count)| count).sum();
        let is_broken = count("not opened") > 0;
        let begun = count("sent") + count("calls");
        if !finished || is_broken || count("waiting") > 0 || told < begun {
            return Some(format!("{name}: finished {finished}, {counts:?}"));
        }
        missing += count("lost");
    }
    (missing > run.drops).then(|| format!("{missing} lost, {} counted: {:?}", run.drops, run.told))
}

/// A client to which, of what it sent, more than one message did not come back: that one BSD may
/// have dropped while it looked for an address.
fn silent(run: &Run) -> Option<String> {
    let count = |counts: &Counts, of: &str| counts.get(of).copied().unwrap_or(0);
    let is_heard = |counts: &Counts| {
        let begun = count(counts, "sent") + count(counts, "calls");
        begun > 1 && count(counts, "taken") + 1 >= begun
    };
    let silent = run.told.iter().find(|(_, (_, counts))| !is_heard(counts));
    silent.map(|(name, (_, counts))| format!("{name}: {counts:?}"))
}

fn stack(hosts: &Hosts) -> String {
    let line = |line: &super::lines::Line| {
        let of = line.subsystem.map_or(String::new(), |of| format!("{of}/"));
        format!("{of}{}", line.kind)
    };
    let host =
        |lines: &Vec<super::lines::Line>| lines.iter().map(line).collect::<Vec<_>>().join(" ");
    hosts.hosts.iter().map(host).collect::<Vec<_>>().join(" | ")
}

#[test]
fn filters_and_cuts_change_nothing() {
    let catalog = xk_catalog::standard();
    let mut faults = Faults::default();
    let (mut total, mut accepted, mut varied, mut lossy) = (0, 0, 0, 0);
    let count = if std::env::var_os("XK_LONG").is_some() { GRAPHS_LONG } else { GRAPHS };
    for (at, seed) in graphs(count) {
        total += 1;
        let random = Random::new(seed);
        let is_mixed = random.below(2) == 0;
        let plain = match is_mixed {
            true => mixed::draw(&random),
            false => Drawn::draw(&catalog, &random).hosts(),
        };
        let Ok(graph) = check(&plain.source(), "drawn", &catalog) else {
            continue;
        };
        accepted += 1;
        let mut add = |hosts: &Hosts, fault: &str| {
            if std::env::var_os("XK_GRAPH").is_some() {
                println!("{}\n{fault}", hosts.source());
            }
            faults.add(stack(hosts), at, fault);
        };
        let uncut = match run(&graph, at) {
            Ok(run) => match missing(&run).or_else(|| silent(&run)).filter(|_| is_mixed) {
                None => run.told,
                Some(fault) => {
                    add(&plain, &fault);
                    continue;
                }
            },
            Err(fault) => {
                add(&plain, &fault);
                continue;
            }
        };
        let compare = |hosts: &Hosts| compare(hosts, &uncut, at, &catalog);
        let hosts = plain.filtered(&random, "").cut(&random);
        match compare(&hosts) {
            Ok(is_run) => varied += u64::from(is_run),
            Err(fault) => {
                let (hosts, fault) = least(hosts, fault, compare);
                add(&hosts, &fault);
                continue;
            }
        }
        let hosts = plain.filtered(&random, "loss=0.03").cut(&random);
        let Ok(graph) = check(&hosts.source(), "drawn", &catalog) else {
            continue;
        };
        lossy += 1;
        match run(&graph, at) {
            Ok(run) => missing(&run).into_iter().for_each(|fault| add(&hosts, &fault)),
            Err(fault) => add(&hosts, &fault),
        }
    }
    println!("{accepted} of {total} graphs pass the check; {varied} varied, {lossy} that lose");
    faults.assert_none();
}

/// Draws hosts: lines of all subsystems, or of the x-kernel alone; uncut, or cut into domains.
fn hosts_of(catalog: &Catalog, random: &Random) -> Hosts {
    let plain = match random.below(2) {
        0 => mixed::draw(random),
        _ => Drawn::draw(catalog, random).hosts(),
    };
    if random.below(2) == 0 { plain } else { plain.filtered(random, "").cut(random) }
}

#[test]
fn a_world_that_is_gone_leaves_nothing() {
    let catalog = xk_catalog::standard();
    let mut faults = Faults::default();
    for (at, seed) in graphs(GRAPHS_LEFT) {
        let hosts = hosts_of(&catalog, &Random::new(seed));
        let source = hosts.source();
        let left = || {
            let before = octets_live();
            // Refused ones were rehearsed, too.
            drop(check(&source, "drawn", &catalog).map(|graph| run(&graph, at)));
            octets_live() - before
        };
        // The first run fills what the process keeps.
        let _ = left();
        let octets = left();
        if octets != 0 {
            faults.add(stack(&hosts), at, &format!("{octets} octets are left"));
        }
    }
    faults.assert_none();
}
