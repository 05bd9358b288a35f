//! A drawing of one figure of a sweep over a parameter, as SVG.

use crate::figures::figure;
use crate::folder::{Folder, FolderError};
use crate::row::Row;
use crate::table::names;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Sizes, in pixels: of the drawing, and of what lies right of its field.
const SIZE: (u32, u32) = (900, 520);
const LEGEND: i32 = 200;
/// The most lines of a drawing, and the most names that an error lists.
const LINES_MAX: usize = 12;
const NAMES_MAX: usize = 12;

const INK: RGBColor = RGBColor(30, 30, 30);
const PALE: RGBColor = RGBColor(226, 226, 226);
/// Colours that are told apart by all eyes (Okabe and Ito 2008), dark ones first.
const COLOURS: [u32; 7] = [0x0072b2, 0xd55e00, 0x009e73, 0xcc79a7, 0xe69f00, 0x56b4e9, 0x444444];

/// The columns of a drawing.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The parameter or figure along.
    pub x: String,
    /// The figure up.
    pub y: String,
    /// The parameter that has a line for each of its values.
    pub by: Option<String>,
}

/// Why there is no drawing.
#[derive(Debug)]
pub enum PlotError {
    /// The folder's.
    Folder(FolderError),
    /// No column has this name; some that there are.
    Unknown(String, Vec<String>),
    /// Several columns have it.
    Several(String, Vec<String>),
    /// No run has both figures.
    Empty,
    /// More lines than can be told apart.
    Lines(usize),
    /// The drawing's.
    Draw(String),
}

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(error) => error.fmt(f),
            Self::Unknown(name, list) => {
                write!(f, "no run has a figure `{name}`; there are: {}", list.join(", "))
            }
            Self::Several(name, list) => {
                write!(f, "`{name}` may be any of: {}", list.join(", "))
            }
            Self::Empty => write!(f, "no run has a number for both"),
            Self::Lines(count) => {
                write!(f, "{count} lines cannot be told apart: {LINES_MAX} at most")
            }
            Self::Draw(error) => write!(f, "cannot draw: {error}"),
        }
    }
}

impl std::error::Error for PlotError {}

impl From<FolderError> for PlotError {
    fn from(error: FolderError) -> Self {
        Self::Folder(error)
    }
}

/// A place of a line: quartiles of all runs there.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    x: f64,
    quartiles: [f64; 3],
    runs: usize,
}

/// The lines by the values of the parameter `by`, in the order of the plan.
type Lines = Vec<(String, Vec<Point>)>;

/// The figures of a drawing.
struct Data {
    lines: Lines,
    /// The values along that are no numbers, in the order of the plan.
    words: Vec<String>,
    /// Writes the values along as percentages.
    in_percent: bool,
    names: [String; 2],
}

/// Draws the medians of a figure, and between which bounds half of the runs lie.
///
/// # Errors
/// [`PlotError`], with the names that there are.
pub fn svg(folder: &Folder, plot: &Plot) -> Result<String, PlotError> {
    let data = data(folder, plot)?;
    let mut text = String::new();
    draw(&mut text, &data, plot).map_err(|error| PlotError::Draw(error.to_string()))?;
    Ok(text)
}

/// The one name that is meant: itself, or the only one that begins and ends so, such as
/// `client.rtt_p50` for `client.probe.rtt_p50`.
fn meant(all: &BTreeSet<String>, name: &str) -> Result<String, PlotError> {
    if all.contains(name) {
        return Ok(name.into());
    }
    let is_short = |known: &&String| match name.split_once('.') {
        Some((first, rest)) => {
            known.starts_with(&format!("{first}.")) && known.ends_with(&format!(".{rest}"))
        }
        None => known.ends_with(&format!(".{name}")),
    };
    let found: Vec<String> = all.iter().filter(is_short).cloned().collect();
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => {
            // Those of the same host or the same end come first.
            let ends = name.rsplit('.').next().unwrap_or(name);
            let begins = name.split('.').next().unwrap_or(name);
            let is_near = |known: &&String| known.ends_with(ends) || known.starts_with(begins);
            let (near, far): (Vec<_>, Vec<_>) = all.iter().partition(is_near);
            let list = near.into_iter().chain(far).take(NAMES_MAX).cloned().collect();
            Err(PlotError::Unknown(name.into(), list))
        }
        _ => Err(PlotError::Several(name.into(), found.into_iter().take(NAMES_MAX).collect())),
    }
}

