//! The picture as text.

use xk_lang::Host;

use super::layout::{Layout, layout};
use super::parts::{self, Item, Tower};
use super::{NODES_DRAWN_MAX, label, links};
use crate::plan::{CheckedGraph, HostPlan};

/// Columns between two boxes of a row.
const GAP: i64 = 2;

/// Characters on a grid that grows as needed.
#[derive(Default)]
struct Canvas {
    rows: Vec<Vec<char>>,
}

const UP: u8 = 1;
const DOWN: u8 = 2;
const LEFT: u8 = 4;
const RIGHT: u8 = 8;

/// Directions of each line character.
const LINES: [(char, u8); 11] = [
    ('│', UP | DOWN),
    ('─', LEFT | RIGHT),
    ('┌', DOWN | RIGHT),
    ('┐', DOWN | LEFT),
    ('└', UP | RIGHT),
    ('┘', UP | LEFT),
    ('├', UP | DOWN | RIGHT),
    ('┤', UP | DOWN | LEFT),
    ('┬', DOWN | LEFT | RIGHT),
    ('┴', UP | LEFT | RIGHT),
    ('┼', UP | DOWN | LEFT | RIGHT),
];

impl Canvas {
    fn set(&mut self, column: i64, row: usize, c: char) {
        let Ok(column) = usize::try_from(column) else {
            return;
        };
        if self.rows.len() <= row {
            self.rows.resize(row + 1, Vec::new());
        }
        let line = &mut self.rows[row];
        if line.len() <= column {
            line.resize(column + 1, ' ');
        }
        line[column] = c;
    }

    fn get(&self, column: i64, row: usize) -> char {
        let line = self.rows.get(row);
        let c = line.and_then(|line| line.get(usize::try_from(column).ok()?));
        c.copied().unwrap_or(' ')
    }

    /// Adds a line that leads these ways to what is there.
    fn lead(&mut self, column: i64, row: usize, ways: u8) {
        let there = self.get(column, row);
        let old = LINES.iter().find(|(c, _)| *c == there);
        let all = ways | old.map_or(0, |(_, ways)| *ways);
        let new = LINES.iter().find(|(_, ways)| *ways == all);
        // A single way is a stub; it looks like the whole line.
        let stub = if all & (UP | DOWN) != 0 { '│' } else { '─' };
        self.set(column, row, new.map_or(stub, |(c, _)| *c));
    }

    fn write(&mut self, column: i64, row: usize, text: &str) {
        for (at, c) in text.chars().enumerate() {
            self.set(column + at as i64, row, c);
        }
    }

    fn frame(&mut self, left: i64, top: usize, width: i64, height: usize) {
        let (right, bottom) = (left + width - 1, top + height - 1);
        for column in left + 1..right {
            self.set(column, top, '─');
            self.set(column, bottom, '─');
        }
        for row in top + 1..bottom {
            self.set(left, row, '│');
            self.set(right, row, '│');
        }
        for (column, row, c) in
            [(left, top, '┌'), (right, top, '┐'), (left, bottom, '└'), (right, bottom, '┘')]
        {
            self.set(column, row, c);
        }
    }
}

pub(super) fn draw(graph: &CheckedGraph, hosts: &[usize], columns: usize) -> String {
    let mut out = String::new();
    if let Some(title) = &graph.graph().title {
        out += title.as_str();
        out += "\n\n";
    }
    let blocks: Vec<Vec<String>> = hosts
        .iter()
        .filter_map(|at| {
            let host = graph.graph().hosts.get(*at)?;
            Some(block(host, graph.plan(*at)?))
        })
        .collect();
    flow(&mut out, &blocks, columns);
    let ends = links::ends(graph.graph());
    for (link, ends) in graph.graph().links.iter().zip(ends) {
        let mut names: Vec<&str> = ends
            .iter()
            .filter(|end| hosts.contains(&end.host))
            .filter_map(|end| graph.graph().hosts.get(end.host))
            .map(|host| host.name.as_str())
            .collect();
        names.dedup();
        if !names.is_empty() {
            out += &format!("link {}\n     {}\n", label::of_link(link), names.join(" ── "));
        }
    }
    out
}

