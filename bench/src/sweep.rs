//! The cost of a sweep over the simulations that it runs: of a run, of its row, of going on with
//! many.

use crate::case::{Case, Goal, Sample, Shared, Trouble};
use crate::child::{self, Running, command, octets_of};
use crate::folder;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use xk_compose::{SimulationConfig, simulate, start_world};
use xk_core::Time;

/// The demonstration.
const DEMONSTRATION: &str = include_str!("../../graphs/internet.kdl");
/// A row's words, a graph, and the runs of a round.
type Measured = (&'static str, fn() -> String, u64);
/// The graphs whose runs are measured.
const GRAPHS: [Measured; 3] = [
    ("a run of the demonstration (graphs/internet.kdl)", || DEMONSTRATION.into(), 1000),
    (
        "a run ten times as long",
        || DEMONSTRATION.replace("count=20", "count=200").replace("count=50", "count=500"),
        100,
    ),
    ("a run of nothing", || "host idle {\n sim link=lan\n eth sim\n}\nlink lan\n".into(), 4000),
];
/// The graph without traffic: what is left is the cost of a row.
const NOTHING: usize = 2;
/// The end of a run, in seconds of virtual time.
const UNTIL_S: u64 = 60;
/// A sweep's time over that of the bare simulation.
const GOAL: Goal = Goal::AtMostTimes(1.05);
/// The other system: simulations one after the other, in one process each, with no row.
const BARE: &str = "bare";
/// Rows of the folders that are gone on with.
const ROWS: [(u64, &str); 2] = [(100_000, "100,000 rows"), (1_000_000, "1,000,000 rows")];
/// From one look at a process's memory to the next.
const LOOK: Duration = Duration::from_millis(10);

pub(crate) fn cases() -> Vec<Case> {
    let mut list = Vec::new();
    for (at, (row, _, runs)) in GRAPHS.into_iter().enumerate() {
        for jobs in [1, 2] {
            let row = match jobs {
                1 => format!("{row}, 1 process"),
                _ => format!("{row}, {jobs} processes"),
            };
            let of = move |round: fn(usize, u64, u64) -> Result<Duration, Trouble>| {
                move |effort: f64| {
                    let runs = ((runs as f64 * effort) as u64).max(2 * jobs);
                    let took = round(at, runs, jobs)?.as_secs_f64();
                    let also = vec![("runs/s", runs as f64 / took)];
                    Ok(Sample { value: took / runs as f64 * 1e6, also, ..Sample::default() })
                }
            };
            list.push(Case::measured(row.clone(), of(bare)).of(BARE));
            let case = Case::measured(row, of(swept)).beside(BARE);
            list.push(if at == NOTHING { case } else { case.goal(GOAL) });
        }
    }
    for (rows, words) in ROWS {
        list.extend(folder_cases(rows, words));
    }
    list
}

/// Runs seeds one after the other, in so many processes at a time.
fn bare(graph: usize, runs: u64, jobs: u64) -> Result<Duration, Trouble> {
    let begun = Instant::now();
    thread::scope(|scope| {
        let part = |job: u64| {
            let seeds = (job * runs / jobs, (job + 1) * runs / jobs);
            move || child::ask("sweep-bare", &format!("{graph} {} {}", seeds.0, seeds.1))
        };
        let all: Vec<_> = (0..jobs).map(|job| scope.spawn(part(job))).collect();
        for one in all {
            one.join().map_err(|_| Trouble::Failed("a thread panicked".into()))??;
        }
        Ok(begun.elapsed())
    })
}

/// The part of one process of [`bare`]: tells how many frames there were.
pub(crate) fn bare_process(argument: &str) -> Result<Vec<f64>, String> {
    let numbers: Option<Vec<u64>> = argument.split(' ').map(|word| word.parse().ok()).collect();
    let Some([graph, first, end]) = numbers.as_deref().and_then(|list| list.first_chunk()) else {
        return Err("no graph and seeds are named".into());
    };
    let (_, text, _) = GRAPHS.get(*graph as usize).ok_or("no graph has this number")?;
    let graph = xk_compose::check(&text(), "bench.kdl", &xk_catalog::standard());
    let graph = graph.map_err(|diagnostics| diagnostics.to_text())?;
    let mut frames = 0;
    for seed in *first..*end {
        let config = SimulationConfig { seed, ..SimulationConfig::default() };
        let mut world = simulate(&graph, config).map_err(|d| d.to_text())?;
        start_world(&graph, &mut world).map_err(|d| d.to_text())?;
        world.run_until_finished(Time::ZERO + Duration::from_secs(UNTIL_S));
        frames += world.stats().frames;
    }
    Ok(vec![frames as f64])
}

/// Runs seeds by the command: its time without that of its start, in which it reads itself to know
/// the program by.
fn swept(graph: usize, runs: u64, jobs: u64) -> Result<Duration, Trouble> {
    let folder = folder::own()?;
    let begun = Instant::now();
    ended(sweep(folder.path(), graph, runs)?.arg("--check"))?;
    let start = begun.elapsed();
    let mut sweep = sweep(folder.path(), graph, runs)?;
    ended(sweep.args(["--jobs", &jobs.to_string()]))?;
    Ok(begun.elapsed().saturating_sub(2 * start))
}

/// The command in a folder, into which the graph is put.
fn sweep(folder: &Path, graph: usize, runs: u64) -> Result<Command, Trouble> {
    fs::write(folder.join("bench.kdl"), GRAPHS[graph].1())?;
    let mut sweep = Command::new(command()?);
    let seeds = format!("0..{runs}");
    let until = format!("{UNTIL_S}s");
    sweep.args(["sweep", "bench.kdl", "--seeds", &seeds, "--until", &until, "--keep-going"]);
    sweep.args(["--out", "rows"]).current_dir(folder);
    sweep.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(sweep)
}

/// Waits until the command has ended; that a run lost something for good is no failure here.
fn ended(command: &mut Command) -> Result<(), Trouble> {
    match command.status()?.code() {
        Some(0 | 1) => Ok(()),
        code => Err(Trouble::Failed(format!("xk sweep ended with {code:?}"))),
    }
}

/// A folder that has a row for each run.
struct Whole {
    folder: TempDir,
    rows: u64,
}

impl Whole {
    /// One with so many rows, each but for its seed that of a run of the demonstration.
    fn new(rows: u64) -> Result<Self, Trouble> {
        let folder = folder::own()?;
        ended(&mut sweep(folder.path(), 0, 1)?)?;
        let at = |name: &str| folder.path().join("rows").join(name);
        let mut header: Value = serde_json::from_str(&fs::read_to_string(at("sweep.json"))?)?;
        header["plan"]["seeds"][1] = rows.into();
        fs::write(at("sweep.json"), serde_json::to_vec_pretty(&header)?)?;
        let row = fs::read_to_string(at("runs.jsonl"))?;
        let parts = row.split_once("\"seed\":0");
        let (before, after) = parts.ok_or_else(|| Trouble::Failed("a row has no seed".into()))?;
        let mut all = BufWriter::new(File::create(at("runs.jsonl"))?);
        for seed in 0..rows {
            write!(all, "{before}\"seed\":{seed}{after}")?;
        }
        all.flush()?;
        Ok(Self { folder, rows })
    }

    /// Goes on with it, or only looks at what it has: the time in milliseconds, and the most
    /// memory, in MiB.
    fn goes_on(&self, only_looks: bool) -> Result<[f64; 2], Trouble> {
        let mut sweep = sweep(self.folder.path(), 0, self.rows)?;
        if only_looks {
            sweep.arg("--check");
        }
        let begun = Instant::now();
        let mut running = Running::start(&mut sweep, (Signal::KILL, Duration::ZERO))?;
        let status = format!("/proc/{}/status", running.child.id());
        let mut most: f64 = 0.0;
        loop {
            let text = fs::read_to_string(&status).unwrap_or_default();
            most = most.max(octets_of(&text, "VmHWM").unwrap_or(0.0));
            if let Some(status) = running.child.try_wait()? {
                let took = begun.elapsed().as_secs_f64() * 1e3;
                return match status.code() {
                    Some(0 | 1) => Ok([took, most / f64::from(1 << 20)]),
                    code => Err(Trouble::Failed(format!("xk sweep ended with {code:?}"))),
                };
            }
            thread::sleep(LOOK);
        }
    }
}

/// The rows on a folder of so many runs: going on with it, its tables, and the memory of both.
fn folder_cases(rows: u64, words: &'static str) -> Vec<Case> {
    let held: Shared<Result<Whole, Trouble>> = Shared::default();
    let case = |what: String, only_looks: bool, figure: usize| {
        let make = move |effort: f64| Whole::new(((rows as f64 * effort) as u64).max(10));
        Case::measured_on(what, &held, make, move |whole: &Whole, _| {
            Ok(whole.goes_on(only_looks)?[figure].into())
        })
    };
    let looked = format!("{words}: read, before the first run");
    let table = format!("{words}: read, and tables made");
    vec![
        case(looked, true, 0).unit("ms"),
        case(table.clone(), false, 0).unit("ms"),
        case(format!("{words}: most memory"), false, 1).unit("MiB"),
    ]
}
