//! `xk sweep shrink` for a test of programs: its world is built by code, which is told what to
//! leave out.

use super::shrink::{Args, Failing};
use crate::failure::Failure;
use crate::output;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use xk_sweep::pool::{self, Pool};
use xk_sweep::{Header, Plan, Row, Verdict, shrink};

/// Steps of the end of a run, in a second.
const STEPS: f64 = 1000.0;

/// A run of a test, which is done with parts left out.
struct Test<'a> {
    header: &'a Header,
    plan: Plan,
    /// File in which a run lists its parts.
    list: PathBuf,
    failing: Failing,
}

/// A part of a run, and when it came, in seconds.
type Part = (String, f64);

pub(super) fn main(args: &Args, header: &Header, found: &Row) -> Result<(), Failure> {
    if header.worker.is_empty() {
        let what =
            format!("`{}` is a test of programs that cannot be started alone", header.plan.what);
        return Err(Failure::usage(what).help(format!("do the run again: {}", found.replay)));
    }
    let one = |axis: &xk_sweep::Axis| xk_sweep::Axis {
        values: found.set.get(&axis.name).cloned().into_iter().collect(),
        ..axis.clone()
    };
    let plan = Plan {
        axes: header.plan.axes.iter().map(one).collect(),
        seeds: (found.seed, found.seed + 1),
        ..header.plan.clone()
    };
    let list = args.out.join(format!("parts-{}", found.seed));
    let mut test = Test { header, plan, list, failing: Failing::of(found, args) };
    let (first, all, ended) = test.run(None, None)?;
    test.failing.expect(&first)?;
    let names = |parts: &[Part]| parts.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let kept = shrink::smallest(&all, |kept| test.fails(&names(kept), None));
    // Without the others it comes at another time, but for what is over with its time anyway.
    let (_, _, most) = test.run(Some(&names(&kept)), None)?;
    let most = (most * STEPS).ceil() as u64;
    let is_timely = found.verdict == Verdict::Failed && test.fails(&names(&kept), Some(most));
    let until =
        is_timely.then(|| shrink::least(1, most, |until| test.fails(&names(&kept), Some(until))));
    let (last, kept, _) = test.run(Some(&names(&kept)), until)?;
    test.failing.expect(&last)?;
    let said: String = kept.iter().map(|(name, at)| format!("# {name} at {at} s\n")).collect();
    let time = until.map(|until| until as f64 / STEPS);
    let limit = time.map_or_else(String::new, |time| format!("XK_UNTIL={time} "));
    let command = format!("XK_KEEP='{}' {limit}{}", names(&kept).join(" "), found.replay);
    let path = args.out.join(format!("shrunk-{}.sh", found.seed));
    let whole = format!("# {}\n{said}{command}\n", found.why.replace('\n', " "));
    std::fs::write(&path, whole).map_err(|error| Failure::file("cannot write", &path, error))?;
    output::print(&format!(
        "{} faults, chances and programs of {}, {:.3} s of {ended:.3}, {}\nwrote {}\nagain: {command}\n",
        kept.len(),
        all.len(),
        time.unwrap_or(ended),
        test.failing.told(),
        path.display(),
    ));
    Ok(())
}

impl Test<'_> {
    /// Whether it fails the same way.
    fn fails(&mut self, kept: &[String], until: Option<u64>) -> bool {
        let tried = self.run(Some(kept), until);
        tried.is_ok_and(|(row, ..)| self.failing.is_same(&row))
    }

    /// Does it with some of its parts, or with all, up to a moment: its row, its parts, its end.
    fn run(
        &mut self,
        kept: Option<&[String]>,
        until: Option<u64>,
    ) -> Result<(Row, Vec<Part>, f64), Failure> {
        self.failing.tried();
        let command = || {
            let mut words = self.header.worker.iter();
            let mut command = Command::new(words.next().map_or("", String::as_str));
            command.args(words).env("XK_PARTS", &self.list).stdout(Stdio::null());
            command.envs(kept.map(|kept| ("XK_KEEP", kept.join(" "))));
            command.envs(until.map(|until| ("XK_UNTIL", (until as f64 / STEPS).to_string())));
            command
        };
        let failed = |error: std::io::Error| Failure::file("cannot use", &self.list, error);
        std::fs::write(&self.list, "").map_err(failed)?;
        let limit = self.failing.limit;
        let pool = Pool { jobs: 1, limit, keeps_going: true, canary: 1, command: &command };
        let row = pool::one(&pool, &self.plan).map_err(|error| {
            Failure::new(error.to_string())
                .help("its program may have been removed: run the test again")
        })?;
        let text = std::fs::read_to_string(&self.list).map_err(failed)?;
        let _ = std::fs::remove_file(&self.list);
        let part = |line: &str| {
            let (name, ns) = line.split_once(' ')?;
            Some((name.to_owned(), ns.parse::<u64>().ok()? as f64 / 1e9))
        };
        let (ends, parts): (Vec<Part>, Vec<Part>) =
            text.lines().filter_map(part).partition(|(name, _)| name == "end");
        let ended = ends.iter().map(|(_, at)| *at).fold(0.0, f64::max);
        let is_kept = |part: &Part| kept.is_none_or(|kept| kept.contains(&part.0));
        Ok((row, parts.into_iter().filter(is_kept).collect(), ended))
    }
}
