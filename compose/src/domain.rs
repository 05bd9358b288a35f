//! A host in several domains: what the plan knows of each, and how one is built in a kernel of its
//! own.

use std::io;
use std::ops::RangeInclusive;
use std::rc::Rc;
use xk_core::graph::{self, BlockSpec, ParamKind, ParamSpec, Params};
use xk_core::object::ProtocolId;
use xk_core::{Kernel, ProtocolRef};
use xk_lang::{Diagnostics, DomainKind, HostInstance, Span};
use xk_share::{Carrier, Known, Port, add_port, lower_proxy, upper_proxy};

use crate::build::{Lies, build_part};
use crate::params::Taker;
use crate::plan::{CheckedGraph, HostPlan};

/// How many requests may be on their way up into a domain at one time, unless its line says it.
const UPCALLS_MAX: i64 = 64;
/// Numbers that a domain has for what is added beside the host's nodes.
const OWN_NUMBERS: u32 = 1 << 16;

const CORE: ParamSpec = graph::optional(
    "core",
    ParamKind::integer(0..=1023),
    "the processor that it runs on; any, if none is said",
);
const UPCALLS: ParamSpec = graph::int(
    "upcalls",
    1..=256,
    UPCALLS_MAX,
    "how many calls and questions from below may be on their way into it at one time",
);
const USER: ParamSpec = graph::optional(
    "user",
    ParamKind::Text("a user's name or number"),
    "the user that it becomes once its devices are open",
);
const GRANT: BlockSpec = graph::block(
    "grant",
    1..=256,
    &[graph::required("node", ParamKind::Text("a node's name"), "what is granted")],
    &[
        graph::optional(
            "port",
            ParamKind::Text("a port or a range of them, such as 5000..5999"),
            "the ports that may be had on it; all, if none is said",
        ),
        graph::optional("uid", ParamKind::integer(0..=u32::MAX as i64), "the user that has it"),
        graph::optional("gid", ParamKind::integer(0..=u32::MAX as i64), "the group that has it"),
    ],
    "a node that programs may attach to: those of one user or group, or all of them",
);

/// What may be said of a domain of this kind.
fn taker(kind: DomainKind, span: Span) -> Taker<'static> {
    let (what, scalars, blocks): (_, &'static [ParamSpec], &'static [BlockSpec]) = match kind {
        DomainKind::Thread => ("a domain `thread`", &[CORE, UPCALLS], &[]),
        DomainKind::Process => ("a domain `process`", &[USER, CORE, UPCALLS], &[]),
        DomainKind::Open => ("a domain `open`", &[UPCALLS], &[GRANT]),
    };
    Taker { what, span, scalars, blocks }
}

/// What the file says of a domain.
pub(crate) fn params_of(diagnostics: &mut Diagnostics, domain: &xk_lang::Domain) -> Params {
    taker(domain.kind, domain.name.span).take(diagnostics, &domain.params, &domain.grants)
}

/// A part of a host that runs apart from the others, in a kernel of its own.
pub struct DomainPlan {
    /// Those that have what its nodes stand on.
    pub(crate) lowers: Vec<usize>,
    /// Those that have what stands on its nodes.
    pub(crate) uppers: Vec<usize>,
}

impl DomainPlan {
    /// The domains that have what its nodes stand on.
    pub fn lowers(&self) -> &[usize] {
        &self.lowers
    }

    /// The domains that have what stands on its nodes.
    pub fn uppers(&self) -> &[usize] {
        &self.uppers
    }

    /// All domains that it shares a port with.
    pub fn neighbours(&self) -> impl Iterator<Item = usize> + '_ {
        self.lowers.iter().chain(&self.uppers).copied()
    }
}

/// A right to attach: to a node, within these ports, of this user and group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The node's place in its host.
    pub place: usize,
    /// The ports that may be had on it; `None` for all.
    pub ports: Option<RangeInclusive<u16>>,
    /// The user; `None` for all.
    pub uid: Option<u32>,
    /// The group; `None` for all.
    pub gid: Option<u32>,
}

