//! A run of a sweep: a simulation, and the row that comes of it.

use super::plan;
use crate::failure::Failure;
use crate::simulation::{Simulation, Told};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use xk_compose::CheckedGraph;
use xk_core::Time;
use xk_sim::{Digest, LinkStats};
use xk_sweep::{Job, Plan, Row, Verdict, figure, worker};

/// Links whose figures have columns each; those of more are added up.
const LINKS_MAX: usize = 16;
/// The most names that a reason lists.
const NAMES_MAX: usize = 5;

/// Does the runs of a sweep that another process hands out
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file's name, for messages
    file: String,
}

/// A graph with its parameters, for all seeds.
struct Prepared {
    graph: CheckedGraph,
    /// The name of the host in the file, by that in the world.
    hosts: BTreeMap<String, String>,
    options: Options,
}

/// The options of a run besides its graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) until: Duration,
    pub(super) crash_every: Option<Duration>,
    /// Whether the row has the faults as lines that need no chance.
    pub(super) lists_faults: bool,
}

impl Options {
    pub(super) fn of(plan: &Plan) -> Self {
        let (until, crash_every) = (plan::until(plan), plan::crash_every(plan));
        Self { until, crash_every, lists_faults: false }
    }
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let prepare = |plan: &Plan, job: &Job| {
        let graph = plan::graph(plan, &args.file, &job.set).map_err(|failure| failure.text())?;
        Ok(Prepared { hosts: hosts(&graph), graph, options: Options::of(plan) })
    };
    let run = |prepared: &Prepared, job: &Job| {
        let Prepared { graph, hosts, options } = prepared;
        row(graph, hosts, job, *options)
    };
    worker::serve(prepare, run, |plan, job| replay(plan, &args.file, job))
        .map_err(|error| Failure::new(error.to_string()))
}

/// The names of hosts in the file: hosts alike have one.
pub(super) fn hosts(graph: &CheckedGraph) -> BTreeMap<String, String> {
    let all = graph.graph().expand();
    let of = |host: &xk_lang::HostInstance<'_>| {
        let template = host.template.name.as_str();
        let name = template.split('{').next().unwrap_or(template);
        (host.name.to_string(), name.to_owned())
    };
    all.iter().map(of).collect()
}

/// The command that does a run again.
fn replay(plan: &Plan, file: &str, job: &Job) -> String {
    let mut words = vec!["xk".to_owned(), "sim".into(), quoted(file)];
    words.extend(job.set.iter().map(|(path, value)| quoted(&format!("--set={path}={value}"))));
    words.extend(plan.options.iter().cloned());
    words.push(format!("--seed {}", job.seed));
    words.join(" ")
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:%@+".contains(c);
    if word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs a graph once.
pub(super) fn row(
    graph: &CheckedGraph,
    hosts: &BTreeMap<String, String>,
    job: &Job,
    options: Options,
) -> Row {
    let failed = |failure: &Failure| {
        let why = failure.text();
        Row::silent(job, Verdict::Failed, why.lines().next().unwrap_or_default())
    };
    let mut simulation = match Simulation::new(graph, job.seed, None) {
        Ok(simulation) => simulation,
        Err(failure) => return failed(&failure),
    };
    let digest = Rc::new(Digest::default());
    simulation.world().network().set_tap(Some(Rc::clone(&digest) as Rc<_>));
    if let Some(apart) = options.crash_every {
        simulation.faults_mut().crash_every(graph, job.seed, apart);
    }
    let done = match simulation.run(Time::ZERO + options.until) {
        Ok(done) => done,
        Err(failure) => return failed(&failure),
    };
    // Each look at the reports sorts samples.
    let told = simulation.told();
    let wrong: Vec<String> = told.iter().filter_map(Told::failure).collect();
    let open: Vec<String> = told.iter().filter_map(Told::open).collect();
    let (verdict, why) = if !wrong.is_empty() {
        (Verdict::Failed, format!("failed: {}", named(&wrong)))
    } else if simulation.finishes() && !done && !open.is_empty() {
        (Verdict::Exhausted, format!("not done by {:?}: {}", options.until, named(&open)))
    } else {
        (Verdict::Clean, String::new())
    };
    let progress = simulation.world().progress();
    let mut row = Row {
        ended: progress.now.as_ns() as f64 / 1e9,
        faults: simulation.faults().fired(simulation.world()),
        figures: figures(&simulation, &told, hosts),
        ..Row::silent(job, verdict, why)
    };
    count_axes(&simulation, job, &mut row);
    row.figures.insert("frames".into(), progress.stats.frames as f64);
    row.figures.insert("events".into(), progress.stats.events as f64);
    row.digest = format!("{:016x}{:08x}", digest.shape(), digest.frames());
    if options.lists_faults {
        row.events = simulation.faults().begun().to_vec();
    }
    row
}

fn named(names: &[String]) -> String {
    let more = match names.len().saturating_sub(NAMES_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let some: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    format!("{}{more}", some.join(", "))
}

/// The numbers of all reports and links. Those of hosts alike are their mean.
fn figures(
    simulation: &Simulation<'_>,
    told: &[Told],
    hosts: &BTreeMap<String, String>,
) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, u32)> = BTreeMap::new();
    for Told { host, node, report } in told {
        let name = host.split('/').next().unwrap_or(host);
        let name = hosts.get(name).map_or(name, String::as_str);
        for (line, value) in &report.lines {
            let Some(value) = figure(value) else { continue };
            let sum = sums.entry(format!("{name}.{node}.{}", column(line))).or_default();
            *sum = (sum.0 + value, sum.1 + 1);
        }
    }
    let mean = |(name, (sum, count)): (String, (f64, u32))| (name, sum / f64::from(count));
    let mut all: BTreeMap<String, f64> = sums.into_iter().map(mean).collect();
    let links = simulation.world().network().links();
    let has_own = links.len() <= LINKS_MAX;
    for (link, stats) in links {
        let name = if has_own { &*link } else { "links" };
        for (what, count) in stats.list() {
            *all.entry(format!("{name}.{}", column(what))).or_default() += count as f64;
        }
    }
    all
}

/// A line's name as that of a column: words joined, nothing else between them.
fn column(line: &str) -> String {
    let words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("_")
}

/// Counts the chances of links that the sweep sets: a loss that loses nothing was no loss.
fn count_axes(simulation: &Simulation<'_>, job: &Job, row: &mut Row) {
    let network = simulation.world().network();
    for (path, value) in &job.set {
        let Some((link, what)) = path.rsplit_once('.') else { continue };
        let stats = network.link(link).and_then(|id| network.stats(id));
        let Some(LinkStats { lost, duplicated, reordered, corrupted, .. }) = stats else {
            continue;
        };
        let count = match what {
            "loss" => lost,
            "duplicate" => duplicated,
            "reorder" => reordered,
            "corrupt" => corrupted,
            _ => continue,
        };
        if figure(value).is_some_and(|share| share > 0.0) {
            row.faults.insert(format!("{path}={value}"), count);
        }
    }
}
