//! `cargo xtask test`: everything that must pass before a merge, in the order in which it fails
//! soonest.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::report::{Counts, Outcome, Row, summary};
use crate::world::World;
use crate::{changed, leftovers, new_protocol, process, setup, tidy, workspace};

/// The crate whose tests meet Linux and its tools.
const PEERS: &str = "xk-peers";

/// Time that every fuzz target runs.
const SMOKE_SECONDS: &str = "3";

/// Tests of thousands of random operations or octets: minutes each under Miri, and the ordinary run
/// has them.
const MIRI_SKIPS: &[&str] =
    &["agree", "does_what_a_vector_does", "sleeping_until", "long_contents", "heap_arena_conforms"];

/// The borrows that Miri keeps of what lives long are swept often: without that a kernel of some
/// hundred sessions takes it minutes.
const MIRI_FLAGS: &str = "-Zmiri-disable-isolation -Zmiri-provenance-gc=500";

/// Seconds after which Miri is stopped; far more than it takes on two cores.
const MIRI_S_MAX: &str = "420";

/// One step: its name, what it is for, and what it does.
struct Step {
    name: &'static str,
    about: &'static str,
    run: fn(&World) -> io::Result<Outcome>,
}

impl Step {
    const fn new(
        name: &'static str,
        about: &'static str,
        run: fn(&World) -> io::Result<Outcome>,
    ) -> Self {
        Self { name, about, run }
    }
}

const STEPS: &[Step] = &[
    Step::new("setup", "the programs that the peer tests talk to", step_setup),
    Step::new("tidy", "the repository's own rules", step_tidy),
    Step::new("format", "rustfmt", step_format),
    Step::new("clippy", "no warning in any target", step_clippy),
    Step::new("deny", "licences, sources and advisories of the dependencies", step_deny),
    Step::new("advisories", "known vulnerabilities of the dependencies", step_advisories),
    Step::new("docs", "no warning in the documentation", step_docs),
    Step::new("tests", "every crate's tests", step_tests),
    Step::new("fuzz", "each fuzz target for a few seconds", step_fuzz),
    Step::new("miri", "core's messages, maps, events and objects under Miri", step_miri),
    Step::new("peers", "programs that none of us wrote, in network namespaces", step_peers),
    Step::new("new-protocol", "a new protocol of each realm builds and passes", step_new_protocol),
    Step::new("leftovers", "no namespace, device or process is left", step_leftovers),
];

/// The steps that look at what a change touches.
const QUICK: &[&str] = &["tidy", "format", "clippy", "tests"];

/// Runs the steps that `options` choose; whether none failed.
pub(crate) fn run(root: &Path, options: &[&str]) -> io::Result<bool> {
    let Some(options) = Options::parse(options)? else {
        for step in STEPS {
            println!("{:<14} {}", step.name, step.about);
        }
        return Ok(true);
    };
    let mut world = World::look(root)?;
    world.is_long = options.is_long;
    if let Some(revision) = &options.changed {
        world.limit(revision.as_deref())?;
    }
    let chosen: Vec<&Step> = STEPS.iter().filter(|step| options.wants(step.name)).collect();
    let mut rows = Vec::new();
    let mut stopped = false;
    for (index, step) in chosen.iter().enumerate() {
        // Whatever failed: what it left behind is looked for.
        if stopped && step.name != "leftovers" {
            rows.push(Row { step: step.name, outcome: Outcome::NotReached, took: Duration::ZERO });
            continue;
        }
        println!("step {}/{} {}: {}", index + 1, chosen.len(), step.name, step.about);
        let start = Instant::now();
        let outcome = (step.run)(&world)
            .unwrap_or_else(|e| Outcome::Failed(Counts::default(), e.to_string()));
        let took = start.elapsed();
        println!(
            "step {}/{} {}: {} in {:.1} s\n",
            index + 1,
            chosen.len(),
            step.name,
            word(&outcome),
            took.as_secs_f64()
        );
        stopped |= matches!(outcome, Outcome::Failed(..)) && !options.keep_going;
        rows.push(Row { step: step.name, outcome, took });
    }
    print!("{}", summary(&rows));
    Ok(!rows.iter().any(|row| matches!(row.outcome, Outcome::Failed(..))))
}

fn word(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Passed(_) => "ok".into(),
        Outcome::Failed(_, why) => format!("FAILED ({why})"),
        Outcome::Skipped(why) => format!("skipped: {why}"),
        Outcome::NotReached => "not run".into(),
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    keep_going: bool,
    is_long: bool,
    only: Vec<String>,
    /// Against which revision, if one was named.
    changed: Option<Option<String>>,
}

