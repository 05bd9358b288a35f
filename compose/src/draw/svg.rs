//! The picture as SVG.

use std::fmt::Write as _;
use xk_core::graph::{Realm, Shape};
use xk_lang::Host;

use super::layout::{Layout, layout};
use super::links::{LinkEnd, ends};
use super::parts::{self, Item, Tower};
use super::{NODES_DRAWN_MAX, label};
use crate::plan::{CheckedGraph, HostPlan, Place};

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
    /// Contents of the frame, in the frame's own coordinates.
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
fn in_order(hosts: &[usize], ends: &[Vec<LinkEnd>]) -> Vec<usize> {
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
    let picture = tower(plan, &parts::host(host, plan));
    let (x, y) = (FRAME + (title_width - picture.width).max(0) / 2, TITLE + 6);
    drawn.width = drawn.width.max(picture.width + 2 * FRAME);
    drawn.height = y + picture.height + FRAME;
    let _ = write!(drawn.inside, "<g transform=\"translate({x} {y})\">\n{}</g>\n", picture.text);
    for (node, foot) in picture.feet {
        drawn.feet[node] = x + foot;
    }
    drawn
}

/// Drawing in a rectangle: its size, the text from its upper left corner, and how far to the right
/// the middles of its nodes lie.
struct Picture {
    width: i64,
    height: i64,
    text: String,
    feet: Vec<(usize, i64)>,
}

/// A box with lines of text in it.
fn node_picture(place: Option<&Place>, lines: &[String]) -> Picture {
    // As wide as the layout makes it: an odd number, so that there is a middle.
    let text = lines.iter().map(|line| text_width(line)).max().unwrap_or(0);
    let is_adapter = place.is_some_and(|place| place.entry().shape == Shape::Adapter);
    let (more, above) = if is_adapter { (0, 4) } else { (12, 10) };
    let (width, height) = ((text + more) | 1, lines.len() as i64 * LINE + above);
    let mut text = String::new();
    if is_adapter {
        let label = lines.first().map_or("", String::as_str);
        let _ = writeln!(
            text,
            "<rect width=\"{width}\" height=\"{height}\" rx=\"9\" fill=\"#eaeded\" stroke=\"#85929e\"/>\n\
             <text x=\"{}\" y=\"13\" font-size=\"10\" text-anchor=\"middle\" fill=\"#34495e\">{}</text>",
            width / 2,
            escape(label)
        );
    } else {
        node_box(&mut text, width, height, place.map(|place| place.entry().realm), lines);
    }
    Picture { width, height, text, feet: Vec::new() }
}

fn picture_of(plan: &HostPlan, item: &Item) -> Picture {
    match item {
        Item::Other { lines } => node_picture(None, lines),
        Item::Frame { title, tower } => frame_picture(plan, title, tower),
        Item::Node { at, lines } => {
            let picture = node_picture(plan.places().get(*at), lines);
            let feet = vec![(*at, picture.width / 2)];
            Picture { feet, ..picture }
        }
    }
}

/// A frame of a domain or a subsystem, with its title and what is in it.
fn frame_picture(plan: &HostPlan, title: &str, within: &Tower) -> Picture {
    let inner = tower(plan, within);
    let wide = text_width(title) + 10;
    let width = (inner.width.max(wide) + 2 * FRAME) | 1;
    let height = TITLE + 6 + inner.height + FRAME;
    let (x, y) = ((width - inner.width) / 2, TITLE + 6);
    let mut text = String::new();
    let _ = writeln!(
        text,
        "<rect width=\"{width}\" height=\"{height}\" rx=\"6\" fill=\"#ffffff\" stroke=\"#85929e\" stroke-dasharray=\"6 4\"/>\n\
         <text x=\"{FRAME}\" y=\"19\" font-style=\"italic\" fill=\"#34495e\">{}</text>\n\
         <g transform=\"translate({x} {y})\">\n{}</g>",
        escape(title),
        inner.text
    );
    let feet = inner.feet.into_iter().map(|(node, foot)| (node, x + foot));
    Picture { width, height, text, feet: feet.collect() }
}

fn tower(plan: &HostPlan, tower: &Tower) -> Picture {
    let boxes: Vec<Picture> = tower.boxes.iter().map(|item| picture_of(plan, item)).collect();
    place(&boxes, &tower.lowers, &tower.order)
}

