//! Builds a running kernel from a checked graph.

use xk_core::Kernel;
use xk_core::graph::{Build, BuildError};
use xk_core::kernel::Started;
use xk_core::object::{OpenError, ProtocolRef};
use xk_core::participant::AddressError;
use xk_lang::{Diagnostic, Diagnostics, HostInstance, Node, Severity, Span, Value};

use crate::plan::{CheckedGraph, HostPlan, Place, params_of};

/// A host's protocols in a kernel: one for each node of the host, in the file's order.
pub struct BuiltHost {
    /// The protocols, in the order of the file's nodes.
    pub protocols: Vec<ProtocolRef>,
}

impl BuiltHost {
    /// The protocol of this name.
    pub fn find(&self, name: &str) -> Option<&ProtocolRef> {
        self.protocols.iter().find(|p| p.name() == name)
    }
}

/// Place of a node whose host's graph is divided among several kernels.
pub enum Lies {
    /// In this kernel: it is built.
    Here,
    /// In another one; with what stands for it here, where it has a neighbour here.
    Elsewhere(Option<ProtocolRef>),
}

/// A node of a host, and what it stands on in this kernel.
pub struct Site<'a> {
    /// Place among the file's nodes, and in [`HostPlan::places`].
    pub at: usize,
    /// Results of the check about the node.
    pub place: &'a Place,
    /// The node in the file.
    pub node: &'a Node,
    /// The protocols that it stands on, or what stands for them.
    pub lowers: &'a [ProtocolRef],
}

/// Builds the host's protocols in `kernel`, bottom-up, and fills its table of type numbers. Nothing
/// is started: protocols of the caller's own can be added before the kernel is.
///
/// # Errors
/// The first protocol that could not be built, with its place in the file and the remedy.
pub fn build(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    kernel: &Kernel,
) -> Result<BuiltHost, Box<Diagnostics>> {
    let protocols = build_some(graph, host, kernel, &mut |_| Lies::Here)?;
    Ok(BuiltHost { protocols: protocols.into_iter().flatten().collect() })
}

