//! Checks and simulates the guide's graph, or another:
//! `cargo run -p xk-guide --example simulate [-- FILE [SEED]]`.

use std::fmt::Write as _;
use std::process::ExitCode;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::control::{ListSessions, Report};
use xk_core::graph::Catalog;
use xk_core::{Kernel, Time};
use xk_guide::Tally;
use xk_sim::HostId;

/// The standard catalog, and the protocol of the guide.
pub(crate) fn catalog() -> Catalog {
    let mut entries = xk_catalog::PROTOCOLS.to_vec();
    entries.retain(|entry| entry.kind != xk_guide::ENTRY.kind);
    entries.push(&xk_guide::ENTRY);
    Catalog::new(&entries).expect("kinds and numbers do not clash")
}

/// Runs the graph until its anchors have finished, and tells what was counted; or what is wrong
/// with it.
pub(crate) fn run(source: &str, file: &str, seed: u64) -> Result<String, String> {
    let graph = check(source, file, &catalog()).map_err(|mistakes| mistakes.to_text())?;
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = simulate(&graph, config).map_err(|mistakes| mistakes.to_text())?;
    start_world(&graph, &mut world).map_err(|mistakes| mistakes.to_text())?;
    world.run_until_finished(Time::from_s(60));

    let mut text = String::new();
    for (name, stats) in world.network().links() {
        let (sent, lost) = (stats.sent, stats.lost);
        let (twice, late) = (stats.duplicated, stats.reordered);
        let line = format!("link {name}: sent {sent}, lost {lost}, twice {twice}, late {late}");
        text += &(line + "\n");
    }
    for at in 0..world.len() {
        let id = HostId(u32::try_from(at).unwrap_or(u32::MAX));
        if let Some(kernel) = world.kernel(id) {
            let _ = writeln!(text, "{}", world.name(id).unwrap_or_default());
            text += &tell(kernel);
        }
    }
    Ok(text)
}

/// Counters of the protocols of one host.
fn tell(kernel: &Kernel) -> String {
    let mut text = String::new();
    for protocol in kernel.protocols() {
        if let Some(report) = protocol.ask(kernel, Report::default()) {
            let figures = report.lines.iter().take(5);
            let figures: Vec<_> = figures.map(|(name, n)| format!("{name} {n}")).collect();
            let _ = writeln!(text, "  {}: {}", protocol.name(), figures.join(", "));
        }
        if protocol.head().kind() == "seq" {
            text += &tallies(kernel, &protocol);
        }
        for (reason, count) in protocol.head().drops().list() {
            let _ = writeln!(text, "  {} dropped {count}: {reason}", protocol.name());
        }
    }
    text
}

fn tallies(kernel: &Kernel, protocol: &xk_core::ProtocolRef) -> String {
    let list = protocol.ask(kernel, ListSessions::first(8)).unwrap_or_default();
    let tallies = list.here().filter_map(|s| s.ask(kernel, Tally::default()));
    tallies.map(|t| format!("  {}: missing {}\n", protocol.name(), t.missing)).collect()
}

#[allow(dead_code, reason = "the tests take this file in as a module")]
fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/seq.kdl").to_owned();
    let file = args.next().unwrap_or(default);
    let seed = args.next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let done = std::fs::read_to_string(&file)
        .map_err(|error| format!("{file}: {error}\n"))
        .and_then(|source| run(&source, &file, seed));
    match done {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(text) => {
            eprint!("{text}");
            ExitCode::FAILURE
        }
    }
}