/// Boxes that stand on each other.
fn place(boxes: &[Picture], lowers: &[Vec<usize>], order: &[usize]) -> Picture {
    let widths: Vec<i64> = boxes.iter().map(|item| item.width).collect();
    let lowers: Vec<&[usize]> = lowers.iter().map(Vec::as_slice).collect();
    let layout = layout(&widths, &lowers, order, GAP);
    let (edges, floor) = row_edges(&layout, boxes);
    let mut all =
        Picture { width: layout.width, height: floor, text: String::new(), feet: Vec::new() };
    lines(&mut all.text, &layout, &edges);
    for cell in &layout.cells {
        let (top, bottom) = edges[cell.row];
        let Some(item) = cell.node.map(|node| &boxes[node]) else {
            let _ = writeln!(
                all.text,
                "<path d=\"M{} {top}V{bottom}\" stroke=\"#566573\" stroke-width=\"1.5\"/>",
                cell.middle()
            );
            continue;
        };
        // On the lower edge of its row, where the lines below begin.
        let (x, y) = (cell.left, bottom - item.height);
        let _ = write!(all.text, "<g transform=\"translate({x} {y})\">\n{}</g>\n", item.text);
        if y > top && layout.lines.iter().any(|(_, lower)| layout.cells[*lower] == *cell) {
            let _ = writeln!(
                all.text,
                "<path d=\"M{} {top}V{y}\" stroke=\"#566573\" stroke-width=\"1.5\"/>",
                cell.middle()
            );
        }
        all.feet.extend(item.feet.iter().map(|&(node, foot)| (node, x + foot)));
    }
    all
}

/// The upper and lower edge of every row, from the top, and the lower edge of all.
fn row_edges(layout: &Layout, boxes: &[Picture]) -> (Vec<(i64, i64)>, i64) {
    let mut edges = vec![(0, 0); layout.rows.len()];
    let mut y = 0;
    for row in (0..layout.rows.len()).rev() {
        let nodes = layout.rows[row].iter().filter_map(|cell| layout.cells[*cell].node);
        let height = nodes.map(|node| boxes[node].height).max().unwrap_or(LINE + 10);
        edges[row] = (y, y + height);
        y += height + ROW_GAP;
    }
    (edges, (y - ROW_GAP).max(0))
}

/// The lines between neighbouring rows.
fn lines(out: &mut String, layout: &Layout, edges: &[(i64, i64)]) {
    for &(upper, lower) in &layout.lines {
        let (from, to) = (&layout.cells[upper], &layout.cells[lower]);
        let (x1, y1) = (from.middle(), edges[from.row].1);
        let (x2, y2) = (to.middle(), edges[to.row].0);
        let middle = (y1 + y2) / 2;
        let _ = writeln!(
            out,
            "<path d=\"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}\" fill=\"none\" stroke=\"#566573\" stroke-width=\"1.5\"/>"
        );
    }
}

/// A box of this size; of no realm is what stands for a node of another domain.
fn node_box(out: &mut String, width: i64, height: i64, realm: Option<Realm>, lines: &[String]) {
    let (fill, stroke, dashes) = match realm {
        Some(Realm::Wire) => ("#d6e4f0", "#2e6da4", ""),
        Some(Realm::Top) => ("#d9efdc", "#2f7d3b", ""),
        Some(Realm::Control) => ("#f3e6f7", "#7d4b94", ""),
        Some(Realm::Async | Realm::Rpc) => ("#fdf6e3", "#8a6d1f", ""),
        None => ("#ffffff", "#85929e", " stroke-dasharray=\"3 3\""),
    };
    let _ = writeln!(
        out,
        "<rect width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"{fill}\" stroke=\"{stroke}\"{dashes}/>"
    );
    let used = lines.len() as i64 * LINE;
    for (number, line) in lines.iter().enumerate() {
        let weight = if number == 0 && realm.is_some() { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            out,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" fill=\"#1c2833\"{weight}>{}</text>",
            width / 2,
            (height - used) / 2 + LINE * (number as i64 + 1) - 4,
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
fn buses(graph: &CheckedGraph, drawn: &[Drawn], ends: &[Vec<LinkEnd>], floor: i64) -> Vec<Bus> {
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
