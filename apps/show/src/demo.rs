//! `xk demo`: a small internet, simulated, in a few seconds.

use crate::failure::Failure;
use crate::live::Screen;
use crate::output::{self, heading};
use crate::simulation::Simulation;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use xk_core::graph::Catalog;
use xk_core::{Entry, Time};

/// The graph that is shown.
pub const GRAPH: &str = include_str!("../../../graphs/internet.kdl");
/// The protocols and wires that the graph names.
pub static PROTOCOLS: &[&Entry] = &[
    &xk_sim::ENTRY,
    &xk_eth::ENTRY,
    &xk_arp::ENTRY,
    &xk_ip::ENTRY,
    &xk_icmp::ENTRY,
    &xk_udp::ENTRY,
    &xk_echo::ENTRY,
    &xk_probe::ENTRY,
];
/// Longest virtual time of the run.
const UNTIL: Time = Time::from_s(60);
/// Seconds of real time for a second of virtual time on a terminal.
const SLOWER: f64 = 2.0;
/// Real time for which a terminal shows the run so slowly; then it goes at full speed.
const SHOWN_FOR: Duration = Duration::from_secs(9);
/// Number of names for a new folder that are tried.
const FOLDERS_MAX: u32 = 1000;

/// See it work: two local networks, a router, five per cent of the frames lost; needs no privilege
/// and no device
#[derive(clap::Args)]
pub struct Args {
    /// Folder for the drawing and the captures; by default a new one among the temporary files
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// The seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// At full speed, without slowing down for people
    #[arg(long)]
    fast: bool,
}

/// Runs the demonstration with the protocols of `catalog`, which may have more than the graph
/// names.
///
/// # Errors
/// A file that cannot be written, or an application that failed.
pub fn main(args: &Args, catalog: &Catalog) -> Result<(), Failure> {
    let graph = xk_compose::check(GRAPH, "internet.kdl", catalog)?;
    let folder = folder(args.out.as_deref())?;
    let drawing = xk_compose::draw_text(&graph, None, output::width());
    output::print(&format!("{}\n\n{drawing}\n", heading("the graph, graphs/internet.kdl")));
    output::print(
        "alice pings dave through the router; bob sends datagrams of 8 KiB, each in six fragments, to carol, who sends them \
         back.\nOf all frames 5 % are lost on each link, so some messages must be missing, and none may be damaged.\n\n",
    );
    let mut simulation = Simulation::new(&graph, args.seed, Some(&folder))?;
    let begun = Instant::now();
    if output::is_terminal() && !args.fast {
        Screen::default().follow(&mut simulation, UNTIL, 1.0 / SLOWER, SHOWN_FOR)?;
    } else {
        simulation.run(UNTIL)?;
        output::print(&format!("{}\n{}", heading("hosts"), simulation.live()));
    }
    let took = begun.elapsed();
    let captures = simulation.finish()?;
    output::print(&format!("\n{}", simulation.summary()));
    let svg = folder.join("internet.svg");
    std::fs::write(&svg, xk_compose::draw_svg(&graph, None))
        .map_err(|error| Failure::file("cannot write", &svg, error))?;
    output::print(&format!("\n{}\n", heading("look at")));
    output::print(&format!("{}  (the graph, for a browser)\n", svg.display()));
    for path in captures {
        output::print(&format!("{}  (every frame, for Wireshark)\n", path.display()));
    }
    output::error(&format!(
        "\n{} of virtual time in {:.2} s, seed {}\n",
        simulation.world().now(),
        took.as_secs_f64(),
        args.seed
    ));
    verify(&simulation)
}

/// Checks that all applications have finished, and no message came back damaged.
fn verify(simulation: &Simulation<'_>) -> Result<(), Failure> {
    let failures = simulation.failures();
    if !failures.is_empty() {
        return Err(Failure::new(format!("failed: {}", failures.join(", "))));
    }
    let open = simulation.open();
    if !open.is_empty() {
        return Err(Failure::new(format!("not finished: {}", open.join(", "))));
    }
    output::print(
        "\nEverything that came back was unharmed. Next: cargo xtask install; then xk help, xk protocols, xk check FILE\n",
    );
    Ok(())
}

/// The folder asked for, or a new one of this user's own.
fn folder(wanted: Option<&Path>) -> Result<PathBuf, Failure> {
    use std::os::unix::fs::DirBuilderExt;
    let failed = |path: &Path, error| Failure::file("cannot make the folder", path, error);
    if let Some(path) = wanted {
        std::fs::create_dir_all(path).map_err(|error| failed(path, error))?;
        return Ok(path.to_owned());
    }
    let mut maker = std::fs::DirBuilder::new();
    maker.mode(0o700);
    let base = std::env::temp_dir();
    for number in 0..FOLDERS_MAX {
        let path = base.join(format!("xk-demo-{}-{number}", std::process::id()));
        match maker.create(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(&path, error)),
        }
    }
    Err(Failure::new(format!("too many folders in {}", base.display())).help("name one by --out"))
}
