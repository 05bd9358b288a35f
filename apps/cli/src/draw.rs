//! `xk draw`: the graph as a picture.

use crate::failure::{Failure, show};
use crate::{file, output};
use std::path::{Path, PathBuf};

/// Draw a graph as text, or as an SVG file
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Graph file; `-` for the standard input
    file: PathBuf,
    /// Only this host
    #[arg(long)]
    host: Option<String>,
    /// Write an SVG file instead; `-` for the standard output
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let graph = file::load(&args.file)?;
    show(graph.warnings());
    if let Some(name) = &args.host {
        file::pick_host(&graph, Some(name))?;
    }
    let host = args.host.as_deref();
    let Some(path) = &args.svg else {
        output::print(&xk_compose::draw_text(&graph, host, output::width()));
        return Ok(());
    };
    write(&xk_compose::draw_svg(&graph, host), path)
}

/// Writes a picture to a file, or with `-` to the standard output.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write(svg: &str, path: &Path) -> Result<(), Failure> {
    if path.as_os_str() == "-" {
        output::print(svg);
        return Ok(());
    }
    std::fs::write(path, svg).map_err(|error| Failure::file("cannot write", path, error))?;
    output::print(&format!("wrote {}\n", path.display()));
    Ok(())
}
