//! A request from the command line: some benchmarks, and files to write.

use crate::benchmark::Benchmark;
use crate::origin::Origin;
use crate::plot;
use crate::record::Record;
use crate::report::{HEADS, Options, columns, run, shown};
use crate::stale::MEASURED_AT;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tabled::builder::Builder;
use tabled::settings::Style;

/// Benchmarks to measure, and files to write the results to.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The benchmarks by name; `all` stands for all.
    pub names: Vec<String>,
    /// Options of the measurement.
    pub options: Options,
    /// A file for the records as JSON.
    pub json: Option<PathBuf>,
    /// A file for the tables as Markdown.
    pub markdown: Option<PathBuf>,
    /// A file for the figures as SVG.
    pub plot: Option<PathBuf>,
}

/// The names and summaries of all benchmarks, as a table.
pub fn list() -> String {
    let mut table = Builder::new();
    table.push_record(["benchmark", "what it measures"]);
    for benchmark in crate::list::benchmarks() {
        table.push_record([benchmark.name, benchmark.summary]);
    }
    format!("{}\n", table.build().with(Style::empty()))
}

/// Measures what is asked for, prints the tables and writes the files.
///
/// # Errors
/// A name that is no benchmark, with those there are; or a file that cannot be written.
pub fn execute(request: &Request) -> Result<Vec<Record>, String> {
    let all = crate::list::benchmarks();
    let known: Vec<&str> = all.iter().map(|b| b.name).collect();
    for name in &request.names {
        if name != "all" && !known.contains(&name.as_str()) {
            return Err(format!("no benchmark is called `{name}`; there are {}", known.join(", ")));
        }
    }
    let wanted = |name: &str| request.names.iter().any(|n| n == "all" || n == name);
    let mut records = Vec::new();
    let origin = Origin::find();
    let mut markdown = preface(&origin);
    if let Some(noise) = origin.noise() {
        eprintln!("xk bench: {noise}");
        let _ = writeln!(markdown, "**Do not quote these figures: {noise}.**\n");
    }
    let mut panels = Vec::new();
    let wanted: Vec<_> = all.iter().filter(|b| wanted(b.name)).collect();
    let all_begun = Instant::now();
    for (at, benchmark) in wanted.iter().enumerate() {
        let begun = Instant::now();
        let limit = share(at, wanted.len(), all_begun.elapsed()).min(request.options.limit);
        let found = run(benchmark, &Options { limit, ..request.options.clone() });
        let (place, taken) = (at + 1, begun.elapsed().as_secs());
        eprintln!("xk bench: {place} of {}, {}: {taken} s", wanted.len(), benchmark.name);
        let _ = writeln!(
            markdown,
            "## {}\n\n{} ({}).\n\n{MEASURED_AT}{}.\n",
            benchmark.name, benchmark.summary, benchmark.unit, origin.commit
        );
        markdown.push_str(&told(benchmark, &found));
        let undecided = found.iter().filter(|record| record.is_undecided()).count();
        if undecided > 0 {
            let _ = writeln!(
                markdown,
                "**{undecided} of these rows have rounds that differ by more than the goal's margin: measure again.**\n"
            );
        }
        if !benchmark.why.is_empty() {
            let _ = writeln!(markdown, "{}\n", benchmark.why);
        }
        records.extend(found.iter().cloned());
        if !found.iter().any(Record::is_lost) {
            panels.push((*benchmark, found));
        }
        // Written after each, so that a long run that is ended early has left what it found.
        write(request, &origin, &records, &markdown)?;
        if let Some(path) = &request.plot {
            put(path, &plot::svg(&panels, &origin.caption())?)?;
        }
    }
    Ok(records)
}

/// Bounds all that is asked for: the benchmark of worlds alone takes 18 minutes on 2 cores.
const TIME: Duration = Duration::from_secs(45 * 60);
/// Time that each benchmark has at least.
const SHARE_MIN: Duration = Duration::from_secs(5);

/// Returns the time that the benchmark at this place of so many may take: an equal part of what
/// those before it have left.
fn share(at: usize, count: usize, gone: Duration) -> Duration {
    let left = u32::try_from(count.saturating_sub(at)).unwrap_or(u32::MAX).max(1);
    (TIME.saturating_sub(gone) / left).max(SHARE_MIN)
}

