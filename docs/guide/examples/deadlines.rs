//! Simulates the graph of chapter 10 with the layer `deadline` and without:
//! `cargo run -p xk-guide --example deadlines [-- SEED]`.

use std::fmt::Write as _;
use std::process::ExitCode;
use xk_compose::{SimulationConfig, check, simulate, start_world};
use xk_core::Time;
use xk_core::control::Report;
use xk_lang::Diagnostics;
use xk_sim::World;

/// Outcome of the calls of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// Replies to the caller whose calls go far.
    pub(crate) far: u64,
    /// Replies to the caller whose calls go no further.
    pub(crate) near: u64,
    /// Requests that bob refused as too busy.
    pub(crate) busy: u64,
    /// Largest number of requests that bob executed at one time.
    pub(crate) executing_most: u64,
    /// Calls of the second kind that bob executed.
    pub(crate) executed: u64,
}

/// The graph without the layer: what stood on it stands on `select`.
pub(crate) fn without(source: &str) -> String {
    let others = source.lines().filter(|line| !line.trim_start().starts_with("deadline "));
    let text: String = others.map(|line| format!("{line}\n")).collect();
    text.replace(" deadline ", " select ").replace(" deadline\n", " select\n")
}

/// Runs a graph until its callers have finished, or says what is wrong with it.
pub(crate) fn run(source: &str, seed: u64) -> Result<Outcome, String> {
    let wrong = |mistakes: Box<Diagnostics>| mistakes.to_text();
    let graph = check(source, "rpc-deadline.kdl", &xk_catalog::standard()).map_err(wrong)?;
    let config = SimulationConfig { seed, ..SimulationConfig::default() };
    let mut world = simulate(&graph, config).map_err(wrong)?;
    start_world(&graph, &mut world).map_err(wrong)?;
    world.run_until_finished(Time::from_s(60));
    let outcome = Outcome {
        far: figure(&world, "alice", "far", "replies"),
        near: figure(&world, "alice", "near", "replies"),
        busy: figure(&world, "bob", "procedures", "refused: server busy"),
        executing_most: figure(&world, "bob", "procedures", "executing at most"),
        executed: figure(&world, "bob", "procedures", "echo"),
    };
    world.stop();
    Ok(outcome)
}

/// The figure of this name in a protocol's report.
fn figure(world: &World, host: &str, protocol: &str, name: &str) -> u64 {
    let found = || {
        let kernel = world.kernel(world.find(host)?)?;
        let report = kernel.find_protocol(protocol)?.ask(kernel, Report::default())?;
        let line = report.lines.into_iter().find(|(line, _)| line == name)?;
        line.1.parse().ok()
    };
    found().unwrap_or(0)
}

/// Both runs.
pub(crate) fn tell(source: &str, seed: u64) -> Result<String, String> {
    let mut text = String::new();
    for (what, source) in [("with", source.to_owned()), ("without", without(source))] {
        let Outcome { far, near, busy, executing_most, executed } = run(&source, seed)?;
        let _ = writeln!(
            text,
            "seed {seed}, {what} the layer\n  \
             alice: {far} of 100 replies from afar, {near} of 200 from bob\n  \
             bob: {executing_most} at one time, too busy {busy} times, {executed} of those 200 executed"
        );
    }
    Ok(text)
}

#[allow(dead_code, reason = "the tests take this file in as a module")]
fn main() -> ExitCode {
    let seed = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    let source = include_str!("../../../graphs/rpc-deadline.kdl");
    match tell(source, seed) {
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