/// Puts the hosts' blocks side by side, as many as fit, their lower edges on one line.
fn flow(out: &mut String, blocks: &[Vec<String>], columns: usize) {
    let width = |block: &Vec<String>| block.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    let mut row: Vec<&Vec<String>> = Vec::new();
    let mut used = 0;
    for block in blocks {
        let needed = width(block) + 2;
        if !row.is_empty() && used + needed > columns {
            beside(out, &row, width);
            row.clear();
            used = 0;
        }
        used += needed;
        row.push(block);
    }
    beside(out, &row, width);
}

fn beside(out: &mut String, blocks: &[&Vec<String>], width: impl Fn(&Vec<String>) -> usize) {
    let height = blocks.iter().map(|block| block.len()).max().unwrap_or(0);
    for line in 0..height {
        let mut text = String::new();
        for block in blocks {
            let above = height - block.len();
            let part = line.checked_sub(above).and_then(|at| block.get(at));
            let part = part.map_or("", String::as_str);
            text += part;
            text += &" ".repeat(width(block) + 2 - part.chars().count());
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    if height > 0 {
        out.push('\n');
    }
}

/// One host, framed, as lines of text.
fn block(host: &Host, plan: &HostPlan) -> Vec<String> {
    let title = format!(" {} ", label::of_host(host));
    let mut canvas = Canvas::default();
    let (mut width, mut height) = (0, 0);
    if plan.places().len() > NODES_DRAWN_MAX {
        let text = format!("{} protocols", plan.places().len());
        width = text.chars().count() as i64;
        height = 1;
        canvas.write(2, 1, &text);
    } else if !plan.places().is_empty() {
        (width, height) = inside(&mut canvas, host, plan);
    }
    width = (width + 4).max(title.chars().count() as i64 + 4);
    canvas.frame(0, 0, width, height + 2);
    canvas.write(2, 0, &title);
    canvas.rows.iter().map(|row| row.iter().collect()).collect()
}

/// Draws a host's protocols from column 2, row 1 on; answers how much room they take.
fn inside(canvas: &mut Canvas, host: &Host, plan: &HostPlan) -> (i64, usize) {
    stack(canvas, &parts::host(host, plan))
}

/// Lines written or drawn in a box.
fn inside_of(item: &Item) -> Vec<String> {
    let Item::Frame { title, tower } = item else {
        let (Item::Node { lines, .. } | Item::Other { lines }) = item else {
            return Vec::new();
        };
        return lines.clone();
    };
    let mut canvas = Canvas::default();
    stack(&mut canvas, tower);
    let lines = canvas.rows.iter().map(|row| row.iter().collect::<String>());
    let mut lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
    if let Some(first) = lines.first_mut() {
        *first = format!("  {title}");
    }
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    lines.iter().map(|line| format!("{line:width$}")).collect()
}

/// Draws boxes from column 2, row 1 on; answers how much room they take.
fn stack(canvas: &mut Canvas, tower: &Tower) -> (i64, usize) {
    let labels: Vec<Vec<String>> = tower.boxes.iter().map(inside_of).collect();
    let labels: Vec<&[String]> = labels.iter().map(Vec::as_slice).collect();
    let columns = |lines: &&[String]| lines.iter().map(|l| l.chars().count()).max();
    let widths: Vec<i64> =
        labels.iter().map(|lines| columns(lines).unwrap_or(0) as i64 + 4).collect();
    let lowers: Vec<&[usize]> = tower.lowers.iter().map(Vec::as_slice).collect();
    let mut layout = layout(&widths, &lowers, &tower.order, GAP);
    for cell in &mut layout.cells {
        cell.left += 2;
    }
    let mut top = 1;
    for row in (0..layout.rows.len()).rev() {
        let height = boxes(canvas, &layout, row, top, &labels);
        top += height;
        if row > 0 {
            top += lines(canvas, &layout, row, top);
        }
    }
    (layout.width, top - 1)
}

/// Draws the boxes of a row; answers its height.
fn boxes(
    canvas: &mut Canvas,
    layout: &Layout,
    row: usize,
    top: usize,
    labels: &[&[String]],
) -> usize {
    let lines_of = |cell: usize| layout.cells[cell].node.and_then(|node| labels.get(node));
    let height = layout.rows[row].iter().filter_map(|cell| lines_of(*cell));
    let height = height.map(|lines| lines.len()).max().unwrap_or(1) + 2;
    for &at in &layout.rows[row] {
        let cell = &layout.cells[at];
        let Some(lines) = lines_of(at) else {
            for row in top..top + height {
                canvas.lead(cell.left, row, UP | DOWN);
            }
            continue;
        };
        canvas.frame(cell.left, top, cell.width, height);
        for (number, line) in lines.iter().enumerate() {
            let room = cell.width - 2 - line.chars().count() as i64;
            canvas.write(cell.left + 1 + room / 2, top + 1 + number, line);
        }
        if layout.lines.iter().any(|(upper, _)| *upper == at) {
            canvas.set(cell.middle(), top + height - 1, '┬');
        }
        if layout.lines.iter().any(|(_, lower)| *lower == at) {
            canvas.set(cell.middle(), top, '┴');
        }
    }
    height
}

/// Draws the lines from a row to the one below; answers how many rows of text they take.
fn lines(canvas: &mut Canvas, layout: &Layout, row: usize, top: usize) -> usize {
    let mut bent: Vec<(usize, usize)> = Vec::new();
    let mut straight: Vec<i64> = Vec::new();
    for &(upper, lower) in &layout.lines {
        if layout.cells[upper].row != row {
            continue;
        }
        let (from, to) = (layout.cells[upper].middle(), layout.cells[lower].middle());
        if from == to {
            straight.push(from);
        } else {
            bent.push((upper, lower));
        }
    }
    let tracks = tracks(layout, &bent);
    let height = tracks
        .iter()
        .map(|track| track + 1)
        .max()
        .unwrap_or(0)
        .max(usize::from(!straight.is_empty()));
    for column in straight {
        for row in top..top + height {
            canvas.lead(column, row, UP | DOWN);
        }
    }
    for ((upper, lower), track) in bent.into_iter().zip(tracks) {
        let (from, to) = (layout.cells[upper].middle(), layout.cells[lower].middle());
        let bend = top + track;
        for row in top..bend {
            canvas.lead(from, row, UP | DOWN);
        }
        for row in bend + 1..top + height {
            canvas.lead(to, row, UP | DOWN);
        }
        let (first, last) = (from.min(to), from.max(to));
        for column in first + 1..last {
            canvas.lead(column, bend, LEFT | RIGHT);
        }
        let (towards, back) = if from < to { (RIGHT, LEFT) } else { (LEFT, RIGHT) };
        canvas.lead(from, bend, UP | towards);
        canvas.lead(to, bend, DOWN | back);
    }
    height
}

/// The row of text on which each bent line runs sideways: lines that share an end may share a row,
/// others only if they do not touch.
fn tracks(layout: &Layout, bent: &[(usize, usize)]) -> Vec<usize> {
    let span = |&(upper, lower): &(usize, usize)| {
        let (a, b) = (layout.cells[upper].middle(), layout.cells[lower].middle());
        (a.min(b), a.max(b))
    };
    let mut tracks: Vec<usize> = Vec::with_capacity(bent.len());
    for (at, line) in bent.iter().enumerate() {
        let (first, last) = span(line);
        let clash = |track: usize| {
            bent[..at].iter().zip(&tracks).any(|(other, taken)| {
                let (a, b) = span(other);
                let shared = other.0 == line.0 || other.1 == line.1;
                *taken == track && !shared && first <= b && a <= last
            })
        };
        let free = (0..).find(|track| !clash(*track));
        tracks.push(free.unwrap_or(0));
    }
    tracks
}
