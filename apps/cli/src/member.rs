//! `xk run --library`: the host of a graph as a program on a protocol library.
//!
//! Its `tcp` and `udp`, and what lies below these, are those of the host whose domain is open at a
//! path: a registry there begins conversations, and the program's own protocols carry them on.

use crate::failure::Failure;
use crate::host;
use crate::user::User;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use xk_attach::Attached;
use xk_compose::{CheckedGraph, HostPlan, Lies};
use xk_core::Kernel;
use xk_lang::HostInstance;
use xk_registry::Program;
use xk_run::Runner;

/// Time in which closed streams go to the registry at the end.
const LEAVE_WITHIN: Duration = Duration::from_secs(1);
/// Interval at which that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A program on a library, built and not started.
pub(crate) struct Member {
    pub(crate) kernel: Rc<Kernel>,
    program: Program,
}

impl Member {
    /// The program that a host is on the domain that is open at `path`.
    pub(crate) fn build(
        graph: &CheckedGraph,
        host: &HostInstance<'_>,
        (path, user): (&Path, User),
    ) -> Result<Self, Failure> {
        user.begin()?;
        let failed = |error| Failure::file("cannot attach at", path, error);
        let here = Attached::at(path, xk_catalog::PROTOCOLS).map_err(failed)?;
        let kernel = Rc::clone(here.kernel());
        host::furnish(&kernel);
        let granted = |kind: &str| {
            let mut nodes = here.nodes().iter();
            nodes.find(|node| node.head().kind() == kind).cloned()
        };
        let (Some(tcp), Some(registry)) = (granted("tcp"), granted("registry")) else {
            return Err(Failure::file(
                "there is no library at",
                path,
                "the domain grants no `registry` to this user, or no `tcp`",
            ));
        };
        let program = Program::add(&kernel, "library", tcp, registry);
        let udp = granted("udp").map(|udp| program.add_datagrams(&kernel, "datagrams", udp));
        let stand_in = |kind: &str| match kind {
            "tcp" => Some(program.library().clone()),
            "udp" => udp.clone(),
            _ => None,
        };
        let below = below_transports(graph.plan_of(host));
        xk_compose::build_some(graph, host, &kernel, &mut |site| {
            let kind = site.place.entry().kind;
            match (kind, below.contains(&site.at)) {
                ("tcp" | "udp", _) => Lies::Elsewhere(stand_in(kind)),
                (_, true) => Lies::Elsewhere(None),
                _ => Lies::Here,
            }
        })?;
        here.join().map_err(failed)?;
        let mut why = None;
        let fetch = |_: &Kernel, ticket: &_, door: &str| {
            let fetched = xk_netio::node::connect(door, ticket);
            let fetched = fetched.map_err(|error| why = Some(format!("{door}: {error}")));
            fetched.ok().map(|carrier| carrier as Box<_>)
        };
        program.build(&kernel, xk_catalog::PROTOCOLS, fetch).map_err(|error| {
            let why = why.map_or_else(String::new, |why| format!(": {why}"));
            Failure::new(format!("{error}{why}"))
        })?;
        Ok(Self { kernel, program })
    }

    /// Leaves what was closed and has not ended to the registry.
    pub(crate) fn leave(&self, runner: &Runner) {
        let begun = Instant::now();
        while self.program.leave(&self.kernel) > 0 && begun.elapsed() < LEAVE_WITHIN {
            if runner.run(Some(LOOK_EVERY), Rc::new(|_| false)).is_err() {
                break;
            }
        }
    }
}

/// The places below a host's `tcp` and `udp`.
fn below_transports(plan: Option<&HostPlan>) -> Vec<usize> {
    let Some(plan) = plan else {
        return Vec::new();
    };
    let mut below = Vec::new();
    for at in plan.order().iter().rev() {
        let Some(place) = plan.places().get(*at) else { continue };
        if below.contains(at) || matches!(place.entry().kind, "tcp" | "udp") {
            below.extend(place.lowers());
        }
    }
    below
}