/// What the file says of one domain of a host, placeholders filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainSetup {
    /// Its name; that of the host's first is empty.
    pub name: String,
    /// What it is; `None` for the host's first.
    pub kind: Option<DomainKind>,
    /// The user that it becomes, by name or number.
    pub user: Option<String>,
    /// The processor that it runs on.
    pub core: Option<usize>,
    /// How many requests may be on their way into it from below at one time.
    pub upcalls_max: usize,
    /// What programs may attach to, if it is open.
    pub grants: Vec<Grant>,
}

impl CheckedGraph {
    /// The domains of a host, the first of which has the nodes that the file puts into none.
    pub fn domains(&self, host: &HostInstance<'_>) -> Vec<DomainSetup> {
        let mut none = self.diagnostics();
        let first = DomainSetup {
            name: String::new(),
            kind: None,
            user: None,
            core: None,
            upcalls_max: UPCALLS_MAX as usize,
            grants: Vec::new(),
        };
        let nodes = host.nodes();
        let rest = host.domains();
        let rest = rest.iter().map(|domain| {
            let params = params_of(&mut none, domain);
            let grant = |grant: &Params| {
                let name = grant.text("node")?;
                let number = |name| u32::try_from(grant.integer(name, -1)).ok();
                Some(Grant {
                    place: nodes.iter().position(|node| *node.name == *name)?,
                    ports: grant.text("port").and_then(ports),
                    uid: number("uid"),
                    gid: number("gid"),
                })
            };
            DomainSetup {
                name: domain.name.to_string(),
                kind: Some(domain.kind),
                user: params.text("user").map(str::to_owned),
                core: usize::try_from(params.integer("core", -1)).ok(),
                upcalls_max: params.number("upcalls", UPCALLS_MAX as usize),
                grants: params.blocks("grant").filter_map(grant).collect(),
            }
        });
        std::iter::once(first.clone()).chain(rest).collect()
    }

    /// The questions and reasons that cross between domains.
    pub fn known(&self) -> Known {
        Known::of(&self.entries)
    }
}

/// A port, or a range `FIRST..LAST` of them, both included.
pub(crate) fn ports(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    (first <= last).then_some(first..=last)
}

/// One domain of a host, in a kernel.
pub struct BuiltDomain {
    /// What there is in this kernel of each of the host's nodes, in the order of the file: itself,
    /// or what stands for it.
    pub protocols: Vec<Option<ProtocolRef>>,
    /// The domains that it has an edge with, each with this side of the cut.
    pub ports: Vec<(usize, Rc<Port>)>,
}

impl HostPlan {
    /// The domains of the host.
    pub fn domains(&self) -> &[DomainPlan] {
        &self.domains
    }

    /// The order in which domains start: each after all that it stands on.
    pub fn domain_order(&self) -> &[usize] {
        &self.domain_order
    }

    /// Whether a node of the host stands on another one.
    fn stands_on(&self, upper: usize, lower: usize) -> bool {
        self.places.get(upper).is_some_and(|place| place.lowers.contains(&lower))
    }

    /// The domains from which a protocol may come that asks for something through `neighbour`: it
    /// itself, and what stands on it, for a virtual protocol passes on what is above it.
    fn reached_through(&self, neighbour: usize) -> Vec<usize> {
        let mut found = vec![neighbour];
        let mut seen = 0;
        while let Some(&at) = found.get(seen) {
            seen += 1;
            let uppers = self.domains.get(at).map_or(&[][..], DomainPlan::uppers);
            for &upper in uppers {
                if !found.contains(&upper) {
                    found.push(upper);
                }
            }
        }
        found
    }
}