/// Builds those of the host's protocols in `kernel` that lie there, as [`build`] does all of them.
/// Every kernel of the host numbers its nodes alike ([`Kernel::join_host`]); what is added besides
/// gets numbers from `own_first` on, which is to be another one, with room behind it, for each.
///
/// `lies` is asked of each node, bottom-up. Answers what there is in this kernel of each node, in
/// the order of the file.
///
/// # Errors
/// As of [`build`].
pub fn build_part(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    kernel: &Kernel,
    own_first: u32,
    lies: &mut dyn FnMut(&Site<'_>) -> Lies,
) -> Result<Vec<Option<ProtocolRef>>, Box<Diagnostics>> {
    if let Some(plan) = graph.plan_of(host) {
        let nodes = host.nodes();
        let numbered = plan.order.iter().filter_map(|&at| {
            let (place, node) = (plan.places.get(at)?, nodes.get(at)?);
            Some(xk_core::Node {
                kind: place.entry.kind,
                name: node.name.as_str().into(),
                numbers_below: place.numbers_below().and_then(|below| plan.number(below)),
            })
        });
        kernel.join_host(numbered.collect(), own_first);
    }
    build_some(graph, host, kernel, lies)
}

/// As [`build_part`], in a kernel whose numbers others have given, such as that of a program that
/// is attached.
///
/// # Errors
/// As of [`build`].
pub fn build_some(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    kernel: &Kernel,
    lies: &mut dyn FnMut(&Site<'_>) -> Lies,
) -> Result<Vec<Option<ProtocolRef>>, Box<Diagnostics>> {
    let mut diagnostics = graph.diagnostics();
    let Some(plan) = graph.plan_of(host) else {
        let what = format!("the host `{}` is not of this graph", host.name);
        diagnostics.error(host.template.name.span, what);
        return Err(Box::new(diagnostics));
    };
    let built = each_node(plan, &host.nodes(), |site| match lies(site) {
        Lies::Here => build_one(site, kernel, &mut diagnostics).map(Some),
        Lies::Elsewhere(stands_for) => Some(stands_for),
    });
    match built {
        Some(built) if !diagnostics.has_errors() => {
            fill_numbers(graph, plan, &built, kernel);
            Ok(built)
        }
        _ => Err(Box::new(diagnostics)),
    }
}

/// Fills the kernel's table of type numbers: the catalog's, and those that the graph overrides.
pub(crate) fn fill_numbers(
    graph: &CheckedGraph,
    plan: &HostPlan,
    built: &[Option<ProtocolRef>],
    kernel: &Kernel,
) {
    let mut numbers = kernel.numbers_mut();
    // Cannot conflict: both are of one catalog.
    let _ = numbers.merge(&graph.numbers);
    // What is not in this kernel has the number that it has in all kernels of its host.
    let id = |at: usize| match built.get(at)? {
        Some(protocol) => Some(protocol.id()),
        None => plan.number(at),
    };
    for (at, place) in plan.places.iter().enumerate() {
        for (lower, number) in &place.numbers {
            if let (Some(upper), Some(lower)) = (id(at), id(*lower)) {
                numbers.override_pair(upper, lower, *number);
            }
        }
    }
}

/// Calls `make` for each of the host's nodes, bottom-up, and returns the results in the order of
/// the file; `None` after the first that could not be made.
pub(crate) fn each_node(
    plan: &HostPlan,
    nodes: &[Node],
    mut make: impl FnMut(&Site<'_>) -> Option<Option<ProtocolRef>>,
) -> Option<Vec<Option<ProtocolRef>>> {
    let mut made: Vec<Option<ProtocolRef>> = vec![None; nodes.len()];
    for &at in &plan.order {
        let (place, node) = (plan.places.get(at)?, nodes.get(at)?);
        let lowers: Vec<ProtocolRef> =
            place.lowers.iter().filter_map(|lower| made.get(*lower).cloned().flatten()).collect();
        made[at] = make(&Site { at, place, node, lowers: &lowers })?;
    }
    Some(made)
}

/// Builds a protocol; `None`, and a mistake, if that cannot be.
fn build_one(
    site: &Site<'_>,
    kernel: &Kernel,
    diagnostics: &mut Diagnostics,
) -> Option<ProtocolRef> {
    let &Site { place, node, lowers, .. } = site;
    let own;
    let params = match &place.params {
        Some(params) => params,
        None => {
            own = params_of(diagnostics, place.entry, node);
            &own
        }
    };
    if diagnostics.has_errors() {
        return None;
    }
    let (entry, name) = (place.entry, &node.name);
    match (entry.build)(&mut Build { cx: kernel, entry, name, lowers, params }) {
        Ok(protocol) => Some(protocol),
        Err(error) => {
            report(diagnostics, Severity::Error, node, &error);
            None
        }
    }
}

/// Turns the result of starting a host's kernel, such as that of `Runner::start`, into mistakes of
/// the file.
///
/// # Errors
/// The protocol that could not start, with its place in the file and why.
pub fn started(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    started: Started,
) -> Result<(), Box<Diagnostics>> {
    started.map_err(|(protocol, error)| Box::new(failed_start(graph, host, &protocol, error)))
}

/// The most nodes that a message names as rivals for one place.
const RIVALS_MAX: usize = 3;

/// A failed start as a mistake in the file.
pub(crate) fn failed_start(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    protocol: &ProtocolRef,
    error: OpenError,
) -> Diagnostics {
    let mut diagnostics = graph.diagnostics();
    let nodes = host.nodes();
    let node = nodes.iter().find(|node| *node.name == *protocol.name());
    let span = node.map_or(host.template.name.span, |node| node.kind.span);
    let what = format!("`{}` on host `{}` cannot start: {error}", protocol.name(), host.name);
    let found = diagnostics.error(span, what);
    let rivals = match error {
        OpenError::InUse => rivals(graph, host, &nodes, protocol),
        _ => Vec::new(),
    };
    let mut framework = None;
    for Rival { node, lower, of } in rivals {
        found.also(node.kind.span, format!("`{}` stands on `{lower}`, too", node.name));
        framework = framework.or(of);
    }
    if let Some(of) = framework {
        found.help(format!(
            "the protocols of `{of}` have there what they need, the resolution of addresses \
             included: stand on them, or on another interface"
        ));
    } else if let Some(help) = remedy(error) {
        found.help(help);
    }
    diagnostics
}

/// A node that may have what another one wants.
struct Rival<'a> {
    node: &'a Node,
    /// The name of the node on which both stand.
    lower: &'a str,
    /// The framework that both this one and that node are of.
    of: Option<&'static str>,
}

/// Returns the nodes that stand on the same as `protocol`, if they are few enough to look at.
fn rivals<'a>(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    nodes: &'a [Node],
    protocol: &ProtocolRef,
) -> Vec<Rival<'a>> {
    let places = graph.plan_of(host).map_or(&[][..], |plan| plan.places());
    let lowers = |at: usize| {
        places[at].lowers.iter().map(|lower| {
            let down = |at: &usize| places[*at].numbers_below();
            core::iter::successors(Some(*lower), down).last().unwrap_or(*lower)
        })
    };
    let is_seen = |at: &usize| places[*at].numbers_below().is_none();
    let own = nodes.iter().position(|node| *node.name == *protocol.name());
    let Some(own) = own.filter(|at| *at < places.len()) else {
        return Vec::new();
    };
    let others = (0..places.len().min(nodes.len())).filter(|at| *at != own).filter(is_seen);
    let shared = |at: usize| lowers(own).find(|lower| lowers(at).any(|other| other == *lower));
    let found: Vec<_> = others
        .filter_map(|at| {
            let lower = shared(at)?;
            let of = places[lower].entry.subsystem.filter(|_| {
                let [own, other, below] = [own, at, lower].map(|at| places[at].entry.subsystem);
                other == below && own != below
            });
            Some(Rival { node: &nodes[at], lower: nodes.get(lower)?.name.as_str(), of })
        })
        .collect();
    if found.len() > RIVALS_MAX { Vec::new() } else { found }
}

