//! The picture as SVG.

use std::fmt::Write as _;
use xk_core::graph::Realm;
use xk_lang::Host;

use super::layout::{Layout, layout};
use super::links::{End, ends};
use super::{NODES_DRAWN_MAX, label};
use crate::plan::{CheckedGraph, HostPlan};

// All lengths are in pixels.
const GAP: i64 = 18;
const LINE: i64 = 15;
const CHAR: i64 = 7;
const ROW_GAP: i64 = 26;
const FRAME: i64 = 16;
const TITLE: i64 = 26;
const MARGIN: i64 = 20;
const HOST_GAP: i64 = 28;
const LINK_GAP: i64 = 46;

/// A host with its place in the picture.
struct Drawn {
    at: usize,
    left: i64,
    width: i64,
    height: i64,
    /// What is inside the frame, in the frame's own coordinates.
    inside: String,
    /// For each node the middle of its lower edge, from the frame's left.
    feet: Vec<i64>,
}

pub(super) fn draw(graph: &CheckedGraph, hosts: &[usize]) -> String {
    let ends = ends(graph.graph());
    let mut drawn: Vec<Drawn> = in_order(hosts, &ends)
        .into_iter()
        .filter_map(|at| {
            let host = graph.graph().hosts.get(at)?;
            Some(inside(at, host, graph.plan(at)?))
        })
        .collect();
    let mut left = MARGIN;
    for host in &mut drawn {
        host.left = left;
        left += host.width + HOST_GAP;
    }
    let title = graph.graph().title.as_ref().map(|title| title.as_str());
    let top = MARGIN + title.map_or(0, |_| 28);
    let tallest = drawn.iter().map(|host| host.height).max().unwrap_or(0);
    let mut body = String::new();
    let buses = buses(graph, &drawn, &ends, top + tallest);
    let lowest = buses.iter().map(|bus| bus.y + LINK_GAP).max();
    let reach = buses.iter().map(|bus| bus.left + text_width(&bus.label)).max();
    for bus in &buses {
        bus.lines(&mut body, top + tallest);
    }
    for bus in &buses {
        bus.draw(&mut body);
    }
    for host in &drawn {
        let y = top + tallest - host.height;
        frame(&mut body, graph, host, y);
    }
    // The title is written in 17 px, all else in 12.
    let width = (left - HOST_GAP)
        .max(reach.unwrap_or(0))
        .max(title.map_or(0, |title| text_width(title) * 17 / 12) + MARGIN)
        + MARGIN;
    let height = lowest.unwrap_or(top + tallest) + MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    if let Some(title) = title {
        let _ = writeln!(
            out,
            "<text x=\"{MARGIN}\" y=\"{}\" font-size=\"17\" font-weight=\"bold\" fill=\"#1c2833\">{}</text>",
            MARGIN + 12,
            escape(title)
        );
    }
    out + &body + "</svg>\n"
}

