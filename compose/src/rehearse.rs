//! The rehearsal: every host is built and started once on stand-in wires, so that what only the
//! protocols themselves can tell (addresses, routes, participants, what is wanted twice) is
//! checked with the rest. Nothing outside is touched, and no time passes.

use core::cell::RefCell;
use xk_core::control::Question;
use xk_core::graph::{Build, BuildError, Catalog, Family, Look, Params, Realm, Shape};
use xk_core::kernel::Config;
use xk_core::message::PoolConfig;
use xk_core::object::{Enable, OpenError, Protocol, ProtocolRef, SessionRef, Upper};
use xk_core::random::Random;
use xk_core::shepherd::{Limits, NoSwitch, Shepherds};
use xk_core::{Entry, Kernel, Message, Participants, Pool};
use xk_kit::EthAddr;
use xk_kit::control::TryOpen;
use xk_kit::wire::device::{Anchored, Capabilities, Device, Unsent};
use xk_kit::wire::entry::HEADER_OCTETS;
use xk_lang::{Diagnostic, Diagnostics, Graph, Host, HostInstance, Node, Severity, Spanned, Value};

use crate::build::{self, Site};
use crate::plan::{CheckedGraph, HostPlan, count_of, instance, params_of};

/// Octets of the rehearsal's pool: little is sent in it.
const POOL_OCTETS: usize = 1 << 20;
/// The largest payload of a frame: no stand-in is what a message is too long for.
const MTU: usize = 65_535;

/// A device that takes everything and has nothing.
struct Silent;

impl Device for Silent {
    fn send(&self, _: &Kernel, _: &SessionRef, _: Message) -> Result<(), Unsent> {
        Ok(())
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
        rehearse_host(&graph, host, plan, 0, &pool, &mut diagnostics);
        let last = u32::try_from(count_of(host).saturating_sub(1)).unwrap_or(u32::MAX);
        if last > 0 && !diagnostics.has_errors() {
            rehearse_host(&graph, host, plan, last, &pool, &mut diagnostics);
        }
    }
    let failed = diagnostics.has_errors();
    graph.warnings.extend(diagnostics);
    if failed {
        return Err(Box::new(graph.warnings));
    }
    Ok(graph)
}

/// Reports the parameters that do not do by themselves, in a graph that has other mistakes: each
/// node is built alone, on layers that answer nothing.
pub(crate) fn parameters(graph: &Graph, catalog: &Catalog, diagnostics: &mut Diagnostics) {
    let Ok(pool) = Pool::new(&PoolConfig::with_octets_max(POOL_OCTETS)) else {
        return;
    };
    let none = Diagnostics::new(diagnostics.file(), diagnostics.source());
    for host in &graph.hosts {
        let kernel = kernel(&pool);
        for node in instance(host, 0).nodes().iter() {
            // Those of another framework are not built without it.
            let entry = catalog.find(&host.qualified(node));
            let Some(entry) = entry.filter(|entry| entry.subsystem.is_none()) else { continue };
            let mut said = none.clone();
            let params = params_of(&mut said, entry, node);
            if said.has_errors() {
                continue;
            }
            let refusal = refusal(&kernel, entry, node, &params);
            if let Some(error @ BuildError::Param { name, index, .. }) = &refusal
                && (node.param(name).is_some() || node.blocks(name).nth(*index).is_some())
            {
                build::report(diagnostics, Severity::Error, node, error);
            }
        }
        kernel.stop();
    }
}

/// Returns why a node is not to be had with these parameters, whatever it stands on.
fn refusal(
    kernel: &Kernel,
    entry: &'static Entry,
    node: &Node,
    params: &Params,
) -> Option<BuildError> {
    let found = entry.probe.and_then(|look| look(params, Look::Parameters).err());
    if found.is_some() || matches!(entry.shape, Shape::Wire | Shape::Filter | Shape::Adapter) {
        return found;
    }
    let stands_on = |name: &Spanned<String>| {
        let enabled = RefCell::default();
        kernel.add_protocol("stand-in", name, StandIn { lower: None, enabled })
    };
    let lowers: Vec<ProtocolRef> = node.lowers.iter().map(stands_on).collect();
    let name = &node.name;
    (entry.build)(&mut Build { cx: kernel, entry, name, lowers: &lowers, params }).err()
}

fn kernel(pool: &Pool) -> Kernel {
    Kernel::new(Config {
        random: Random::new(0),
        pool: pool.clone(),
        shepherds: Shepherds::new(Box::new(NoSwitch), Limits::default()),
        timers_max: 1024,
    })
}

fn rehearse_host(
    graph: &CheckedGraph,
    host: &Host,
    plan: &HostPlan,
    index: u32,
    pool: &Pool,
    diagnostics: &mut Diagnostics,
) {
    let kernel = kernel(pool);
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
            let capabilities = Capabilities::ethernet(MTU + HEADER_OCTETS, address);
            return Some(kernel.add_protocol(kind, name, Anchored::new(Silent, capabilities)));
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
    let mut all_start = true;
    for protocol in kernel.protocols() {
        if let Err(error) = protocol.start(kernel)
            && (whole || error == OpenError::InUse)
        {
            all_start = false;
            diagnostics.extend(build::failed_start(graph, host, &protocol, error));
        }
    }
    if whole && all_start {
        let mut found = graph.diagnostics();
        try_peers(graph, host, kernel, &mut found);
        diagnostics.extend(found);
    }
}

/// Has the applications open their peers, and tells of those that no run can.
fn try_peers(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    kernel: &Kernel,
    diagnostics: &mut Diagnostics,
) {
    let nodes = host.nodes();
    let places = graph.plan_of(host).map_or(&[][..], |plan| plan.places());
    for (node, place) in nodes.iter().zip(places) {
        let opens = place.entry.all_questions().any(|question| question.name == TryOpen::NAME);
        let says = node.param("to").is_some_and(|to| to.value.value != Value::Text(String::new()));
        // A layer of ports opens without a peer, too: for servers.
        let family = place.lowers.first().and_then(|lower| places.get(*lower)?.above);
        if opens && !says && family == Some(Family::Port) {
            let what = format!("`{}` does not say whom it asks", node.name);
            let below = place.lowers.first().and_then(|lower| Some(&nodes.get(*lower)?.name));
            let kind = below.map_or("KIND", |name| name.as_str());
            diagnostics
                .error(node.param("to").map_or(node.kind.span, |to| to.value.span), what)
                .expected("`to=`, such as `to=\"port7@10.0.0.2\"`")
                .help(format!("`xk help {kind}` says what names a peer there"));
        }
    }
    if diagnostics.has_errors() {
        return;
    }
    for protocol in kernel.protocols() {
        let tried = protocol.ask(kernel, TryOpen::default());
        let Some(TryOpen { refusal, is_address }) = tried.filter(|tried| !tried.refusal.is_empty())
        else {
            continue;
        };
        let Some(node) = nodes.iter().find(|node| *node.name == *protocol.name()) else {
            continue;
        };
        let to = node.param("to");
        let span = to.map_or(node.kind.span, |to| to.value.span);
        let what =
            format!("`{}` on host `{}` cannot open its peer: {refusal}", node.name, host.name);
        let (severity, help) = match is_address {
            true => (Severity::Error, "`xk help KIND` of what it stands on says what names a peer"),
            false => (Severity::Warning, "add a route to it, or an address in its network"),
        };
        diagnostics.push(Diagnostic::new(severity, span, what)).help(help);
    }
}
