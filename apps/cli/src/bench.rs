//! `xk bench`: measure, each row beside its peers in one run.

use crate::failure::Failure;
use crate::output;
use crate::table::Table;
use std::path::PathBuf;
use xk_bench::{Options, Request};

/// Measure, beside peers in one run: `list`, a name, or `all`
#[derive(clap::Args)]
pub(crate) struct Args {
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

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    if args.names.iter().any(|name| name == "list") {
        let mut table = Table::new(&["benchmark", "what it measures"]);
        for (name, summary) in xk_bench::list() {
            table.row([name.to_owned(), summary.to_owned()]);
        }
        output::print(&table.render());
        return Ok(());
    }
    let request = Request {
        names: args.names.clone(),
        options: Options {
            runs: usize::from(args.runs),
            instructions: !args.no_instructions,
            only: args.only.clone(),
            ..Options::default()
        },
        json: args.json.clone(),
        markdown: args.markdown.clone(),
        plot: args.plot.clone(),
    };
    xk_bench::execute(&request)
        .map(drop)
        .map_err(|error| Failure::usage(error).help("`xk bench list` shows the benchmarks"))
}
