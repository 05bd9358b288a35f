//! Runs targets: the corpus first, then mutations of it, each caught when it panics.

use crate::coverage::{self, Reached};
use crate::mutate::mutate;
use crate::{INPUT_OCTETS_MAX, Target, canary, folder, frame, novelty};
use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::{Duration, Instant};
use xk_core::random::Random;

/// Most inputs that are kept for further mutation.
const KEPT_MAX: usize = 4096;
/// Most runs spent on shortening an input that failed.
const SHORTEN_RUNS_MAX: usize = 3000;
/// An input that runs longer than this hangs.
const HANG: Duration = Duration::from_secs(60);
/// Time between two signs of life of a long run.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// A failure, and the input that caused it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The message of the panic, with its place.
    pub what: String,
    /// The place alone, by which failures are told apart.
    pub place: String,
}

/// Result of a run of a target.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Inputs that were run.
    pub runs: u64,
    /// Inputs that met something new, behind the corpus.
    pub kept: Vec<Vec<u8>>,
    /// Number of edges that all inputs have reached, and those of the corpus alone, if edges are
    /// counted.
    pub edges: (usize, usize),
    /// The first input that failed, shortened, and how.
    pub failed: Option<(Vec<u8>, Failure)>,
}

/// The end of a run.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// After this time.
    Time(Duration),
    /// After this many inputs beyond the corpus.
    Runs(u64),
}

thread_local! {
    static PANIC: RefCell<Option<Failure>> = const { RefCell::new(None) };
    static QUIET: RefCell<bool> = const { RefCell::new(false) };
}

static HOOK: Once = Once::new();

/// Panics of this thread are noted instead of printed while a target runs; those of others go where
/// they went.
fn hook() {
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.with_borrow(|quiet| *quiet) {
                return before(info);
            }
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            let what = format!("{} at {place}", words(info.payload()));
            PANIC.set(Some(Failure { what, place }));
        }));
    });
}

fn words(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}

/// Runs a target on one input, at most [`INPUT_OCTETS_MAX`] octets of it.
///
/// # Errors
/// How it failed.
pub fn run_one(target: Target, data: &[u8]) -> Result<(), Failure> {
    hook();
    let data = &data[..data.len().min(INPUT_OCTETS_MAX)];
    QUIET.set(true);
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(data)));
    QUIET.set(false);
    let noted = PANIC.take();
    result.map_err(|payload| {
        noted.unwrap_or_else(|| Failure { what: words(&*payload).to_owned(), place: String::new() })
    })
}

/// Runs `corpus`, then mutations of it until the budget is spent or one fails.
#[must_use]
pub fn fuzz(target: Target, corpus: &[Vec<u8>], budget: Budget, seed: u64) -> Outcome {
    novelty::forget();
    // Each target has a sequence of its own, whatever ran before.
    let random = Random::new(seed ^ u64::from(frame::checksum(0, target.name.as_bytes())));
    let mut run = Run {
        target,
        watch: Watch::new(target.name),
        outcome: Outcome::default(),
        reached: Reached::default(),
        is_new: false,
    };
    coverage::clear();
    let mut kept = corpus.to_vec();
    for input in corpus {
        if !run.passes(input) {
            return run.outcome;
        }
    }
    novelty::take();
    run.outcome.edges.1 = run.reached.edges();
    if kept.is_empty() {
        kept.push(Vec::new());
    }
    let (start, mut said) = (Instant::now(), Instant::now());
    let first = run.outcome.runs;
    while match budget {
        Budget::Time(time) => start.elapsed() < time,
        Budget::Runs(runs) => run.outcome.runs - first < runs,
    } {
        let pick = || random.below(kept.len() as u64) as usize;
        let input = mutate(&random, &kept[pick()], &kept[pick()]);
        if !run.passes(&input) {
            break;
        }
        if (run.is_new | novelty::take()) && kept.len() < KEPT_MAX {
            kept.push(input);
        }
        if said.elapsed() >= PROGRESS_EVERY {
            said = Instant::now();
            println!("    {}: {} inputs so far", target.name, run.outcome.runs);
        }
    }
    run.outcome.edges.0 = run.reached.edges();
    run.outcome.kept = kept;
    run.outcome
}

struct Run {
    target: Target,
    watch: Watch,
    outcome: Outcome,
    reached: Reached,
    /// Whether the last input has reached something that none had before.
    is_new: bool,
}

impl Run {
    /// Runs one input; when it fails, it is shortened and kept.
    fn passes(&mut self, input: &[u8]) -> bool {
        self.outcome.runs += 1;
        self.watch.begin(input);
        let result = run_one(self.target, input);
        self.is_new = self.reached.add();
        self.watch.end();
        if let Err(failure) = result {
            let input = &input[..input.len().min(INPUT_OCTETS_MAX)];
            let same = |shorter: &[u8]| {
                run_one(self.target, shorter).is_err_and(|other| other.place == failure.place)
            };
            let short = shorten(input, same);
            let failure = run_one(self.target, &short).err().unwrap_or(failure);
            self.outcome.failed = Some((short, failure));
        }
        self.outcome.failed.is_none()
    }
}

