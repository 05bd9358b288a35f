//! `xk sim`: a whole graph in virtual time.

use crate::failure::Failure;
use crate::live::Screen;
use crate::simulation::Simulation;
use crate::{file, output};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use xk_core::Time;
use xk_run::interrupt_unsafe;

/// How many events pass between two looks at the progress.
const PROGRESS_EVENTS: u64 = 20_000;

/// Simulate all hosts and links of a graph in virtual time; one seed replays a run to the bit
#[derive(clap::Args)]
#[command(after_help = "The wire of this name: xk help sim")]
pub(crate) struct Args {
    /// Graph file; `-` for the standard input
    file: PathBuf,
    /// All chance comes from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// End at this virtual time, if what the graph asks for is not done before
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = file::duration)]
    until: Duration,
    /// Write what crosses each link to a pcapng file in this folder
    #[arg(long, value_name = "FOLDER")]
    pcap: Option<PathBuf>,
    /// Show counters while it runs, slowed down to real time
    #[arg(long)]
    live: bool,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let graph = file::load(&args.file)?;
    crate::failure::show(graph.warnings());
    let mut simulation = Simulation::new(&graph, args.seed, args.pcap.as_deref())?;
    output::print(&format!(
        "{}: {} hosts, {} protocols, {} links, seed {}\n\n",
        args.file.display(),
        graph.host_count(),
        graph.protocol_count(),
        graph.links().len(),
        args.seed
    ));
    interrupt_unsafe::catch();
    let until = Time::ZERO + args.until;
    let begun = Instant::now();
    if args.live && output::is_terminal() {
        // A second of virtual time takes a second.
        Screen::default().follow(&mut simulation, until, 1.0, Duration::MAX);
    } else {
        run(&mut simulation, until);
    }
    let took = begun.elapsed();
    let files = simulation.finish()?;
    output::print(&simulation.summary());
    for path in files {
        output::print(&format!("wrote {}\n", path.display()));
    }
    output::print(&format!("\nended at {}\n", simulation.world().now()));
    timing(&simulation, took);
    let failures = simulation.failures();
    if failures.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("failed: {}", failures.join(", ")))
        .help(format!("the same run again: --seed {}", args.seed)))
}

/// Runs at full speed, with a bar if a person looks on.
fn run(simulation: &mut Simulation, until: Time) {
    if !std::io::stderr().is_terminal() {
        simulation.run(until);
        return;
    }
    let bar = ProgressBar::new(until.as_ms());
    let template = "{elapsed} [{wide_bar}] {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    let begun = Instant::now();
    let shown = bar.clone();
    simulation.world_mut().on_progress(PROGRESS_EVENTS, move |progress| {
        shown.set_position(progress.now.as_ms());
        let seconds = begun.elapsed().as_secs_f64().max(1e-9);
        let speed = progress.stats.frames as f64 / seconds;
        shown.set_message(format!(
            "{:.2} of virtual time, {} frames, {} a second",
            progress.now,
            output::grouped(progress.stats.frames),
            output::grouped(speed as u64)
        ));
    });
    simulation.run(until);
    bar.finish_and_clear();
}

/// How fast it went; on the standard error, for it differs from run to run.
fn timing(simulation: &Simulation, took: Duration) {
    let progress = simulation.world().progress();
    let seconds = took.as_secs_f64().max(1e-9);
    let virtual_s = progress.now.as_ns() as f64 / 1e9;
    output::error(&format!(
        "{virtual_s:.3} s of virtual time in {seconds:.3} s ({:.1} times as fast), {} frames delivered, {} a second\n",
        virtual_s / seconds,
        output::grouped(progress.stats.frames),
        output::grouped((progress.stats.frames as f64 / seconds) as u64),
    ));
}
