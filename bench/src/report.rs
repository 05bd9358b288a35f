//! Measuring alternately, and showing what came out.

use crate::benchmark::Benchmark;
use crate::case::{Better, Case, Sample, Trouble};
use crate::instructions;
use crate::record::{Ratio, Record, figure};
use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use tabled::builder::Builder;
use tabled::settings::{Alignment, Style, object::Columns};

/// Options of a measurement.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of rounds.
    pub runs: usize,
    /// Whether to count instructions as well.
    pub instructions: bool,
    /// The share of the usual effort in each round.
    pub effort: f64,
    /// Only rows whose name or system contains one of these; all if there are none.
    pub only: Vec<String>,
    /// Bounds the time of all rounds of one benchmark: no round begins later.
    pub limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let limit = Duration::from_secs(90);
        Self { runs: 7, instructions: true, effort: 1.0, only: Vec::new(), limit }
    }
}

impl Options {
    fn wants(&self, case: &Case) -> bool {
        let name = format!("{}, {}", case.row, case.system);
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }
}

/// Rounds that a case may fail, one after the other, before it is left alone.
const FAILURES_MAX: usize = 2;
/// Counts the attempts at a table of which a case is lost.
const ATTEMPTS: usize = 2;
/// A mean that many times its median, or that part of it, tells of something else than the median.
const FAR: f64 = 3.0;

/// Results of the rounds of one case.
#[derive(Clone, Default)]
struct Found {
    rounds: Vec<Option<Sample>>,
    trouble: Option<Trouble>,
    /// Failures since the last round that went well.
    failures: usize,
}

impl Found {
    fn goes_on(&self) -> bool {
        self.failures < FAILURES_MAX && !matches!(self.trouble, Some(Trouble::Skipped(_)))
    }

    /// Gives up the figures of which a mean is far from its median: of what a unit took, over the
    /// rounds, and of the single operations of a round, where those were timed.
    fn refuse_far_means(&mut self, better: Better) {
        let values = self.values(|s| Some(s.value));
        let Some(middle) = median(&values).filter(|_| values.iter().all(|value| *value > 0.0))
        else {
            return;
        };
        let count = values.len() as f64;
        let rounds = match better {
            Better::Lower => values.iter().sum::<f64>() / count,
            Better::Higher => count / values.iter().map(|rate| 1.0 / rate).sum::<f64>(),
        };
        let single = median(&self.values(|s| s.p50)).map(|p50| ("of a round", middle, p50));
        let far = [Some(("of the rounds", rounds, middle)), single]
            .into_iter()
            .flatten()
            .find(|(_, mean, median)| *mean > FAR * median || *mean < median / FAR);
        if let Some((of, mean, median)) = far {
            self.rounds.fill(None);
            self.trouble = Some(Trouble::Failed(format!(
                "refused: the mean {of}, {}, is not within {FAR} times the median, {}",
                figure(mean),
                figure(median)
            )));
        }
    }

    fn values(&self, pick: impl Fn(&Sample) -> Option<f64>) -> Vec<f64> {
        let mut list: Vec<f64> = self.rounds.iter().flatten().filter_map(pick).collect();
        list.sort_by(f64::total_cmp);
        list
    }

    fn also(&self) -> Vec<(&'static str, f64)> {
        let Some(first) = self.rounds.iter().flatten().next() else {
            return Vec::new();
        };
        let median_of = |name: &'static str| {
            let pick = |s: &Sample| s.also.iter().find(|(n, _)| *n == name).map(|(_, x)| *x);
            (name, median(&self.values(pick)).unwrap_or(f64::NAN))
        };
        first.also.iter().map(|(name, _)| median_of(name)).collect()
    }

    fn note(&self) -> Option<String> {
        Some(match self.trouble.as_ref()? {
            Trouble::Skipped(why) => format!("skipped: {why}"),
            Trouble::Failed(what) => format!("error: {what}"),
        })
    }
}

fn median(sorted: &[f64]) -> Option<f64> {
    sorted.get(sorted.len() / 2).copied()
}

/// Lowest and highest of sorted figures, without the lowest and the highest quarter.
fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let left_out = sorted.len() / 4;
    let kept = sorted.get(left_out..sorted.len() - left_out)?;
    Some((*kept.first()?, *kept.last()?))
}

/// The ratios of two systems' figures of the same rounds, in their order.
fn ratios(mine: &Found, other: &Found) -> Vec<f64> {
    let rounds = mine.rounds.iter().zip(&other.rounds);
    let mut list: Vec<f64> = rounds
        .filter_map(|(mine, other)| Some(mine.as_ref()?.value / other.as_ref()?.value))
        .collect();
    list.sort_by(f64::total_cmp);
    list
}

