//! The program `xk-bench`, which `xk bench` starts: measure, each row beside its peers in one run.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use xk_bench::{Options, Request};

/// Measure, beside peers in one run: `list`, `stale`, a name, or `all`
#[derive(Parser)]
#[command(name = "xk bench", bin_name = "xk bench", version)]
struct Args {
    /// Names of benchmarks, `all`, `list` to see what there is, or `stale` to see which tables of
    /// the page are older than what they measure
    #[arg(required = true, value_name = "list|stale|NAME|all")]
    names: Vec<String>,
    /// Write the records to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables to this file as Markdown; for `stale`, the page to look at
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Draw the figures into this file as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Only rows and systems whose name contains this; may be given several times
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Rounds; every row is measured once in each
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// Leave out the instruction counts, which take valgrind and time
    #[arg(long)]
    no_instructions: bool,
}

fn main() -> ExitCode {
    // A benchmark has started this program again for a part of it.
    if xk_bench::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    let args = Args::parse();
    if args.names.iter().any(|name| name == "list") {
        print!("{}", xk_bench::list());
        return ExitCode::SUCCESS;
    }
    if args.names.iter().any(|name| name == "stale") {
        let page = args.markdown.unwrap_or_else(|| "docs/benchmarks.md".into());
        return end(xk_bench::stale(&page).map(|told| {
            print!("{told}");
            true
        }));
    }
    let request = Request {
        names: args.names,
        options: Options {
            runs: usize::from(args.runs),
            instructions: !args.no_instructions,
            only: args.only,
            ..Options::default()
        },
        json: args.json,
        markdown: args.markdown,
        plot: args.plot,
    };
    end(xk_bench::execute(&request).map(|records| {
        let lost: Vec<_> = records.iter().filter(|record| record.is_lost()).collect();
        for record in &lost {
            eprintln!("xk bench: lost: {}, {}", record.bench, record.loss());
        }
        lost.is_empty()
    }))
}

/// Gives the exit status: 1 if a case was lost, 2 if nothing could be done.
fn end(outcome: Result<bool, String>) -> ExitCode {
    match outcome {
        Ok(whole) => ExitCode::from(u8::from(!whole)),
        Err(error) => {
            eprintln!("xk bench: {error}\n  help: `xk bench list` shows the benchmarks");
            ExitCode::from(2)
        }
    }
}