/// The hosts so that those on one link stand together.
fn in_order(hosts: &[usize], ends: &[Vec<End>]) -> Vec<usize> {
    let place = |host: usize| {
        let links = (0..ends.len()).filter(|link| ends[*link].iter().any(|end| end.host == host));
        let (sum, count) = links.fold((0, 0), |(sum, count), link| (sum + link, count + 1));
        if count == 0 { 0.0 } else { sum as f64 / count as f64 }
    };
    let mut order: Vec<(f64, usize)> = hosts.iter().map(|host| (place(*host), *host)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    order.into_iter().map(|(_, host)| host).collect()
}

fn text_width(text: &str) -> i64 {
    text.chars().count() as i64 * CHAR + CHAR
}

fn inside(at: usize, host: &Host, plan: &HostPlan) -> Drawn {
    let title_width = text_width(&label::of_host(host)) + 10;
    let mut drawn = Drawn {
        at,
        left: 0,
        width: title_width + 2 * FRAME,
        height: TITLE + FRAME,
        inside: String::new(),
        feet: vec![FRAME; host.nodes.len()],
    };
    if plan.places().len() > NODES_DRAWN_MAX {
        let _ = writeln!(
            drawn.inside,
            "<text x=\"{FRAME}\" y=\"{}\">{} protocols</text>",
            TITLE + LINE,
            plan.places().len()
        );
        drawn.height += LINE + FRAME;
        return drawn;
    }
    let labels: Vec<Vec<String>> = host.nodes.iter().map(label::of_node).collect();
    let widths: Vec<i64> = labels
        .iter()
        .map(|lines| lines.iter().map(|l| text_width(l)).max().unwrap_or(0) + 12)
        .collect();
    let lowers: Vec<&[usize]> = plan.places().iter().map(|place| place.lowers()).collect();
    let layout = layout(&widths, &lowers, plan.order(), GAP);
    let extra = (title_width - layout.width).max(0) / 2;
    drawn.width = drawn.width.max(layout.width + 2 * FRAME);
    let x = FRAME + extra;
    let (edges, floor) = row_edges(&layout, &labels);
    drawn.height = floor + FRAME;
    lines(&mut drawn.inside, &layout, &edges, x);
    for cell in &layout.cells {
        let (top, bottom) = edges[cell.row];
        let middle = x + cell.middle();
        match cell.node {
            None => {
                let _ = writeln!(
                    drawn.inside,
                    "<path d=\"M{middle} {top}V{bottom}\" stroke=\"#566573\" stroke-width=\"1.5\"/>"
                );
            }
            Some(node) => {
                drawn.feet[node] = middle;
                let realm = plan.places()[node].entry().realm;
                let place = (x + cell.left, top, cell.width, bottom - top);
                node_box(&mut drawn.inside, place, realm, &labels[node]);
            }
        }
    }
    drawn
}

/// The upper and lower edge of every row, from the top, and the lower edge of all.
fn row_edges(layout: &Layout, labels: &[Vec<String>]) -> (Vec<(i64, i64)>, i64) {
    let mut edges = vec![(0, 0); layout.rows.len()];
    let mut y = TITLE + 6;
    for row in (0..layout.rows.len()).rev() {
        let boxes = layout.rows[row].iter().filter_map(|cell| layout.cells[*cell].node);
        let lines = boxes.map(|node| labels[node].len()).max().unwrap_or(1) as i64;
        edges[row] = (y, y + lines * LINE + 10);
        y = edges[row].1 + ROW_GAP;
    }
    (edges, (y - ROW_GAP).max(TITLE))
}

/// The lines between neighbouring rows, shifted to the right by `x`.
fn lines(out: &mut String, layout: &Layout, edges: &[(i64, i64)], x: i64) {
    for &(upper, lower) in &layout.lines {
        let (from, to) = (&layout.cells[upper], &layout.cells[lower]);
        let (x1, y1) = (x + from.middle(), edges[from.row].1);
        let (x2, y2) = (x + to.middle(), edges[to.row].0);
        let middle = (y1 + y2) / 2;
        let _ = writeln!(
            out,
            "<path d=\"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}\" fill=\"none\" stroke=\"#566573\" stroke-width=\"1.5\"/>"
        );
    }
}

fn node_box(
    out: &mut String,
    (x, y, width, height): (i64, i64, i64, i64),
    realm: Realm,
    lines: &[String],
) {
    let (fill, stroke) = match realm {
        Realm::Wire => ("#d6e4f0", "#2e6da4"),
        Realm::Top => ("#d9efdc", "#2f7d3b"),
        Realm::Control => ("#f3e6f7", "#7d4b94"),
        Realm::Async | Realm::Rpc => ("#fdf6e3", "#8a6d1f"),
    };
    let _ = writeln!(
        out,
        "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
    );
    let used = lines.len() as i64 * LINE;
    for (number, line) in lines.iter().enumerate() {
        let weight = if number == 0 { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#1c2833\"{weight}>{}</text>",
            x + width / 2,
            y + (height - used) / 2 + LINE * (number as i64 + 1) - 4,
            escape(line)
        );
    }
}

fn frame(body: &mut String, graph: &CheckedGraph, host: &Drawn, y: i64) {
    let Some(written) = graph.graph().hosts.get(host.at) else {
        return;
    };
    let _ = writeln!(body, "<g transform=\"translate({} {y})\">", host.left);
    if written.count.is_some() {
        // A second frame behind stands for the others alike.
        let _ = writeln!(
            body,
            "<rect x=\"6\" y=\"-6\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"#ffffff\" stroke=\"#aeb6bf\"/>",
            host.width, host.height
        );
    }
    let _ = writeln!(
        body,
        "<rect width=\"{}\" height=\"{}\" rx=\"8\" fill=\"#fafbfc\" stroke=\"#85929e\"/>",
        host.width, host.height
    );
    let _ = writeln!(
        body,
        "<text x=\"{FRAME}\" y=\"19\" font-size=\"13\" font-weight=\"bold\" fill=\"#34495e\">{}</text>",
        escape(&label::of_host(written))
    );
    body.push_str(&host.inside);
    body.push_str("</g>\n");
}

/// A link: a thick line below the hosts, with a thin one up to each wire.
struct Bus {
    left: i64,
    right: i64,
    y: i64,
    label: String,
    feet: Vec<i64>,
}

impl Bus {
    fn lines(&self, body: &mut String, from: i64) {
        for x in &self.feet {
            let _ = writeln!(
                body,
                "<path d=\"M{x} {}V{}\" stroke=\"#2e6da4\" stroke-width=\"1.5\"/>",
                from - FRAME,
                self.y
            );
        }
    }

    /// The link and its label, whose white edge keeps it readable across the lines of other links.
    fn draw(&self, body: &mut String) {
        let _ = writeln!(
            body,
            "<path d=\"M{} {}H{}\" stroke=\"#2e6da4\" stroke-width=\"5\" stroke-linecap=\"round\"/>",
            self.left, self.y, self.right
        );
        let (x, y, label) = (self.left, self.y + 19, escape(&self.label));
        for style in ["fill=\"#ffffff\" stroke=\"#ffffff\" stroke-width=\"5\"", "fill=\"#21618c\""]
        {
            let _ = writeln!(body, "<text x=\"{x}\" y=\"{y}\" {style}>{label}</text>");
        }
    }
}

/// The links, each on the first level where nothing is in its way.
fn buses(graph: &CheckedGraph, drawn: &[Drawn], ends: &[Vec<End>], floor: i64) -> Vec<Bus> {
    let mut buses: Vec<Bus> = Vec::new();
    // Several links may hang on one wire of hosts alike: then the lines stand side by side.
    let mut used: Vec<((usize, usize), i64)> = Vec::new();
    for (link, ends) in graph.graph().links.iter().zip(ends) {
        let mut feet = Vec::new();
        for end in ends {
            let Some(host) = drawn.iter().find(|host| host.at == end.host) else {
                continue;
            };
            let Some(foot) = host.feet.get(end.node) else {
                continue;
            };
            let taken = used.iter_mut().find(|(key, _)| *key == (end.host, end.node));
            let shift = match taken {
                Some((_, count)) => {
                    *count += 1;
                    *count * 8
                }
                None => {
                    used.push(((end.host, end.node), 0));
                    0
                }
            };
            feet.push(host.left + foot + shift);
        }
        let (Some(&first), Some(&last)) = (feet.iter().min(), feet.iter().max()) else {
            continue;
        };
        let label = label::of_link(link);
        let (left, right) = (first - 14, (last + 14).max(first + 60));
        let end = right.max(left + text_width(&label));
        let mut y = floor + LINK_GAP - 10;
        let in_the_way = |bus: &Bus, y: i64| {
            let bus_end = bus.right.max(bus.left + text_width(&bus.label));
            bus.y == y && bus.left <= end + 10 && left <= bus_end + 10
        };
        while buses.iter().any(|bus| in_the_way(bus, y)) {
            y += LINK_GAP;
        }
        buses.push(Bus { left, right, y, label, feet });
    }
    buses
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}
