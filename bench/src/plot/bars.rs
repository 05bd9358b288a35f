//! Bars: the median of each row and system, with whiskers and goals.

use super::paper::{
    GREY, INK, MISSED, PALE, Paper, Place, REACHED, colours, distinct, legend_height, text_width,
};
use super::scale::Scale;
use super::{Panel, WIDTH};
use crate::record::{Record, figure};
use plotters::style::RGBColor;

const BAR: i32 = 13;
/// Between the bars of two rows.
const GAP: i32 = 9;
/// Space for the axis below the bars.
const AXIS: i32 = 34;
/// The label's width at most.
const LABEL_MAX: i32 = 330;
/// Space right of the longest bar for its figure.
const FIGURE: i32 = 90;

fn systems(panel: &Panel<'_>) -> Vec<&'static str> {
    distinct(panel.records.iter().map(|r| r.system))
}

fn rows<'a>(panel: &Panel<'a>) -> Vec<&'a str> {
    distinct(panel.records.iter().map(|r| r.row.as_str()))
}

/// The height of the panel's body, in pixels.
pub(super) fn height(panel: &Panel<'_>) -> i32 {
    let bars = i32::try_from(panel.records.len()).unwrap_or(0) * BAR;
    let gaps = i32::try_from(rows(panel).len()).unwrap_or(0) * GAP;
    legend_height(&systems(panel), WIDTH) + bars + gaps + AXIS
}

pub(super) fn draw(paper: &mut Paper<'_, '_>, panel: &Panel<'_>, top: i32, width: i32) {
    let (systems, rows) = (systems(panel), rows(panel));
    let colours = colours(&systems);
    paper.legend(&systems, &colours, top, width);
    let top = top + legend_height(&systems, width);
    let bottom = top + height(panel) - legend_height(&systems, width) - AXIS;
    let labels = rows.iter().map(|row| text_width(row, 12)).max().unwrap_or(0);
    let left = labels.min(LABEL_MAX) + 20;
    let measured = || panel.records.iter().filter(|r| r.is_measured());
    let figures = measured().flat_map(|r| {
        [r.min, r.median, r.max].into_iter().chain(r.goal_figures().into_iter().map(|(x, _)| x))
    });
    let scale = Scale::over(figures, left, width - FIGURE);
    for tick in scale.ticks() {
        let x = scale.place(tick);
        paper.line(vec![(x, top), (x, bottom)], &PALE, 1);
        paper.text(&tick_text(tick), (x, bottom + 10), 11, &GREY, Place::Middle);
    }
    paper.text(panel.unit, (width - FIGURE / 2, bottom + 10), 11, &GREY, Place::Middle);
    let mut y = top;
    for row in rows {
        y += GAP / 2;
        let of_row: Vec<_> = panel.records.iter().filter(|r| r.row == row).collect();
        let middle = y + i32::try_from(of_row.len()).unwrap_or(0) * BAR / 2;
        paper.text(row, (left - 8, middle), 12, &INK, Place::Right);
        for record in of_row {
            let at = systems.iter().position(|s| *s == record.system).unwrap_or(0);
            bar(paper, record, &scale, &colours[at], y);
            y += BAR;
        }
        y += GAP - GAP / 2;
    }
    paper.line(vec![(scale.base(), top), (scale.base(), bottom)], &GREY, 1);
}

/// A tick's text without digits that say nothing.
pub(super) fn tick_text(tick: f64) -> String {
    let text = figure(tick);
    match text.split_once('.') {
        Some((whole, rest)) if rest.bytes().all(|b| b == b'0') => whole.to_owned(),
        Some(_) => text.trim_end_matches('0').to_owned(),
        None => text,
    }
}

fn bar(paper: &mut Paper<'_, '_>, record: &Record, scale: &Scale, colour: &RGBColor, y: i32) {
    let middle = y + BAR / 2;
    if !record.is_measured() {
        let note = record.note.as_deref().unwrap_or("no figure");
        let short: String = note.chars().take(90).collect();
        let text = format!("{}: {short}", record.system);
        return paper.text(&text, (scale.base() + 4, middle), 10, &GREY, Place::Left);
    }
    let end = scale.place(record.median);
    paper.bar((scale.base(), y + 1), (end, y + BAR - 1), colour);
    let (from, to) = (scale.place(record.min), scale.place(record.max));
    paper.line(vec![(from, middle), (to, middle)], &INK, 1);
    for x in [from, to] {
        paper.line(vec![(x, middle - 3), (x, middle + 3)], &INK, 1);
    }
    let mut right = from.max(to).max(end);
    for (goal, reached) in record.goal_figures() {
        let colour = if reached { REACHED } else { MISSED };
        let x = scale.place(goal);
        paper.line(vec![(x, y - 1), (x, y + BAR + 1)], &colour, 3);
        right = right.max(x);
    }
    paper.text(&figure(record.median), (right + 5, middle), 10, &INK, Place::Left);
}
