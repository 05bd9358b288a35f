//! `xk bench`: starts the program of the benchmarks, which lies beside this one.

use crate::failure::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The program of the benchmarks.
const PROGRAM: &str = "xk-bench";

/// Measure, beside peers in one run: `list`, `stale`, a name, or `all`
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Arguments of `xk-bench`: `list`, `stale`, names, `all`, and options that `--help` names
    #[arg(
        required = true,
        value_name = "list|stale|NAME|all",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let own = std::env::current_exe()
        .map_err(|error| Failure::new(format!("no path to this program: {error}")))?;
    let program = own.with_file_name(PROGRAM);
    let error = Command::new(&program).args(&args.words).exec();
    let failure = Failure::new(format!("cannot start {}: {error}", program.display()));
    Err(match error.kind() {
        std::io::ErrorKind::NotFound => failure.help(
            "build it with the same profile as this program: cargo build --release -p xk-bench",
        ),
        _ => failure,
    })
}