/// The edges that an input reaches.
fn edges_of(target: Target, input: &[u8]) -> BTreeSet<usize> {
    coverage::clear();
    let _ = run_one(target, input);
    coverage::take()
}

/// Selects the inputs that reach edges which neither the corpus nor a shorter input reaches, and
/// shortens them.
#[must_use]
pub fn distil(target: Target, corpus: &[Vec<u8>], inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut known = BTreeSet::new();
    for input in corpus {
        known.append(&mut edges_of(target, input));
    }
    let mut inputs: Vec<&Vec<u8>> = inputs.iter().collect();
    inputs.sort_by_key(|input| input.len());
    let mut found = Vec::new();
    for input in inputs {
        let reached = edges_of(target, input);
        // Some edges are reached once in a program's life, such as those of tables that are made
        // when first needed.
        let again = edges_of(target, input);
        let new = reached.difference(&known).filter(|edge| again.contains(*edge));
        let new: BTreeSet<usize> = new.copied().collect();
        if !new.is_empty() {
            let short = shorten(input, |shorter| new.is_subset(&edges_of(target, shorter)));
            known.append(&mut edges_of(target, &short));
            found.push(short);
        }
    }
    found
}

/// Removes pieces as long as what is left `is_such`.
fn shorten(input: &[u8], mut is_such: impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut input = input.to_vec();
    let mut runs = 0;
    let mut piece = input.len().div_ceil(2);
    while piece > 0 && runs < SHORTEN_RUNS_MAX {
        let mut at = 0;
        while at < input.len() && runs < SHORTEN_RUNS_MAX {
            let mut shorter = input.clone();
            shorter.drain(at..(at + piece).min(input.len()));
            runs += 1;
            match is_such(&shorter) {
                true => input = shorter,
                false => at += piece,
            }
        }
        piece /= 2;
    }
    input
}

/// The start of the input that runs, and the input.
type Running = Mutex<Option<(Instant, Vec<u8>)>>;

/// A thread that ends the program when an input hangs, since nothing else could.
struct Watch {
    running: Arc<Running>,
}

impl Watch {
    fn new(name: &'static str) -> Self {
        let running: Arc<Running> = Arc::default();
        let watched = Arc::downgrade(&running);
        std::thread::spawn(move || {
            while let Some(watched) = watched.upgrade() {
                let guard = watched.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some((_, input)) = guard.as_ref().filter(|(since, _)| since.elapsed() > HANG)
                {
                    let place = save(name, input)
                        .map_or_else(|error| error.to_string(), |path| command(name, &path));
                    println!("{name}: an input runs for more than {HANG:?}\n    {place}");
                    println!("{}", closing_line(0, 1, HANG));
                    std::process::exit(1);
                }
                drop(guard);
                drop(watched);
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        Self { running }
    }

    fn begin(&self, input: &[u8]) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *running = Some((Instant::now(), input.to_vec()));
    }

    fn end(&self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

/// The committed inputs of a target, by name, in the order of their names: for targets that read
/// graph files, those of `graphs`, too. A target without a folder has no others.
///
/// # Errors
/// A file that cannot be read.
pub fn corpus(name: &str) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    if name == canary::TARGET.name {
        return Ok(vec![(PathBuf::from("planted"), canary::SEED.to_vec())]);
    }
    let is_graph = matches!(name, "graph" | "check");
    let graphs = is_graph.then(|| folder().join("../graphs"));
    let mut paths = Vec::new();
    for folder in graphs.into_iter().chain([folder().join("corpus").join(name)]) {
        if folder.is_dir() {
            let files = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
            paths.extend(files.collect::<io::Result<Vec<_>>>()?);
        }
    }
    paths.retain(|path| path.is_file());
    paths.sort();
    paths.into_iter().map(|path| fs::read(&path).map(|octets| (path, octets))).collect()
}

/// Writes an input that failed to `fuzz/artifacts`, under a name that its octets decide.
///
/// # Errors
/// If it cannot be written.
pub fn save(name: &str, input: &[u8]) -> io::Result<PathBuf> {
    write(&folder().join("artifacts"), name, input)
}

/// Writes an input that reaches something new to the corpus.
///
/// # Errors
/// If it cannot be written.
pub fn keep(target: Target, input: &[u8]) -> io::Result<PathBuf> {
    write(&folder().join("corpus").join(target.name), "found", input)
}

fn write(folder: &Path, name: &str, input: &[u8]) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    });
    let path = folder.join(format!("{name}-{hash:016x}"));
    fs::write(&path, input)?;
    Ok(path)
}

/// The command that runs this file again.
#[must_use]
pub fn command(name: &str, path: &Path) -> String {
    let path = path.strip_prefix(folder().parent().unwrap_or(Path::new(""))).unwrap_or(path);
    format!("cargo run -p xk-fuzz -- replay {name} {}", path.display())
}

/// The closing line of cargo's own test runner, so that a count of tests counts targets.
#[must_use]
pub fn closing_line(passed: usize, failed: usize, took: Duration) -> String {
    let word = if failed == 0 { "ok" } else { "FAILED" };
    let seconds = took.as_secs_f64();
    format!(
        "test result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out; finished in {seconds:.2}s"
    )
}
