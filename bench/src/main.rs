//! The program `xk-bench`, which `xk bench` starts: measure, each row beside its peers in one run.

use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;
use xk_bench::{Options, Request};

/// Measure, beside peers in one run: `list`, a name, or `all`
#[derive(Parser)]
#[command(name = "xk bench", bin_name = "xk bench", version)]
struct Args {
    /// Names of benchmarks, `all`, or `list` to see what there is
    #[arg(required = true, value_name = "list|NAME|all")]
    names: Vec<String>,
    /// Write the records to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables to this file as Markdown
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
    match xk_bench::execute(&request) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xk bench: {error}\n  help: `xk bench list` shows the benchmarks");
            ExitCode::from(2)
        }
    }
}
