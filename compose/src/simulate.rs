//! A whole graph as hosts of a simulated network.

use xk_core::graph::Realm;
use xk_core::message::PoolConfig;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{Kernel, Pool};
use xk_lang::{Diagnostics, HostInstance};
use xk_run::switch::CoroutineSwitch;
use xk_sim::World;

use crate::build::{build, failed_start};
use crate::plan::{CheckedGraph, HostPlan};

/// How many shepherds a simulated host with calls that block may have.
const SHEPHERDS_MAX: u32 = 64;

/// How many messages there may be at once: a broadcast to thousands of hosts is one buffer, but as many messages.
const DESCRIPTORS_MAX: u32 = 1 << 22;

/// What a simulation is made of, besides the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulationConfig {
    /// All chance comes from this: one seed replays a run to the bit.
    pub seed: u64,
    /// The bound of all messages together, in octets.
    pub pool_octets_max: usize,
    /// How many timers may be pending on one host.
    pub timers_max: usize,
}

impl Default for SimulationConfig {
    /// Seed 1, 64 MiB for messages, 65,536 timers a host.
    fn default() -> Self {
        Self {
            seed: 1,
            pool_octets_max: 64 << 20,
            timers_max: 1 << 16,
        }
    }
}

/// A world with all hosts and links of the graph, built but not started: programs can add protocols of their own, then call
/// [`start_world`].
///
/// # Errors
/// The first protocol that could not be built, with its place in the file; wires that reach outside the simulation.
pub fn simulate(graph: &CheckedGraph, config: SimulationConfig) -> Result<World, Box<Diagnostics>> {
    closed(graph)?;
    let sizes = PoolConfig {
        descriptors_max: DESCRIPTORS_MAX,
        ..PoolConfig::with_octets_max(config.pool_octets_max)
    };
    let pool = Pool::new(&sizes).map_err(|error| {
        let mut diagnostics = graph.diagnostics();
        diagnostics
            .error(
                xk_lang::Span::default(),
                format!("no memory for messages: {error}"),
            )
            .help("let the simulation have a smaller pool");
        Box::new(diagnostics)
    })?;
    let mut world = World::new(config.seed, pool);
    for (link, written) in graph.links.iter().zip(&graph.graph.links) {
        world.network().add_link(link.clone()).map_err(|error| {
            let mut diagnostics = graph.diagnostics();
            diagnostics.error(written.name.span, error.to_string());
            Box::new(diagnostics)
        })?;
    }
    for host in graph.graph.expand() {
        add_host(graph, &host, &mut world, config.timers_max)?;
    }
    Ok(world)
}

fn add_host(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    world: &mut World,
    timers_max: usize,
) -> Result<(), Box<Diagnostics>> {
    let shepherds = match graph.plan_of(host) {
        Some(plan) if blocks(plan) => Shepherds::new(
            Box::new(CoroutineSwitch::new()),
            Limits {
                shepherds_max: SHEPHERDS_MAX,
                ..Limits::default()
            },
        ),
        _ => Shepherds::new(
            Box::new(NoSwitch),
            Limits {
                shepherds_max: 1,
                ..Limits::default()
            },
        ),
    };
    let kernel = Kernel::new(world.host_config(&host.name, shepherds, timers_max));
    let id = world.add_host(&host.name, kernel);
    match world.kernel(id) {
        Some(kernel) => build(graph, host, kernel).map(drop),
        None => Ok(()),
    }
}

/// Whether anything on the host waits in a call: only the rpc realm does, and only then a host needs stacks of its own.
fn blocks(plan: &HostPlan) -> bool {
    plan.places.iter().any(|place| {
        place.entry.realm == Realm::Rpc || place.entry.below.realms.contains(&Realm::Rpc)
    })
}

/// That no wire reaches outside, where time is another.
fn closed(graph: &CheckedGraph) -> Result<(), Box<Diagnostics>> {
    let mut diagnostics = graph.diagnostics();
    for (host, plan) in graph.graph.hosts.iter().zip(&graph.plans) {
        for (node, place) in host.nodes.iter().zip(&plan.places) {
            // `host-udp` is no wire to its uppers, and all the same asks the machine.
            if place.entry.below.max == 0 && place.entry.probe.is_some() {
                let what = format!("`{}` reaches outside the simulation", node.name);
                diagnostics
                    .error(node.kind.span, what)
                    .expected("wires of virtual time, such as `sim` and `loopback`")
                    .help("run this graph with `xk run`, or put `sim link=...` in its place");
            }
        }
    }
    if diagnostics.has_errors() {
        return Err(Box::new(diagnostics));
    }
    Ok(())
}

/// Starts every host of a world made by [`simulate`].
///
/// # Errors
/// The first protocol that could not start, with its place in the file and why.
pub fn start_world(graph: &CheckedGraph, world: &mut World) -> Result<(), Box<Diagnostics>> {
    world.start().map_err(|(id, protocol, error)| {
        let name = world.name(id).unwrap_or_default();
        Box::new(match graph.host(name) {
            Some(host) => failed_start(graph, &host, &protocol, error),
            None => {
                let mut diagnostics = graph.diagnostics();
                let what = format!("host `{name}` did not start: {error}");
                diagnostics.error(xk_lang::Span::default(), what);
                diagnostics
            }
        })
    })
}
