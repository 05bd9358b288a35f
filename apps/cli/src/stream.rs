//! `xk stream`: the modules of streams in a running graph.

use crate::control::client::{Connection, Target};
use crate::failure::Failure;
use crate::output;
use serde_json::{Value, json};
use xk_core::Kernel;
use xk_streams::StreamModules;

/// Push, pop and look at modules of the streams of a running graph
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Put a module on every stream that is open on a line of `subsystem streams`, such as `count`
    Push {
        /// The line's name in the graph
        line: String,
        /// The module
        module: String,
    },
    /// Take the topmost module off every stream on a line
    Pop {
        /// The line's name in the graph
        line: String,
    },
    /// Show the modules of every stream on a line, the topmost first, and its driver
    Look {
        /// The line's name in the graph
        line: String,
    },
}

pub(crate) fn main(args: &Args) -> Result<(), Failure> {
    let (line, push, pops) = match &args.action {
        Action::Push { line, module } => (line, module.as_str(), false),
        Action::Pop { line } => (line, "", true),
        Action::Look { line } => (line, "", false),
    };
    let request = json!({"ask": "stream", "line": line, "push": push, "pops": pops});
    let answer = Connection::open(&args.target)?.ask(&request)?;
    let streams = answer.as_array().cloned().unwrap_or_default();
    for stream in &streams {
        output::print(&format!("{}\n", stream.as_str().unwrap_or_default()));
    }
    if streams.is_empty() {
        output::print(&format!("no stream is open on `{line}`\n"));
    }
    Ok(())
}

/// Does what a request says in the kernel; answers the streams.
pub(crate) fn answer(
    kernel: &Kernel,
    line: String,
    push: String,
    pops: bool,
) -> Result<Value, String> {
    let is_it = |p: &xk_core::ProtocolRef| p.head().kind() == "streams" && !p.is_proxy();
    let node = kernel.protocols().into_iter().find(is_it);
    let node = node.ok_or("the host has no `subsystem streams`")?;
    let asked = StreamModules { line, push, pops, ..StreamModules::default() };
    let found = node.ask(kernel, asked).ok_or("it does not answer")?;
    if found.error.is_empty() { Ok(json!(found.streams)) } else { Err(found.error) }
}
