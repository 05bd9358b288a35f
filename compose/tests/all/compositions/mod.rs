//! The laws of composition. Random hosts are drawn from the whole catalog.
//!
//! What the check accepts works: a client and a server exchange messages of 0 to 16 KiB over a
//! network that loses nothing. All of it starts, every message arrives unchanged or is refused with
//! a reason to its sender, and some arrive.
//!
//! What the check refuses does not work: the least part that is refused is built by a catalog in
//! which no layer asks anything of those below, and run in the same way. It must not start, or
//! lose, change or refuse messages; where a number or a wire is why, a second statement of that
//! rule must agree.
//!
//! A run draws the same graphs on every machine and commit. `XK_SEED=7` draws those of another
//! seed, `XK_GRAPHS=100000` more of them, `XK_GRAPHS=500..900` some of them; `XK_GRAPH=123` draws
//! that one alone and prints it.

mod alike;
mod drawn;
mod lines;
mod mixed;

use drawn::{COUNT, Drawn, SIZES};
use std::collections::BTreeMap;
use std::time::Duration;
use xk_compose::{CheckedGraph, SimulationConfig, check, check_text, simulate, start_world};
use xk_core::control::Report;
use xk_core::graph::{Catalog, Entry, Guarantees, Shape};
use xk_core::numbers::Numbers;
use xk_core::random::Random;
use xk_core::{Kernel, Time};

/// Draws the graphs of a run, unless `XK_SEED` says otherwise.
const SEED: u64 = 1;
/// Number of graphs that a run draws, unless `XK_GRAPHS` gives another.
const GRAPHS: u64 = 500;
/// Reasons for which every message of a graph may be refused: its size.
const REASONS: &[&str] = &["too big", "larger than"];
/// Guarantees that messages between one client and one server do not show the want of, and why.
const UNSEEN: &[(Guarantees, &str)] = &[
    (Guarantees::PROMPT, "who waits for a peer that waits for it has no other that calls it here"),
    (Guarantees::NAMES, "credentials that nothing looks for are carried like anything else"),
    (Guarantees::RESOLVER, "what a station announces is no traffic of a client"),
    (Guarantees::TRANSACTIONS, "short calls happen to pass layers that know of no transactions"),
];
/// Bounds a conversation, in virtual time.
const TIME_MAX: Duration = Duration::from_secs(600);

/// Report of a client at the end.
#[derive(Default)]
struct Outcome {
    arrived: u64,
    refused: u64,
    wrong: Vec<String>,
}

fn outcome(kernel: &Kernel) -> Outcome {
    let mut outcome = Outcome::default();
    for protocol in kernel.protocols().into_iter().filter(|protocol| !protocol.is_proxy()) {
        let kind = protocol.head().kind();
        if !matches!(kind, "caller" | "probe") {
            continue;
        }
        let Some(report) = protocol.ask(kernel, Report::default()) else {
            outcome.wrong.push(format!("{kind} has no report"));
            continue;
        };
        let (mut own, mut good) = (0, 0);
        for (name, value) in &report.lines {
            let count: u64 = value.parse().unwrap_or(0);
            match name.as_str() {
                "received" | "replies" => own += count,
                "lost" | "corrupt" | "duplicates" | "late" | "wrong" | "waiting" if count > 0 => {
                    outcome.wrong.push(format!("{name}: {count}"));
                }
                "sent" | "calls" | "octets" | "waiting at most" => {}
                name if name.starts_with("rtt") => {}
                name if name.contains("no answer") || name.contains("timed out") => {
                    outcome.wrong.push(format!("{name}: {count}"));
                }
                name => {
                    outcome.refused += count.max(1);
                    if REASONS.iter().any(|reason| name.contains(reason)) {
                        good += count;
                    }
                }
            }
        }
        outcome.arrived += own;
        if own == 0 && good < COUNT && outcome.wrong.is_empty() {
            outcome.wrong.push(format!("nothing arrives: {:?}", report.lines));
        }
    }
    outcome
}

