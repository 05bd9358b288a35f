//! A test for many seeds and many parameters.

use crate::faults::{idle, take_counts};
use crate::outcome::Late;
use crate::runs::worker;
use crate::seeds::only_seed;
use crate::{Outcome, Result, parts};
use std::collections::BTreeMap;
use std::io;
use std::num::NonZero;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;
use xk_sweep::pool::{Pool, PoolError};
use xk_sweep::{
    Axis, Call, Folder, FolderError, Header, Job, Plan, Row, Verdict, parse_seeds, table,
};

/// The real time that a run may take, unless the test says another.
const LIMIT: Duration = Duration::from_secs(60);

/// The figures of this process's run.
static FIGURES: Mutex<BTreeMap<String, f64>> = Mutex::new(BTreeMap::new());

/// Puts a figure into the row of this run of a [`sweep()`]: a time in seconds, or a count.
pub fn figure(name: &str, value: f64) {
    FIGURES.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), value);
}

/// Makes a sweep: a test for every combination of parameters with every seed, by a pool of
/// processes.
///
/// ```
/// use std::time::Duration;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use xk_world::{Link, Result, TcpListener, TcpStream, World};
///
/// xk_world::sweep("one octet").seeds(0..20).set("loss", [0.05, 0.2]).run(|job| {
///     let loss = job.value("loss").parse()?;
///     let mut world = World::lan(job.seed, &["server", "client"], Link::new().loss(loss))?;
///     world.host("server", |stack| async move {
///         let listener = TcpListener::bind(&stack, "0.0.0.0:7")?;
///         Ok(listener.accept().await?.0.write_u8(b'h').await?)
///     })?;
///     world.client("client", |stack| async move {
///         let mut stream = TcpStream::connect(&stack, "server:7").await?;
///         Result::Ok(assert_eq!(stream.read_u8().await?, b'h'))
///     })?;
///     world.run(Duration::from_secs(600))
/// });
/// ```
///
/// As `xk sweep` has it: each run is a fork of a process in which none has run, so nothing is left
/// over from one to the next; one in a hundred is done twice; a sweep that was killed goes on with
/// the same command, where its folder has been given ([`Sweep::out`]) or the program is the same;
/// `xk sweep merge` and `xk sweep plot` take its folders.
///
/// The environment may say otherwise: `XK_SEEDS` the seeds, `XK_OUT` the folder, as for parts on
/// several machines; `XK_SEED` one seed, and `XK_SET` parameters, that are run in this process;
/// `XK_KEEP` and `XK_UNTIL` which faults, chances of links and programs there are, and until when,
/// as `xk sweep shrink` has found them to be needed.
pub fn sweep(name: &str) -> Sweep {
    let plan = Plan {
        what: name.into(),
        options: Vec::new(),
        axes: Vec::new(),
        draws: Vec::new(),
        seeds: (0, 100),
    };
    Sweep { plan, jobs: None, limit: LIMIT, keeps_going: false, out: None }
}

/// A [`sweep()`] to be run.
#[must_use = "`run` runs it"]
pub struct Sweep {
    plan: Plan,
    jobs: Option<usize>,
    limit: Duration,
    keeps_going: bool,
    out: Option<PathBuf>,
}

