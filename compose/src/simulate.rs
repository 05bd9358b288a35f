//! A whole graph as hosts of a simulated network.

mod captures;
mod domains;
mod faults;

pub use captures::{CaptureError, Captures};
pub use domains::{Cuts, domain_name, restart};
pub use faults::{Event, Faults};

use std::time::Duration;
use xk_core::graph::Shape;
use xk_core::message::PoolConfig;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds, Switch};
use xk_core::{Kernel, Pool};
use xk_lang::{Diagnostics, HostInstance, Node, Value};
use xk_run::switch::CoroutineSwitch;
use xk_sim::{HostId, LinkConfig, World};

use crate::build::{build, failed_start};
use crate::plan::{CheckedGraph, HostPlan, count_of, instance};

/// Largest number of messages at once: a broadcast to thousands of hosts is one buffer, but as many
/// messages.
const DESCRIPTORS_MAX: u32 = 1 << 22;

/// Configuration of a simulation, besides the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulationConfig {
    /// All chance comes from this: one seed replays a run to the bit.
    pub seed: u64,
    /// The bound of all messages together, in octets.
    pub pool_octets_max: usize,
    /// Largest number of pending timers of one host.
    pub timers_max: usize,
    /// Largest number of shepherds of a host with calls that block, or with domains.
    pub shepherds_max: u32,
    /// Octets of stack for each program that blocks on a host; with any, every host has shepherds
    /// that can wait. 0: there are no such programs.
    pub program_stack_octets: usize,
    /// Least time that a frame takes from one domain of a host to another.
    pub crossing: Duration,
    /// An even share of this comes on top.
    pub crossing_jitter: Duration,
    /// Frames that may be on their way from one domain to another at one time.
    pub crossing_slots: usize,
}

impl Default for SimulationConfig {
    /// Seed 1, 64 MiB for messages, 65,536 timers and 64 shepherds a host, no programs, 1 to 10
    /// microseconds from domain to domain for each of at most 1,024 frames.
    fn default() -> Self {
        Self {
            seed: 1,
            pool_octets_max: 64 << 20,
            timers_max: 1 << 16,
            shepherds_max: 64,
            program_stack_octets: 0,
            crossing: Duration::from_micros(1),
            crossing_jitter: Duration::from_micros(9),
            crossing_slots: 1024,
        }
    }
}

/// A world with all hosts and links of the graph, built but not started: programs can add protocols
/// of their own, then call [`start_world`].
///
/// # Errors
/// The first protocol that could not be built, with its place in the file; wires that reach outside
/// the simulation.
pub fn simulate(graph: &CheckedGraph, config: SimulationConfig) -> Result<World, Box<Diagnostics>> {
    closed(graph)?;
    let sizes = PoolConfig {
        descriptors_max: DESCRIPTORS_MAX,
        ..PoolConfig::with_octets_max(config.pool_octets_max)
    };
    let pool = Pool::new(&sizes).map_err(|error| {
        let mut diagnostics = graph.diagnostics();
        diagnostics
            .error(xk_lang::Span::default(), format!("no memory for messages: {error}"))
            .help("let the simulation have a smaller pool");
        Box::new(diagnostics)
    })?;
    let mut world = World::new(config.seed, pool);
    for (params, written) in graph.links.iter().zip(&graph.graph.links) {
        let wrong = |error: String| {
            let mut diagnostics = graph.diagnostics();
            diagnostics.error(written.name.span, error);
            Box::new(diagnostics)
        };
        let link = LinkConfig::from_params(&written.name, params);
        let link = link.map_err(|error| wrong(error.to_string()))?;
        world.network().add_link(link).map_err(|error| wrong(error.to_string()))?;
    }
    keep_addresses(graph, &world);
    for host in graph.graph.expand() {
        if graph.plan_of(&host).is_some_and(|plan| plan.domains.len() > 1) {
            domains::add_host(graph, &host, &mut world, config)?;
            continue;
        }
        let kernel = kernel(graph, &host, &world, &host.name, config);
        let id = world.add_host(&host.name, kernel);
        if let Some(kernel) = world.kernel(id) {
            build(graph, &host, kernel)?;
        }
    }
    Ok(world)
}

