//! `xk demo` by itself.

use clap::Parser;
use std::process::ExitCode;
use xk_core::graph::Catalog;
use xk_show::{demo, output};

/// A small internet in the simulator: what `xk demo` shows
#[derive(Parser)]
#[command(name = "xk-demo", version)]
struct Cli {
    #[command(flatten)]
    demo: demo::Args,
}

fn main() -> ExitCode {
    let catalog = Catalog::new(demo::PROTOCOLS);
    let catalog = catalog.unwrap_or_else(|error| panic!("the demonstration's list: {error}"));
    output::exit_code(demo::main(&Cli::parse().demo, &catalog))
}
