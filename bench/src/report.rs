//! Measuring alternately, and showing what came out.

use crate::case::{Benchmark, Case, Found};
use crate::instructions;
use crate::record::Record;
use std::io::{IsTerminal, Write};
use tabled::builder::Builder;
use tabled::settings::{Alignment, Style, object::Columns};

/// How to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many rounds.
    pub runs: usize,
    /// Whether to count instructions as well.
    pub instructions: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            runs: 7,
            instructions: true,
        }
    }
}

/// Measures a benchmark and prints its table.
pub fn run(benchmark: &Benchmark, options: Options) -> Vec<Record> {
    let mut cases = (benchmark.cases)();
    let samples = measure(benchmark.name, &mut cases, options.runs.max(1));
    let mut records = summarize(benchmark, &cases, &samples);
    if options.instructions {
        for (record, case) in records.iter_mut().zip(&cases) {
            if case.is_counted() {
                record.instructions = instructions::count(benchmark.name, case);
            }
        }
    }
    records.extend((benchmark.derived)(&records));
    print(benchmark, &records);
    records
}

/// What each case found per round, up to the first that could not; the cases take turns within a round.
struct Samples {
    found: Vec<Found>,
    skipped: Option<String>,
}

fn measure(name: &str, cases: &mut [Case], runs: usize) -> Vec<Samples> {
    let mut samples: Vec<Samples> = Vec::new();
    for case in cases.iter_mut() {
        case.warm_up();
        samples.push(Samples {
            found: Vec::with_capacity(runs),
            skipped: None,
        });
    }
    for round in 0..runs {
        if std::io::stderr().is_terminal() {
            eprint!("\r{name}: round {}/{runs}", round + 1);
            let _ = std::io::stderr().flush();
        }
        for (case, samples) in cases.iter_mut().zip(&mut samples) {
            if samples.skipped.is_some() {
                continue;
            }
            match case.round() {
                Ok(found) => samples.found.push(found),
                Err(why) => samples.skipped = Some(why),
            }
        }
    }
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    samples
}

/// The middle of a list that is in order; 0 of an empty one.
fn middle(list: &[f64]) -> f64 {
    list.get(list.len() / 2).copied().unwrap_or(0.0)
}

fn in_order(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut list: Vec<f64> = figures.collect();
    list.sort_by(f64::total_cmp);
    list
}

fn summarize(benchmark: &Benchmark, cases: &[Case], samples: &[Samples]) -> Vec<Record> {
    let find = |row: &str, system: &str| {
        cases
            .iter()
            .position(|c| c.row == row && c.system == system)
    };
    let net = |at: usize| -> Vec<f64> {
        let less = cases[at].less.and_then(|row| find(row, cases[at].system));
        let subtract = |(round, found): (usize, &Found)| {
            let other = less.and_then(|l| samples[l].found.get(round));
            found.figure - other.map_or(0.0, |o| o.figure)
        };
        in_order(samples[at].found.iter().enumerate().map(subtract))
    };
    let percentile = |at: usize, pick: fn(&Found) -> Option<f64>| {
        let list = in_order(samples[at].found.iter().filter_map(pick));
        (!list.is_empty()).then(|| middle(&list))
    };
    let mut records = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let list = net(at);
        let other = case.ratio_to.and_then(|system| {
            let other = find(&case.row, system)?;
            (!samples[other].found.is_empty()).then(|| (system, middle(&net(other))))
        });
        records.push(Record {
            bench: benchmark.name,
            row: case.row.clone(),
            system: case.system,
            unit: case.unit.unwrap_or(benchmark.unit),
            min: list.first().copied().unwrap_or(0.0),
            median: middle(&list),
            max: list.last().copied().unwrap_or(0.0),
            p50: percentile(at, |f| f.p50),
            p99: percentile(at, |f| f.p99),
            skipped: samples[at].skipped.clone(),
            runs: if case.is_quoted() { 0 } else { list.len() },
            ratio: other.map(|(s, m)| (s, middle(&list) / m)),
            instructions: None,
            goal: case.goal,
        });
    }
    records
}

fn print(benchmark: &Benchmark, records: &[Record]) {
    println!(
        "{}: {} ({})",
        benchmark.name, benchmark.summary, benchmark.unit
    );
    let mut table = Builder::default();
    table.push_record([
        "row",
        "system",
        "unit",
        "min",
        "median",
        "max",
        "p50",
        "p99",
        "instructions",
        "ratio",
        "goal",
    ]);
    for r in records {
        let [min, median, max] = r.figures_text();
        let [p50, p99] = r.percentiles_text();
        table.push_record([
            r.row.clone(),
            r.system.into(),
            r.unit.into(),
            min,
            median,
            max,
            p50,
            p99,
            r.instructions.map_or(String::new(), |n| format!("{n:.0}")),
            r.ratio_text(),
            r.goal_text(),
        ]);
    }
    let mut table = table.build();
    table.with(Style::sharp());
    for column in 3..9 {
        table.modify(Columns::one(column), Alignment::right());
    }
    println!("{table}\n");
}