impl Options {
    /// `None` asks for the list of steps.
    fn parse(words: &[&str]) -> io::Result<Option<Self>> {
        let mut options = Self::default();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            match *word {
                "--list" => return Ok(None),
                "--keep-going" => options.keep_going = true,
                "--long" => options.is_long = true,
                "--changed" => {
                    let revision = words.next_if(|word| !word.starts_with("--"));
                    options.changed = Some(revision.map(|word| (*word).to_owned()));
                }
                "--only" => {
                    let name = words.next().copied().unwrap_or_default();
                    if !STEPS.iter().any(|step| step.name == name) {
                        return Err(io::Error::other(format!(
                            "`{name}` is no step; --list names them"
                        )));
                    }
                    options.only.push(name.to_owned());
                }
                other => {
                    return Err(io::Error::other(format!("`{other}` is no option of `test`")));
                }
            }
        }
        Ok(Some(options))
    }

    fn wants(&self, step: &str) -> bool {
        let is_quick = self.changed.is_none() || QUICK.contains(&step);
        is_quick && (self.only.is_empty() || self.only.iter().any(|name| name == step))
    }
}

fn verdict(good: bool, why: &str) -> Outcome {
    if good {
        Outcome::Passed(Counts::default())
    } else {
        Outcome::Failed(Counts::default(), why.into())
    }
}

/// A run that finds no test is not green: a filter or a name has gone stale.
fn with_tests(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Passed(counts) if counts.passed == 0 => {
            Outcome::Failed(counts, "no test was run".into())
        }
        other => other,
    }
}

fn step_setup(world: &World) -> io::Result<Outcome> {
    let complete = setup::run(&world.target)?;
    if !complete && !setup::is_root() {
        return Ok(Outcome::Skipped(
            "packages are missing, see above; the peer tests need them".into(),
        ));
    }
    Ok(verdict(complete, "packages are missing"))
}

fn step_tidy(world: &World) -> io::Result<Outcome> {
    Ok(verdict(tidy::run(&world.root)?, "see the list above"))
}

fn step_format(world: &World) -> io::Result<Outcome> {
    process::run(world.cargo().args(["fmt", "--all", "--check"]))
}

fn step_clippy(world: &World) -> io::Result<Outcome> {
    let packages = match &world.touched {
        None => vec!["--workspace"],
        Some(touched) if touched.checked.is_empty() => return Ok(nothing()),
        Some(touched) => changed::arguments(&touched.checked),
    };
    let rest = ["--all-targets", "--quiet", "--", "-D", "warnings"];
    process::run(world.cargo().arg("clippy").args(packages).args(rest))
}

fn nothing() -> Outcome {
    Outcome::Skipped("the change touches no crate".into())
}

