//! `xk check`: every mistake of every file, before anything runs.

use crate::failure::{Failure, show};
use crate::{file, output};
use std::path::{Path, PathBuf};
use xk_lang::Severity;

/// Check graph files: report every mistake with its place, what was expected and the nearest right
/// name
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Graph files; `-` for the standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Also look whether this machine has the devices and privileges that the graph needs
    #[arg(long)]
    environment: bool,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let mut good = true;
    for path in &args.files {
        if let Err(failure) = check(path, args.environment) {
            failure.show();
            good = false;
        }
    }
    if good { Ok(()) } else { Err(Failure::Said) }
}

fn check(path: &Path, environment: bool) -> Result<(), Failure> {
    let graph = file::load(path)?;
    show(graph.warnings());
    if environment {
        show(&xk_compose::check_environment(&graph, None, Severity::Warning));
    }
    let (hosts, protocols) = (graph.host_count(), graph.protocol_count());
    let text = format!(
        "{}: ok, {}, {}\n",
        path.display(),
        output::counted(hosts, "host"),
        output::counted(protocols, "protocol")
    );
    output::print(&text);
    Ok(())
}