/// Runs a graph that passed the check; what the law forbids.
fn run(graph: &CheckedGraph, seed: u64) -> Result<Outcome, String> {
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = simulate(graph, config).map_err(|e| format!("not built: {e}"))?;
    start_world(graph, &mut world).map_err(|e| format!("not started: {e}"))?;
    world.run_until_finished(Time::ZERO + TIME_MAX);
    let client = world.find("h1").and_then(|id| world.kernel(id)).expect("a client");
    let outcome = outcome(client);
    match outcome.wrong.is_empty() {
        true => Ok(outcome),
        false => Err(outcome.wrong.join(", ")),
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// The graphs of a run, so many unless the environment says, each with the seed that draws it.
fn graphs(count: u64) -> impl Iterator<Item = (u64, u64)> {
    let seed = number("XK_SEED", SEED);
    let one = std::env::var_os("XK_GRAPH").map(|_| number("XK_GRAPH", 0));
    println!("seed {seed}");
    let all = || match std::env::var("XK_GRAPHS").ok() {
        Some(text) => {
            let (from, to) = text.split_once("..").unwrap_or(("0", &text));
            [from, to].map(|text| text.parse().expect("a number, or two with `..` between"))
        }
        None => [0, count],
    };
    let [from, to] = one.map_or_else(all, |at| [at, at + 1]);
    let graphs = from..to;
    graphs.map(move |at| (at, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at))
}

/// Lines of the x-kernel alone.
fn drawn(catalog: &Catalog) -> impl Iterator<Item = (u64, Drawn)> {
    graphs(GRAPHS).map(|(at, seed)| {
        let drawn = Drawn::draw(catalog, &Random::new(seed));
        if std::env::var_os("XK_GRAPH").is_some() {
            println!("{}", drawn.source());
        }
        (at, drawn)
    })
}

/// Faults found, by stack: the first graph with it, their number, and a description.
#[derive(Default)]
struct Faults(BTreeMap<String, (u64, usize, String)>);

impl Faults {
    fn add(&mut self, stack: String, at: u64, fault: &str) {
        let first = fault.lines().next().unwrap_or_default().to_owned();
        self.0.entry(stack).or_insert((at, 0, first)).1 += 1;
    }

    fn assert_none(&self) {
        for (stack, (at, count, fault)) in &self.0 {
            println!("{count} x {stack}: XK_GRAPH={at}: {fault}");
        }
        assert!(self.0.is_empty(), "{} stacks", self.0.len());
    }
}

#[test]
fn what_passes_the_check_works() {
    let catalog = xk_catalog::standard();
    let (mut total, mut accepted, mut arrived, mut refused) = (0, 0, 0, 0);
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    let mut faults = Faults::default();
    for (at, drawn) in drawn(&catalog) {
        total += 1;
        let Ok(graph) = check(&drawn.source(), "drawn", &catalog) else {
            continue;
        };
        accepted += 1;
        for layer in &drawn.layers {
            *kinds.entry(layer.entry.kind).or_default() += 1;
        }
        match run(&graph, at) {
            Ok(outcome) => {
                arrived += outcome.arrived;
                refused += outcome.refused;
            }
            Err(fault) => faults.add(drawn.kinds(), at, &fault),
        }
    }
    println!(
        "{accepted} of {total} graphs pass the check; \
         {arrived} messages arrive, {refused} are refused; their layers: {kinds:?}"
    );
    faults.assert_none();
}

/// The catalog as it would be if no layer asked anything of those below: what is checked against
/// it can be run, and so shows whether the layer asks too much.
fn undemanding(catalog: &Catalog) -> Catalog {
    let entries: Vec<&'static Entry> = catalog
        .entries()
        .iter()
        .map(|entry| {
            let mut entry = (*entry).clone();
            entry.below.realms = &[];
            entry.below.families = &[];
            entry.below.needs = Guarantees::NONE;
            entry.below.each = &[];
            &*Box::leak(Box::new(entry))
        })
        .collect();
    Catalog::new(&entries).expect("as consistent as before")
}

/// The check's rules for numbers and wires, stated a second time, by walking down from every layer
/// and from the protocols on top.
struct Conflicts<'a> {
    drawn: &'a Drawn,
    numbers: &'a Numbers,
}

impl<'a> Conflicts<'a> {
    fn tells(&self, at: usize) -> bool {
        let kind = self.drawn.layers[at].entry.kind;
        self.numbers.kinds().iter().any(|number| number.lower == kind)
    }

    /// Nodes on which others are known by a number, each with the layers that are.
    fn users(&self) -> Vec<(&'a str, Vec<usize>)> {
        let layers = self.drawn.layers.iter().filter(|layer| layer.entry.has_number());
        let layers = layers.map(|layer| (layer.entry.kind, layer.lowers.clone()));
        let client = |top: &usize| if self.drawn.is_rpc(*top) { "caller" } else { "probe" };
        let tops = self.drawn.tops.iter().map(|top| (client(top), vec![*top]));
        let known = |(kind, mut below): (&'a str, Vec<usize>)| {
            let mut seen = 0;
            while let Some(&at) = below.get(seen) {
                seen += 1;
                let layer = &self.drawn.layers[at];
                if !self.tells(at) && layer.entry.passes_numbers() {
                    for lower in &layer.lowers {
                        if !below.contains(lower) {
                            below.push(*lower);
                        }
                    }
                }
            }
            below.retain(|at| self.tells(*at));
            (kind, below)
        };
        layers.chain(tops).map(known).collect()
    }

    fn number(&self, kind: &str, lower: usize) -> Option<u32> {
        self.numbers.find_kinds(kind, self.drawn.layers[lower].entry.kind)
    }

    fn no_number(&self) -> bool {
        let lacks = |(kind, below): &(&str, Vec<usize>)| {
            below.iter().any(|lower| self.number(kind, *lower).is_none())
        };
        self.users().iter().any(lacks)
    }

    fn one_number_twice(&self) -> bool {
        let mut taken = Vec::new();
        self.users().iter().any(|(kind, below)| {
            let own = below.iter().filter_map(|at| Some((*at, self.number(kind, *at)?)));
            let own: Vec<(usize, u32)> = own.collect();
            let is_taken = own.iter().any(|one| taken.contains(one));
            taken.extend(own);
            is_taken
        })
    }

    fn two_on_a_wire(&self) -> bool {
        let layers = &self.drawn.layers;
        let mut wires = vec![false; layers.len()];
        for at in 0..layers.len() {
            let looks_on = layers[at].entry.shape == Shape::Filter && wires[layers[at].lowers[0]];
            wires[at] = looks_on || layers[at].entry.shape == Shape::Wire;
        }
        let all = layers.iter().flat_map(|layer| &layer.lowers).chain(&self.drawn.tops);
        let all: Vec<&usize> = all.filter(|at| wires[**at]).collect();
        (0..all.len()).any(|n| all[n + 1..].contains(&all[n]))
    }

    /// No `ip` tells the layers above `arp` which host this one is.
    fn is_nameless(&self) -> bool {
        self.drawn.layers.iter().all(|layer| layer.entry.kind != "ip")
    }

    /// Whether what is said is so.
    fn agree(&self, text: &str) -> bool {
        text.contains("has no type number on") && self.no_number()
            || text.contains("has the same type number on") && self.one_number_twice()
            || text.contains("a second protocol stands on the wire") && self.two_on_a_wire()
            || text.contains("nobody there says which host") && self.is_nameless()
    }
}

/// The smallest part of a graph that is refused by itself, with a client and a server on top: the
/// lowest layer that cannot stand where it does, or else one on which they cannot.
fn least(drawn: &Drawn, catalog: &Catalog) -> Option<Drawn> {
    let refused = |part: &Drawn| check(&part.source(), "part", catalog).is_err();
    let bare = |part: &Drawn| refused(&Drawn { tops: Vec::new(), ..part.clone() });
    let mut parts = (0..drawn.layers.len()).map(|top| drawn.closure(top));
    if let Some(part) = parts.find(bare) {
        return Some(part.alone().into_iter().find(bare).unwrap_or(part));
    }
    drawn.tops.iter().map(|top| drawn.closure(*top)).find(refused)
}

/// True for a layer on a stream whose packets are all shorter than a segment: while nothing is lost
/// each travels in one of its own, and nothing shows that a stream keeps no boundaries.
fn is_whole_by_luck(part: &Drawn, text: &str) -> bool {
    let lack = Guarantees::NONE.lack(Guarantees::WHOLE);
    let is_short = part.layers.last().is_some_and(|layer| layer.entry.kind == "atp");
    is_short && lack.is_some_and(|lack| text.contains(lack))
}

/// Graphs that the check refuses do not work: without the demands of the layers, the stack does not
/// start, or messages are lost, changed, or all refused.
#[test]
fn what_the_check_refuses_does_not_work() {
    let catalog = xk_catalog::standard();
    let lenient = undemanding(&catalog);
    let mut known: BTreeMap<String, ()> = BTreeMap::new();
    let mut faults = Faults::default();
    let (mut refused, mut by_demand, mut by_conflict, mut by_start, mut unseen) = (0, 0, 0, 0, 0);
    for (at, drawn) in drawn(&catalog) {
        if check(&drawn.source(), "drawn", &catalog).is_ok() {
            continue;
        }
        refused += 1;
        let part = least(&drawn, &catalog).unwrap_or(drawn);
        if known.insert(part.kinds(), ()).is_some() {
            continue;
        }
        let source = part.source();
        let Err(mistakes) = check(&source, "part", &catalog) else {
            unreachable!("it is refused");
        };
        let text = mistakes.to_text();
        let works = |octets_max: &u64, catalog: &Catalog| {
            let source = Drawn { octets_max: *octets_max, ..part.clone() }.source();
            check_text(&source, "part", catalog).is_ok_and(|graph| run(&graph, at).is_ok())
        };
        let lacks = |(one, _): &(Guarantees, &str)| Guarantees::NONE.lack(*one);
        // Without the demand it is given addresses of the other kind, so that nothing is shown.
        let by_address = text.contains("` opens `") && text.contains("` takes ");
        let is_unseen =
            by_address || UNSEEN.iter().filter_map(lacks).any(|lack| text.contains(lack));
        // It may well work while the peer is where the right one of the lowers leads.
        let chooses = part.layers.last().is_some_and(|layer| layer.entry.below.min > 1);
        let is_wrong = if check_text(&source, "part", &catalog).is_ok() {
            by_start += 1;
            works(&part.octets_max, &catalog)
        } else if is_unseen || chooses || is_whole_by_luck(&part, &text) {
            unseen += 1;
            false
        } else if let Err(mistakes) = check_text(&source, "part", &lenient) {
            by_conflict += 1;
            let conflicts = Conflicts { drawn: &part, numbers: catalog.numbers() };
            !conflicts.agree(&mistakes.to_text())
        } else {
            by_demand += 1;
            SIZES.iter().all(|octets_max| works(octets_max, &lenient))
        };
        if is_wrong {
            faults.add(part.kinds(), at, &text);
        }
    }
    println!(
        "{refused} graphs are refused for {} stacks: {by_demand} by what a layer asks, \
         {by_conflict} by numbers and wires, {by_start} since they do not start; \
         {unseen} are not run",
        known.len()
    );
    faults.assert_none();
}
