//! Shared parts of commands that put an anchor of their own on a host.

use crate::failure::{Failure, show};
use crate::{file, host, user};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use xk_core::{Kernel, Protocol, ProtocolRef};
use xk_kit::control::{NetworkError, NetworkErrorKind};
use xk_run::{Idle, Runner, interrupt_unsafe};

/// Room for the headers of the layers below, in octets.
pub(crate) const HEADROOM: usize = 128;

/// The host that the anchor stands on.
#[derive(clap::Args)]
pub(crate) struct HostArgs {
    /// The graph file that has the host
    #[arg(long, value_name = "FILE")]
    graph: PathBuf,
    /// Host of the graph; not needed if it has only one
    #[arg(long)]
    host: Option<String>,
    #[command(flatten)]
    user: user::UserArgs,
}

/// Runs the host with what `make` makes on its first protocol of kind `lower`, until `done` says
/// so, `limit` is over, or Ctrl-C. Answers how long it ran.
pub(crate) fn run<P: Protocol + 'static>(
    place: &HostArgs,
    lower: &str,
    make: impl FnOnce(ProtocolRef, &str) -> P,
    limit: Option<Duration>,
    done: impl Fn(&Kernel) -> bool + 'static,
) -> Result<Duration, Failure> {
    let graph = file::load(&place.graph)?;
    show(graph.warnings());
    let host = file::pick_host(&graph, place.host.as_deref())?;
    let user = place.user.find()?;
    let kernel = host::build(&graph, &host, user)?;
    let mut all = kernel.protocols().into_iter();
    let found = all.find(|protocol| protocol.head().kind() == lower).ok_or_else(|| {
        Failure::new(format!("host `{}` has no `{lower}`", host.name))
            .help(format!("add a line such as `{lower} ip` to its block"))
    })?;
    kernel.add_protocol("command", "command", make(found, &host.name));
    interrupt_unsafe::catch();
    let failed = |error: std::io::Error| Failure::new(format!("cannot run the poll loop: {error}"));
    let runner = Runner::new(Rc::clone(&kernel), Idle::default()).map_err(failed)?;
    host::start(&graph, &host, &runner, user)?;
    let begun = Instant::now();
    runner.run(limit, Rc::new(done)).map_err(failed)?;
    drop(runner);
    kernel.stop();
    Ok(begun.elapsed())
}

/// An error that the network reported, as a line.
pub(crate) fn network_error(error: &NetworkError) -> String {
    let what = match error.kind {
        NetworkErrorKind::PacketTooBig { mtu } => format!("packet too big, {mtu} octets would go"),
        kind => kind.name().into(),
    };
    match error.reporter {
        Some(reporter) => format!("from {reporter}: {what}\n"),
        None => format!("{what}\n"),
    }
}