impl Sweep {
    /// Sets the seeds of each combination; the default is a hundred.
    pub fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.plan.seeds = (seeds.start, seeds.end);
        self
    }

    /// Adds a parameter and its values. [`Job::value`] returns the value of a run.
    ///
    /// # Panics
    /// If there are none, one is there twice, or a word has a comma, a quote or white space in it.
    pub fn set<V: ToString>(mut self, name: &str, values: impl IntoIterator<Item = V>) -> Self {
        let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
        let is_word = |word: &str| !word.contains(|c: char| c.is_whitespace() || "',=".contains(c));
        let axis = Axis::parse(&format!("{name}={}", values.join(",")));
        match axis.ok().filter(|axis| {
            is_word(name) && axis.values == values && values.iter().all(|value| is_word(value))
        }) {
            Some(axis) => self.plan.axes.push(axis),
            None => panic!("`{name}` and {values:?} are no parameter and values: words, each once"),
        }
        self
    }

    /// Sets the number of processes; the default is that of processors.
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.jobs = Some(jobs);
        self
    }

    /// Ends a run after this real time, which counts as exhausted; the default is a minute.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Goes on after a failure, and collects all failures.
    pub fn keep_going(mut self) -> Self {
        self.keeps_going = true;
        self
    }

    /// Sets the folder of the rows and the table, which is kept. Without it they lie beside the
    /// test's program until the sweep has ended or, if it failed, until it is run again.
    pub fn out(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out = Some(folder.into());
        self
    }

    /// Does the runs that have no row in the folder yet.
    ///
    /// # Panics
    /// If one has failed or was exhausted, by what it is done again; if a fault has fired in none;
    /// if the folder cannot be used.
    #[track_caller]
    pub fn run(mut self, test: impl Fn(&Job) -> Result<Outcome> + Sync) {
        let call = Call::here();
        let (run, replay) = (|job: &Job| row(job, &test), |job: &Job| again(&call, job));
        if call.serves(&run, &replay) {
            return;
        }
        if let Some(seed) = only_seed() {
            self.plan.seeds = (seed, seed + 1);
            return self.run_one(&run);
        }
        if let Ok(seeds) = std::env::var("XK_SEEDS") {
            self.plan.seeds = parse_seeds(&seeds).unwrap_or_else(|why| panic!("XK_SEEDS: {why}"));
        }
        let name = format!("sweep `{}`", self.plan.what);
        let kept = std::env::var_os("XK_OUT").map(PathBuf::from).or_else(|| self.out.clone());
        let header = Header::own(self.plan.clone());
        let mut header = header.unwrap_or_else(|error| panic!("{name}: its program: {error}"));
        header.worker = call.worker();
        let path = kept.clone().unwrap_or_else(|| {
            own_folder(&header).unwrap_or_else(|error| panic!("{name}: no folder: {error}"))
        });
        let failed = |error: FolderError| -> ! { panic!("{name}: {error}: {}", error.help()) };
        let mut folder = Folder::open(&path, header).unwrap_or_else(|error| failed(error));
        let pool = Pool {
            jobs: self.jobs.unwrap_or(available_parallelism().map_or(1, NonZero::get)),
            limit: self.limit,
            keeps_going: self.keeps_going,
            canary: 0,
            command: &|| worker(&call),
        };
        match call.fill(&pool, &mut folder, &run, &replay, &mut |_, _| true) {
            Err(PoolError::Folder(error)) => failed(error),
            Err(error) => panic!("{name}: {error}"),
            Ok(()) => {}
        }
        let summary = table::write(&folder).unwrap_or_else(|error| panic!("{name}: {error}"));
        let [_, exhausted, wrong] = summary.verdicts;
        if exhausted + wrong > 0 {
            let say = |row: &Row| {
                let (verdict, set) = (row.verdict.word(), words(row.set.iter()));
                let Row { seed, why, replay, .. } = row;
                format!("\n{verdict}: {set}seed {seed}: {why}\n  again: {replay}")
            };
            let worst: String = summary.worst.iter().map(say).collect();
            let (runs, at) = (folder.len(), path.display());
            panic!(
                "{name}: {wrong} failed, {exhausted} exhausted of {runs} runs{worst}\nrows: {at}"
            );
        }
        if let Some(idle) = idle(&summary.faults) {
            panic!("{name}: a fault has fired in no run: {idle}\nrows: {}", path.display());
        }
        if kept.is_none() {
            let _ = std::fs::remove_dir_all(&path);
        }
    }

    /// Does the runs of one seed that the environment has chosen, where all that they print is
    /// seen.
    fn run_one(&self, run: &impl Fn(&Job) -> Row) {
        let chosen = std::env::var("XK_SET").unwrap_or_default();
        let is_chosen = |job: &Job| {
            let all = words(job.set.iter().map(|(name, value)| (name, value)));
            chosen.split_whitespace().all(|word| all.split(' ').any(|known| known == word))
        };
        let jobs: Vec<Job> = (0..self.plan.runs()).map(|number| self.plan.job(number)).collect();
        let jobs: Vec<Job> = jobs.into_iter().filter(is_chosen).collect();
        assert!(!jobs.is_empty(), "XK_SET=\"{chosen}\": the sweep has no such parameters");
        for job in jobs {
            let row = run(&job);
            let (set, why) = (words(row.set.iter()), &row.why);
            assert!(
                row.verdict == Verdict::Clean,
                "{}: {set}seed {}: {why}",
                row.verdict.word(),
                job.seed
            );
        }
    }
}

/// The folder of a sweep of this program that has named none: empty, but for the rows of one that
/// was killed. One that has come to its table is done again from the beginning.
fn own_folder(header: &Header) -> io::Result<PathBuf> {
    let named = format!("sweep-{}-{}", header.plan_hash, header.binary_hash);
    let path = crate::folder::own()?.join(named);
    if path.join(table::CSV).exists() {
        std::fs::remove_dir_all(&path)?;
    }
    Ok(path)
}

/// Runs a test once, in this process.
fn row(job: &Job, test: &impl Fn(&Job) -> Result<Outcome>) -> Row {
    parts::begin();
    let ended = test(job);
    let mut row = match ended {
        Ok(Outcome { now, frames, shape, octets }) => {
            let octets = octets.map_or_else(String::new, |octets| format!("{octets:016x}"));
            let mut row = Row::silent(job, Verdict::Clean, "");
            row.ended = now.as_ns() as f64 / 1e9;
            row.digest = format!("{shape:016x}{frames:08x}{octets}");
            row.figures.insert("frames".into(), frames as f64);
            row
        }
        Err(error) => {
            let is_late = error.is::<Late>();
            let verdict = if is_late { Verdict::Exhausted } else { Verdict::Failed };
            let why = error.to_string();
            Row::silent(job, verdict, why.lines().next().unwrap_or_default())
        }
    };
    row.faults = take_counts();
    row.figures.append(&mut FIGURES.lock().unwrap_or_else(PoisonError::into_inner));
    row
}

/// Parameters as the environment has them, with a space behind each.
fn words<'a>(set: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    set.map(|(name, value)| format!("{name}={value} ")).collect()
}

/// Returns the command that does a run again.
fn again(call: &Call, job: &Job) -> String {
    let set = words(job.set.iter().map(|(name, value)| (name, value)));
    let set = if set.is_empty() { set } else { format!("XK_SET='{}' ", set.trim_end()) };
    format!("{set}{}", call.again(job.seed))
}