/// Builds the nodes of one domain of a host in a kernel of its own, bottom-up, and between what
/// stands for those of its neighbours. `domain` is a place in [`CheckedGraph::domains`]; `carrier`
/// gives this side of what takes frames to and from a neighbour, once for each. Nothing is started.
///
/// # Errors
/// As of [`build`](crate::build), and what `carrier` answers, at the place of the domain.
pub fn build_domain(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    domain: usize,
    kernel: &Kernel,
    carrier: &mut dyn FnMut(usize) -> io::Result<Box<dyn Carrier>>,
) -> Result<BuiltDomain, Box<Diagnostics>> {
    let fails = |span: Span, what: String| {
        let mut diagnostics = graph.diagnostics();
        diagnostics.error(span, what);
        Err(Box::new(diagnostics))
    };
    let setups = graph.domains(host);
    let plan = graph.plan_of(host);
    let Some((plan, own)) = plan.and_then(|plan| Some((plan, plan.domains.get(domain)?))) else {
        let what = format!("host `{}` has no domain {domain} in this graph", host.name);
        return fails(host.template.name.span, what);
    };
    let named = |at: usize| setups.get(at).map_or("", |setup| &setup.name);
    let mut ports = Vec::new();
    for neighbour in own.neighbours() {
        match carrier(neighbour) {
            Ok(carrier) => ports.push((neighbour, Port::new(carrier, graph.known()))),
            Err(error) => {
                let written = domain.checked_sub(1).and_then(|at| host.template.domains.get(at));
                let span = written.map_or(host.template.name.span, |domain| domain.name.span);
                let other = named(neighbour);
                return fails(span, format!("no way to the domain `{other}`: {error}"));
            }
        }
    }
    let port_to = |at: usize| ports.iter().find(|(other, _)| *other == at).map(|(_, port)| port);
    let here: Vec<usize> =
        (0..plan.places.len()).filter(|at| plan.places[*at].domain == domain).collect();
    let own_first = plan.places.len() as u32 + domain as u32 * OWN_NUMBERS;
    let protocols = build_part(graph, host, kernel, own_first, &mut |site| {
        if site.place.domain == domain {
            return Lies::Here;
        }
        let (kind, name) = (site.place.entry.kind, site.node.name.as_str());
        let near = port_to(site.place.domain).zip(plan.number(site.at));
        Lies::Elsewhere(near.and_then(|(port, of)| {
            if here.iter().any(|at| plan.stands_on(*at, site.at)) {
                return Some(lower_proxy(kernel, port, of, kind, name));
            }
            let is_upper = here.iter().any(|at| plan.stands_on(site.at, *at));
            is_upper.then(|| upper_proxy(kernel, port, of, kind, name))
        }))
    })?;
    for (neighbour, port) in &ports {
        for (at, protocol) in protocols.iter().enumerate().filter(|(at, _)| here.contains(at)) {
            let is_used =
                |upper: usize| plan.places[upper].domain == *neighbour && plan.stands_on(upper, at);
            if let Some(protocol) = protocol.as_ref().filter(|_| (0..protocols.len()).any(is_used))
            {
                port.grant(protocol);
            }
        }
        admit(plan, host, port, *neighbour);
        if let Some(setup) = setups.get(*neighbour) {
            port.bound_upcalls(setup.upcalls_max);
        }
        add_port(kernel, port, &format!("port to {}", shown(named(*neighbour))));
    }
    Ok(BuiltDomain { protocols, ports })
}

/// How the domain of this name is called.
pub(crate) fn shown(name: &str) -> &str {
    if name.is_empty() { "the first domain" } else { name }
}

/// Has a port stand for protocols that come through it and lie further up.
fn admit(plan: &HostPlan, host: &HostInstance<'_>, port: &Rc<Port>, neighbour: usize) {
    let above = plan.reached_through(neighbour);
    let nodes = host.nodes();
    let known = plan.order.iter().enumerate().filter_map(|(number, &at)| {
        let place = plan.places.get(at).filter(|place| above.contains(&place.domain))?;
        Some((ProtocolId(number as u32), place.entry.kind, nodes.get(at)?.name.to_string()))
    });
    let known: Vec<(ProtocolId, &'static str, String)> = known.collect();
    port.admit(move |cx, port, of| {
        let (_, kind, name) = known.iter().find(|(number, ..)| *number == of)?;
        Some(upper_proxy(cx, port, of, kind, name))
    });
}
