//! `xk sweep`: a graph simulated for many seeds and many parameters, by a pool of processes.

mod plan;
mod programs;
mod runs;
mod shrink;
pub(crate) mod worker;

use crate::failure::Failure;
use crate::{file, output};
use std::path::PathBuf;
use std::time::Duration;
use xk_sweep::plot::{self, Plot, PlotError};
use xk_sweep::{Axis, Folder, FolderError, Header, table};

/// The exit code if a budget ran out in some runs and none failed.
const EXHAUSTED: u8 = 3;

/// Simulate a graph for many seeds and parameters, and write a table of the results
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Exit codes: 0 all runs are clean, 1 one failed, 3 none failed and a budget ran out, 130 interrupted.
The same command goes on where it was killed. docs/sweeps.md has examples.")]
pub(crate) struct Args {
    #[command(subcommand)]
    other: Option<Other>,
    /// Graph file, which may have `sweep` and `faults` in it, or a file with these that names one
    #[arg(required = true)]
    file: Option<PathBuf>,
    #[command(flatten)]
    run: RunArgs,
}

/// The parts of a sweep; the file's `sweep` says those that are not given.
#[derive(clap::Args)]
struct RunArgs {
    /// Seeds: 0..1000 without the end, 0..=999 with it, or one [default: the file's, or 0..100]
    #[arg(long, value_name = "RANGE", value_parser = xk_sweep::parse_seeds)]
    seeds: Option<(u64, u64)>,
    /// A parameter and its values: LINK.PARAMETER, HOST.NODE.PARAMETER or HOST.count; every
    /// combination of the values is run
    #[arg(long, value_name = "PATH=VALUE,...", value_parser = Axis::parse)]
    set: Vec<Axis>,
    /// End a run at this virtual time, if the applications of the graph have not finished before;
    /// that counts as exhausted [default: the file's, or 60s]
    #[arg(long, value_name = "TIME", value_parser = file::duration)]
    until: Option<Duration>,
    /// Crash domains, or hosts if none has domains, at an average distance of TIME; the seed draws
    /// them
    #[arg(long, value_name = "TIME", value_parser = file::apart)]
    crash_every: Option<Duration>,
    /// Processes [default: as many as processors]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// End a run after this real time; that counts as exhausted
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = file::duration)]
    limit: Duration,
    /// Go on after a failure, and collect all
    #[arg(long)]
    keep_going: bool,
    /// Folder of the rows and tables [default: the file's name with .sweep]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Check the plan and the folder, which is made if it is missing, and run nothing
    #[arg(long)]
    check: bool,
}

#[derive(clap::Subcommand)]
enum Other {
    /// Make a failing run small: fewer hosts, programs, faults and less time, the same failure
    Shrink(shrink::Args),
    /// Draw a figure of all runs over a parameter, as SVG
    Plot(PlotArgs),
    /// Make one table of the rows of several folders
    Merge(MergeArgs),
}

#[derive(clap::Args)]
struct PlotArgs {
    /// Folder of the sweep
    folder: PathBuf,
    /// The parameter or figure of the horizontal axis: lan.loss, client.count
    #[arg(long)]
    x: String,
    /// The figure of the vertical axis: client.rtt_p50, lan.lost
    #[arg(long)]
    y: String,
    /// A parameter with a line for each of its values
    #[arg(long)]
    by: Option<String>,
    /// The file [default: plot.svg in the folder]
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(clap::Args)]
struct MergeArgs {
    /// Folders of the parts
    #[arg(required = true)]
    folders: Vec<PathBuf>,
    /// Folder of the whole
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    match (&args.other, &args.file) {
        (Some(Other::Shrink(args)), _) => shrink::main(args),
        (Some(Other::Plot(args)), _) => draw(args),
        (Some(Other::Merge(args)), _) => merge(args),
        (None, Some(file)) => runs::main(file, &args.run),
        (None, None) => Err(Failure::usage("no graph file is named")),
    }
}

/// Says why a folder cannot be used, and the remedy.
fn failed(error: FolderError) -> Failure {
    Failure::new(error.to_string()).help(error.help())
}

fn draw(args: &PlotArgs) -> Result<(), Failure> {
    let folder = Folder::existing(&args.folder).map_err(failed)?;
    let plot = Plot { x: args.x.clone(), y: args.y.clone(), by: args.by.clone() };
    let svg = plot::svg(&folder, &plot).map_err(|error| match error {
        PlotError::Folder(error) => failed(error),
        error => Failure::usage(error.to_string()),
    })?;
    let path = args.svg.clone().unwrap_or_else(|| args.folder.join("plot.svg"));
    let written = std::fs::write(&path, svg);
    written.map_err(|error| {
        Failure::file("cannot write", &path, error).help("name another file by --svg")
    })?;
    output::print(&format!("wrote {}\n", path.display()));
    Ok(())
}

/// Makes one folder of several parts of one sweep, whatever they ran on. One part is open at a
/// time: there may be more than a process has files.
fn merge(args: &MergeArgs) -> Result<(), Failure> {
    let headers = args.folders.iter().map(|path| Header::read(path));
    let headers = headers.collect::<Result<Vec<Header>, _>>().map_err(failed)?;
    let first = headers.iter().map(|header| header.plan.seeds.0).min().unwrap_or(0);
    let last = headers.iter().map(|header| header.plan.seeds.1).max().unwrap_or(0);
    let Some(mut header) = headers.first().cloned() else { return Ok(()) };
    header.plan.seeds = (first, last);
    for (path, other) in args.folders.iter().zip(&headers) {
        header.agrees(other, path).map_err(failed)?;
    }
    let mut whole = Folder::open(&args.out, header).map_err(failed)?;
    let canonical = |path: &PathBuf| std::fs::canonicalize(path).ok();
    for path in &args.folders {
        // It may be added to.
        if canonical(path) == canonical(&args.out) {
            continue;
        }
        let part = Folder::existing(path).map_err(failed)?;
        for row in part.rows() {
            row.and_then(|row| whole.add(&row)).map_err(failed)?;
        }
    }
    whole.sync().map_err(failed)?;
    let (runs, ended) = (whole.header().plan.runs(), whole.len() as u64);
    runs::tell(&whole)?;
    if ended < runs {
        return Err(Failure::coded(
            format!("{} of {runs} runs have no row", output::grouped(runs - ended)),
            EXHAUSTED,
        )
        .help("a part has not ended, or one was left out"));
    }
    Ok(())
}

/// Writes the tables.
fn write_tables(folder: &Folder) -> Result<table::Summary, Failure> {
    table::write(folder).map_err(|error| {
        Failure::new(error.to_string()).help(
            "all rows are complete: remove the cause and repeat the command to make the tables",
        )
    })
}