fn remedy(error: OpenError) -> Option<&'static str> {
    Some(match error {
        OpenError::NotSupported => {
            "a layer below does not offer what this one asks for; `xk help KIND` says what each offers"
        }
        OpenError::Address(AddressError::Count) => "name one peer: a layer below takes no more",
        OpenError::Address(_) => "look at the addresses among its parameters",
        OpenError::InUse => {
            "another protocol of this host has the same port, number or wire; give one of them another"
        }
        OpenError::Full => "raise the bound by the parameter that ends in `_max`",
        OpenError::NoRoute => "add a route to the peer",
        OpenError::NotPermitted => "grant it to this user, with `grant`, where the domain is open",
        OpenError::NoAnswer => "start it again once the domain below runs",
        OpenError::NoTypeNumber | OpenError::NoLower | OpenError::NoBuffers => return None,
    })
}

/// Reports why a protocol could not be built, at the place in the file that is to blame.
pub(crate) fn report(
    diagnostics: &mut Diagnostics,
    severity: Severity,
    node: &Node,
    error: &BuildError,
) {
    match error {
        BuildError::Param { name, index, expected } => {
            let (span, what) = given(node, name, *index);
            let found = diagnostics.push(Diagnostic::new(severity, span, what));
            found.expected(expected.as_str());
            if let Some(text) = given_text(node, name, *index)
                && expected.contains("IPv4")
                && let Some(flaw) = flaw_of_host(text, expected.contains("prefix"))
            {
                found.label(flaw);
            }
        }
        BuildError::Lower { at } => {
            let what = format!("`{}` lacks its lower protocol {}", node.name, at + 1);
            diagnostics.push(Diagnostic::new(severity, node.kind.span, what));
        }
        BuildError::Environment { param, what, help } => {
            let param = param.and_then(|name| node.param(name));
            let span = param.map_or(node.kind.span, |param| param.value.span);
            let found = diagnostics.push(Diagnostic::new(severity, span, what.as_str()));
            if !help.is_empty() {
                found.help(help.as_str());
            }
        }
        BuildError::Open(error) => {
            let what = format!("`{}` cannot open what it stands on: {error}", node.name);
            let found = diagnostics.push(Diagnostic::new(severity, node.kind.span, what));
            if let Some(help) = remedy(*error) {
                found.help(help);
            }
        }
    }
}

/// The text of a parameter, or the first of a block.
fn given_text<'a>(node: &'a Node, name: &'a str, index: usize) -> Option<&'a str> {
    let block = || node.blocks(name).nth(index)?.args.first();
    let value = node.param(name).map(|param| &param.value).or_else(block)?;
    match &value.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// Returns the first thing that is wrong with an IPv4 address, which may have to have a prefix.
fn flaw_of_host(text: &str, has_prefix: bool) -> Option<String> {
    let (host, prefix) = text.split_once('/').map_or((text, None), |(host, len)| (host, Some(len)));
    let octets: Vec<&str> = host.split('.').collect();
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !octets.iter().all(is_number) {
        return Some("not four numbers with dots between them".into());
    }
    if octets.len() != 4 {
        return Some(format!("{} numbers in place of four", octets.len()));
    }
    if let Some(octet) = octets.iter().find(|octet| octet.parse::<u8>().is_err()) {
        return Some(format!("{octet} is more than 255"));
    }
    if let Some(octet) = octets.iter().find(|octet| octet.len() > 1 && octet.starts_with('0')) {
        return Some(format!("{octet} begins with a zero"));
    }
    match prefix {
        None if !has_prefix => None,
        None => Some("the length of the prefix is missing, such as `/24`".into()),
        Some(len) if !is_number(&len) => Some("the length of the prefix is no number".into()),
        Some(len) if len.parse::<u8>().is_ok_and(|len| len <= 32) => None,
        Some(len) => Some(format!("a prefix of {len} bits is longer than 32")),
    }
}

/// Place at which a parameter or block is given, and the words for it.
fn given(node: &Node, name: &str, index: usize) -> (Span, String) {
    if let Some(param) = node.param(name) {
        let value = param.value.described();
        return (param.value.span, format!("{value} does not fit here"));
    }
    match node.blocks(name).nth(index) {
        Some(block) => (block.span, format!("this `{name}` is not valid")),
        None => (node.kind.span, format!("`{}` cannot do with its `{name}`", node.name)),
    }
}
