//! A call in a test that has its runs done by processes which start with that test.

use crate::folder::Folder;
use crate::plan::Job;
use crate::pool::{self, Pool, PoolError, Progress};
use crate::row::{Row, Verdict};
use crate::worker;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::Location;
use std::process::{Command, exit};
use std::thread;

/// Says to a process which call it is for, and behind a line's end what that is to do.
const ORDER: &str = "XK_CALL";

thread_local! {
    /// Counts the calls of each place on this thread.
    static CALLS: RefCell<BTreeMap<String, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// A call in a test. The test's program, started again for that test alone, finds it by its name.
pub struct Call {
    /// The place in the source, and which of the calls of this thread from there.
    pub name: String,
    /// The test; `None` where no harness starts it alone, as one of documentation or of libtest
    /// with one thread.
    pub test: Option<String>,
}

impl Call {
    /// The call of this test, or one of its calls, from the place of the caller.
    #[track_caller]
    pub fn here() -> Self {
        let place = Location::caller().to_string();
        let count = CALLS.with_borrow_mut(|calls| {
            let count = calls.entry(place.clone()).or_default();
            *count += 1;
            *count
        });
        let test = thread::current().name().filter(|name| *name != "main").map(str::to_owned);
        Self { name: format!("{place}#{count}"), test }
    }

    /// Returns what this process is to do if a call has started it: `None` inside if that is
    /// another call than this one, which then has nothing to do here.
    pub fn order(&self) -> Option<Option<String>> {
        let text = std::env::var(ORDER).ok()?;
        let (call, order) = text.split_once('\n').unwrap_or((&text, ""));
        Some((call == self.name).then(|| order.to_owned()))
    }

    /// This program, for this test alone, which finds the order, if there is one, when it comes to
    /// this call.
    pub fn process(&self, order: Option<&str>) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command
            .arg(self.test.as_deref().unwrap_or_default())
            .args(["--exact", "--nocapture", "--include-ignored", "--test-threads=2"])
            .envs(order.map(|order| (ORDER, format!("{}\n{order}", self.name))));
        command
    }

    /// The words of a command for a worker of this call, from wherever it is given; none if there
    /// can be no such.
    pub fn worker(&self) -> Vec<String> {
        let place = (std::env::current_dir(), std::env::current_exe());
        let (Some(_), (Ok(folder), Ok(program))) = (&self.test, place) else { return Vec::new() };
        let own = ["CARGO_PKG_NAME", "CARGO_MANIFEST_DIR"].map(|name| (name, std::env::var(name)));
        let own =
            own.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value.ok()?)));
        let order = format!("{ORDER}={}\n", self.name);
        let before = ["env".into(), "-C".into(), folder.display().to_string(), order];
        let command = self.process(None);
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        before.into_iter().chain(own).chain([program.display().to_string()]).chain(words).collect()
    }

    /// Returns the command that does a seed of this test again.
    pub fn again(&self, seed: u64) -> String {
        let package = std::env::var("CARGO_PKG_NAME").ok();
        let package = package.map_or_else(String::new, |name| format!(" -p {name}"));
        let test = self.test.as_deref().map_or_else(String::new, |test| format!(" {test}"));
        let exact = if self.test.is_some() { " -- --exact" } else { "" };
        format!("XK_SEED={seed} cargo test{package}{test}{exact}")
    }

    /// Does runs as a [`fill`](Self::fill) hands them out, and ends this process, if it was started
    /// for that. True in one that was started for another call, and is to go on to that.
    pub fn serves(&self, run: &impl Fn(&Job) -> Row, replay: &impl Fn(&Job) -> String) -> bool {
        match self.order() {
            None => false,
            Some(None) => true,
            Some(Some(_)) => {
                let run = |(): &(), job: &Job| run(job);
                let served = worker::serve(|_, _| Ok(()), run, |_, job| replay(job));
                exit(i32::from(served.is_err()));
            }
        }
    }

    /// Does the runs of the folder's plan that it has no row of: by a pool, whose command is that
    /// of a [process](Self::process) that [serves](Self::serves), or by forks of this process if
    /// the test cannot be started alone. `watch` is told as by [`pool::run`].
    ///
    /// # Errors
    /// [`PoolError`]; what has ended by then is in the folder.
    pub fn fill(
        &self,
        pool: &Pool<'_>,
        folder: &mut Folder,
        run: &impl Fn(&Job) -> Row,
        replay: &impl Fn(&Job) -> String,
        watch: &mut dyn FnMut(&Progress, Option<&Row>) -> bool,
    ) -> Result<(), PoolError> {
        if self.test.is_some() {
            return pool::run(pool, folder, watch).map(drop);
        }
        let plan = folder.header().plan.clone();
        let mut progress = Progress { runs: plan.runs(), ..Progress::default() };
        for number in (0..progress.runs).filter(|number| !folder.has(*number)).collect::<Vec<_>>() {
            let job = plan.job(number);
            let row = worker::alone(pool.limit, &job, || run(&job));
            let row = row.map_err(|error| PoolError::Worker(error.to_string()))?;
            let row = Row { replay: replay(&job), ..row };
            folder.add(&row)?;
            progress.failed += u64::from(row.verdict == Verdict::Failed);
            let is_over = row.verdict == Verdict::Failed && !pool.keeps_going;
            if !watch(&progress, Some(&row)) || is_over {
                break;
            }
        }
        Ok(folder.sync()?)
    }
}
