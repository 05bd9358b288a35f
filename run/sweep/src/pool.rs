//! A pool of worker processes, and what they are handed.

use crate::folder::{Folder, FolderError};
use crate::plan::Plan;
use crate::row::{Row, Verdict};
use crate::worker::{Done, Task};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Real time that a batch is to take at least: what handing it over costs is nothing beside it.
const BATCH: Duration = Duration::from_secs(1);
/// The most runs of a batch.
const BATCH_MAX: usize = 4096;
/// One run in so many is done twice.
const CANARY_EVERY: u64 = 100;
/// Workers that may die over one run.
const DEATHS_MAX: u32 = 2;
/// Time between two looks at the watcher.
const LOOK: Duration = Duration::from_millis(100);

/// The way in which runs are done.
pub struct Pool<'a> {
    /// The number of processes.
    pub jobs: usize,
    /// The real time that a run may take.
    pub limit: Duration,
    /// Whether failures are collected, or the first one ends the sweep.
    pub keeps_going: bool,
    /// The place among a hundred runs of the one that is done twice.
    pub canary: u64,
    /// The command of a worker, which calls [`worker::serve`](crate::worker::serve). Its standard
    /// input is the pool's; its outputs are where this says.
    pub command: &'a dyn Fn() -> Command,
}

/// The progress of a sweep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Runs of the plan.
    pub runs: u64,
    /// Runs that have ended, of earlier commands too.
    pub ended: u64,
    /// Runs that this command did.
    pub done: u64,
    /// Runs of this command that failed.
    pub failed: u64,
    /// Runs of this command whose budget ran out.
    pub exhausted: u64,
    /// The real time since the beginning.
    pub took: Duration,
}

impl Progress {
    /// Runs a second.
    pub fn rate(&self) -> f64 {
        self.done as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// The time that is left at this rate; `None` before the first run has ended.
    pub fn left(&self) -> Option<Duration> {
        let rest = self.runs.saturating_sub(self.ended) as f64;
        (self.done > 0).then(|| Duration::from_secs_f64((rest / self.rate()).min(1e9)))
    }
}

/// Why a sweep could not go on.
#[derive(Debug)]
pub enum PoolError {
    /// The folder's.
    Folder(FolderError),
    /// A worker could not be started, or ended before it said that it runs.
    Worker(String),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::Worker(why) => write!(f, "no worker process: {why}"),
        }
    }
}

impl std::error::Error for PoolError {}

impl From<FolderError> for PoolError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

/// Does every run of the folder's plan that has no row yet. `watch` is told of the progress ten
/// times a second at least, and of each row that is added; once it answers false, the sweep ends.
///
/// # Errors
/// [`PoolError`]; what has ended by then is in the folder.
pub fn run(
    pool: &Pool<'_>,
    folder: &mut Folder,
    watch: &mut dyn FnMut(&Progress, Option<&Row>) -> bool,
) -> Result<Progress, PoolError> {
    let mut sweep = Sweep::new(pool, folder)?;
    let ended = sweep.whole(watch);
    // No worker outlives it.
    sweep.workers.iter_mut().for_each(Worker::end);
    sweep.folder.sync()?;
    ended.map(|()| sweep.progress)
}

/// Does the first run of a plan.
///
/// # Errors
/// As for [`run`].
pub fn one(pool: &Pool<'_>, plan: &Plan) -> Result<Row, PoolError> {
    let mut folder = Folder::unnamed(plan.clone())?;
    let mut first = None;
    run(pool, &mut folder, &mut |_, row| {
        first = row.cloned();
        first.is_none()
    })?;
    first.ok_or_else(|| PoolError::Worker("it answered nothing".into()))
}

/// The words of a reader of a worker's output.
enum Told {
    Ready,
    Done(Box<Done>),
    /// The output has ended, or what came is no answer.
    Gone(Option<String>),
}

struct Worker {
    process: Child,
    socket: UnixStream,
    /// Runs that it has been handed and has not answered, in order.
    batch: VecDeque<u64>,
    is_ready: bool,
    /// Counts its incarnations, so that words of one that has gone are not taken for the next's.
    life: u64,
}

