//! `xk sweep shrink`: a failing run made small.

use super::worker::{Options, hosts, row};
use super::{failed, plan, programs};
use crate::failure::Failure;
use crate::{file, output};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use xk_core::graph::Value;
use xk_lang::{Graph, Host, ParamBlock, Span, edit};
use xk_sweep::{Folder, Job, Row, Verdict, shrink, worker};

/// Steps of the end of a run, in nanoseconds.
const STEP_NS: u64 = 1_000_000;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The seed of the run
    seed: u64,
    /// Folder of the sweep
    #[arg(long, value_name = "FOLDER")]
    pub(super) out: PathBuf,
    /// Parameters of the run, if several runs of this seed failed
    #[arg(long, value_name = "PATH=VALUE", value_parser = file::setting)]
    set: Vec<(String, String)>,
    /// Leave out a try that takes more real time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = file::duration)]
    limit: Duration,
}

/// A run that fails, and how it is tried.
pub(super) struct Failing {
    seed: u64,
    pub(super) limit: Duration,
    /// The reason of the failure, without its numbers.
    sign: String,
    verdict: Verdict,
    tries: u32,
    begun: Instant,
    shown: Instant,
}

pub(super) fn main(args: &Args) -> Result<(), Failure> {
    let folder = Folder::existing(&args.out).map_err(failed)?;
    let found = find(&folder, args)?;
    let plan = &folder.header().plan;
    if !plan::is_of_graph(plan) {
        return programs::main(args, folder.header(), &found);
    }
    let set: Vec<(String, String)> = found.set.clone().into_iter().collect();
    let text = file::set(plan.what.clone(), &set)?;
    let mut failing = Failing::of(&found, args);
    let options = Options { lists_faults: true, ..Options::of(plan) };
    let first = failing.row(&text, options)?;
    failing.expect(&first)?;
    let before = size(&text);
    let (text, options) = smaller(&mut failing, text, options, &first)?;
    let path = args.out.join(format!("shrunk-{}.kdl", found.seed));
    let until = Value::<&str>::Duration(options.until);
    let command = format!("xk sim {} --seed {} --until {until}", path.display(), found.seed);
    let whole = format!("// {}\n// {command}\n{}", found.why.replace('\n', " "), tidy(&text));
    std::fs::write(&path, &whole).map_err(|error| Failure::file("cannot write", &path, error))?;
    let last = failing.row(&whole, Options { crash_every: None, ..options })?;
    failing.expect(&last)?;
    let after = size(&whole);
    output::print(&format!(
        "{} hosts of {}, {} nodes of {}, {} faults of {}, {:.3} s of {:.3}, {}\nwrote {}\nagain: {command}\n",
        after.0,
        before.0,
        after.1,
        before.1,
        last.events.len(),
        first.events.len(),
        options.until.as_secs_f64(),
        found.ended,
        failing.told(),
        path.display(),
    ));
    Ok(())
}

/// The row that is meant.
fn find(folder: &Folder, args: &Args) -> Result<Row, Failure> {
    let mut others = Vec::new();
    for row in folder.rows() {
        let row = row.map_err(failed)?;
        let is_set = args.set.iter().all(|(path, value)| row.set.get(path) == Some(value));
        if row.verdict == Verdict::Clean {
            continue;
        } else if row.seed == args.seed && is_set {
            return Ok(row);
        }
        others.push(row.seed);
    }
    others.dedup();
    others.truncate(12);
    let help = match &others[..] {
        [] => "no run of this folder failed".into(),
        some => {
            format!("these did: {}", some.iter().map(u64::to_string).collect::<Vec<_>>().join(", "))
        }
    };
    Err(Failure::usage(format!("seed {} has no run that failed", args.seed)).help(help))
}

