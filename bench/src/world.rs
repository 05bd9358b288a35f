//! A program's own network code in the simulator: one echo in xk-world, in turmoil, and on
//! turmoil-net.

use crate::built::numbers;
use crate::case::{Case, Goal, Sample, Shared, Trouble, shared};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

/// Seeds that are tried at a loss of a twentieth.
const SEEDS: u64 = 20;
/// Longest time of one run.
const RUN_TIME_MAX: Duration = Duration::from_secs(120);
/// Times as fast as turmoil.
const GOAL: Goal = Goal::TimesAsFast(10.0);
/// The peers of all rows: segments over channels, and packets between simulated kernels.
const PEERS: [&str; 2] = ["turmoil", "turmoil-net"];

/// The program of both.
type Program = Shared<Result<PathBuf, Trouble>>;

fn build() -> Result<PathBuf, Trouble> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/world");
    let mut build = Command::new("cargo");
    // What it says is shown: the first time it takes minutes.
    build.args(["build", "--release"]).current_dir(&folder);
    let lacks =
        |what: String| Trouble::Skipped(format!("needs cargo, turmoil, turmoil-net: {what}"));
    eprintln!("xk bench: world: the peers are built in {}", folder.display());
    let ended = build.status().map_err(|error| lacks(error.to_string()))?;
    match ended.success() {
        true => Ok(folder.join("target/release/world-peer")),
        false => Err(lacks(format!("their build {ended}, as is said above"))),
    }
}

/// Whether one run finished, its simulated seconds, and those of this machine.
fn run(program: &Program, words: [&str; 6]) -> Result<[f64; 3], Trouble> {
    let path = shared(program, build)?;
    let found =
        numbers(Command::new(path).args(words), RUN_TIME_MAX).map_err(|trouble| match trouble {
            // Another round would take as long.
            Trouble::Failed(what) if what.contains("did not end") => Trouble::Skipped(what),
            other => other,
        })?;
    found.try_into().map_err(|_| Trouble::Failed("it tells something else".into()))
}

pub(crate) fn cases() -> Vec<Case> {
    let program = Program::default();
    let mut list = Vec::new();
    for system in ["xk"].into_iter().chain(PEERS) {
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
        list.push(finish.of(system).unit("seeds"));
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
            let case = case.of(system);
            list.push(if system == "xk" && clients > 1 {
                let [turmoil, turmoil_net] = PEERS;
                case.beside(turmoil).goal(GOAL).beside(turmoil_net)
            } else {
                case
            });
        }
    }
    list
}
