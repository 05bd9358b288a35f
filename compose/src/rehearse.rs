//! The rehearsal: every host is built and started once on stand-in wires, so that what only the
//! protocols themselves can tell (addresses, routes, participants, what is wanted twice) is
//! checked with the rest. Nothing outside is touched, and no time passes.

use core::any::Any;
use core::cell::RefCell;
use std::collections::VecDeque;
use xk_core::graph::{Build, BuildError, Look, Realm, Shape};
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Enable, OpenError, Protocol, ProtocolRef, SessionRef, Upper};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{Kernel, Message, Participants, Pool, Reason};
use xk_kit::EthAddr;
use xk_kit::wire::device_wire::{DeviceSettings, DeviceWire, FrameDevice, Untaken};
use xk_lang::{Diagnostics, Host, HostInstance, Severity};

use crate::build::{self, Site};
use crate::plan::{CheckedGraph, HostPlan, count_of, instance, params_of};

/// Octets of the rehearsal's pool: little is sent in it.
const POOL_OCTETS: usize = 1 << 20;
/// The largest payload of a frame: no stand-in is what a message is too long for.
const MTU: usize = 65_535;

/// A device that takes everything and has nothing.
struct Silent;

impl FrameDevice for Silent {
    fn mtu(&self) -> usize {
        MTU
    }

    fn receive(
        &mut self,
        _: &Pool,
        _: usize,
        _: &mut VecDeque<Message>,
    ) -> Result<(), (&'static Reason, usize)> {
        Ok(())
    }

    fn transmit(&mut self, frame: Message) -> Result<(), Untaken> {
        drop(frame);
        Ok(())
    }

    fn descriptor(&self) -> &dyn Any {
        &()
    }
}

/// Stands where a layer that looks on would, such as one that writes files, and passes on what it
/// is asked; or where one would that has the system's ports, and notes whose they are.
struct StandIn {
    lower: Option<ProtocolRef>,
    enabled: RefCell<Vec<Participants>>,
}

impl Protocol for StandIn {
    fn open(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<SessionRef, OpenError> {
        let lower = self.lower.as_ref().ok_or(OpenError::NotSupported)?;
        lower.open(cx, upper, participants)
    }

    fn open_enable(
        &self,
        cx: &Kernel,
        _: &ProtocolRef,
        upper: Upper<'_>,
        participants: Participants,
    ) -> Result<Enable, OpenError> {
        if let Some(lower) = &self.lower {
            return lower.open_enable(cx, upper, participants);
        }
        let mut enabled = self.enabled.borrow_mut();
        if enabled.contains(&participants) {
            return Err(OpenError::InUse);
        }
        enabled.push(participants);
        Ok(Enable(enabled.len() as u64))
    }

    fn lower(&self) -> Option<&ProtocolRef> {
        self.lower.as_ref()
    }

    fn passes_numbers(&self) -> bool {
        true
    }
}

/// Builds and starts the first and the last of all hosts alike, and reports the parameters that do
/// not do, and what two of them want.
pub(crate) fn rehearse(mut graph: CheckedGraph) -> Result<CheckedGraph, Box<Diagnostics>> {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(POOL_OCTETS)) else {
        // Without memory for it the run will tell; the check says what it knows.
        return Ok(graph);
    };
    let mut diagnostics = graph.diagnostics();
    for (host, plan) in graph.graph.hosts.iter().zip(&graph.plans) {
        rehearse_host(&graph, (host, plan), 0, &pool, &mut diagnostics);
        let last = u32::try_from(count_of(host).saturating_sub(1)).unwrap_or(u32::MAX);
        if last > 0 && !diagnostics.has_errors() {
            rehearse_host(&graph, (host, plan), last, &pool, &mut diagnostics);
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
    graph: &CheckedGraph,
    (host, plan): (&Host, &HostPlan),
    index: u32,
    pool: &Pool,
    diagnostics: &mut Diagnostics,
) {
    let kernel = Kernel::new(Config {
        random: Random::new(0),
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 1024,
    });
    let before = diagnostics.len();
    let instance = instance(host, index);
    let nodes = instance.nodes();
    let mut whole = true;
    let built = build::each_node(plan, &nodes, |site| {
        let one = build_one(&kernel, site, diagnostics);
        whole &= one.is_some();
        Some(Some(one.unwrap_or_else(|| stand_in(&kernel, site))))
    });
    let Some(built) = built else {
        return;
    };
    if diagnostics.len() == before {
        build::fill_numbers(graph, plan, &built, &kernel);
        start(graph, &instance, &kernel, whole, diagnostics);
    }
    kernel.stop();
}

fn stand_in(kernel: &Kernel, site: &Site<'_>) -> ProtocolRef {
    let enabled = RefCell::default();
    let lower = site.lowers.first().cloned();
    kernel.add_protocol(site.place.entry.kind, &site.node.name, StandIn { lower, enabled })
}

/// Builds a protocol, or what passes everything as it does; `None` if it is not known how it will
/// be.
fn build_one(
    kernel: &Kernel,
    site: &Site<'_>,
    diagnostics: &mut Diagnostics,
) -> Option<ProtocolRef> {
    let &Site { place, node, lowers, .. } = site;
    let (kind, name) = (place.entry.kind, &node.name);
    let params = params_of(diagnostics, place.entry, node);
    let found = place.entry.probe.map(|look| look(&params, Look::Parameters));
    if let Some(Err(error)) = found {
        build::report(diagnostics, Severity::Error, node, &error);
    }
    // Wires touch the outside, and so may filters, such as a capture's.
    if let shape @ (Shape::Wire | Shape::Filter) = place.entry.shape {
        if place.entry.realm == Realm::Wire {
            let address = EthAddr([2, 0, 0, 0, 0, 1]);
            let takes_groups = true;
            let settings = DeviceSettings { address, takes_groups };
            return Some(kernel.add_protocol(kind, name, DeviceWire::new(Silent, settings)));
        }
        return (shape == Shape::Filter).then(|| stand_in(kernel, site));
    }
    let result = (place.entry.build)(&mut Build {
        cx: kernel,
        entry: place.entry,
        name,
        lowers,
        params: &params,
    });
    match result {
        Ok(protocol) => Some(protocol),
        Err(error) => {
            // The rest depends on what is really below.
            if matches!(error, BuildError::Param { .. }) {
                build::report(diagnostics, Severity::Error, node, &error);
            }
            None
        }
    }
}

/// Starts every protocol, and reports those that cannot. Where all below is not as in a run
/// (`whole`), only that one wants what another has is sure.
fn start(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    kernel: &Kernel,
    whole: bool,
    diagnostics: &mut Diagnostics,
) {
    for protocol in kernel.protocols() {
        if let Err(error) = protocol.start(kernel)
            && (whole || error == OpenError::InUse)
        {
            diagnostics.extend(build::failed_start(graph, host, &protocol, error));
        }
    }
}