/// A failure without its numbers.
fn sign(why: &str) -> String {
    why.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Counts the hosts and nodes of a text.
fn size(text: &str) -> (usize, usize) {
    let (graph, _) = xk_lang::parse("", text);
    let hosts = graph.expand();
    (hosts.len(), hosts.iter().map(|host| host.template.nodes.len()).sum())
}

impl Failing {
    /// A run that is to be made small, which is told of.
    pub(super) fn of(found: &Row, args: &Args) -> Self {
        output::print(&format!("seed {}: {}\n", found.seed, found.why));
        let (now, sign) = (Instant::now(), sign(&found.why));
        let (seed, limit, verdict) = (found.seed, args.limit, found.verdict);
        Self { seed, limit, sign, verdict, tries: 0, begun: now, shown: now }
    }

    /// Counts a try, and tells of many.
    pub(super) fn tried(&mut self) {
        self.tries += 1;
        if self.shown.elapsed() > Duration::from_secs(5) {
            self.shown = Instant::now();
            output::error(&format!("{}\n", self.told()));
        }
    }

    /// Counts the tries in words.
    pub(super) fn told(&self) -> String {
        format!("in {} tries and {:.1} s", self.tries, self.begun.elapsed().as_secs_f64())
    }

    /// Refuses a run that is to fail and does not, or in another way.
    pub(super) fn expect(&self, row: &Row) -> Result<(), Failure> {
        if self.is_same(row) {
            return Ok(());
        }
        let why = if row.why.is_empty() { "" } else { &*format!(": {}", row.why) };
        Err(Failure::new(format!("it is {} now{why}", row.verdict.word())).help(
            "the run does not follow its seed, or the test was changed; or real time was over then or \
             is now, and --limit says when that is",
        ))
    }

    fn row(&mut self, text: &str, options: Options) -> Result<Row, Failure> {
        self.tried();
        let job = Job { number: 0, seed: self.seed, set: Vec::new() };
        let run = || {
            match xk_compose::check(text, "", &xk_catalog::standard()) {
                Ok(graph) => row(&graph, &hosts(&graph), &job, options),
                // A part that is no graph is no smaller run.
                Err(_) => Row::silent(&job, Verdict::Clean, ""),
            }
        };
        worker::alone(self.limit, &job, run).map_err(|error| Failure::new(error.to_string()))
    }

    pub(super) fn is_same(&self, row: &Row) -> bool {
        row.verdict == self.verdict && sign(&row.why) == self.sign
    }

    fn fails(&mut self, text: &str, options: Options) -> bool {
        let row = self.row(text, options);
        row.is_ok_and(|row| self.is_same(&row))
    }
}

/// Leaves out what the failure does not need: faults, time, hosts, nodes, what links do.
fn smaller(
    failing: &mut Failing,
    text: String,
    options: Options,
    first: &Row,
) -> Result<(String, Options), Failure> {
    let mut options = options;
    let mut text = without_sweep(&text);
    // What chance has chosen is written down, if that fails the same way: a run that died has told
    // of nothing.
    let told = with_faults(&text, &first.events);
    let plain = Options { crash_every: None, ..options };
    if failing.fails(&told, plain) {
        options = plain;
        let bare = with_faults(&text, &[]);
        let needed = shrink::smallest(&first.events, |part| {
            failing.fails(&with_faults(&bare, part), options)
        });
        text = with_faults(&bare, &needed);
    }
    let steps = |time: Duration| (time.as_nanos() as u64).div_ceil(STEP_NS);
    let ended = steps(Duration::from_secs_f64(first.ended)).clamp(1, steps(options.until).max(1));
    let until = |steps: u64| Duration::from_nanos(steps * STEP_NS);
    if failing.verdict == Verdict::Failed {
        let last = if failing.fails(&text, Options { until: until(ended), ..options }) {
            ended
        } else {
            steps(options.until)
        };
        let least = shrink::least(1, last, |steps| {
            failing.fails(&text, Options { until: until(steps), ..options })
        });
        options.until = until(least);
    }
    type Spans = fn(&Graph) -> Vec<Span>;
    let hosts: Spans = |graph| graph.hosts.iter().map(|host| host.span).collect();
    let nodes: Spans = |graph| {
        let all = graph.hosts.iter().flat_map(|host: &Host| &host.nodes);
        all.map(|node| node.span).collect()
    };
    let links: Spans = |graph| graph.links.iter().map(|link| link.span).collect();
    let chances: Spans = |graph| {
        let all = graph.links.iter().flat_map(|link| &link.params);
        all.map(xk_lang::Param::span).collect()
    };
    for spans in [hosts, nodes, links, chances] {
        let (graph, _) = xk_lang::parse("", &text);
        let all = spans(&graph);
        let left_out = |kept: &[Span]| {
            let gone: Vec<Span> = all.iter().filter(|span| !kept.contains(span)).copied().collect();
            edit::without(&text, &gone)
        };
        let kept = shrink::smallest(&all, |kept| failing.fails(&left_out(kept), options));
        text = left_out(&kept);
    }
    for path in counts(&text) {
        let Some(count) = edit::get(&text, &path).and_then(|count| count.parse::<u64>().ok())
        else {
            continue;
        };
        let with = |count: u64| edit::set(&text, &path, &count.to_string()).unwrap_or_default();
        let least = shrink::least(1, count, |count| failing.fails(&with(count), options));
        text = with(least);
    }
    Ok((text, options))
}

/// The counts of hosts alike, and of what nodes do.
fn counts(text: &str) -> Vec<String> {
    let (graph, _) = xk_lang::parse("", text);
    let mut paths = Vec::new();
    for host in &graph.hosts {
        if host.count.is_some() {
            paths.push(format!("{}.count", host.name.as_str()));
        }
        let counted = host.nodes.iter().filter(|node| node.param("count").is_some());
        paths.extend(
            counted.map(|node| format!("{}.{}.count", host.name.as_str(), node.name.as_str())),
        );
    }
    paths
}

/// The text without its `sweep`: one run is left of it.
fn without_sweep(text: &str) -> String {
    let (graph, _) = xk_lang::parse("", text);
    let spans: Vec<Span> = graph.sweep.iter().map(|block| block.span).collect();
    edit::without(text, &spans)
}

/// The text with these faults in the place of its own.
fn with_faults(text: &str, lines: &[String]) -> String {
    let (graph, _) = xk_lang::parse("", text);
    let spans: Vec<Span> = graph.faults.iter().map(|block: &ParamBlock| block.span).collect();
    let bare = edit::without(text, &spans);
    if lines.is_empty() {
        return bare;
    }
    format!("{}\nfaults {{\n    {}\n}}\n", bare.trim_end(), lines.join("\n    "))
}

/// The text without lines that hold nothing, and without comments that stood above what is gone.
fn tidy(text: &str) -> String {
    let is_kept = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && line != ";" && !line.starts_with("//")
    };
    text.lines().filter(is_kept).map(|line| format!("{line}\n")).collect()
}