/// Keeps the hardware addresses that the graph gives from those that interfaces make up.
fn keep_addresses(graph: &CheckedGraph, world: &World) {
    for (host, plan) in graph.graph.hosts.iter().zip(&graph.plans) {
        let keep = |nodes: &[Node]| {
            let mut given = false;
            for (node, place) in nodes.iter().zip(&plan.places) {
                let rules = place.entry.stacking_rules;
                let own = rules.and_then(|rules| node.param(rules.own_address?));
                let Some(Value::Text(text)) = own.map(|param| &param.value.value) else { continue };
                given = true;
                if let Ok(address) = text.parse() {
                    world.network().keep(address);
                }
            }
            given
        };
        // Of many hosts alike most give none.
        if keep(&host.nodes) {
            (0..count_of(host)).for_each(|index| {
                keep(&instance(host, index as u32).nodes());
            });
        }
    }
}

/// The next kernel of a host, or of a domain of it, by this name in the world.
fn kernel(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    world: &World,
    name: &str,
    config: SimulationConfig,
) -> Kernel {
    let (switch, shepherds_max): (Box<dyn Switch>, u32) = match graph.plan_of(host) {
        Some(plan) if blocks(plan) || config.program_stack_octets > 0 => {
            (Box::new(CoroutineSwitch::new()), config.shepherds_max)
        }
        _ => (Box::new(NoSwitch), 1),
    };
    let stack_octets = Limits::default().stack_octets.max(config.program_stack_octets);
    let limits = Limits { shepherds_max, stack_octets };
    let shepherds = Shepherds::new(switch, limits);
    Kernel::new(world.host_config(name, shepherds, config.timers_max))
}

/// Builds a host of one domain again, in the place of one that was taken down by
/// [`World::crash`]: on the same links, with the same addresses, under another boot id. Programs
/// can add protocols of their own, then call [`World::start_host`]. `None` if there is no host of
/// this name.
///
/// # Errors
/// The first protocol that could not be built, with its place in the file.
pub fn rebuild_host(
    graph: &CheckedGraph,
    world: &mut World,
    name: &str,
    config: SimulationConfig,
) -> Result<Option<HostId>, Box<Diagnostics>> {
    let (Some(id), Some(host)) = (world.find(name), graph.host(name)) else {
        return Ok(None);
    };
    let kernel = kernel(graph, &host, world, name, config);
    world.reboot(id, kernel);
    match world.kernel(id) {
        Some(kernel) => build(graph, &host, kernel).map(|_| Some(id)),
        None => Ok(None),
    }
}

/// Whether anything on the host may wait: only then it needs stacks of its own. Hosts without are
/// simulated twice as fast.
fn blocks(plan: &HostPlan) -> bool {
    plan.domains.len() > 1 || plan.places.iter().any(|place| place.entry.may_wait())
}

/// Checks that no wire reaches outside, where time is another.
fn closed(graph: &CheckedGraph) -> Result<(), Box<Diagnostics>> {
    let mut diagnostics = graph.diagnostics();
    for (host, plan) in graph.graph.hosts.iter().zip(&graph.plans) {
        for (node, place) in host.nodes.iter().zip(&plan.places) {
            // `host-udp` is no wire to its uppers, and all the same asks the machine.
            let entry = place.entry;
            // The links of a file are simulated.
            let is_device =
                entry.shape == Shape::Wire && entry.probe.is_some() && entry.links.is_none();
            if let Some(socket) = place.listens_at(node) {
                let what = format!("`{}` listens outside the simulation", node.name);
                let name = socket.name.as_str();
                diagnostics
                    .error(socket.value.span, what)
                    .help(format!("run this graph with `xk run`, or leave `{name}` out"));
            } else if is_device {
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
        let name = name.split('/').next().unwrap_or(name);
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
