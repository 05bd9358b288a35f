//! Measuring alternately, and showing what came out.

use crate::case::{Benchmark, Case};
use crate::instructions;
use crate::record::Record;
use std::io::{IsTerminal, Write};
use std::time::Instant;
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
            record.instructions = instructions::count(benchmark.name, case);
        }
    }
    records.extend((benchmark.derived)(&records));
    print(benchmark, &records);
    records
}

/// Nanoseconds per unit, per case and round; the cases take turns within a round.
fn measure(name: &str, cases: &mut [Case], runs: usize) -> Vec<Vec<f64>> {
    let mut samples = vec![Vec::with_capacity(runs); cases.len()];
    for case in cases.iter_mut() {
        case.run(case.operations / 4 + 1);
    }
    for round in 0..runs {
        if std::io::stderr().is_terminal() {
            eprint!("\r{name}: round {}/{runs}", round + 1);
            let _ = std::io::stderr().flush();
        }
        for (case, samples) in cases.iter_mut().zip(&mut samples) {
            let start = Instant::now();
            case.run(case.operations);
            let ns = start.elapsed().as_nanos() as f64;
            samples.push(ns / case.operations as f64 / case.divisor);
        }
    }
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
    samples
}

fn summarize(benchmark: &Benchmark, cases: &[Case], samples: &[Vec<f64>]) -> Vec<Record> {
    let net = |at: usize| -> Vec<f64> {
        let less = cases[at].less.and_then(|row| {
            cases
                .iter()
                .position(|c| c.row == row && c.system == cases[at].system)
        });
        let subtract = |(round, ns): (usize, &f64)| ns - less.map_or(0.0, |l| samples[l][round]);
        let mut list: Vec<f64> = samples[at].iter().enumerate().map(subtract).collect();
        list.sort_by(f64::total_cmp);
        list
    };
    let median = |list: &[f64]| list[list.len() / 2];
    let peer = |row: &str, system: &str| {
        cases
            .iter()
            .position(|c| c.row == row && c.system == system)
    };
    let mut records = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let list = net(at);
        let other = case
            .ratio_to
            .and_then(|s| Some((s, median(&net(peer(&case.row, s)?)))));
        records.push(Record {
            bench: benchmark.name,
            row: case.row.clone(),
            system: case.system,
            unit: benchmark.unit,
            min: list[0],
            median: median(&list),
            max: list[list.len() - 1],
            runs: list.len(),
            ratio: other.map(|(s, m)| (s, median(&list) / m)),
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
        "min",
        "median",
        "max",
        "instructions",
        "ratio",
        "goal",
    ]);
    for r in records {
        table.push_record([
            r.row.clone(),
            r.system.into(),
            format!("{:.1}", r.min),
            format!("{:.1}", r.median),
            format!("{:.1}", r.max),
            r.instructions.map_or(String::new(), |n| format!("{n:.0}")),
            r.ratio
                .map_or(String::new(), |(s, x)| format!("{x:.2} of {s}")),
            r.goal_text(),
        ]);
    }
    let mut table = table.build();
    table.with(Style::sharp());
    for column in 2..6 {
        table.modify(Columns::one(column), Alignment::right());
    }
    println!("{table}\n");
}
