//! The law of composition: what the check accepts works. Random hosts are drawn from the whole
//! catalog, and for each graph that passes the check a client and a server exchange messages of 0
//! to 16 KiB over a network that loses nothing: all of it starts, every message arrives unchanged
//! or is refused with a reason to its sender, and some arrive.
//!
//! `XK_SEED=7` draws other graphs, `XK_GRAPHS=100000` more of them; `XK_GRAPH=123` draws that one
//! alone and prints it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;
use xk_compose::{CheckedGraph, SimulationConfig, check, simulate, start_world};
use xk_core::control::Report;
use xk_core::graph::Catalog;
use xk_core::graph::{Entry, Family, Realm};
use xk_core::random::Random;
use xk_core::{Kernel, Time};

/// How many graphs a run draws, unless `XK_GRAPHS` says.
const GRAPHS: u64 = 500;
/// The fewest and the most layers between the wire and the applications.
const LAYERS: (u64, u64) = (1, 8);
/// How many messages or calls a client makes.
const COUNT: u64 = 24;
/// The largest message of a graph, in octets: where links pad, where a frame ends, where fragments
/// begin.
const SIZES: &[u64] = &[32, 1600, 16 << 10];
/// Reasons for which every message of a graph may be refused: the message's size, and what the
/// server asks of a client that has no credentials.
const REASONS: &[&str] = &["too big", "larger than", "credentials too weak"];
/// How long a conversation may last, in virtual time.
const TIME_MAX: Duration = Duration::from_secs(600);

/// Kinds that no graph is drawn with, and why.
const LEFT_OUT: &[(&str, &str)] =
    &[("host-udp", "it asks the machine"), ("portmap", "it serves one program of its own")];

/// A layer that is drawn: the line in the file without the addresses of a host.
struct Layer {
    entry: &'static Entry,
    name: String,
    lowers: Vec<usize>,
}

/// A stack, the same on both hosts, and what is on top of it.
struct Drawn {
    layers: Vec<Layer>,
    /// On which layers there are a client and a server.
    tops: Vec<usize>,
    /// The largest message, in octets.
    octets_max: u64,
}

/// What the participants of a layer look like, a host's own number in place of `{}`.
impl Drawn {
    fn draw(catalog: &Catalog, random: &Random) -> Self {
        let kinds: Vec<&'static Entry> =
            catalog.entries().iter().copied().filter(is_layer).collect();
        let wire = catalog.find("sim").expect("the simulator's wire");
        let mut drawn = Self {
            layers: vec![Layer { entry: wire, name: "sim".into(), lowers: Vec::new() }],
            tops: Vec::new(),
            octets_max: SIZES[random.below(SIZES.len() as u64) as usize],
        };
        // Many interesting layers need hosts below: half of the graphs begin with them.
        if random.below(2) == 0 {
            for kind in ["eth", "arp", "ip"] {
                let entry = catalog.find(kind).expect("hosts on Ethernet");
                drawn.stand(entry, vec![drawn.layers.len() - 1]);
            }
        }
        let count = drawn.layers.len() as u64 + LAYERS.0 + random.below(LAYERS.1 - LAYERS.0 + 1);
        while (drawn.layers.len() as u64) < count {
            let entry = kinds[random.below(kinds.len() as u64) as usize];
            // Now and then anything on anything; else what fits by realm, addresses and numbers.
            let wild = random.below(100) == 0;
            if let Some(lowers) = drawn.lowers(catalog, entry, random, wild) {
                drawn.stand(entry, lowers);
            }
        }
        drawn.tops.push(drawn.layers.len() - 1);
        if random.below(4) == 0 {
            let at = random.below(drawn.layers.len() as u64) as usize;
            if !drawn.tops.contains(&at) {
                drawn.tops.push(at);
            }
        }
        drawn
    }

    fn stand(&mut self, entry: &'static Entry, lowers: Vec<usize>) {
        let name = format!("n{}", self.layers.len());
        self.layers.push(Layer { entry, name, lowers });
    }

    /// Layers for one to stand on: of those that fit, more often the ones drawn last.
    fn lowers(
        &self,
        catalog: &Catalog,
        entry: &Entry,
        random: &Random,
        wild: bool,
    ) -> Option<Vec<usize>> {
        let (min, max) = (entry.below.min as u64, entry.below.max.min(3) as u64);
        let more = if random.below(4) == 0 { random.below(max - min + 1) } else { 0 };
        let mut fitting: Vec<usize> = (0..self.layers.len())
            .filter(|at| wild || self.fits(catalog, entry, *at) && self.has_room(*at))
            .collect();
        let mut lowers = Vec::new();
        for _ in 0..min + more {
            let len = fitting.len() as u64;
            let at = match random.below(3) {
                _ if len == 0 => return None,
                0 => random.below(len),
                _ => len - 1 - random.below(2.min(len)),
            };
            lowers.push(fitting.remove(at as usize));
        }
        lowers.sort_unstable();
        Some(lowers)
    }