impl Worker {
    fn start(
        pool: &Pool<'_>,
        task: &str,
        at: usize,
        life: u64,
        to: Sender<(usize, u64, Told)>,
    ) -> Result<Self, PoolError> {
        let failed = |error: io::Error| PoolError::Worker(error.to_string());
        let mut command = (pool.command)();
        let (mut socket, theirs) = UnixStream::pair().map_err(failed)?;
        let output = socket.try_clone().map_err(failed)?;
        let process = command.stdin(OwnedFd::from(theirs)).spawn().map_err(failed)?;
        // It has the other end: what is ours of that would keep the end of its words from us.
        drop(command);
        // One that is gone already is told of by its output.
        let _ = socket.write_all(task.as_bytes());
        thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let told = match line {
                    Ok(line) if line.is_empty() => Told::Ready,
                    Ok(line) => match serde_json::from_str(&line) {
                        Ok(done) => Told::Done(Box::new(done)),
                        Err(error) => Told::Gone(Some(format!("it answered {line:?}: {error}"))),
                    },
                    // A socket is reset by an end that leaves words unread.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                    Err(error) => Told::Gone(Some(error.to_string())),
                };
                let is_last = matches!(told, Told::Gone(_));
                if to.send((at, life, told)).is_err() || is_last {
                    return;
                }
            }
            let _ = to.send((at, life, Told::Gone(None)));
        });
        Ok(Self { process, socket, batch: VecDeque::new(), is_ready: false, life })
    }

    fn hand(&mut self, batch: VecDeque<u64>) {
        let mut line = String::new();
        for number in &batch {
            line.push_str(&format!("{number} "));
        }
        line.push('\n');
        self.batch = batch;
        let _ = self.socket.write_all(line.as_bytes());
    }

    fn end(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Sweep<'a> {
    pool: &'a Pool<'a>,
    folder: &'a mut Folder,
    task: String,
    workers: Vec<Worker>,
    from: Receiver<(usize, u64, Told)>,
    to: Sender<(usize, u64, Told)>,
    /// The place in the order of doing that is looked at next.
    next: u64,
    /// Runs that are to be done again: canaries, and those of a dead worker.
    again: VecDeque<u64>,
    /// The first rows of canaries, by number.
    canaries: BTreeMap<u64, Row>,
    /// Counts the workers that died over a run.
    deaths: BTreeMap<u64, u32>,
    batch: usize,
    lives: u64,
    progress: Progress,
    begun: Instant,
    synced: Instant,
}

impl<'a> Sweep<'a> {
    fn new(pool: &'a Pool<'a>, folder: &'a mut Folder) -> Result<Self, PoolError> {
        let plan = folder.header().plan.clone();
        let progress =
            Progress { runs: plan.runs(), ended: folder.len() as u64, ..Progress::default() };
        let task = Task { plan, limit_ms: pool.limit.as_millis() as u64 };
        let task = serde_json::to_string(&task).unwrap_or_default() + "\n";
        let (to, from) = channel();
        let now = Instant::now();
        let mut sweep = Self {
            pool,
            folder,
            task,
            workers: Vec::new(),
            from,
            to,
            next: 0,
            again: VecDeque::new(),
            canaries: BTreeMap::new(),
            deaths: BTreeMap::new(),
            batch: 1,
            lives: 0,
            progress,
            begun: now,
            synced: now,
        };
        let open = progress.runs.saturating_sub(progress.ended);
        for at in 0..pool.jobs.max(1).min(usize::try_from(open).unwrap_or(usize::MAX)) {
            let worker = sweep.start(at)?;
            sweep.workers.push(worker);
        }
        Ok(sweep)
    }

    fn start(&mut self, at: usize) -> Result<Worker, PoolError> {
        self.lives += 1;
        Worker::start(self.pool, &self.task, at, self.lives, self.to.clone())
    }

