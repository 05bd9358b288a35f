//! Drawings of what was found, as SVG: one panel per benchmark and unit, one below the other.

use crate::benchmark::{Benchmark, Plot};
use crate::case::Better;
use crate::record::{Record, figure};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;
use std::ops::Range;

/// Sizes, in pixels: of the drawing, of a panel's title and what is below it, of the field of
/// lines, of a bar, of an axis, of a line of the legend, and of the figures right of bars.
const WIDTH: i32 = 1000;
const HEAD: i32 = 50;
const FOOT: i32 = 24;
const FIELD: i32 = 320;
const BAR: f64 = 13.0;
const AXIS: i32 = 48;
const LEGEND_LINE: i32 = 18;
const FIGURE: i32 = 90;
/// The width of the rows' names at most, in pixels.
const LABEL_MAX: i32 = 330;
/// Space between the bars of two rows, as a share of a bar.
const GAP: f64 = 0.7;
/// Spans wider than this are drawn with a logarithmic axis.
const LINEAR_SPAN_MAX: f64 = 30.0;

const INK: RGBColor = RGBColor(30, 30, 30);
const GREY: RGBColor = RGBColor(105, 105, 105);
const PALE: RGBColor = RGBColor(226, 226, 226);
const REACHED: RGBColor = RGBColor(0, 130, 60);
const MISSED: RGBColor = RGBColor(200, 20, 20);

/// Ours, limits, which no stack is in, and others': red, green and blue.
const OURS: [u32; 6] = [0x005ab5, 0x3c96e6, 0x008c8c, 0x5a50c8, 0x78bec8, 0x14326e];
const LIMITS: [u32; 4] = [0x787878, 0xa5a5a5, 0x555555, 0xc3c3c3];
const OTHERS: [u32; 6] = [0xe68214, 0xf0b93c, 0xbe463c, 0x965a96, 0x8c6932, 0xdc78a0];

/// The colour of each system: ours, limits and others' in families of their own.
fn colours(systems: &[String]) -> Vec<RGBColor> {
    let mut used = [0; 3];
    let mut colour = |system: &String| {
        let (family, list): (usize, &[u32]) = match system {
            s if s.starts_with("xk") => (0, &OURS),
            s if s.starts_with("bare") => (1, &LIMITS),
            _ => (2, &OTHERS),
        };
        let [_, red, green, blue] = list[used[family] % list.len()].to_be_bytes();
        used[family] += 1;
        RGBColor(red, green, blue)
    };
    systems.iter().map(&mut colour).collect()
}

type Drawn<T = ()> = Result<T, Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Field<'a> = DrawingArea<SVGBackend<'a>, Cartesian2d<Scale, Scale>>;

/// An axis: logarithmic if its figures span decades, else from zero on.
#[derive(Clone)]
enum Scale {
    Linear(Range<f64>),
    Logarithmic(Range<f64>),
}

impl Scale {
    fn over(figures: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut high, mut signed) = (f64::INFINITY, 0.0_f64, 0.0_f64);
        for figure in figures.filter(|x| x.is_finite()) {
            if figure > 0.0 {
                least = least.min(figure);
            }
            signed = signed.min(figure);
            high = high.max(figure);
        }
        if high <= 0.0 {
            (least, high) = (1.0, 1.0);
        }
        match high / least > LINEAR_SPAN_MAX && signed >= 0.0 {
            true => Self::Logarithmic(least / 1.6..high * 1.25),
            false => Self::Linear(signed..high * 1.06),
        }
    }

    /// Place at which bars begin.
    fn base(&self) -> f64 {
        match self {
            Self::Linear(_) => 0.0,
            Self::Logarithmic(range) => range.start,
        }
    }
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let value = value.clamp(self.range().start, self.range().end);
        match self {
            Self::Linear(range) => RangedCoordf64::from(range.clone()).map(&value, limit),
            Self::Logarithmic(range) => {
                LogCoord::from(range.clone().log_scale()).map(&value, limit)
            }
        }
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        let points = match self {
            Self::Linear(range) => RangedCoordf64::from(range.clone()).key_points(hint),
            Self::Logarithmic(range) => LogCoord::from(range.clone().log_scale()).key_points(hint),
        };
        points.into_iter().filter(|x| self.range().contains(x)).collect()
    }

    fn range(&self) -> Range<f64> {
        match self {
            Self::Linear(range) | Self::Logarithmic(range) => range.clone(),
        }
    }
}

impl ValueFormatter<f64> for Scale {
    fn format(value: &f64) -> String {
        tick_text(*value)
    }
}

/// One panel: figures that share a unit.
struct Panel<'a> {
    benchmark: &'a Benchmark,
    unit: &'static str,
    records: Vec<&'a Record>,
}