    /// A wire carries one layer.
    fn has_room(&self, lower: usize) -> bool {
        let is_wire = self.layers[lower].entry.realm == Realm::Wire;
        !is_wire || self.layers.iter().all(|layer| !layer.lowers.contains(&lower))
    }

    fn fits(&self, catalog: &Catalog, entry: &Entry, lower: usize) -> bool {
        let below = self.layers[lower].entry;
        let family = self.family(lower);
        let takes =
            |wanted: &Family| matches!(wanted, Family::Inherit | Family::Any) || *wanted == family;
        // A layer that tells its uppers apart by number has one for each that may stand there.
        let numbers = catalog.numbers();
        let numbered = numbers.kinds().iter().any(|n| n.lower == below.kind);
        let known = !numbered || numbers.find_kinds(entry.kind, below.kind).is_some();
        known && entry.below.realms.contains(&below.realm) && entry.below.families.iter().any(takes)
    }

    /// The addresses that a layer takes, its own or those of what it stands on.
    fn family(&self, at: usize) -> Family {
        let layer = &self.layers[at];
        match (layer.entry.above, layer.lowers.first()) {
            (Family::Inherit, Some(lower)) => self.family(*lower),
            (family, _) => family,
        }
    }

    /// The participant of host `host` at this layer.
    fn participant(&self, at: usize, host: u64) -> String {
        let layer = &self.layers[at];
        let below =
            || layer.lowers.first().map_or(String::new(), |lower| self.participant(*lower, host));
        let on = |part: &str| match below() {
            lower if lower.is_empty() => part.to_owned(),
            lower => format!("{part}@{lower}"),
        };
        match layer.entry.kind {
            "eth" => format!("02:00:00:00:00:{host:02x}"),
            "arp" | "vip" | "vipaddr" | "vipsize" => self.host(at, host),
            "ip" => format!("10.{at}.0.{host}"),
            "udp" => on("port7"),
            // On datagrams with ports it has none of its own.
            "tcp" => match layer.lowers.first().map(|lower| self.family(*lower)) {
                Some(Family::Port) => below(),
                _ => on("port7"),
            },
            "mrpc" | "select" | "forward" => on("procedure1"),
            "sunselect" | "sunprog" | "authnone" | "authsys" | "authshort" => {
                let has_program = below().contains("program");
                match has_program {
                    true => below(),
                    false => on("procedure1@version1@program536870913"),
                }
            }
            _ => below(),
        }
    }

    /// The host that an address resolver leads to: that of the first `ip` that stands on it, or by
    /// it.
    fn host(&self, at: usize, host: u64) -> String {
        let ip = |at: &usize| self.layers[*at].entry.kind == "ip";
        let above = (0..self.layers.len()).filter(ip).find(|up| self.reaches(*up, at));
        let below = || (0..at).filter(ip).find(|down| self.reaches(at, *down));
        let beside = || (0..self.layers.len()).find(ip);
        match above.or_else(below).or_else(beside) {
            Some(ip) => format!("10.{ip}.0.{host}"),
            None => format!("10.0.0.{host}"),
        }
    }

    /// Whether one layer stands on another, at whatever distance.
    fn reaches(&self, upper: usize, lower: usize) -> bool {
        let lowers = &self.layers[upper].lowers;
        lowers.iter().any(|at| *at == lower || self.reaches(*at, lower))
    }

    fn line(&self, at: usize, host: u64) -> String {
        let layer = &self.layers[at];
        let lowers: Vec<&str> =
            layer.lowers.iter().map(|at| self.layers[*at].name.as_str()).collect();
        let parameters = match layer.entry.kind {
            "sim" => " link=lan".to_owned(),
            "eth" => format!(" address=\"02:00:00:00:00:{host:02x}\""),
            "ip" => format!(" {{ address \"10.{at}.0.{host}/24\"; }}"),
            // One file under as many names as there are captures.
            "pcap" => format!(" file=\"/dev/{}null\"", "./".repeat(at)),
            "authsys" => " machine=\"h\" user=1000 group=100".to_owned(),
            _ => String::new(),
        };
        let kind = layer.entry.kind;
        let (name, lowers) = (&layer.name, lowers.join(" "));
        match kind {
            "sim" => format!("    sim name=sim{parameters}\n"),
            _ => format!("    \"{kind}\" {lowers} name={name}{parameters}\n"),
        }
    }

