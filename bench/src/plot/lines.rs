//! Lines: a system's figures over the number in the names of the rows.

use super::bars::tick_text;
use super::paper::{
    GREY, INK, MISSED, PALE, Paper, Place, REACHED, colours, distinct, legend_height, text_width,
};
use super::scale::Scale;
use super::{Panel, WIDTH};
use crate::record::Record;
use plotters::style::RGBColor;

/// Height of the field, in pixels.
const FIELD: i32 = 320;
/// Space for the axis below it.
const AXIS: i32 = 48;
/// Space for the axis left of it.
const LEFT: i32 = 70;

/// The first number in a row's name with its place, as in `1,400 octets`, `16 Ki octets` and
/// `0.5 s`. What stands in parentheses explains, and counts for nothing.
fn number(row: &str) -> Option<(f64, std::ops::Range<usize>)> {
    let row = row.split('(').next().unwrap_or(row);
    let from = row.find(|c: char| c.is_ascii_digit())?;
    let rest = &row[from..];
    let is_part = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
    let whole = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
    // What follows the number as punctuation is no part of it.
    let whole = whole.trim_end_matches([',', '.']);
    let value: f64 = whole.replace(',', "").parse().ok()?;
    let after = &rest[whole.len()..];
    let times = [(" Ki", 1024.0), (" Mi", 1_048_576.0)];
    let times = times.into_iter().find(|(unit, _)| after.starts_with(unit));
    let (octets, times) = times.map_or((0, 1.0), |(unit, times)| (unit.len(), times));
    Some((value * times, from..from + whole.len() + octets))
}

/// The row's name without the number and the unit behind it.
fn rest(row: &str) -> String {
    let Some((_, at)) = number(row) else {
        return row.to_owned();
    };
    let behind = row[at.end..].split_once(',').map_or("", |(_, rest)| rest);
    let before = row[..at.start].trim_end_matches([' ', ',']);
    [before, behind.trim()]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(", ")
}

/// One line: its name, its system, and its points.
struct Line<'a> {
    name: String,
    system: &'static str,
    points: Vec<(f64, &'a Record)>,
}

fn lines<'a>(panel: &Panel<'a>) -> Vec<Line<'a>> {
    let drawn = || panel.records.iter().filter(|r| r.is_measured() && number(&r.row).is_some());
    let kinds = distinct(drawn().map(|r| (r.system, rest(&r.row))));
    let alone = distinct(kinds.iter().map(|(_, rest)| rest)).len() < 2;
    let make = |(system, kind): &(&'static str, String)| {
        let mut points: Vec<_> = drawn()
            .filter(|r| r.system == *system && rest(&r.row) == *kind)
            .filter_map(|r| Some((number(&r.row)?.0, *r)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let name = if alone || kind.is_empty() {
            (*system).to_owned()
        } else {
            format!("{system}, {kind}")
        };
        Line { name, system, points }
    };
    kinds.iter().map(make).collect()
}

/// The height of the panel's body, in pixels.
pub(super) fn height(panel: &Panel<'_>) -> i32 {
    legend_height(&distinct(panel.records.iter().map(|r| r.system)), WIDTH) + FIELD + AXIS
}

pub(super) fn draw(
    paper: &mut Paper<'_, '_>,
    panel: &Panel<'_>,
    x_name: &str,
    top: i32,
    width: i32,
) {
    let lines = lines(panel);
    let systems = distinct(lines.iter().map(|l| l.system));
    let palette = colours(&systems);
    paper.legend(&systems, &palette, top, width);
    let top = top + height(panel) - FIELD - AXIS;
    let bottom = top + FIELD;
    let names = lines.iter().map(|l| text_width(&l.name, 11)).max().unwrap_or(0);
    let right = width - names.min(260) - 20;
    let points = || lines.iter().flat_map(|l| &l.points);
    let across = Scale::over(points().map(|(x, _)| *x), LEFT, right);
    let figures = points().flat_map(|(_, r)| {
        [r.min, r.median, r.max].into_iter().chain(r.goal_figures().into_iter().map(|(x, _)| x))
    });
    let up = Scale::over(figures, bottom, top);
    for tick in across.ticks() {
        let x = across.place(tick);
        paper.line(vec![(x, top), (x, bottom)], &PALE, 1);
        paper.text(&tick_text(tick), (x, bottom + 12), 11, &GREY, Place::Middle);
    }
    for tick in up.ticks() {
        let y = up.place(tick);
        paper.line(vec![(LEFT, y), (right, y)], &PALE, 1);
        paper.text(&tick_text(tick), (LEFT - 6, y), 11, &GREY, Place::Right);
    }
    paper.line(vec![(LEFT, top), (LEFT, bottom), (right, bottom)], &GREY, 1);
    paper.text(x_name, ((LEFT + right) / 2, bottom + 30), 12, &INK, Place::Middle);
    let mut labels = Vec::new();
    for line in &lines {
        let at = systems.iter().position(|s| *s == line.system).unwrap_or(0);
        let end = one(paper, line, &across, &up, &palette[at]);
        labels.extend(end.map(|(x, y)| (y, x, line.name.as_str(), palette[at])));
    }
    label(paper, labels, bottom);
}

/// Draws a line and answers where it ends.
fn one(
    paper: &mut Paper<'_, '_>,
    line: &Line<'_>,
    across: &Scale,
    up: &Scale,
    colour: &RGBColor,
) -> Option<(i32, i32)> {
    let place = |x: &f64, y: f64| (across.place(*x), up.place(y));
    let points: Vec<_> = line.points.iter().map(|(x, r)| place(x, r.median)).collect();
    for (x, record) in &line.points {
        paper.line(vec![place(x, record.min), place(x, record.max)], colour, 1);
        for (goal, reached) in record.goal_figures() {
            let mark = if reached { REACHED } else { MISSED };
            let (x, y) = place(x, goal);
            paper.line(vec![(x - 6, y), (x + 6, y)], &mark, 3);
        }
    }
    for point in &points {
        paper.dot(*point, 3, colour);
    }
    let end = points.last().copied();
    paper.line(points, colour, 2);
    end
}

/// Names the lines at their right ends, moved apart where they would lie upon each other.
fn label(paper: &mut Paper<'_, '_>, mut labels: Vec<(i32, i32, &str, RGBColor)>, bottom: i32) {
    const APART: i32 = 13;
    labels.sort_by_key(|(y, ..)| *y);
    let mut next = i32::MIN;
    for (y, ..) in &mut labels {
        *y = (*y).max(next);
        next = *y + APART;
    }
    let mut next = bottom;
    for (y, ..) in labels.iter_mut().rev() {
        *y = (*y).min(next);
        next = *y - APART;
    }
    for (y, x, name, colour) in labels {
        paper.text(name, (x + 9, y), 11, &colour, Place::Left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        let read = |row| number(row).map(|(x, _)| x);
        assert_eq!(read("1,000,000 sessions"), Some(1e6));
        assert_eq!(read("UDP, 16 Ki octets, blocking"), Some(16384.0));
        assert_eq!(read("64 octets"), Some(64.0));
        assert_eq!(read("at 0.5, spinning"), Some(0.5));
        assert_eq!(read("slope (through 10)"), None);
        assert_eq!(rest("UDP, 16 Ki octets, blocking"), "UDP, blocking");
        assert_eq!(rest("64 octets"), "");
    }
}