fn put(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn write(
    request: &Request,
    origin: &Origin,
    records: &[Record],
    markdown: &str,
) -> Result<(), String> {
    if let Some(path) = &request.json {
        let values: Vec<Value> = records.iter().map(|r| origin.with(r.to_json())).collect();
        let text = serde_json::to_string_pretty(&values).map_err(|error| error.to_string())?;
        put(path, &(text + "\n"))?;
    }
    match &request.markdown {
        Some(path) => put(path, &(markdown.trim_end().to_string() + "\n")),
        None => Ok(()),
    }
}

/// Describes the machine, and how the tables are made.
fn preface(origin: &Origin) -> String {
    format!(
        "# Benchmarks\n\nMade by `xk bench all --markdown docs/benchmarks.md`. Machine: {}, load average {} at the start; version {}, \
         commit {}. The rows of a table were measured alternately, round by round; ratios are of medians. \
         A goal is reached if all rounds reach it but the best and the worst quarter, undecided if a part of them does. \
         Instructions are callgrind's count per unit and do not depend on the load.\n\n",
        origin.machine,
        origin.load,
        env!("CARGO_PKG_VERSION"),
        origin.commit,
    )
}

/// The table; or, if a case of it is lost, what was lost in its place: the rest was measured beside
/// something that went wrong.
fn told(benchmark: &Benchmark, records: &[Record]) -> String {
    let lost: Vec<_> = records.iter().filter(|record| record.is_lost()).collect();
    if lost.is_empty() {
        return table(benchmark, records);
    }
    let mut text = String::from("**No figures, for cases were lost:**\n\n");
    for record in lost {
        let _ = writeln!(text, "- {}", record.loss());
    }
    text + "\n"
}

fn table(benchmark: &Benchmark, records: &[Record]) -> String {
    let rows: Vec<_> = records.iter().map(|r| columns(benchmark, r)).collect();
    let shown = shown(&rows);
    let line = |cell: &dyn Fn(usize) -> String| -> String {
        let cells: Vec<String> = shown.iter().map(|at| cell(*at)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = line(&|at| HEADS[at].into());
    text += &line(&|at| {
        if (2..6).contains(&at) { "---:".into() } else { "---".into() }
    });
    for row in &rows {
        text += &line(&|at| row[at].replace('|', "\\|"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_every_benchmark() {
        let text = list();
        assert_eq!(text.lines().count(), 1 + crate::list::benchmarks().len());
        for benchmark in crate::list::benchmarks() {
            assert!(text.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words[0] == benchmark.name && line.contains(benchmark.summary)
            }));
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_names_the_others() {
        let request = Request { names: vec!["layers".into()], ..Request::default() };
        let error = execute(&request).unwrap_err();
        assert!(error.contains("`layers`") && error.contains("udp-inprocess"), "{error}");
    }

    #[test]
    fn a_benchmark_writes_records_tables_and_a_drawing() {
        let folder = std::env::temp_dir().join(format!("xk-bench-test-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [json, markdown, plot] =
            ["json", "md", "svg"].map(|end| folder.join(format!("bench.{end}")));
        let request = Request {
            names: vec!["message".into()],
            options: Options { runs: 1, instructions: false, effort: 0.01, ..Options::default() },
            json: Some(json.clone()),
            markdown: Some(markdown.clone()),
            plot: Some(plot.clone()),
        };
        let records = execute(&request).unwrap();
        let [json, markdown, plot] =
            [json, markdown, plot].map(|path| fs::read_to_string(path).unwrap());
        fs::remove_dir_all(&folder).unwrap();
        let values: Vec<Value> = serde_json::from_str(&json).unwrap();
        assert_eq!(values.len(), records.len());
        for key in [
            "bench",
            "row",
            "system",
            "unit",
            "min",
            "median",
            "max",
            "runs",
            "p50",
            "p99",
            "also",
            "ratio_to",
            "ratios",
            "instructions",
            "goal",
            "note",
            "machine",
            "commit",
        ] {
            assert!(values.iter().all(|v| v.get(key).is_some()), "{key}");
        }
        assert!(
            markdown.contains("## message") && markdown.contains("| --- | --- | ---: |"),
            "{markdown}"
        );
        for record in &records {
            assert!(plot.contains(&record.row.replace('&', "&amp;")), "{}", record.row);
        }
    }

    #[test]
    fn a_table_with_a_lost_case_tells_no_figure() {
        let benchmark = Benchmark::new("name", Vec::new);
        let whole = Record { row: "whole".into(), system: "xk", median: 42.0, ..Record::default() };
        let note = Some("error: refused: the mean".into());
        let lost = Record { row: "lost".into(), system: "xk", note, ..Record::default() };
        assert!(told(&benchmark, std::slice::from_ref(&whole)).contains("42.0"));
        let text = told(&benchmark, &[whole, lost]);
        assert!(!text.contains("42.0") && text.contains("- lost, xk: error: refused"), "{text}");
    }

    #[test]
    fn benchmarks_share_the_time() {
        let part = TIME / 10;
        assert_eq!(share(0, 10, Duration::ZERO), part);
        assert_eq!(share(2, 10, part), TIME * 9 / 80, "the first two have left one");
        assert_eq!(share(9, 10, TIME * 2), SHARE_MIN);
    }
}
