//! A program's own network code in the simulator: one echo in xk-world, and in turmoil.

use crate::built::numbers;
use crate::case::{Benchmark, Case, Goal, Sample, Shared, Trouble, shared};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

/// Seeds that are tried at a loss of a twentieth.
const SEEDS: u64 = 20;
/// How long one run may take.
const PATIENCE: Duration = Duration::from_secs(900);
/// Times as fast as turmoil.
const GOAL: Goal = Goal::TimesAsFast(10.0);
/// The peer of all rows.
const TURMOIL: &str = "turmoil";

pub(crate) fn benchmark() -> Benchmark {
    Benchmark::new(
        "world",
        "programs in the simulator: clients of one server send messages of 1000 octets that come back; time of this machine \
         for a simulated second, and seeds that finish within a minute at a loss of 5 %",
        "ms",
        cases,
    )
    .why(include_str!("why/world.md"))
}

/// The program of both.
type Program = Shared<Result<PathBuf, Trouble>>;

fn build() -> Result<PathBuf, Trouble> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/world");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "-q"]).current_dir(&folder);
    let lacks = |what: String| Trouble::Skipped(format!("needs cargo and turmoil: {what}"));
    let output = build.output().map_err(|error| lacks(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(lacks(said.lines().next().unwrap_or_default().to_owned()));
    }
    Ok(folder.join("target/release/world-peer"))
}

/// Whether one run finished, its simulated seconds, and those of this machine.
fn run(program: &Program, words: [&str; 6]) -> Result<[f64; 3], Trouble> {
    let path = shared(program, build)?;
    let found = numbers(Command::new(path).args(words), PATIENCE)?;
    found.try_into().map_err(|_| Trouble::Failed("it tells something else".into()))
}

fn cases() -> Vec<Case> {
    let program = Program::default();
    let mut list = Vec::new();
    for (system, name) in [("xk", "xk"), ("turmoil", TURMOIL)] {
        let own = Rc::clone(&program);
        let row = format!("echo of 100 messages, {SEEDS} seeds, loss 5 %: seeds that finish");
        let finish = Case::measured(row, move |effort| {
            let seeds = ((SEEDS as f64 * effort) as u64).max(1);
            let mut finished = 0.0;
            for seed in 0..seeds {
                finished += run(&own, [system, "1", "0.05", "100", &seed.to_string(), "60"])?[0];
            }
            Ok((finished * SEEDS as f64 / seeds as f64).into())
        });
        list.push(finish.of(name).unit("seeds"));
        for (clients, messages) in [(1, 100), (99, 100), (999, 20)] {
            let own = Rc::clone(&program);
            let row = format!("{clients} clients of one server, no loss: a simulated second");
            let case = Case::measured(row, move |effort| {
                let clients = ((f64::from(clients) * effort) as u32).max(1).to_string();
                let words = [system, &clients, "0", &messages.to_string(), "1", "600"];
                let [finished, simulated, took] = run(&own, words)?;
                if finished < 1.0 {
                    return Err(Trouble::Failed("not all clients finished".into()));
                }
                let also = vec![("simulated s", simulated), ("took s", took)];
                Ok(Sample { value: took / simulated * 1e3, also, ..Sample::default() })
            });
            let case = case.of(name);
            list.push(if system == "xk" && clients > 1 {
                case.beside(TURMOIL).goal(GOAL)
            } else {
                case
            });
        }
    }
    list
}