/// The drawing of all benchmarks; `caption` stands at its foot.
pub(crate) fn svg(found: &[(&Benchmark, Vec<Record>)], caption: &str) -> Result<String, String> {
    let mut text = String::new();
    draw(&mut text, found, caption).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(to: &mut String, found: &[(&Benchmark, Vec<Record>)], caption: &str) -> Drawn {
    let panels: Vec<Panel<'_>> = found.iter().flat_map(|(b, list)| panels(b, list)).collect();
    let height: i32 = panels.iter().map(Panel::height).sum::<i32>() + 30;
    let size = (WIDTH as u32, height.unsigned_abs());
    let mut area = SVGBackend::with_string(to, size).into_drawing_area();
    area.fill(&WHITE)?;
    for panel in &panels {
        let (own, rest) = area.split_vertically(panel.height());
        panel.draw(&own)?;
        area = rest;
    }
    words(&area, caption, (10, 16), 11, &GREY)?;
    area.present()?;
    Ok(())
}

/// The records of a benchmark, parted by unit.
fn panels<'a>(benchmark: &'a Benchmark, records: &'a [Record]) -> Vec<Panel<'a>> {
    let mut list: Vec<Panel<'a>> = Vec::new();
    for record in records {
        match list.iter_mut().find(|p| p.unit == record.unit) {
            Some(panel) => panel.records.push(record),
            None => list.push(Panel { benchmark, unit: record.unit, records: vec![record] }),
        }
    }
    list
}

impl Panel<'_> {
    fn rows(&self) -> Vec<&str> {
        distinct(self.records.iter().map(|r| r.row.as_str()))
    }

    /// Names that have a colour each: of systems, or of lines.
    fn names(&self) -> Vec<String> {
        match self.benchmark.plot {
            Plot::Bars => distinct(self.records.iter().map(|r| r.system.to_owned())),
            Plot::Lines { .. } => self.lines().into_iter().map(|(name, _)| name).collect(),
        }
    }

    /// Height of the field, in bars.
    fn bars_high(&self) -> f64 {
        self.records.len() as f64 + GAP * self.rows().len() as f64
    }

    fn height(&self) -> i32 {
        let field = match self.benchmark.plot {
            Plot::Bars => (self.bars_high() * BAR) as i32,
            Plot::Lines { .. } => FIELD,
        };
        HEAD + legend(&self.names()).1 + field + AXIS + FOOT
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let benchmark = self.benchmark;
        let better = match benchmark.better {
            Better::Lower => "less is better",
            Better::Higher => "more is better",
        };
        words(area, benchmark.name, (10, 18), 18, &INK)?;
        let below = format!("{}; {}, {better}", benchmark.summary, self.unit);
        words(area, &below, (10, 40), 12, &GREY)?;
        let names = self.names();
        let colours = colours(&names);
        let (places, height) = legend(&names);
        for ((name, (x, y)), colour) in names.iter().zip(places).zip(&colours) {
            let (x, y) = (x, HEAD + y);
            area.draw(&Rectangle::new([(x, y - 5), (x + 10, y + 5)], colour.filled()))?;
            words(area, name, (x + 15, y), 12, &INK)?;
        }
        let (field, _) = area.split_vertically(area.dim_in_pixel().1 as i32 - FOOT);
        let (_, field) = field.split_vertically(HEAD + height);
        match benchmark.plot {
            Plot::Bars => self.draw_bars(&field, &names, &colours),
            Plot::Lines { x } => self.draw_lines(&field, x, &colours),
        }
    }

    fn draw_bars(&self, area: &Area<'_>, names: &[String], colours: &[RGBColor]) -> Drawn {
        let labels = self.rows().iter().map(|row| text_width(row)).max().unwrap_or(0);
        let scale = Scale::over(figures(self.records.iter().copied()));
        let (base, mut y) = (scale.base(), self.bars_high());
        let mut chart = ChartBuilder::on(area)
            .margin_left(labels.min(LABEL_MAX) + 20)
            .margin_right(FIGURE)
            .x_label_area_size(AXIS)
            .build_cartesian_2d(scale, Scale::Linear(0.0..y))?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_y_mesh().disable_y_axis().y_labels(0);
        mesh.x_labels(8).x_desc(self.unit).light_line_style(WHITE).bold_line_style(PALE);
        mesh.label_style(("sans-serif", 11)).axis_desc_style(("sans-serif", 12)).draw()?;
        let field = chart.plotting_area();
        for row in self.rows() {
            let of_row: Vec<_> = self.records.iter().filter(|r| r.row == row).collect();
            y -= GAP / 2.0;
            let middle = y - of_row.len() as f64 / 2.0;
            label(field, (base, middle), -8, row, HPos::Right)?;
            for record in of_row {
                y -= 1.0;
                let at = names.iter().position(|name| name == record.system).unwrap_or(0);
                bar(field, record, base, y, &colours[at])?;
            }
            y -= GAP / 2.0;
        }
        Ok(())
    }

    /// Lines with their names and points: one for each system and kind of row.
    fn lines(&self) -> Vec<(String, Vec<(f64, &Record)>)> {
        let drawn = || self.records.iter().filter(|r| r.is_measured() && number(&r.row).is_some());
        let kinds = distinct(drawn().map(|r| (r.system, rest(&r.row))));
        let alone = distinct(kinds.iter().map(|(_, rest)| rest)).len() < 2;
        let make = |(system, kind): &(&'static str, String)| {
            let mut points: Vec<_> = drawn()
                .filter(|r| r.system == *system && rest(&r.row) == *kind)
                .filter_map(|r| Some((number(&r.row)?.0, *r)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            match alone || kind.is_empty() {
                true => ((*system).to_owned(), points),
                false => (format!("{system}, {kind}"), points),
            }
        };
        kinds.iter().map(make).collect()
    }

    fn draw_lines(&self, area: &Area<'_>, x: &str, colours: &[RGBColor]) -> Drawn {
        let lines = self.lines();
        let points = || lines.iter().flat_map(|(_, points)| points);
        let across = Scale::over(points().map(|(x, _)| *x));
        let up = Scale::over(figures(points().map(|(_, record)| *record)));
        let mut chart = ChartBuilder::on(area)
            .margin_right(20)
            .x_label_area_size(AXIS)
            .y_label_area_size(70)
            .build_cartesian_2d(across, up)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(x).light_line_style(WHITE).bold_line_style(PALE);
        mesh.label_style(("sans-serif", 11)).axis_desc_style(("sans-serif", 12)).draw()?;
        let field = chart.plotting_area();
        for ((_, points), colour) in lines.iter().zip(colours) {
            for &(x, record) in points {
                path(field, vec![(x, record.min), (x, record.max)], colour, 1)?;
                for (goal, reached) in record.goal_figures() {
                    let mark = if reached { REACHED } else { MISSED };
                    let line = PathElement::new([(-6, 0), (6, 0)], mark.stroke_width(3));
                    field.draw(&(EmptyElement::at((x, goal)) + line))?;
                }
                field.draw(&Circle::new((x, record.median), 3, colour.filled()))?;
            }
            path(field, points.iter().map(|(x, r)| (*x, r.median)).collect(), colour, 2)?;
        }
        Ok(())
    }
}

fn bar(field: &Field<'_>, record: &Record, base: f64, y: f64, colour: &RGBColor) -> Drawn {
    let middle = y + 0.5;
    if !record.is_measured() {
        let note = record.note.as_deref().unwrap_or("no figure");
        let short: String = note.chars().take(90).collect();
        let text = format!("{}: {short}", record.system);
        return label(field, (base, middle), 4, &text, HPos::Left);
    }
    let (min, max) = (record.min, record.max);
    let corners = [(base, y + 0.1), (record.median, y + 0.9)];
    field.draw(&Rectangle::new(corners, colour.filled()))?;
    path(field, vec![(min, middle), (max, middle)], &INK, 1)?;
    for x in [min, max] {
        path(field, vec![(x, y + 0.25), (x, y + 0.75)], &INK, 1)?;
    }
    let mut right = max.max(record.median);
    for (goal, reached) in record.goal_figures() {
        let colour = if reached { REACHED } else { MISSED };
        path(field, vec![(goal, y), (goal, y + 1.0)], &colour, 3)?;
        right = right.max(goal);
    }
    label(field, (right, middle), 5, &figure(record.median), HPos::Left)
}

/// A text beside a point of the field, so many pixels to its right.
fn label(field: &Field<'_>, at: (f64, f64), right: i32, text: &str, across: HPos) -> Drawn {
    let style = ("sans-serif", 11).into_font().color(&INK).pos(Pos::new(across, VPos::Center));
    field.draw(&(EmptyElement::at(at) + Text::new(text.to_owned(), (right, 0), style)))?;
    Ok(())
}

fn path(field: &Field<'_>, points: Vec<(f64, f64)>, colour: &RGBColor, width: u32) -> Drawn {
    field.draw(&PathElement::new(points, colour.stroke_width(width)))?;
    Ok(())
}

/// A text whose point is the middle of its left side.
fn words(area: &Area<'_>, text: &str, at: (i32, i32), size: i32, colour: &RGBColor) -> Drawn {
    let pos = Pos::new(HPos::Left, VPos::Center);
    let style = ("sans-serif", size).into_font().color(colour).pos(pos);
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

/// About as wide as a text is, in pixels.
fn text_width(text: &str) -> i32 {
    i32::try_from(text.chars().count()).unwrap_or(0) * 12 * 11 / 20
}

/// Places of the names, from left to right and then on the next line, and their height.
fn legend(names: &[String]) -> (Vec<(i32, i32)>, i32) {
    let (mut x, mut y) = (10, 8);
    let place = |name: &String| {
        let step = text_width(name) + 34;
        if x + step > WIDTH {
            (x, y) = (10, y + LEGEND_LINE);
        }
        x += step;
        (x - step, y)
    };
    let places: Vec<_> = names.iter().map(place).collect();
    let height = places.last().map_or(0, |(_, y)| y + LEGEND_LINE);
    (places, height)
}

/// Everything that an axis has to show.
fn figures<'a>(records: impl Iterator<Item = &'a Record>) -> impl Iterator<Item = f64> {
    records.filter(|record| record.is_measured()).flat_map(|r| {
        let goals = r.goal_figures().into_iter().map(|(figure, _)| figure);
        [r.min, r.median, r.max].into_iter().chain(goals)
    })
}

/// A tick's text without digits that say nothing.
fn tick_text(tick: f64) -> String {
    let text = figure(tick);
    match text.split_once('.') {
        Some((whole, rest)) if rest.bytes().all(|b| b == b'0') => whole.to_owned(),
        Some(_) => text.trim_end_matches('0').to_owned(),
        None => text,
    }
}

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

/// The distinct items, in the order of their first appearance.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = Vec::new();
    for item in items {
        if !list.contains(&item) {
            list.push(item);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(row: &str, system: &'static str, median: f64) -> Record {
        Record {
            row: row.into(),
            system,
            unit: "us",
            min: median * 0.9,
            median,
            max: median * 1.5,
            runs: 3,
            goal: Some(crate::case::Goal::AtMost(median)),
            ..Record::default()
        }
    }

    fn drawing(plot: Plot, records: Vec<Record>) -> String {
        let benchmark = Benchmark { plot, ..Benchmark::new("name & more", Vec::new) };
        svg(&[(&benchmark, records)], "a machine").unwrap()
    }

    #[test]
    fn bars_show_every_row_and_system_and_why_one_is_missing() {
        let skipped = Record {
            note: Some("skipped: needs root".into()),
            runs: 0,
            median: f64::NAN,
            ..record("1 octet", "Linux", 1.0)
        };
        let text = drawing(
            Plot::Bars,
            vec![record("1 octet", "xk", 0.11), record("1400 octets", "xk", 900.0), skipped],
        );
        for part in [
            "name &amp; more",
            "1 octet",
            "1400 octets",
            "xk",
            "Linux",
            "skipped: needs root",
            "a machine",
            "900",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("NaN"), "{text}");
    }

    #[test]
    fn lines_run_over_the_number_of_the_row() {
        let rows = [
            ("1 session", 1.0),
            ("10,000 sessions", 2.0),
            ("1,000,000 sessions", 3.0),
            ("slope", 4.0),
        ];
        let mut records: Vec<_> = rows.map(|(row, x)| record(row, "xk", x)).into();
        records.push(record("1 session", "Linux", 9.0));
        let text = drawing(Plot::Lines { x: "open sessions" }, records);
        for part in ["open sessions", "Linux", "1,000,000", "polyline"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("slope") && !text.contains("NaN"), "{text}");
    }

    #[test]
    fn nothing_found_is_drawn_as_well() {
        for plot in [Plot::Bars, Plot::Lines { x: "octets" }] {
            assert!(drawing(plot, Vec::new()).contains("</svg>"));
            let none = Record {
                runs: 0,
                median: f64::NAN,
                min: f64::NAN,
                max: f64::NAN,
                ..record("1 octet", "xk", 0.0)
            };
            assert!(!drawing(plot, vec![none]).contains("NaN"));
        }
    }

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

    #[test]
    fn wide_spans_are_logarithmic() {
        let scale = Scale::over([0.1, 5.0, 90.0].into_iter());
        assert!(matches!(scale, Scale::Logarithmic(_)));
        let ticks = scale.key_points(8);
        assert!([1.0, 10.0].iter().all(|tick| ticks.iter().any(|x| (x - tick).abs() < 1e-9)));
        assert!(scale.map(&0.0, (0, 100)) == 0 && scale.map(&1e9, (0, 100)) == 100);
    }

    #[test]
    fn narrow_spans_begin_at_zero() {
        let scale = Scale::over([12.0, 19.0, f64::NAN].into_iter());
        assert_eq!(scale.map(&scale.base(), (10, 110)), 10);
        assert_eq!(scale.key_points(6), [0.0, 5.0, 10.0, 15.0, 20.0]);
    }

    #[test]
    fn negative_and_missing_figures_have_places() {
        let scale = Scale::over([-5.0, 100.0].into_iter());
        assert!(scale.map(&scale.base(), (0, 101)) > 0);
        assert!(!Scale::over([].into_iter()).key_points(6).is_empty());
    }
}
