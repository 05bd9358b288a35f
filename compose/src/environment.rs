//! Whether this machine has what a graph needs: devices and privileges.

use xk_core::graph::{BuildError, Look};
use xk_lang::{Diagnostic, Diagnostics, Host, Node, Severity, Value};

use crate::build::report;
use crate::plan::{CheckedGraph, HostPlan, instance, params_of};

/// Asks every protocol that needs something of the machine whether it is there, and looks for the
/// users of domains: of the host called
/// `host`, or of all. What is missing is reported with `severity`: an error before a run, a warning
/// in a mere check, since the graph may be for another machine.
pub fn check_environment(
    graph: &CheckedGraph,
    host: Option<&str>,
    severity: Severity,
) -> Diagnostics {
    let mut diagnostics = graph.diagnostics();
    let one = host.and_then(|name| graph.host(name));
    for (template, plan) in graph.graph.hosts.iter().zip(&graph.plans) {
        match (&one, host) {
            (Some(one), _) if std::ptr::eq(one.template, template) => {
                check_host(template, plan, one.index, severity, &mut diagnostics);
            }
            (None, None) => check_host(template, plan, 0, severity, &mut diagnostics),
            _ => {}
        }
    }
    diagnostics
}

fn check_host(
    host: &Host,
    plan: &HostPlan,
    index: u32,
    severity: Severity,
    diagnostics: &mut Diagnostics,
) {
    for domain in instance(host, index).domains().iter() {
        if let Some(user) = domain.param("user")
            && let Value::Text(name) = &user.value.value
            && !is_user(name)
        {
            let what = format!("this machine has no user `{name}`");
            let found = diagnostics.push(Diagnostic::new(severity, user.value.span, what));
            found.help("name one of /etc/passwd, or give a user's number");
        }
    }
    let nodes = instance(host, index).nodes();
    for (place, node) in plan.places.iter().zip(nodes.iter()) {
        let Some(probe) = place.entry.probe else {
            continue;
        };
        let params = params_of(diagnostics, place.entry, node);
        if let Err(error) = probe(&params, Look::Machine) {
            report_environment(diagnostics, severity, node, &error);
        }
    }
}

/// Whether passwd(5) has a user of this name; every number is one.
fn is_user(name: &str) -> bool {
    let all = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let is_it = |line: &str| line.split(':').next() == Some(name);
    name.parse::<u32>().is_ok() || all.lines().any(is_it)
}

/// Reports what a probe found missing, at its place in the file: for programs that probe by
/// themselves.
pub fn report_environment(
    diagnostics: &mut Diagnostics,
    severity: Severity,
    node: &Node,
    error: &BuildError,
) {
    report(diagnostics, severity, node, error);
}