fn data(folder: &Folder, plot: &Plot) -> Result<Data, PlotError> {
    let all = names(folder)?;
    let [x, y] = [meant(&all, &plot.x)?, meant(&all, &plot.y)?];
    let by = plot.by.as_ref().map(|by| meant(&all, by)).transpose()?;
    let plan = &folder.header().plan;
    let axis = plan.axes.iter().find(|axis| axis.name == x);
    let words = axis.map_or(Vec::new(), |axis| axis.values.clone());
    let is_number = words.iter().all(|value| figure(value).is_some());
    let in_percent = words.iter().any(|value| value.ends_with('%'));
    let words = if is_number { Vec::new() } else { words };
    let number = |row: &Row, name: &str| match row.figures.get(name) {
        Some(value) => Some(*value),
        None => figure(row.set.get(name)?),
    };
    let mut found: BTreeMap<(usize, String), Vec<(f64, f64)>> = BTreeMap::new();
    for row in folder.rows() {
        let row = row?;
        let along = match words.is_empty() {
            true => number(&row, &x),
            false => words.iter().position(|w| row.set.get(&x) == Some(w)).map(|at| at as f64),
        };
        let (Some(along), Some(up)) = (along, number(&row, &y)) else { continue };
        let line = match &by {
            Some(by) => match (row.set.get(by), row.figures.get(by)) {
                (Some(value), _) => value.clone(),
                (None, Some(value)) => value.to_string(),
                _ => continue,
            },
            None => String::new(),
        };
        // In the order of the plan.
        let of = plan.axes.iter().find(|axis| Some(&axis.name) == by.as_ref());
        let at = of.and_then(|axis| axis.values.iter().position(|value| *value == line));
        found.entry((at.unwrap_or(usize::MAX), line)).or_default().push((along, up));
    }
    if found.is_empty() {
        return Err(PlotError::Empty);
    } else if found.len() > LINES_MAX {
        return Err(PlotError::Lines(found.len()));
    }
    let lines = found.into_iter().map(|((_, name), mut runs)| {
        runs.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
        (name, runs.chunk_by(|one, other| one.0 == other.0).map(point).collect())
    });
    Ok(Data { lines: lines.collect(), words, in_percent, names: [x, y] })
}

/// The point of runs at one place, the figures sorted.
fn point(runs: &[(f64, f64)]) -> Point {
    let sorted: Vec<f64> = runs.iter().map(|(_, up)| *up).collect();
    let quartiles = [0.25, 0.5, 0.75].map(|part| quantile(&sorted, part));
    Point { x: runs[0].0, quartiles, runs: runs.len() }
}

/// The value that this part of sorted ones does not exceed, between the two next to it.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * sorted.len().saturating_sub(1) as f64;
    let (low, high) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    low + (high - low) * place.fract()
}

fn draw(to: &mut String, data: &Data, plot: &Plot) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::with_string(to, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (field, legend) = area.split_horizontally(SIZE.0 as i32 - LEGEND);
    let points = || data.lines.iter().flat_map(|(_, line)| line);
    let ends = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
    };
    let (left, right) = ends(&mut points().map(|point| point.x));
    let (_, top) = ends(&mut points().flat_map(|point| point.quartiles));
    let (low, _) = ends(&mut points().flat_map(|point| point.quartiles));
    let margin = ((right - left) * 0.04).max(if right > left { 0.0 } else { 0.5 });
    let (bottom, top) = (low.min(0.0), if top > low.min(0.0) { top * 1.08 } else { low + 1.0 });
    let mut chart = ChartBuilder::on(&field)
        .margin(16)
        .x_label_area_size(46)
        .y_label_area_size(78)
        .build_cartesian_2d(left - margin..right + margin, bottom..top)?;
    let along = |x: &f64| match data.words.is_empty() {
        true if data.in_percent => format!("{}%", short(x * 100.0)),
        true => short(*x),
        false => {
            let at = x.round();
            let is_whole = (x - at).abs() < 1e-9 && at >= 0.0;
            data.words.get(at as usize).filter(|_| is_whole).cloned().unwrap_or_default()
        }
    };
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(PALE)
        .axis_style(INK)
        .label_style(("sans-serif", 13, &INK))
        .axis_desc_style(("sans-serif", 15, &INK))
        .x_desc(&data.names[0])
        .y_desc(&data.names[1])
        .x_labels(if data.words.is_empty() { 8 } else { 2 * data.words.len() + 1 })
        .x_label_formatter(&along)
        .y_label_formatter(&|y| short(*y))
        .draw()?;
    let ink = ("sans-serif", 13).into_text_style(&legend).color(&INK);
    let ink = ink.pos(Pos::new(HPos::Left, VPos::Center));
    if let Some(by) = &plot.by {
        legend.draw(&Text::new(by.clone(), (4, 26), ink.clone()))?;
    }
    let colour = |at: usize| {
        let [_, red, green, blue] = COLOURS[at % COLOURS.len()].to_be_bytes();
        RGBColor(red, green, blue)
    };
    // No band lies over a line.
    for (at, (_, line)) in data.lines.iter().enumerate() {
        let lower = line.iter().map(|point| (point.x, point.quartiles[0]));
        let upper = line.iter().rev().map(|point| (point.x, point.quartiles[2]));
        let band = lower.chain(upper).collect::<Vec<_>>();
        chart.draw_series([Polygon::new(band, colour(at).mix(0.15).filled())])?;
    }
    for (at, (name, line)) in data.lines.iter().enumerate() {
        let colour = colour(at);
        let median = line.iter().map(|point| (point.x, point.quartiles[1]));
        let path = median.clone().collect::<Vec<_>>();
        chart.draw_series([PathElement::new(path, colour.stroke_width(2))])?;
        chart.draw_series(median.map(|place| Circle::new(place, 3, colour.filled())))?;
        // One place has no band: a bar shows what lies between the quartiles there.
        chart.draw_series(line.iter().map(|point| {
            let ends = [(point.x, point.quartiles[0]), (point.x, point.quartiles[2])];
            PathElement::new(ends.to_vec(), colour.mix(0.5).stroke_width(1))
        }))?;
        let height = 48 + 20 * at as i32;
        if plot.by.is_some() {
            let ends = vec![(4, height), (24, height)];
            legend.draw(&PathElement::new(ends, colour.stroke_width(3)))?;
            legend.draw(&Text::new(name.clone(), (30, height), ink.clone()))?;
        }
    }
    let (least, most) = {
        let runs = points().map(|point| point.runs);
        (runs.clone().min().unwrap_or(0), runs.max().unwrap_or(0))
    };
    let runs = if least == most { least.to_string() } else { format!("{least} to {most}") };
    let foot = SIZE.1 as i32;
    let notes =
        [&*format!("medians of {runs} runs,"), "half of them in the band;", "times in seconds"];
    for (line, text) in notes.into_iter().enumerate() {
        legend.draw(&Text::new(text, (4, foot - 64 + 18 * line as i32), ink.clone()))?;
    }
    area.present()?;
    Ok(())
}

