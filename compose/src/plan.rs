//! Result of a check: the graph, and for each host its nodes with their lowers.

use std::borrow::Cow;
use xk_core::Entry;
use xk_core::graph::{Family, Params, Shape};
use xk_core::numbers::Numbers;
use xk_core::object::ProtocolId;
use xk_lang::{Diagnostics, Graph, Host, HostInstance, Node, Template};

use crate::domain::DomainPlan;
use crate::params::Parametrized;

/// A graph without mistakes: made by [`check`](crate::check), and all that building, drawing and
/// simulating need.
pub struct CheckedGraph {
    pub(crate) graph: Graph,
    pub(crate) warnings: Diagnostics,
    /// Nothing found yet: cloned for later mistakes, so that the source text is not copied each
    /// time.
    pub(crate) none: Diagnostics,
    pub(crate) plans: Vec<HostPlan>,
    pub(crate) links: Vec<Params>,
    /// The lines of `faults`, by their kinds.
    #[cfg_attr(not(feature = "simulate"), expect(dead_code, reason = "no simulation"))]
    pub(crate) faults: Vec<(&'static str, Params)>,
    /// The lines of `sweep`, by their kinds.
    pub(crate) sweep: Vec<(&'static str, Params)>,
    pub(crate) numbers: Numbers,
    /// The catalog's.
    pub(crate) entries: Vec<&'static Entry>,
}

/// One host of a graph, checked; hosts alike share one.
pub struct HostPlan {
    /// Protocols of the host, in the order of the file's nodes.
    pub(crate) places: Vec<Place>,
    /// Their indices, each after all that it stands on.
    pub(crate) order: Vec<usize>,
    /// Domains of the host; the first one has the nodes that are in none of the file's.
    pub(crate) domains: Vec<DomainPlan>,
    /// Their indices, each after all that it stands on.
    pub(crate) domain_order: Vec<usize>,
}

/// One protocol of a host, checked.
pub struct Place {
    pub(crate) entry: &'static Entry,
    pub(crate) lowers: Vec<usize>,
    /// The place of its domain among those of its host.
    pub(crate) domain: usize,
    pub(crate) above: Option<Family>,
    /// Type numbers that the graph overrides, and those that follow from others: the lower
    /// protocol's place, and the number there.
    pub(crate) numbers: Vec<(usize, u32)>,
    /// The parameters, if they are the same in all hosts alike.
    pub(crate) params: Option<Params>,
}

impl Place {
    /// Catalog entry of its kind.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// The places of the protocols it stands on, in order, within its host.
    pub fn lowers(&self) -> &[usize] {
        &self.lowers
    }

    /// The place of its domain among those of its host, [`HostPlan::domains`].
    pub fn domain(&self) -> usize {
        self.domain
    }

    /// The parameter of `node`, which it is of, that names a socket at which it listens.
    pub fn listens_at<'a>(&self, node: &'a Node) -> Option<&'a xk_lang::Param> {
        node.param(self.entry.stacking_rules?.listens_at?)
    }

    /// The place of the protocol whose type numbers hold on it: that below a filter or an adapter.
    pub(crate) fn numbers_below(&self) -> Option<usize> {
        let is_looked_through = matches!(self.entry.shape, Shape::Filter | Shape::Adapter);
        self.lowers.first().copied().filter(|_| is_looked_through)
    }

    /// The type numbers that the graph gives it, or that follow from others: the lower protocol's
    /// place, and the number there.
    pub fn numbers(&self) -> &[(usize, u32)] {
        &self.numbers
    }

    /// The family of participants that it takes from above, looked up below where it passes them
    /// through.
    pub fn above(&self) -> Option<Family> {
        self.above
    }
}

impl HostPlan {
    /// Protocols of the host, in the order of the file's nodes.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Indices of the protocols, each after all that it stands on.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The number of a protocol in all kernels of a host that lies in several.
    pub fn number(&self, place: usize) -> Option<ProtocolId> {
        let at = self.order.iter().position(|at| *at == place)?;
        u32::try_from(at).ok().map(ProtocolId)
    }
}

impl CheckedGraph {
    /// Entries of the catalog against which it was checked.
    pub fn entries(&self) -> &[&'static Entry] {
        &self.entries
    }

    /// The graph of the file.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Warnings: what is probably not meant, but does no harm.
    pub fn warnings(&self) -> &Diagnostics {
        &self.warnings
    }

    /// The parameters of the links between the hosts, in the file's order.
    pub fn links(&self) -> &[Params] {
        &self.links
    }

    /// The lines of `sweep`, by their kinds: `seeds`, `until`, `set` and `draw`.
    pub fn sweep(&self) -> &[(&'static str, Params)] {
        &self.sweep
    }

    /// Plan of a host: its nodes with their lowers; `host` is its place in [`Graph::hosts`].
    pub fn plan(&self, host: usize) -> Option<&HostPlan> {
        self.plans.get(host)
    }

    /// Number of hosts, with counts written out.
    pub fn host_count(&self) -> usize {
        self.graph.hosts.iter().map(count_of).sum()
    }

    /// Number of protocols on all hosts, with counts written out.
    pub fn protocol_count(&self) -> usize {
        let of = |host: &Host| host.nodes.len() * count_of(host);
        self.graph.hosts.iter().map(of).sum()
    }

    /// The host of this name, counts written out.
    pub fn host(&self, name: &str) -> Option<HostInstance<'_>> {
        if let Some(host) = self.graph.host(name)
            && host.count.is_none()
        {
            return Some(instance(host, 0));
        }
        self.graph.expand().into_iter().find(|i| i.name == name)
    }

    /// The plan of a host made by [`Graph::expand`] or [`CheckedGraph::host`].
    pub fn plan_of(&self, host: &HostInstance<'_>) -> Option<&HostPlan> {
        let at =
            self.graph.hosts.iter().position(|template| std::ptr::eq(template, host.template))?;
        self.plans.get(at)
    }

    /// An empty collection of mistakes about this graph's file.
    pub(crate) fn diagnostics(&self) -> Diagnostics {
        self.none.clone()
    }
}

/// Number of hosts for which a host of the file stands.
pub(crate) fn count_of(host: &Host) -> usize {
    host.count.as_ref().map_or(1, |count| count.value as usize)
}

/// One of the hosts alike, without writing out the others.
pub(crate) fn instance(host: &Host, index: u32) -> HostInstance<'_> {
    let name = host.name.as_str();
    let name = match &host.count {
        None => Cow::Borrowed(name),
        Some(_) => match Template::compile(name) {
            Ok(template) if name.contains('{') => Cow::Owned(template.fill(index)),
            _ => Cow::Owned(format!("{name}{index}")),
        },
    };
    HostInstance { name, index, template: host }
}

/// The parameters of one node, `number` left to the composer.
pub(crate) fn params_of(
    diagnostics: &mut Diagnostics,
    entry: &'static Entry,
    node: &Node,
) -> Params {
    let what = format!("`{}`", entry.kind);
    let parametrized = Parametrized {
        what: &what,
        span: node.kind.span,
        scalars: entry.parameters,
        blocks: entry.blocks,
    };
    let own = |block: &&xk_lang::ParamBlock| *block.name != "number";
    let children: Vec<_> = node.children.iter().filter(own).cloned().collect();
    parametrized.take(diagnostics, &node.params, &children)
}
