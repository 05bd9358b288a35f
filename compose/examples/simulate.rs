//! Simulates a graph file until all its probes have finished, and prints what they report.
//!
//! `cargo run --example simulate -- FILE [SEED]`

use std::process::ExitCode;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprint!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("name a graph file\n")?;
    let seed = arguments.next().map_or(Ok(1), |seed| seed.parse())?;
    let source = std::fs::read_to_string(&file)?;
    let graph = check(&source, &file, &xk_catalog::Catalog::standard())?;
    print!("{}", graph.warnings());
    let clock = std::time::Instant::now();
    let config = SimulationConfig {
        seed,
        ..SimulationConfig::default()
    };
    let mut world = simulate(&graph, config)?;
    start_world(&graph, &mut world)?;
    eprintln!("{} hosts set up in {:?}", world.len(), clock.elapsed());
    let ended = world.run_until_finished(Time::ZERO + std::time::Duration::from_secs(60));
    eprintln!("{ended:?} at {:?} after {:?}", world.now(), clock.elapsed());
    for host in graph.graph().expand().iter().take(20) {
        let Some(kernel) = world.find(&host.name).and_then(|id| world.kernel(id)) else {
            continue;
        };
        for protocol in kernel.protocols() {
            let drops: Vec<String> = (protocol.head().drops().list().iter())
                .map(|(reason, count)| format!("{reason}: {count}"))
                .collect();
            if !drops.is_empty() {
                println!(
                    "{} {} dropped {}",
                    host.name,
                    protocol.name(),
                    drops.join(", ")
                );
            }
            if let Some(report) = report_of(&protocol, kernel) {
                println!("{} {}: {report}", host.name, protocol.name());
            }
        }
    }
    for (name, stats) in world.network().links() {
        println!("{name}: {stats:?}");
    }
    Ok(())
}

/// The report of an upper end; others would pass the question on.
fn report_of(protocol: &xk_core::ProtocolRef, kernel: &xk_core::Kernel) -> Option<String> {
    let top = xk_catalog::find(protocol.head().kind())?.realm == xk_core::graph::Realm::Top;
    let report = protocol.ask(kernel, Report::default()).filter(|_| top)?;
    let lines: Vec<String> = (report.lines.iter())
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let end = match (report.finished, report.failed) {
        (_, true) => "failed",
        (true, false) => "done",
        (false, false) => "not finished",
    };
    Some(format!("{end}; {}", lines.join(", ")))
}