/// A number for an axis: at most four digits, with a power of a thousand as a letter.
fn short(value: f64) -> String {
    let size = value.abs();
    let (scale, letter) = match size {
        _ if size == 0.0 => return "0".into(),
        _ if size >= 1e9 => (1e9, "G"),
        _ if size >= 1e6 => (1e6, "M"),
        _ if size >= 1e4 => (1e3, "k"),
        _ if size >= 1e-3 => (1.0, ""),
        _ if size >= 1e-6 => (1e-6, "µ"),
        _ => (1e-9, "n"),
    };
    let text = format!("{:.4}", value / scale);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{letter}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axis, Header, Plan, Verdict};

    fn folder(values: &str) -> (tempfile::TempDir, Folder) {
        let plan = Plan {
            what: "x".into(),
            options: Vec::new(),
            axes: vec![Axis::parse(values).unwrap(), Axis::parse("n=1,10").unwrap()],
            draws: Vec::new(),
            seeds: (0, 5),
        };
        let at = tempfile::tempdir().unwrap();
        let header = Header::new(plan.clone(), "b".into());
        let mut folder = Folder::open(at.path(), header).unwrap();
        for number in 0..plan.runs() {
            let job = plan.job(number);
            let mut row = Row::silent(&job, Verdict::Clean, "");
            row.figures.insert("client.probe.rtt_p50".into(), job.seed as f64);
            row.figures.insert("client.probe.lost".into(), 1.0);
            folder.add(&row).unwrap();
        }
        (at, folder)
    }

    fn plot(x: &str, y: &str, by: &str) -> Plot {
        Plot { x: x.into(), y: y.into(), by: Some(by.into()) }
    }

    #[test]
    fn a_line_has_the_quartiles_of_the_runs_at_each_place() {
        let (_at, folder) = folder("lan.loss=5%,0%");
        let data = data(&folder, &plot("lan.loss", "client.rtt_p50", "n")).unwrap();
        assert_eq!(data.names[1], "client.probe.rtt_p50");
        let names: Vec<&str> = data.lines.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["1", "10"]);
        let point = |x| Point { x, quartiles: [1.0, 2.0, 3.0], runs: 5 };
        assert!(data.lines.iter().all(|(_, line)| *line == [point(0.0), point(0.05)]));
        assert!(svg(&folder, &plot("loss", "rtt_p50", "n")).unwrap().contains("lan.loss"));
    }

    #[test]
    fn words_stand_along_in_the_order_of_the_plan() {
        let (_at, folder) = folder("lan.kind=switch,hub");
        let found = data(&folder, &plot("kind", "lost", "n")).unwrap();
        assert_eq!(found.words, ["switch", "hub"]);
        assert!(svg(&folder, &plot("kind", "lost", "n")).unwrap().contains("switch"));
    }

    #[test]
    fn names_that_are_none_or_several_are_told_with_those_that_there_are() {
        let (_at, folder) = folder("lan.loss=5%,0%");
        let why = |x: &str, y: &str| svg(&folder, &plot(x, y, "n")).unwrap_err().to_string();
        assert!(why("lan.loss", "client.rtt").contains("client.probe.rtt_p50"));
        assert!(why("delay", "lost").contains("lan.loss"));
    }
}
