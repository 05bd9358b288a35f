//! Runs the benchmarks named on the command line, or all:
//! `cargo run --release -p xk-bench -- layer`. The command `xk bench` offers the same with options.

use std::process::ExitCode;

fn main() -> ExitCode {
    if xk_bench::run_if_asked() {
        return ExitCode::SUCCESS;
    }
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names.push("all".into());
    }
    match xk_bench::execute(&xk_bench::Request { names, ..Default::default() }) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xk-bench: {error}");
            ExitCode::from(2)
        }
    }
}
