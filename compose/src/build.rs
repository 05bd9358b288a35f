//! From a checked graph to a running kernel.

use xk_core::graph::{Build, BuildError};
use xk_core::object::{OpenError, ProtocolRef};
use xk_core::participant::ParseError;
use xk_core::{Kernel, Participant};
use xk_lang::{Diagnostic, Diagnostics, HostInstance, Node, Severity, Span, Value};

use crate::plan::{CheckedGraph, HostPlan, params_of};

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

/// Builds the host's protocols in `kernel`, bottom-up, and fills its table of type numbers. Nothing
/// is started: protocols of the caller's own can be added before [`start`].
///
/// # Errors
/// The first protocol that could not be built, with its place in the file and the remedy.
pub fn build(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    kernel: &Kernel,
) -> Result<BuiltHost, Box<Diagnostics>> {
    let mut diagnostics = graph.diagnostics();
    let Some(plan) = graph.plan_of(host) else {
        let what = format!("the host `{}` is not of this graph", host.name);
        diagnostics.error(host.template.name.span, what);
        return Err(Box::new(diagnostics));
    };
    let nodes = host.nodes();
    let built = build_nodes(plan, &nodes, kernel, &mut diagnostics);
    let Some(protocols) = built.filter(|_| !diagnostics.has_errors()) else {
        return Err(Box::new(diagnostics));
    };
    fill_numbers(graph, plan, &protocols, kernel);
    Ok(BuiltHost { protocols })
}

/// Fills the kernel's table of type numbers: the catalog's, and those that the graph overrides.
pub(crate) fn fill_numbers(
    graph: &CheckedGraph,
    plan: &HostPlan,
    protocols: &[ProtocolRef],
    kernel: &Kernel,
) {
    let mut numbers = kernel.numbers_mut();
    for number in &graph.numbers {
        // The catalog has merged them without a conflict.
        let _ = numbers.add(*number);
    }
    for (place, protocol) in plan.places.iter().zip(protocols) {
        for (lower, number) in &place.numbers {
            if let Some(lower) = protocols.get(*lower) {
                numbers.override_pair(protocol.id(), lower.id(), *number);
            }
        }
    }
}

/// The host's protocols in the file's order; `None` after the first that could not be built.
fn build_nodes(
    plan: &HostPlan,
    nodes: &[Node],
    kernel: &Kernel,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<ProtocolRef>> {
    let mut built: Vec<Option<ProtocolRef>> = vec![None; nodes.len()];
    for &at in &plan.order {
        let (place, node) = (plan.places.get(at)?, nodes.get(at)?);
        let lowers: Vec<ProtocolRef> =
            place.lowers.iter().filter_map(|lower| built.get(*lower).cloned().flatten()).collect();
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
        let result = (place.entry.build)(&mut Build {
            cx: kernel,
            entry: place.entry,
            name: &node.name,
            lowers: &lowers,
            params,
        });
        match result {
            Ok(protocol) => built[at] = Some(protocol),
            Err(error) => {
                report(diagnostics, Severity::Error, node, &error);
                return None;
            }
        }
    }
    built.into_iter().collect()
}

/// Starts what [`build`] has built: every protocol of the kernel, bottom-up.
///
/// # Errors
/// The protocol that could not start, with its place in the file and why.
pub fn start(
    graph: &CheckedGraph,
    host: &HostInstance<'_>,
    kernel: &Kernel,
) -> Result<(), Box<Diagnostics>> {
    kernel
        .start()
        .map_err(|(protocol, error)| Box::new(failed_start(graph, host, &protocol, error)))
}

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
    if let Some(help) = remedy(error) {
        found.help(help);
    }
    diagnostics
}

fn remedy(error: OpenError) -> Option<&'static str> {
    Some(match error {
        OpenError::NotSupported => {
            "a layer below does not offer what this one asks for; `xk help KIND` says what each offers"
        }
        OpenError::Address(_) => "look at the addresses among its parameters",
        OpenError::InUse => {
            "another protocol of this host has the same port, number or wire; give one of them another"
        }
        OpenError::Full => "raise the bound by the parameter that ends in `_max`",
        OpenError::NoRoute => "add a route to the peer",
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
            let text = node.param(name).map(|param| &param.value.value);
            if let Some(Value::Text(text)) = text
                && let Err(meant @ ParseError::Socket(_)) = text.parse::<Participant>()
                && expected.contains("participant")
            {
                found.help(meant.to_string());
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

/// Where a parameter or block is given, and what to say about it.
fn given(node: &Node, name: &str, index: usize) -> (Span, String) {
    if let Some(param) = node.param(name) {
        let value = param.value.described();
        return (param.value.span, format!("{value} does not fit here"));
    }
    match node.blocks(name).nth(index) {
        Some(block) => (block.span, format!("this `{name}` does not do")),
        None => (node.kind.span, format!("`{}` cannot do with its `{name}`", node.name)),
    }
}
