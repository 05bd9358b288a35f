//! `cargo xtask`: the repository's own commands.
//!
//! They need nothing but cargo, so that the same line works on a developer's machine and in
//! `.ci/run`.

mod changed;
mod fuzz;
mod install;
mod leftovers;
mod lines;
mod netatalk;
mod new_protocol;
mod process;
mod python;
mod report;
mod scan;
mod setup;
mod steps;
mod tidy;
mod workspace;
mod world;

use std::io;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask COMMAND

  test [--keep-going] [--only STEP]...   everything that must pass before a merge, step by step
                                         (--list names the steps; with --long tests by chance have a
                                         hundred times as many seeds, which takes hours)
  test --changed [REV]                   what a change touches: tidy, format, clippy and tests of the crates
                                         that differ from REV (or from where this left main), and of those
                                         that depend on them directly
  tidy                                   the repository's own rules: layers, unsafe, manuals, words, budgets
  lines [--lower]                        how many lines each part has, and may have (xtask/lines.txt); --lower takes
        [--raise PART REASON]            budgets down to what is there, --raise one up
  words                                  lowers the counts of doc comments in xtask/words.txt
  quote                                  fills tables that quote figures from docs/benchmarks.md
  fuzz [--seconds N] [--target NAME]     the fuzz targets, guided by coverage; with `--keep yes` what
       [--seed N] [--keep yes]           reaches something new goes to the corpus
  setup                                  the Debian packages that the peer tests need; installs them as root
  install [--prefix FOLDER]              the command, the library of `xk exec`, manual pages and completions;
                                         below /usr/local for root, else ~/.local
  uninstall [--prefix FOLDER]            removes what was installed there
  new-protocol NAME [--calls | --many]   a new protocol, listed in the catalog: a copy of the guide's;
                                         with --calls a layer of the rpc realm, of protocols/deadline;
                                         with --many one with several peers, of protocols/fanout
  help                                   this text";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

/// Runs the command that `words` name; whether it found everything in order.
fn dispatch(words: &[&str]) -> io::Result<bool> {
    let root = workspace::root();
    match words {
        ["test", options @ ..] => steps::run(&root, options),
        ["fuzz", options @ ..] => fuzz::run(&root, options),
        ["tidy"] => tidy::run(&root),
        ["lines", options @ ..] => lines::run(&root, options),
        ["quote"] => tidy::quotes::run(&root),
        ["words"] => tidy::words::run(&root),
        ["setup"] => setup::run(&workspace::target_dir(&root)),
        ["install"] => install::run(&root, None),
        ["install", "--prefix", prefix] => install::run(&root, Some(prefix)),
        ["uninstall"] => install::remove(None),
        ["uninstall", "--prefix", prefix] => install::remove(Some(prefix)),
        ["new-protocol", name] => new(&root, &new_protocol::MESSAGES, name),
        ["new-protocol", name, "--calls"] | ["new-protocol", "--calls", name] => {
            new(&root, &new_protocol::CALLS, name)
        }
        ["new-protocol", name, "--many"] | ["new-protocol", "--many", name] => {
            new(&root, &new_protocol::MANY, name)
        }
        ["help" | "--help" | "-h"] | [] => {
            println!("{USAGE}");
            Ok(true)
        }
        _ => Err(io::Error::other(format!("`{}` is no command\n\n{USAGE}", words.join(" ")))),
    }
}

fn new(root: &Path, model: &new_protocol::Model, name: &str) -> io::Result<bool> {
    println!("{}", new_protocol::create(root, model, name)?);
    Ok(true)
}
