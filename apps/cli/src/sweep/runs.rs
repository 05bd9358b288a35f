//! `xk sweep FILE`: hands out the runs, shows how far it is, and says what came of it.

use super::{EXHAUSTED, RunArgs, failed, plan, write_tables};
use crate::failure::Failure;
use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::num::NonZero;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use xk_run::interrupt_unsafe;
use xk_sweep::pool::{self, Pool, PoolError, Progress};
use xk_sweep::{Folder, Header, Row, Verdict};

/// The hidden command of a worker.
const WORKER: &str = "sweep-worker";
/// Time between two lines of progress, where there is no bar.
const LINES_APART: Duration = Duration::from_secs(10);
/// The exit code of what was interrupted.
const INTERRUPTED: u8 = 130;

pub(super) fn main(file: &Path, args: &RunArgs) -> Result<(), Failure> {
    let plan = plan::of(file, args)?;
    let out = args.out.clone().unwrap_or_else(|| {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy();
        PathBuf::from(format!("{stem}.sweep"))
    });
    let header = Header::own(plan);
    let header =
        header.map_err(|error| Failure::new(format!("cannot read this program: {error}")))?;
    let mut folder = Folder::open(&out, header).map_err(failed)?;
    let (runs, before) = (folder.header().plan.runs(), folder.len() as u64);
    let plan = &folder.header().plan;
    output::print(&format!(
        "{}: {} of {}, {} of them done before, rows in {}\n",
        file.display(),
        output::counted(runs as usize, "run"),
        output::counted(plan.combinations() as usize, "combination"),
        output::grouped(before),
        out.display()
    ));
    if args.check {
        return Ok(());
    }
    let name = file.display().to_string();
    let command = || {
        // The program may have been replaced since: rows are of this one.
        let mut command = Command::new("/proc/self/exe");
        // What a run prints is no answer, and not the table that this prints.
        command.args([WORKER, &name]).stdout(std::io::stderr()).process_group(0);
        command
    };
    let jobs = std::thread::available_parallelism().map_or(1, NonZero::get);
    let pool = Pool {
        jobs: args.jobs.unwrap_or(jobs).max(1),
        limit: args.limit,
        keeps_going: args.keep_going,
        canary: 0,
        command: &command,
    };
    interrupt_unsafe::catch();
    let mut shown = Shown::new(runs);
    let ended = pool::run(&pool, &mut folder, &mut |progress, row| {
        shown.look(progress, row);
        !interrupt_unsafe::is_requested()
    });
    shown.end();
    let progress = ended.map_err(|error| match error {
        PoolError::Folder(error) => failed(error),
        PoolError::Worker(_) => Failure::new(error.to_string()),
    })?;
    output::error(&format!(
        "{} in {:.1} s, {:.0} a second\n",
        output::counted(progress.done as usize, "run"),
        progress.took.as_secs_f64(),
        progress.rate()
    ));
    if interrupt_unsafe::is_requested() {
        let what = format!("interrupted: {} of {runs} runs have ended", progress.ended);
        return Err(Failure::coded(what, INTERRUPTED).help("the same command goes on from there"));
    }
    tell(&folder)
}

/// Writes the tables and says what is in them. All is well if no run failed, none was exhausted,
/// and each fault of the plan has happened in one of them.
pub(super) fn tell(folder: &Folder) -> Result<(), Failure> {
    let summary = write_tables(folder)?;
    let [clean, exhausted, wrong] = summary.verdicts;
    output::print(&format!(
        "{} clean, {} exhausted, {} failed\n",
        output::grouped(clean),
        output::grouped(exhausted),
        output::grouped(wrong)
    ));
    for (fault, count) in &summary.faults {
        output::print(&format!("fault {fault}: {}\n", output::grouped(*count)));
    }
    for row in &summary.worst {
        let set: Vec<String> =
            row.set.iter().map(|(path, value)| format!("{path}={value} ")).collect();
        output::print(&format!(
            "{}: {}seed {}: {}\n",
            row.verdict.word(),
            set.concat(),
            row.seed,
            row.why
        ));
        if !row.replay.is_empty() {
            output::print(&format!("  again: {}\n", row.replay));
        }
    }
    for path in &summary.files {
        output::print(&format!("wrote {}\n", path.display()));
    }
    let runs = folder.header().plan.runs();
    if wrong > 0 {
        let seed = summary.worst.iter().find(|row| row.verdict == Verdict::Failed);
        let help = match seed {
            Some(_)
                if !plan::is_of_graph(&folder.header().plan)
                    && folder.header().worker.is_empty() =>
            {
                "the lines `again` do them again".into()
            }
            Some(row) => {
                format!(
                    "make one small: xk sweep shrink {} --out {}",
                    row.seed,
                    folder.path().display()
                )
            }
            None => "the table tells which".into(),
        };
        let what = format!("{} of {runs} runs failed", output::grouped(wrong));
        return Err(Failure::new(what).help(help));
    }
    let is_whole = folder.len() as u64 == runs;
    let idle: Vec<&str> =
        summary.faults.iter().filter(|(_, count)| **count == 0).map(|(name, _)| &**name).collect();
    if is_whole && !idle.is_empty() {
        return Err(Failure::new(format!("never happened in any run: {}", idle.join("; "))).help(
            "a fault that does not happen tests nothing: more seeds, or a later end of runs",
        ));
    }
    if exhausted > 0 {
        let what = format!("a budget ran out in {} of {runs} runs", output::grouped(exhausted));
        let help = match plan::is_of_graph(&folder.header().plan) {
            true => {
                "a later --until or a longer --limit, in another folder; or the graph waits for \
                 ever"
            }
            false => {
                "more time for `World::run` or `Sweep::limit`; or the programs wait without end"
            }
        };
        return Err(Failure::coded(what, EXHAUSTED).help(help));
    }
    Ok(())
}

/// The progress, for a person: a bar, or a line now and then.
struct Shown {
    bar: Option<ProgressBar>,
    line: Instant,
}

impl Shown {
    fn new(runs: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(runs);
            if let Ok(style) = ProgressStyle::with_template("{elapsed} [{wide_bar}] {msg}") {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        Self { bar, line: Instant::now() }
    }

    fn look(&mut self, progress: &Progress, row: Option<&Row>) {
        if row.is_some_and(|row| row.verdict != Verdict::Clean)
            && let Some(row) = row
            && let Some(bar) = &self.bar
        {
            bar.println(format!(
                "{}: seed {}: {}",
                row.verdict.word(),
                row.seed,
                output::plain(&row.why)
            ));
        }
        let left = match progress.left() {
            Some(left) => format!("{} s left", left.as_secs()),
            None => "no run has ended yet".into(),
        };
        let text = format!(
            "{} of {} runs, {:.0} a second, {} failed, {} exhausted, {left}",
            output::grouped(progress.ended),
            output::grouped(progress.runs),
            progress.rate(),
            output::grouped(progress.failed),
            output::grouped(progress.exhausted),
        );
        match &self.bar {
            Some(bar) => {
                bar.set_position(progress.ended);
                bar.set_message(text);
            }
            None if self.line.elapsed() >= LINES_APART => {
                self.line = Instant::now();
                output::error(&format!("{text}\n"));
            }
            None => {}
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
