//! `xk sim`: a whole graph in virtual time.

use crate::failure::Failure;
use crate::live::Screen;
use crate::simulation::Simulation;
use crate::{conversation, file, output};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use xk_compose::CheckedGraph;
use xk_core::Time;
use xk_run::interrupt_unsafe;
use xk_sim::HostId;

/// Events between two looks at the progress.
const PROGRESS_EVENTS: u64 = 20_000;

/// Simulate all hosts and links of a graph in virtual time; one seed replays a run to the bit
#[derive(clap::Args)]
#[command(after_help = "The wire of this name: xk help sim")]
pub(crate) struct Args {
    /// Graph file; `-` for the standard input
    file: PathBuf,
    /// The seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// End at this virtual time, if the applications of the graph have not finished before
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = file::duration)]
    until: Duration,
    /// Set a parameter for this run: LINK.PARAMETER, HOST.NODE.PARAMETER or HOST.count; may be
    /// given several times
    #[arg(long, value_name = "PATH=VALUE", value_parser = file::setting)]
    set: Vec<(String, String)>,
    /// Write the frames of each link to a pcapng file in this folder
    #[arg(long, value_name = "FOLDER")]
    pcap: Option<PathBuf>,
    /// Draw the last messages of conversations of many as an SVG file; `-` for the standard output
    #[arg(long, value_name = "FILE")]
    context: Option<PathBuf>,
    /// Crash a host, or a domain as HOST/DOMAIN, at a virtual time, and start it again AWAY later;
    /// may be given several times. `HOST` crashes with all its domains; `HOST/` is its first one
    #[arg(long, value_name = "NAME@TIME[+AWAY]", value_parser = crash)]
    crash: Vec<Crash>,
    /// Crash domains, or hosts if none has domains, at an average distance of TIME; the seed draws
    /// them, and each starts again within that time
    #[arg(long, value_name = "TIME", value_parser = file::apart)]
    crash_every: Option<Duration>,
    /// Show counters while it runs, slowed down to real time
    #[arg(long)]
    live: bool,
}

/// A crash: what crashes, when, and how long it is away.
#[derive(Clone)]
struct Crash {
    name: String,
    at: Duration,
    away: Option<Duration>,
}

fn crash(text: &str) -> Result<Crash, String> {
    let form = "expected a host or a domain and a time, such as server@2s or server/net@2s+500ms";
    let (name, times) = text.rsplit_once('@').ok_or(form)?;
    let (at, away) = times.split_once('+').map_or((times, None), |(at, away)| (at, Some(away)));
    let away = away.map(file::duration).transpose()?;
    Ok(Crash { name: name.into(), at: file::duration(at)?, away })
}

/// Adds what is to crash by the command line.
fn add_crashes(
    args: &Args,
    graph: &CheckedGraph,
    simulation: &mut Simulation<'_>,
) -> Result<(), Failure> {
    let faults = simulation.faults_mut();
    if let Some(apart) = args.crash_every {
        faults.crash_every(graph, args.seed, apart);
    }
    for Crash { name, at, away } in &args.crash {
        if !faults.crash(graph, name, Time::ZERO + *at, *away) {
            return Err(Failure::new(format!("--crash: no host or domain `{name}` in the graph"))
                .help(format!("`xk draw {}` shows what there is", args.file.display())));
        }
    }
    Ok(())
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let graph = file::load_with(&args.file, |_, source| file::set(source, &args.set))?;
    crate::failure::show(graph.warnings());
    let mut simulation = Simulation::new(&graph, args.seed, args.pcap.as_deref())?;
    add_crashes(args, &graph, &mut simulation)?;
    output::print(&format!(
        "{}: {}, {}, {}, seed {}\n\n",
        args.file.display(),
        output::counted(graph.host_count(), "host"),
        output::counted(graph.protocol_count(), "protocol"),
        output::counted(graph.links().len(), "link"),
        args.seed
    ));
    interrupt_unsafe::catch();
    let until = Time::ZERO + args.until;
    let begun = Instant::now();
    if args.live && output::is_terminal() {
        // A second of virtual time takes a second.
        Screen::default().follow(&mut simulation, until, 1.0, Duration::MAX)?;
    } else {
        run(&mut simulation, until)?;
    }
    let took = begun.elapsed();
    let world = simulation.world();
    let hosts = (0..world.len()).filter_map(|at| world.kernel(HostId(u32::try_from(at).ok()?)));
    let conversations: Vec<Value> = match args.context {
        Some(_) => hosts.flat_map(|kernel| conversation::of_kernel(kernel)).collect(),
        None => Vec::new(),
    };
    let files = simulation.finish()?;
    output::print(&simulation.summary());
    if let Some(path) = &args.context {
        conversation::draw(&conversations, path)?;
    }
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
fn run(simulation: &mut Simulation<'_>, until: Time) -> Result<(), Failure> {
    if !std::io::stderr().is_terminal() {
        return simulation.run(until).map(|_| ());
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
    let ended = simulation.run(until);
    bar.finish_and_clear();
    ended.map(|_| ())
}

/// Prints the speed of the run; on the standard error, for it differs from run to run.
fn timing(simulation: &Simulation<'_>, took: Duration) {
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
