//! What a person asks for: some benchmarks, and files to write.

use crate::record::Record;
use crate::report::{Options, run};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// What to measure, and where to write it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The benchmarks by name; `all` stands for all.
    pub names: Vec<String>,
    /// How to measure.
    pub options: Options,
    /// A file for the records as JSON.
    pub json: Option<PathBuf>,
    /// A file for the tables as Markdown.
    pub markdown: Option<PathBuf>,
}

/// The names and summaries of all benchmarks.
pub fn list() -> Vec<(&'static str, &'static str)> {
    crate::benchmarks()
        .iter()
        .map(|b| (b.name, b.summary))
        .collect()
}

/// Measures what is asked for, prints the tables and writes the files.
///
/// # Errors
/// A name that is no benchmark, with those there are; or a file that cannot be written.
pub fn execute(request: &Request) -> Result<Vec<Record>, String> {
    let all = crate::benchmarks();
    let known: Vec<&str> = all.iter().map(|b| b.name).collect();
    for name in &request.names {
        if name != "all" && !known.contains(&name.as_str()) {
            return Err(format!(
                "no benchmark is called `{name}`; there are {}",
                known.join(", ")
            ));
        }
    }
    let wanted = |name: &str| request.names.iter().any(|n| n == "all" || n == name);
    let mut records = Vec::new();
    let mut markdown = preface();
    for benchmark in all.iter().filter(|b| wanted(b.name)) {
        let found = run(benchmark, request.options);
        let _ = writeln!(
            markdown,
            "## {}\n\n{} ({}).\n",
            benchmark.name, benchmark.summary, benchmark.unit
        );
        markdown.push_str(&table(&found));
        records.extend(found);
        // Written after each, so that a long run that is ended early has left what it found.
        write(request, &records, &markdown)?;
    }
    Ok(records)
}

fn write(request: &Request, records: &[Record], markdown: &str) -> Result<(), String> {
    let put = |path: &PathBuf, text: String| {
        fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    if let Some(path) = &request.json {
        let values: Vec<Value> = records.iter().map(Record::to_json).collect();
        let text = serde_json::to_string_pretty(&values).map_err(|error| error.to_string())?;
        put(path, text + "\n")?;
    }
    match &request.markdown {
        Some(path) => put(path, markdown.trim_end().to_string() + "\n"),
        None => Ok(()),
    }
}

/// What machine this is, and how the tables are made.
fn preface() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name"))
        .map(|l| l.trim_start_matches([' ', '\t', ':']));
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = read("/proc/loadavg");
    format!(
        "# Benchmarks\n\nMade by `xk bench all --markdown docs/benchmarks.md`. Machine: {}, {cores} cores, load average {} at the \
         start, version {}. The rows of a table were measured alternately, round by round; ratios are of medians. \
         Instructions are callgrind's count per unit and do not depend on the load.\n\n",
        model.unwrap_or("unknown processor"),
        load.split(' ').next().unwrap_or("?"),
        env!("CARGO_PKG_VERSION"),
    )
}

fn table(records: &[Record]) -> String {
    let mut text = String::from(
        "| row | system | unit | min | median | max | p50 | p99 | instructions | ratio | goal |\n",
    );
    text.push_str("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | --- |\n");
    for r in records {
        let instructions = r.instructions.map_or(String::new(), |n| format!("{n:.0}"));
        let [min, median, max] = r.figures_text();
        let [p50, p99] = r.percentiles_text();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {min} | {median} | {max} | {p50} | {p99} | {instructions} | {} | {} |",
            r.row,
            r.system,
            r.unit,
            r.ratio_text(),
            r.goal_text()
        );
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_an_error_that_names_the_others() {
        let request = Request {
            names: vec!["layers".into()],
            ..Request::default()
        };
        let error = execute(&request).unwrap_err();
        assert!(
            error.contains("`layers`") && error.contains("udp-inprocess"),
            "{error}"
        );
    }

    #[test]
    fn every_benchmark_measures_and_writes_records() {
        let json = std::env::temp_dir().join(format!("xk-bench-{}.json", std::process::id()));
        let options = Options {
            runs: 1,
            instructions: false,
        };
        let request = Request {
            names: vec!["message".into()],
            options,
            json: Some(json.clone()),
            markdown: None,
        };
        let records = execute(&request).unwrap();
        let text = fs::read_to_string(&json).unwrap();
        fs::remove_file(&json).unwrap();
        let values: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert_eq!(values.len(), records.len());
        for key in [
            "bench", "row", "system", "unit", "min", "median", "max", "runs", "ratio_to",
        ] {
            assert!(values.iter().all(|v| v.get(key).is_some()), "{key}");
        }
    }
}
