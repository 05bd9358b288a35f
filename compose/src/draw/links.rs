//! The wires of the hosts at each link.

use xk_lang::{Graph, Host, Template, Value};

use crate::plan::count_of;

/// A simulated wire on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LinkEnd {
    /// The host's place in the file.
    pub(super) host: usize,
    /// The wire's place among the host's nodes.
    pub(super) node: usize,
}

/// For each link of the file the wires that hang on it; those of hosts alike once.
pub(super) fn ends(graph: &Graph) -> Vec<Vec<LinkEnd>> {
    let mut ends: Vec<Vec<LinkEnd>> = vec![Vec::new(); graph.links.len()];
    for (at, host) in graph.hosts.iter().enumerate() {
        for (node_at, node) in host.nodes.iter().enumerate() {
            let Some(param) = node.param("link") else {
                continue;
            };
            let Value::Text(text) = &param.value.value else {
                continue;
            };
            let end = LinkEnd { host: at, node: node_at };
            for (link, ends) in graph.links.iter().zip(&mut ends) {
                if hangs(host, text, &link.name) {
                    ends.push(end);
                }
            }
        }
    }
    ends
}

/// Whether a wire with this `link=` of one of the hosts alike hangs on the link `name`.
fn hangs(host: &Host, text: &str, name: &str) -> bool {
    let template = match &host.count {
        Some(_) if text.contains('{') => Template::compile(text).ok(),
        _ => None,
    };
    match template {
        None => text == name,
        Some(template) => {
            let count = u32::try_from(count_of(host)).unwrap_or(u32::MAX);
            (0..count).any(|index| template.fill(index) == name)
        }
    }
}
