//! Measuring alternately, and showing what came out.

use crate::case::{Benchmark, Case, Sample, Trouble};
use crate::instructions;
use crate::record::{Ratio, Record, figure};
use std::io::{IsTerminal, Write};
use tabled::builder::Builder;
use tabled::settings::{Alignment, Style, object::Columns};

/// How to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many rounds.
    pub runs: usize,
    /// Whether to count instructions as well.
    pub instructions: bool,
    /// The share of the usual effort in each round.
    pub effort: f64,
    /// Only rows whose name or system contains one of these; all if there are none.
    pub only: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { runs: 7, instructions: true, effort: 1.0, only: Vec::new() }
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

/// What the rounds of one case found.
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

/// What is left of figures in their order without the lowest and the highest quarter.
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

/// Measures a benchmark and prints its table.
pub fn run(benchmark: &Benchmark, options: &Options) -> Vec<Record> {
    let mut cases = (benchmark.cases)();
    cases.retain(|case| options.wants(case));
    let found = measure(benchmark.name, &mut cases, options);
    let mut records = summarize(benchmark, &cases, &found);
    if options.instructions {
        for (record, case) in records.iter_mut().zip(&cases) {
            record.instructions = instructions::count(benchmark.name, case);
        }
    }
    records.extend((benchmark.derived)(&records));
    print(benchmark, &records);
    records
}

/// What each case and round found; the cases take turns within a round.
fn measure(name: &str, cases: &mut [Case], options: &Options) -> Vec<Found> {
    let runs = options.runs.max(1);
    let mut found = vec![Found::default(); cases.len()];
    for case in cases.iter_mut() {
        case.run((case.operations as f64 * options.effort) as u64 / 4 + 1);
    }
    for round in 0..runs {
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

/// Shows on a terminal what is being done.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
        let _ = std::io::stderr().flush();
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

/// Which columns say something.
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
