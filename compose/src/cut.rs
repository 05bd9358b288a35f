//! One domain of a host, built in a kernel of its own, with what stands for its neighbours.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use xk_core::object::ProtocolId;
use xk_core::{Kernel, ProtocolRef};
use xk_domains::{Carrier, Known, Port, add_port, lower_proxy, upper_proxy};
use xk_lang::{Diagnostics, HostInstance, Span};

use crate::build::{Lies, build_part};
use crate::domain::DomainPlan;
use crate::plan::{CheckedGraph, HostPlan};

/// Numbers that a domain has for what is added beside the host's nodes.
const OWN_NUMBERS: u32 = 1 << 16;
/// Objects besides its nodes that a neighbour has receive here.
const OTHERS_MAX: usize = 256;

/// One domain of a host, in a kernel.
pub struct BuiltDomain {
    /// Each of the host's nodes in this kernel, in the order of the file: itself, or its proxy.
    pub protocols: Vec<Option<ProtocolRef>>,
    /// The domains that it has an edge with, each with this side of the cut.
    pub ports: Vec<(usize, Rc<Port>)>,
}

impl CheckedGraph {
    /// The questions and reasons that cross between domains.
    pub fn known(&self) -> Known {
        Known::of(self.entries())
    }
}

impl HostPlan {
    /// Whether a node of the host stands on another one.
    fn stands_on(&self, upper: usize, lower: usize) -> bool {
        self.places.get(upper).is_some_and(|place| place.lowers.contains(&lower))
    }

    /// Whether a node stands on one of that domain, at whatever distance: layers between pass on
    /// what it asks there, which may name it.
    fn reaches(&self, upper: usize, domain: usize) -> bool {
        let mut below = vec![upper];
        let mut seen = 0;
        while let Some(place) = below.get(seen).and_then(|at| self.places.get(*at)) {
            seen += 1;
            let fresh = place.lowers.iter().copied().filter(|lower| !below.contains(lower));
            below.extend(fresh.collect::<Vec<_>>());
        }
        below.iter().skip(1).any(|at| self.places[*at].domain == domain)
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
    let own_first = own_numbers(plan, domain).start;
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
        let present = protocols.iter().enumerate();
        for (at, protocol) in present.filter_map(|(at, one)| Some((at, one.as_ref()?))) {
            let is_used =
                |upper: usize| plan.places[upper].domain == *neighbour && plan.stands_on(upper, at);
            if here.contains(&at) && (0..protocols.len()).any(is_used) {
                port.grant(protocol);
            }
            if plan.places[at].domain != *neighbour && plan.reaches(at, *neighbour) {
                port.note_user(protocol);
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

/// The numbers of what a domain has besides the nodes.
fn own_numbers(plan: &HostPlan, domain: usize) -> Range<u32> {
    let first = plan.places.len() as u32 + domain as u32 * OWN_NUMBERS;
    first..first + OWN_NUMBERS
}

/// Text for the domain of this name.
fn shown(name: &str) -> &str {
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
    // A layer that receives for several above has an object for each, besides its node.
    let own: Vec<Range<u32>> = above.iter().map(|domain| own_numbers(plan, *domain)).collect();
    let others = Cell::new(0);
    port.admit(move |cx, port, of| {
        if let Some((_, kind, name)) = known.iter().find(|(number, ..)| *number == of) {
            return Some(upper_proxy(cx, port, of, kind, name));
        }
        if others.get() == OTHERS_MAX || !own.iter().any(|numbers| numbers.contains(&of.0)) {
            return None;
        }
        others.set(others.get() + 1);
        Some(upper_proxy(cx, port, of, "receiver", &format!("receiver {}", of.0)))
    });
}