    fn whole(
        &mut self,
        watch: &mut dyn FnMut(&Progress, Option<&Row>) -> bool,
    ) -> Result<(), PoolError> {
        while self.progress.ended < self.progress.runs {
            let told = self.from.recv_timeout(LOOK);
            self.progress.took = self.begun.elapsed();
            let row = match told {
                Ok((at, life, told)) => {
                    let is_current = self.workers.get(at).is_some_and(|w| w.life == life);
                    if is_current { self.hear(at, told)? } else { None }
                }
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            if !watch(&self.progress, row.as_ref()) {
                return Ok(());
            }
            let has_failed = row.is_some_and(|row| row.verdict == Verdict::Failed);
            if has_failed && !self.pool.keeps_going {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes what a worker says; a row that was added comes back.
    fn hear(&mut self, at: usize, told: Told) -> Result<Option<Row>, PoolError> {
        let row = match told {
            Told::Ready => {
                self.workers[at].is_ready = true;
                None
            }
            Told::Done(done) => {
                if self.workers[at].batch.front() == Some(&done.number) {
                    self.workers[at].batch.pop_front();
                }
                let us = done.us.max(1);
                let fitting = (BATCH.as_micros() as u64 / us).max(1) as usize;
                // Runs differ in length: it grows by steps.
                self.batch = fitting.min(self.batch * 2).min(BATCH_MAX);
                self.take(done.number, done.row)?
            }
            Told::Gone(why) => self.replace(at, why)?,
        };
        if self.workers[at].is_ready && self.workers[at].batch.is_empty() {
            let batch = self.draw();
            if !batch.is_empty() {
                self.workers[at].hand(batch);
            }
        }
        Ok(row)
    }

    /// Takes a row: that of a canary waits for the other.
    fn take(&mut self, number: u64, row: Row) -> Result<Option<Row>, PoolError> {
        if self.folder.has(number) {
            return Ok(None);
        }
        let row = match self.canaries.remove(&number) {
            // The machine may be slower the second time.
            Some(first) if first == row || row.verdict == Verdict::Exhausted => first,
            Some(first) => Row { verdict: Verdict::Failed, why: differ(&first, &row), ..first },
            None if number % CANARY_EVERY == self.pool.canary
                && row.verdict != Verdict::Exhausted =>
            {
                self.canaries.insert(number, row);
                self.again.push_back(number);
                return Ok(None);
            }
            None => row,
        };
        self.keep(row)
    }

    /// Adds a row to the folder.
    fn keep(&mut self, row: Row) -> Result<Option<Row>, PoolError> {
        self.folder.add(&row)?;
        self.progress.ended += 1;
        self.progress.done += 1;
        match row.verdict {
            Verdict::Failed => self.progress.failed += 1,
            Verdict::Exhausted => self.progress.exhausted += 1,
            Verdict::Clean => {}
        }
        if self.synced.elapsed() > BATCH {
            self.folder.sync()?;
            self.synced = Instant::now();
        }
        Ok(Some(row))
    }

    /// Starts a worker in the place of one that has died. The run that it died over is done again,
    /// and fails if that does not help.
    fn replace(&mut self, at: usize, why: Option<String>) -> Result<Option<Row>, PoolError> {
        let worker = &mut self.workers[at];
        worker.end();
        let (is_ready, batch) = (worker.is_ready, std::mem::take(&mut worker.batch));
        if !is_ready {
            let status = worker.process.wait().map(|status| status.to_string());
            let status = status.unwrap_or_else(|error| error.to_string());
            return Err(PoolError::Worker(why.unwrap_or(status)));
        }
        self.workers[at] = self.start(at)?;
        let over = batch.front().copied();
        self.again.extend(batch);
        let Some(number) = over else { return Ok(None) };
        let deaths = self.deaths.entry(number).or_default();
        *deaths += 1;
        if *deaths < DEATHS_MAX {
            return Ok(None);
        }
        self.again.retain(|other| *other != number);
        self.canaries.remove(&number);
        let job = self.folder.header().plan.job(number);
        let why = format!("{deaths} worker processes died over it");
        self.keep(Row::silent(&job, Verdict::Failed, why))
    }

    /// Draws the next batch: one seed after the other, each in all combinations, so that
    /// little of each is known early. In it those of one combination stand together: what they have
    /// in common is made once.
    fn draw(&mut self) -> VecDeque<u64> {
        let plan = &self.folder.header().plan;
        let (runs, combinations) = (plan.runs(), plan.combinations());
        let seeds = (runs / combinations.max(1)).max(1);
        let left = self.progress.runs.saturating_sub(self.progress.ended);
        // The end is shared out.
        let share = left.div_ceil(2 * self.workers.len().max(1) as u64) as usize;
        let most = self.batch.min(share).max(1);
        let mut batch = VecDeque::new();
        while batch.len() < most {
            if let Some(number) = self.again.pop_front() {
                batch.push_back(number);
                continue;
            }
            if self.next >= runs {
                break;
            }
            let number = self.next % combinations * seeds + self.next / combinations;
            self.next += 1;
            if !self.folder.has(number) {
                batch.push_back(number);
            }
        }
        batch.make_contiguous().sort_unstable();
        batch
    }
}

/// Says what two runs of one seed differ in.
fn differ(one: &Row, other: &Row) -> String {
    let figure = one.figures.iter().find(|(name, value)| other.figures.get(*name) != Some(*value));
    let what = match figure {
        Some((name, value)) => match other.figures.get(name) {
            Some(found) => format!("`{name}` was {value}, then {found}"),
            None => format!("`{name}` was {value}, then absent"),
        },
        None if one.verdict != other.verdict => {
            format!("it was {}, then {}: {}", one.verdict.word(), other.verdict.word(), other.why)
        }
        None => format!("its digest was {}, then {}", one.digest, other.digest),
    };
    format!("two runs of one seed differ: {what}")
}