fn step_deny(world: &World) -> io::Result<Outcome> {
    let tools = world.target.join("tools");
    if deny(world).is_none() {
        println!(
            "    cargo-deny is missing; building it once into {} (a minute or two)",
            tools.display()
        );
        let mut install = world.cargo();
        // Unoptimised it is built in half the time, and a check takes it a second or two.
        install.args(["install", "--debug", "--locked", "cargo-deny", "--root"]).arg(&tools);
        install.env("CARGO_TARGET_DIR", tools.join("build"));
        let outcome = process::run(&mut install)?;
        // Half a gigabyte that is not needed again; that it cannot be removed harms nothing.
        let _ = fs::remove_dir_all(tools.join("build"));
        if !matches!(outcome, Outcome::Passed(_)) {
            return Ok(outcome);
        }
    }
    let deny =
        deny(world).ok_or_else(|| io::Error::other("cargo-deny was installed but is not there"))?;
    process::run(world.program(&deny).args([
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))
}

/// Path of cargo-deny: on the search path, or built by an earlier run.
fn deny(world: &World) -> Option<String> {
    let own = world.target.join("tools/bin/cargo-deny");
    let found = setup::find("cargo-deny").or_else(|| own.is_file().then_some(own));
    found.map(|path| path.to_string_lossy().into_owned())
}

fn step_advisories(world: &World) -> io::Result<Outcome> {
    let Some(deny) = deny(world) else {
        return Ok(Outcome::Skipped("no cargo-deny (cargo install --locked cargo-deny)".into()));
    };
    // The database is a public git repository; without a way to it there is nothing to compare
    // with.
    let reach = world
        .program("timeout")
        .args([
            "20",
            "git",
            "ls-remote",
            "--quiet",
            "https://github.com/RustSec/advisory-db",
            "HEAD",
        ])
        .env("GIT_TERMINAL_PROMPT", "0")
        .output();
    if !reach.is_ok_and(|output| output.status.success()) {
        return Ok(Outcome::Skipped(
            "the advisory database is out of reach (cargo deny check advisories)".into(),
        ));
    }
    process::run(world.program(&deny).args(["check", "advisories"]))
}

fn step_docs(world: &World) -> io::Result<Outcome> {
    let mut command = world.cargo();
    process::run(command.env("RUSTDOCFLAGS", "-D warnings").args([
        "doc",
        "--workspace",
        "--no-deps",
        "--quiet",
    ]))
}

fn step_tests(world: &World) -> io::Result<Outcome> {
    if let Some(touched) = &world.touched {
        // The peers have a step of their own.
        let tested: Vec<_> = touched.tested.iter().filter(|name| *name != PEERS).cloned().collect();
        if tested.is_empty() {
            return Ok(nothing());
        }
        let packages = changed::arguments(&tested);
        return process::run(world.tests().args(["test", "--no-fail-fast"]).args(packages));
    }
    // These have a step of their own, but for those that need no privilege.
    // All failures at once: a second run takes minutes.
    let others = ["test", "--workspace", "--no-fail-fast", "--exclude", PEERS];
    let outcome = with_tests(process::run(world.tests().args(others))?);
    let Outcome::Passed(mut counts) = outcome else {
        return Ok(outcome);
    };
    if !world.has(PEERS) {
        return Ok(Outcome::Passed(counts));
    }
    let outcome = with_tests(process::run(&mut tests_of(world, &["smoltcp", "carriers"]))?);
    let Outcome::Passed(more) = outcome else {
        return Ok(outcome);
    };
    counts.add(more);
    Ok(Outcome::Passed(counts))
}

/// Builds and runs the test programs of these names.
///
/// They are chosen from the whole workspace, not by package: cargo gives third parties' crates the
/// features that the chosen packages want together, and with any other choice than that of the step
/// `tests` builds nearly everything once more.
fn tests_of(world: &World, names: &[&str]) -> Command {
    let mut command = world.tests();
    command.args(["test", "--workspace"]).args(names.iter().flat_map(|name| ["--test", name]));
    command
}

/// Builds a program, as a companion of one of its package's tests, which makes the same choice as
/// [`tests_of`].
fn build_beside(world: &World, test: &str) -> io::Result<Outcome> {
    process::run(tests_of(world, &[test]).args(["--quiet", "--no-run"]))
}

fn step_fuzz(world: &World) -> io::Result<Outcome> {
    if !world.has("xk-fuzz") {
        return Ok(Outcome::Skipped("the tree has no crate xk-fuzz".into()));
    }
    let built = build_beside(world, "smoke")?;
    if !matches!(built, Outcome::Passed(_)) {
        return Ok(built);
    }
    let fuzz = world.target.join("debug/xk-fuzz");
    process::run(world.program(&fuzz.to_string_lossy()).args(["smoke", "--seconds", SMOKE_SECONDS]))
}

fn step_miri(world: &World) -> io::Result<Outcome> {
    let works = world.program("cargo").args(["+nightly", "miri", "--version"]).output();
    if !works.is_ok_and(|output| output.status.success()) {
        return Ok(Outcome::Skipped(
            "no Miri (rustup +nightly component add miri rust-src)".into(),
        ));
    }
    // Miri runs on one core: two of them, with about half of it each, take half the time.
    let halves = [&["message", "map", "event"][..], &["object"]];
    let outcomes = thread::scope(|scope| {
        let runs = halves.map(|modules| scope.spawn(move || miri(world, modules)));
        runs.map(|run| match run.join() {
            Ok(outcome) => outcome,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    });
    let mut counts = Counts::default();
    for outcome in outcomes {
        match with_tests(outcome?) {
            Outcome::Passed(more) => counts.add(more),
            other => return Ok(other),
        }
    }
    Ok(Outcome::Passed(counts))
}

/// The tests of these modules of core under Miri.
fn miri(world: &World, modules: &[&str]) -> io::Result<Outcome> {
    // Filters go behind `--`: the runner takes several, cargo only one.
    let mut command = world.program("timeout");
    command.args([MIRI_S_MAX, "cargo", "+nightly", "miri", "test", "-p", "xk-core", "--lib"]);
    command
        .args(["--test", "all", "--"])
        .args(modules)
        .args(MIRI_SKIPS.iter().flat_map(|name| ["--skip", name]));
    let outcome = process::run(command.env("MIRIFLAGS", MIRI_FLAGS).env("PROPTEST_CASES", "2"))?;
    Ok(match outcome {
        Outcome::Failed(counts, why) if why.ends_with("124") => Outcome::Failed(
            counts,
            format!(
                "not done after {MIRI_S_MAX} s; give the slow test less to do under `cfg!(miri)`"
            ),
        ),
        other => other,
    })
}

fn step_peers(world: &World) -> io::Result<Outcome> {
    if !world.has(PEERS) {
        return Ok(Outcome::Skipped(format!("the tree has no crate {PEERS}")));
    }
    if !setup::is_root() {
        return Ok(Outcome::Skipped(
            "namespaces need root (sudo -E cargo xtask test --only peers)".into(),
        ));
    }
    // One of them runs the command.
    let built = build_beside(world, "command")?;
    if !matches!(built, Outcome::Passed(_)) {
        return Ok(built);
    }
    Ok(with_tests(process::run(&mut tests_of(world, &["peers"]))?))
}

fn step_new_protocol(world: &World) -> io::Result<Outcome> {
    let copy = world.target.join("new-protocol").join("tree");
    let outcome = in_copy(world, &copy);
    // The copy goes whatever happened; the crates built for it stay, so that the next run is short.
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    outcome
}

/// The models, and what their copies are called.
const COPIES: [(new_protocol::Model, &str); 3] = [
    (new_protocol::MESSAGES, "sample"),
    (new_protocol::CALLS, "callsample"),
    (new_protocol::MANY, "manysample"),
];

fn in_copy(world: &World, copy: &Path) -> io::Result<Outcome> {
    if copy.exists() {
        fs::remove_dir_all(copy)?;
    }
    for path in workspace::files(&world.root)? {
        let target = copy.join(&path);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        let source = world.root.join(&path);
        fs::copy(&source, &target)?;
        // As old as the original: cargo then finds what it built of that.
        let modified = fs::metadata(source)?.modified()?;
        fs::File::options().append(true).open(target)?.set_modified(modified)?;
    }
    for (model, name) in COPIES {
        println!("    in a copy of the tree: a new protocol from {}", model.folder);
        let created = new_protocol::create(copy, &model, name)?;
        println!("    {}", created.replace('\n', "\n    "));
    }
    // Only what is new is judged here; the step `tidy` has listed the rest.
    let untidy = tidy::check(copy)?;
    let copies = COPIES.map(|(_, name)| format!("protocols/{name}/"));
    let is_touched = |path: &str| {
        let mut copies = copies.iter().map(String::as_str).chain(["catalog/", "Cargo.toml"]);
        copies.any(|touched| path.starts_with(touched))
    };
    let mut untidy = untidy.iter().filter(|violation| is_touched(&violation.path));
    if let Some(violation) = untidy.next() {
        println!("{violation}");
        return Ok(verdict(false, "a new protocol is not tidy"));
    }
    let mut counts = Counts::default();
    // The new ones whole; of the catalog what looks at its list, not what runs its protocols on one
    // another.
    let packages = COPIES.map(|(_, name)| format!("xk-{name}"));
    let new: Vec<&str> = packages.iter().flat_map(|name| ["-p", name.as_str()]).collect();
    for tested in [&new[..], &["-p", "xk-catalog", "--lib"]] {
        let mut command = world.tests();
        // What others wrote is built already, where the other steps have it.
        command
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", &world.target)
            .args(["test", "--offline"])
            .args(tested);
        match with_tests(process::run(&mut command)?) {
            Outcome::Passed(more) => counts.add(more),
            other => return Ok(other),
        }
    }
    Ok(Outcome::Passed(counts))
}

fn step_leftovers(world: &World) -> io::Result<Outcome> {
    let left = leftovers::left(&world.mark);
    for line in &left {
        println!("    left behind: {line}");
    }
    Ok(verdict(left.is_empty(), "see above, with what removes each"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let options = Options::parse(&["--keep-going", "--only", "tidy"]).unwrap().unwrap();
        assert!(!options.is_long && Options::parse(&["--long"]).unwrap().unwrap().is_long);
        assert!(options.keep_going && options.wants("tidy") && !options.wants("tests"));
        assert_eq!(Options::parse(&["--list"]).unwrap(), None);
        assert!(Options::parse(&["--only", "nothing"]).is_err());
        assert!(Options::parse(&["--fast"]).is_err());
        assert!(Options::default().wants("tests") && Options::default().wants("peers"));
        for (words, revision) in [(&["--changed"][..], None), (&["--changed", "v1"], Some("v1"))] {
            let options = Options::parse(words).unwrap().unwrap();
            assert_eq!(options.changed, Some(revision.map(str::to_owned)));
            assert!(options.wants("tests") && !options.wants("peers"));
        }
    }

    #[test]
    fn an_error_is_a_failure() {
        assert_eq!(verdict(true, "x"), Outcome::Passed(Counts::default()));
        assert_eq!(word(&verdict(false, "x")), "FAILED (x)");
        assert!(matches!(with_tests(verdict(true, "")), Outcome::Failed(..)));
    }
}