/// Measures a benchmark and prints its table. One of which a case is lost is measured once more.
pub fn run(benchmark: &Benchmark, options: &Options) -> Vec<Record> {
    let mut records = attempt(benchmark, options);
    for _ in 1..ATTEMPTS {
        let Some(lost) = records.iter().find(|record| record.is_lost()) else { break };
        eprintln!("xk bench: {}, once more: {}", benchmark.name, lost.loss());
        records = attempt(benchmark, options);
    }
    print(benchmark, &records);
    records
}

fn attempt(benchmark: &Benchmark, options: &Options) -> Vec<Record> {
    let mut cases = (benchmark.cases)();
    cases.retain(|case| options.wants(case));
    let mut found = measure(benchmark.name, &mut cases, options);
    for found in &mut found {
        found.refuse_far_means(benchmark.better);
    }
    let mut records = summarize(benchmark, &cases, &found);
    if options.instructions {
        for (record, case) in records.iter_mut().zip(&cases) {
            progress(&format!("{}: instructions of {}", benchmark.name, case.row));
            record.instructions = instructions::count(benchmark.name, case);
        }
        progress("");
    }
    records.extend((benchmark.derived)(&records));
    records
}

/// Measures all cases, round by round; the cases take turns within a round.
fn measure(name: &str, cases: &mut [Case], options: &Options) -> Vec<Found> {
    let runs = options.runs.max(1);
    let mut found = vec![Found::default(); cases.len()];
    let begun = Instant::now();
    for case in cases.iter_mut() {
        progress(&format!("{name}: {} is set up", case.row));
        case.run((case.operations as f64 * options.effort) as u64 / 4 + 1);
    }
    for round in 0..runs {
        if round > 0 && begun.elapsed() > options.limit {
            progress("");
            eprintln!("xk bench: {name}: {round} of {runs} rounds within {:?}", options.limit);
            break;
        }
        for (case, found) in cases.iter_mut().zip(&mut found) {
            progress(&format!("{name}: round {}/{runs}, {}", round + 1, case.row));
            if !found.goes_on() {
                found.rounds.push(None);
                continue;
            }
            match case.measure(options.effort) {
                Ok(sample) => {
                    found.rounds.push(Some(sample));
                    found.failures = 0;
                }
                Err(trouble) => {
                    found.rounds.push(None);
                    found.failures += 1;
                    found.trouble = Some(trouble);
                }
            }
        }
    }
    progress("");
    found
}

/// The time between two words to a log that is no terminal.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Shows what is being done: on a terminal at once, elsewhere now and then.
pub(crate) fn progress(text: &str) {
    thread_local! {
        static TOLD: Cell<Option<Instant>> = const { Cell::new(None) };
    }
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
        let _ = std::io::stderr().flush();
        return;
    }
    let is_due = TOLD.get().is_none_or(|told| told.elapsed() >= TOLD_EVERY);
    if is_due && !text.is_empty() {
        TOLD.set(Some(Instant::now()));
        eprintln!("xk bench: {text}");
    }
}

/// Takes what another row measured off each round of those cases that contain it.
fn net_of(cases: &[Case], found: &[Found]) -> Vec<Found> {
    let mut net = found.to_vec();
    for (case, net) in cases.iter().zip(&mut net) {
        let Some(less) = case.less else { continue };
        let same = |c: &Case| c.row == less && c.system == case.system;
        let Some(other) = cases.iter().position(same) else {
            continue;
        };
        for (mine, other) in net.rounds.iter_mut().zip(&found[other].rounds) {
            if let (Some(mine), Some(other)) = (mine, other) {
                mine.value -= other.value;
            }
        }
    }
    net
}

fn summarize(benchmark: &Benchmark, cases: &[Case], found: &[Found]) -> Vec<Record> {
    let net = net_of(cases, found);
    let mut records = Vec::new();
    for (case, found) in cases.iter().zip(&net) {
        let list = found.values(|s| Some(s.value));
        let middle = median(&list).unwrap_or(f64::NAN);
        let compare = |against: &crate::case::Against| {
            let same = |c: &Case| c.row == case.row && c.system == against.system;
            let other = cases.iter().position(same)?;
            let by_round = ratios(found, &net[other]);
            let other = median(&net[other].values(|s| Some(s.value)))?;
            (!list.is_empty()).then_some(Ratio {
                system: against.system,
                ratio: middle / other,
                interval: interval(&by_round).unwrap_or((f64::NAN, f64::NAN)),
                goal: against.goal,
            })
        };
        records.push(Record {
            bench: benchmark.name,
            row: case.row.clone(),
            system: case.system,
            unit: case.unit.unwrap_or(benchmark.unit),
            better: benchmark.better,
            min: list.first().copied().unwrap_or(f64::NAN),
            median: middle,
            max: list.last().copied().unwrap_or(f64::NAN),
            interval: interval(&list),
            runs: list.len(),
            p50: median(&found.values(|s| s.p50)),
            p99: median(&found.values(|s| s.p99)),
            also: found.also(),
            ratios: case.against.iter().filter_map(compare).collect(),
            instructions: None,
            goal: case.goal,
            note: found.note(),
        });
    }
    records
}

