//! What the commands that put an anchor of their own on a host have in common.

use crate::failure::Failure;
use std::rc::Rc;
use std::time::Duration;
use xk_core::{Kernel, ProtocolRef};
use xk_kit::control::{NetworkError, NetworkErrorKind};
use xk_run::{Idle, Runner, interrupt_unsafe};

/// Room for the headers of the layers below, in octets.
pub(crate) const HEADROOM: usize = 128;

/// The host's first protocol of this kind.
pub(crate) fn find_kind(kernel: &Kernel, kind: &str, host: &str) -> Result<ProtocolRef, Failure> {
    let all = kernel.protocols();
    let found = all.iter().find(|p| p.head().kind() == kind);
    found.cloned().ok_or_else(|| {
        Failure::new(format!("host `{host}` has no `{kind}`"))
            .help(format!("add a line such as `{kind} ip` to its block"))
    })
}

fn failed(error: std::io::Error) -> Failure {
    Failure::new(format!("cannot run the poll loop: {error}"))
}

/// The kernel's poll loop, which Ctrl-C ends.
pub(crate) fn runner(kernel: &Rc<Kernel>) -> Result<Runner, Failure> {
    interrupt_unsafe::catch();
    Runner::new(Rc::clone(kernel), Idle::default()).map_err(failed)
}

/// Runs it until `done` says so, `limit` is over, or Ctrl-C.
pub(crate) fn run(
    runner: &Runner,
    limit: Option<Duration>,
    done: impl Fn(&Kernel) -> bool + 'static,
) -> Result<(), Failure> {
    runner.run(limit, Rc::new(done)).map_err(failed)
}

/// What the network reported, as a line.
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