    /// Whether a layer takes calls: its own realm, or that of what it stands on.
    fn is_rpc(&self, at: usize) -> bool {
        let layer = &self.layers[at];
        match (layer.entry.above, layer.lowers.first()) {
            (Family::Inherit, Some(lower)) if layer.entry.header_octets == 0 => self.is_rpc(*lower),
            _ => layer.entry.realm == Realm::Rpc,
        }
    }

    fn is_stream(&self, at: usize) -> bool {
        let layer = &self.layers[at];
        let below = layer.lowers.first();
        layer.entry.kind == "tcp"
            || layer.entry.above == Family::Inherit && below.is_some_and(|at| self.is_stream(*at))
    }

    /// What stands on a layer on one of the hosts: the client on the first, the server on the
    /// second.
    fn top(&self, at: usize, host: u64) -> String {
        let name = &self.layers[at].name;
        let server = self.participant(at, 2);
        let address = |key: &str, value: &str| match value {
            "" => String::new(),
            value => format!(" {key}=\"{value}\""),
        };
        // A stream has no empty messages.
        let least = u64::from(self.is_stream(at));
        let work =
            format!("count={COUNT} interval=\"20ms\" size={least} size_max={}", self.octets_max);
        let (line, rest) = match (self.is_rpc(at), host) {
            (true, 1) => {
                (format!("caller {name} name=client{at}"), address("to", &server) + " " + &work)
            }
            (true, _) => (
                format!("procedures {name} name=server{at} procedure=1"),
                address("at", &server.replace("procedure1", "*")),
            ),
            (false, 1) => (
                format!("probe {name} name=client{at}"),
                address("to", &server) + " timeout=\"60s\" " + &work,
            ),
            (false, _) => (format!("echo {name} name=server{at}"), address("local", &server)),
        };
        format!("    {line}{rest}\n")
    }

    fn source(&self) -> String {
        let mut source = String::new();
        for host in [1, 2] {
            let _ = writeln!(source, "host h{host} {{");
            for at in 0..self.layers.len() {
                source += &self.line(at, host);
            }
            for at in &self.tops {
                source += &self.top(*at, host);
            }
            source += "}\n";
        }
        source + "link lan kind=pointtopoint delay=\"100us\" rate=\"1Gbit\"\n"
    }
}

/// Whether graphs are drawn with a kind: not with wires and applications, which have their places.
fn is_layer(entry: &&'static Entry) -> bool {
    matches!(entry.realm, Realm::Async | Realm::Rpc)
        && LEFT_OUT.iter().all(|(kind, _)| *kind != entry.kind)
}

/// What a client says at the end.
#[derive(Default)]
struct Outcome {
    arrived: u64,
    refused: u64,
    wrong: Vec<String>,
}

fn outcome(kernel: &Kernel) -> Outcome {
    let mut outcome = Outcome::default();
    for protocol in kernel.protocols() {
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
    world.stop();
    match outcome.wrong.is_empty() {
        true => Ok(outcome),
        false => Err(outcome.wrong.join(", ")),
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn what_passes_the_check_works() {
    let catalog = xk_catalog::standard();
    let seed = number("XK_SEED", 1);
    let one = std::env::var_os("XK_GRAPH").map(|_| number("XK_GRAPH", 0));
    let graphs = one.map_or(0..number("XK_GRAPHS", GRAPHS), |at| at..at + 1);
    println!("seed {seed}");
    let (mut accepted, mut arrived, mut refused) = (0, 0, 0);
    let mut faults: BTreeMap<String, Vec<(u64, String)>> = BTreeMap::new();
    let total = graphs.end - graphs.start;
    for at in graphs {
        let random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at);
        let drawn = Drawn::draw(&catalog, &random);
        let source = drawn.source();
        if one.is_some() {
            println!("{source}");
        }
        match check(&source, "drawn", &catalog) {
            Ok(graph) => {
                accepted += 1;
                match run(&graph, seed) {
                    Ok(outcome) => {
                        arrived += outcome.arrived;
                        refused += outcome.refused;
                    }
                    Err(fault) => {
                        let stack: Vec<&str> = drawn.layers.iter().map(|l| l.entry.kind).collect();
                        let key = stack.join(" ");
                        faults.entry(key).or_default().push((at, fault));
                    }
                }
            }
            Err(mistakes) => {
                assert!(mistakes.has_errors());
                if one.is_some() {
                    println!("{mistakes}");
                }
            }
        }
    }
    println!(
        "{accepted} of {total} graphs pass the check; {arrived} messages arrive, {refused} are refused"
    );
    for (stack, found) in &faults {
        let (at, fault) = &found[0];
        println!(
            "{} x {stack}: XK_GRAPH={at}: {}",
            found.len(),
            fault.lines().next().unwrap_or("")
        );
    }
    assert!(faults.is_empty(), "{} stacks", faults.len());
}
