//! `xk-fuzz`: see the crate's documentation.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use xk_fuzz::runner::{self, Budget};
use xk_fuzz::{Target, coverage, seeds, target, targets};

const USAGE: &str = "usage: xk-fuzz list
       xk-fuzz smoke [--seconds N] [--target NAME] [--seed N] [--keep yes]
       xk-fuzz replay NAME FILE...
       xk-fuzz seeds";

fn main() -> ExitCode {
    if cfg!(panic = "abort") {
        eprintln!("built with panic=abort, a panic cannot be caught; use the dev or demo profile");
        return ExitCode::from(2);
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["list"] => {
            for target in targets() {
                println!("{:<14} {}", target.name, target.about);
            }
            Ok(true)
        }
        ["smoke", options @ ..] => Smoke::parse(options).and_then(Smoke::run),
        ["replay", name, files @ ..] if !files.is_empty() => replay(name, files),
        ["seeds"] => seeds::write().map_err(|e| e.to_string()).map(|(files, octets)| {
            println!("{files} seeds, {octets} octets");
            true
        }),
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::from(2)
        }
    }
}

fn find(name: &str) -> Result<Target, String> {
    target(name).ok_or_else(|| format!("`{name}` is no target; `xk-fuzz list` names them"))
}

struct Smoke {
    seconds: u64,
    seed: u64,
    targets: Vec<Target>,
    /// Whether what reaches something new goes to the corpus.
    keep: bool,
}

impl Smoke {
    fn parse(options: &[&str]) -> Result<Self, String> {
        let mut smoke = Self { seconds: 5, seed: 1, targets: Vec::new(), keep: false };
        for pair in options.chunks(2) {
            let &[option, value] = pair else {
                return Err(USAGE.into());
            };
            let number = || value.parse().map_err(|_| format!("`{value}` is no number"));
            match option {
                "--seconds" => smoke.seconds = number()?,
                "--seed" => smoke.seed = number()?,
                "--keep" if value == "yes" && coverage::is_on() => smoke.keep = true,
                "--keep" => return Err("nothing counts edges here: cargo xtask fuzz".into()),
                "--target" => smoke.targets.push(find(value)?),
                _ => return Err(USAGE.into()),
            }
        }
        if smoke.targets.is_empty() {
            smoke.targets = targets().to_vec();
        }
        Ok(smoke)
    }

    /// Runs the targets, as many at a time as there are cores; whether all passed.
    fn run(self) -> Result<bool, String> {
        println!("{} targets, {} s each, seed {}", self.targets.len(), self.seconds, self.seed);
        let start = Instant::now();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut failed = 0;
            while let Some(target) = self.targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                failed += usize::from(!self.run_one(*target)?);
            }
            Ok(failed)
        };
        let cores = match coverage::is_on() {
            true => 1,
            false => thread::available_parallelism().map_or(1, NonZeroUsize::get),
        };
        let failed: Result<usize, String> = thread::scope(|scope| {
            let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
            let ends = workers.into_iter().map(|worker| match worker.join() {
                Ok(end) => end,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ends.sum()
        });
        let failed = failed?;
        let passed = self.targets.len() - failed;
        println!("{}", runner::closing_line(passed, failed, start.elapsed()));
        Ok(failed == 0)
    }

    fn run_one(&self, target: Target) -> Result<bool, String> {
        let start = Instant::now();
        let corpus = runner::corpus(target.name).map_err(|e| e.to_string())?;
        let corpus: Vec<Vec<u8>> = corpus.into_iter().map(|(_, octets)| octets).collect();
        let budget = Budget::Time(Duration::from_secs(self.seconds));
        let outcome = runner::fuzz(target, &corpus, budget, self.seed);
        let per_second = outcome.runs as f64 / start.elapsed().as_secs_f64().max(0.001);
        println!(
            "{:<14} {:>9} inputs, {:>7.0} per second, {} seeds, {} kept",
            target.name,
            outcome.runs,
            per_second,
            corpus.len(),
            outcome.kept.len()
        );
        if coverage::is_on() {
            let (all, first) = outcome.edges;
            println!("    {all} edges, {first} of them by the corpus");
        }
        if self.keep {
            let found = runner::distil(
                target,
                &corpus,
                outcome.kept.get(corpus.len()..).unwrap_or_default(),
            );
            for input in &found {
                runner::keep(target, input).map_err(|e| e.to_string())?;
            }
            let octets: usize = found.iter().map(Vec::len).sum();
            println!("    {} inputs of {octets} octets to the corpus", found.len());
        }
        let Some((input, failure)) = outcome.failed else {
            return Ok(true);
        };
        println!("{}: FAILED: {}", target.name, failure.what);
        let path = runner::save(target.name, &input).map_err(|e| e.to_string())?;
        println!("    {} octets: {}", input.len(), input.escape_ascii());
        println!("    replay: {}", runner::command(target.name, &path));
        Ok(false)
    }
}

/// Runs a target on files; whether all passed.
fn replay(name: &str, files: &[&str]) -> Result<bool, String> {
    let target = find(name)?;
    let start = Instant::now();
    let mut failed = 0;
    for file in files {
        let octets = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
        match runner::run_one(target, &octets) {
            Ok(()) => println!("{file}: ok"),
            Err(failure) => {
                failed += 1;
                println!("{file}: FAILED: {}", failure.what);
            }
        }
    }
    let passed = files.len() - failed;
    println!("{}", runner::closing_line(passed, failed, start.elapsed()));
    Ok(failed == 0)
}
