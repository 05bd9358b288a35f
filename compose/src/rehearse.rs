//! The rehearsal: every host is built once on stand-in wires, so that what only the protocols themselves can read (addresses,
//! routes, participants) is checked with the rest. Nothing is started, and nothing outside is touched.

use xk_core::graph::{Build, BuildError};
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Protocol, ProtocolRef};
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{Kernel, Pool};
use xk_lang::{Diagnostics, Host, Severity};

use crate::build;
use crate::plan::{CheckedGraph, HostPlan, count_of, instance, params_of};

/// Octets of the rehearsal's pool: nothing is sent in it.
const POOL_OCTETS: usize = 1 << 20;

/// Stands where a wire, or a layer that writes files, would.
struct StandIn;

impl Protocol for StandIn {}

/// Builds the first and the last of all hosts alike, and reports the parameters that do not do.
pub(crate) fn rehearse(mut graph: CheckedGraph) -> Result<CheckedGraph, Box<Diagnostics>> {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(POOL_OCTETS)) else {
        // Without memory for it the run will tell; the check says what it knows.
        return Ok(graph);
    };
    let mut diagnostics = graph.diagnostics();
    for (host, plan) in graph.graph.hosts.iter().zip(&graph.plans) {
        rehearse_host(host, plan, 0, &pool, &mut diagnostics);
        let last = u32::try_from(count_of(host).saturating_sub(1)).unwrap_or(u32::MAX);
        if last > 0 && !diagnostics.has_errors() {
            rehearse_host(host, plan, last, &pool, &mut diagnostics);
        }
    }
    let failed = diagnostics.has_errors();
    graph.warnings.extend(diagnostics);
    if failed {
        return Err(Box::new(graph.warnings));
    }
    Ok(graph)
}

fn rehearse_host(
    host: &Host,
    plan: &HostPlan,
    index: u32,
    pool: &Pool,
    diagnostics: &mut Diagnostics,
) {
    let kernel = Kernel::new(Config {
        seed: 0,
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 1024,
    });
    let nodes = instance(host, index).nodes();
    let mut built: Vec<Option<ProtocolRef>> = vec![None; nodes.len()];
    for &at in &plan.order {
        let (Some(place), Some(node)) = (plan.places.get(at), nodes.get(at)) else {
            return;
        };
        let lowers: Vec<ProtocolRef> = place
            .lowers
            .iter()
            .filter_map(|lower| built.get(*lower).cloned().flatten())
            .collect();
        let stand_in = || kernel.add_protocol(place.entry.kind, &node.name, StandIn);
        // Wires touch the outside, and so may layers that only look on, such as a capture's.
        let outside =
            place.entry.below.max == 0 || place.entry.above == xk_core::graph::Family::Inherit;
        if outside && place.entry.numbers.is_empty() {
            built[at] = Some(stand_in());
            continue;
        }
        let params = params_of(diagnostics, place.entry, node);
        let result = (place.entry.build)(&mut Build {
            cx: &kernel,
            entry: place.entry,
            name: &node.name,
            lowers: &lowers,
            params: &params,
        });
        built[at] = Some(match result {
            Ok(protocol) => protocol,
            Err(error) => {
                // The rest depends on what is really below.
                if matches!(error, BuildError::Param { .. }) {
                    build::report(diagnostics, Severity::Error, node, &error);
                }
                stand_in()
            }
        });
    }
}
