//! Pictures of graphs: as text for a terminal, as SVG for everything else.
//!
//! Both use one layered layout ([`layout`]): wires at the bottom, every protocol above all that it
//! stands on. The domains of a host are boxes of that layout themselves, each with its own
//! protocols inside, and in parentheses those of other domains that these stand on.

mod label;
mod layout;
mod links;
mod parts;
mod svg;
mod text;

use crate::plan::CheckedGraph;
use xk_lang::Host;

/// Hosts with more protocols than this are named and not drawn: the drawing could not be read.
const NODES_DRAWN_MAX: usize = 500;

/// The graph as text with box-drawing characters, at most `columns` wide where the hosts allow it;
/// of the host called `host`, or of all. Hosts alike are drawn once.
pub fn draw_text(graph: &CheckedGraph, host: Option<&str>, columns: usize) -> String {
    text::draw(graph, &chosen(graph, host), columns)
}

/// The graph as an SVG document of its own: hosts as frames, links as lines between their wires.
pub fn draw_svg(graph: &CheckedGraph, host: Option<&str>) -> String {
    svg::draw(graph, &chosen(graph, host))
}

/// Hosts of the file to draw, as places in it.
fn chosen(graph: &CheckedGraph, host: Option<&str>) -> Vec<usize> {
    let hosts = &graph.graph().hosts;
    let Some(name) = host else {
        return (0..hosts.len()).collect();
    };
    if let Some(at) = hosts.iter().position(|host| *host.name == name) {
        return vec![at];
    }
    let Some(instance) = graph.host(name) else {
        return Vec::new();
    };
    let same = |host: &Host| std::ptr::eq(host, instance.template);
    hosts.iter().position(same).into_iter().collect()
}