/// The heads of the columns of a table.
pub(crate) const HEADS: [&str; 9] =
    ["row", "system", "min", "median", "max", "instructions", "also", "ratio", "goal"];

/// The columns of a record, as [`HEADS`] names them.
pub(crate) fn columns(benchmark: &Benchmark, r: &Record) -> [String; HEADS.len()] {
    let row =
        if r.unit == benchmark.unit { r.row.clone() } else { format!("{} ({})", r.row, r.unit) };
    [
        row,
        r.system.into(),
        figure(r.min),
        figure(r.median),
        figure(r.max),
        r.instructions.map_or(String::new(), |n| format!("{n:.0}")),
        r.also_text(),
        r.ratio_text(),
        r.goal_text(),
    ]
}

/// Columns that are not empty.
pub(crate) fn shown(rows: &[[String; HEADS.len()]]) -> Vec<usize> {
    (0..HEADS.len()).filter(|at| *at < 5 || rows.iter().any(|row| !row[*at].is_empty())).collect()
}

fn print(benchmark: &Benchmark, records: &[Record]) {
    println!("{}: {} ({})", benchmark.name, benchmark.summary, benchmark.unit);
    let rows: Vec<_> = records.iter().map(|r| columns(benchmark, r)).collect();
    let shown = shown(&rows);
    let mut table = Builder::default();
    table.push_record(shown.iter().map(|at| HEADS[*at]));
    for row in &rows {
        table.push_record(shown.iter().map(|at| row[*at].as_str()));
    }
    let mut table = table.build();
    table.with(Style::sharp());
    for (column, at) in shown.iter().enumerate() {
        if (2..6).contains(at) {
            table.modify(Columns::one(column), Alignment::right());
        }
    }
    println!("{table}\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn found(rounds: &[(f64, Option<f64>)]) -> Found {
        let sample = |(value, p50): &(f64, Option<f64>)| Sample {
            value: *value,
            p50: *p50,
            ..Sample::default()
        };
        let rounds = rounds.iter().map(|round| Some(sample(round))).collect();
        Found { rounds, ..Found::default() }
    }

    /// One SYN of 200 that waits for a second; a stream that stands still for a round; and rows as
    /// a noisy machine makes them.
    #[test]
    fn a_mean_far_from_its_median_is_refused() {
        let times = [26.0, 5052.0, 5052.0, 5052.0, 5149.0];
        let waits = found(&times.map(|mean| (mean, Some(18.0))));
        let rates = [671_488.0, 4.84, 650_000.0, 700_000.0, 933_868.0];
        let stalls = found(&rates.map(|rate| (rate, None)));
        let times = [20.0, 21.0, 160.0, 22.0, 19.0, 20.0, 24.0];
        let noisy = found(&times.map(|mean| (mean, Some(18.0))));
        let net = found(&[(-18.7, None), (11.3, None), (113.0, None)]);
        for (mut found, better, is_refused) in [
            (waits, Better::Lower, true),
            (stalls.clone(), Better::Higher, true),
            (stalls, Better::Lower, false),
            (noisy, Better::Lower, false),
            (net, Better::Lower, false),
        ] {
            found.refuse_far_means(better);
            assert_eq!(found.trouble.is_some(), is_refused, "{:?}", found.rounds);
            assert_eq!(found.rounds.iter().any(Option::is_some), !is_refused);
        }
    }

    /// The first attempt loses a case, the second does not; or all do.
    #[test]
    fn a_table_with_a_lost_case_is_measured_again() {
        fn cases(fails: u32) -> Vec<Case> {
            thread_local!(static TRIED: Cell<u32> = const { Cell::new(0) });
            let case = Case::measured("row", move |_| {
                TRIED.set(TRIED.get() + 1);
                match TRIED.get() <= fails {
                    true => Err(Trouble::Failed("gone".into())),
                    false => Ok(1.0.into()),
                }
            });
            vec![case]
        }
        let options = Options { runs: 1, instructions: false, ..Options::default() };
        for (cases, is_lost) in
            [(|| cases(1)) as fn() -> Vec<Case>, || cases(u32::MAX)].into_iter().zip([false, true])
        {
            let records = run(&Benchmark::new("name", cases), &options);
            assert_eq!(records.iter().any(Record::is_lost), is_lost, "{records:?}");
        }
    }

    #[test]
    fn no_round_begins_once_the_time_is_over() {
        let case = Case::measured("row", |_| Ok(1.0.into()));
        let options = Options { runs: 5, limit: Duration::ZERO, ..Options::default() };
        assert_eq!(measure("name", &mut [case], &options)[0].rounds.len(), 1);
    }
}
