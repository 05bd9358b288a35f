//! Drawings of what was found, as SVG: one panel per benchmark and unit, one below the other.

mod bars;
mod lines;
mod paper;
mod scale;

use crate::case::Benchmark;
use crate::record::Record;
use paper::{GREY, Paper, Place};
use plotters::prelude::{IntoDrawingArea, SVGBackend};
use plotters::style::WHITE;

/// How a benchmark's figures are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plot {
    /// A bar for each row and system: the median, with a whisker from minimum to maximum.
    #[default]
    Bars,
    /// A line for each system over the number in the row's name, such as `1,400 octets`. Rows
    /// without a number are left out; rows that differ in more than the number make lines of their
    /// own.
    Lines {
        /// What the number is.
        x: &'static str,
    },
}

/// Width of the drawing, in pixels.
const WIDTH: i32 = 1000;
/// Height of a panel's title and what is below it, in pixels.
const HEAD: i32 = 50;
/// Space below a panel, in pixels.
const FOOT: i32 = 24;

/// One panel: figures that share a unit.
struct Panel<'a> {
    benchmark: &'a Benchmark,
    unit: &'static str,
    records: Vec<&'a Record>,
}

/// The drawing of all benchmarks; `caption` stands at its foot.
pub(crate) fn svg(found: &[(&Benchmark, Vec<Record>)], caption: &str) -> Result<String, String> {
    let panels: Vec<Panel<'_>> = found.iter().flat_map(|(b, list)| panels(b, list)).collect();
    let height: i32 = panels.iter().map(|p| HEAD + body_height(p) + FOOT).sum::<i32>() + 30;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH as u32, height.unsigned_abs()))
            .into_drawing_area();
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        let mut paper = Paper::new(&area);
        let mut top = 10;
        for panel in &panels {
            head(&mut paper, panel, top);
            top += HEAD;
            let body = body_height(panel);
            match panel.benchmark.plot {
                Plot::Bars => bars::draw(&mut paper, panel, top, WIDTH),
                Plot::Lines { x } => lines::draw(&mut paper, panel, x, top, WIDTH),
            }
            top += body + FOOT;
        }
        paper.text(caption, (10, height - 12), 11, &GREY, Place::Left);
        paper.finish()?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(text)
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

fn body_height(panel: &Panel<'_>) -> i32 {
    match panel.benchmark.plot {
        Plot::Bars => bars::height(panel),
        Plot::Lines { .. } => lines::height(panel),
    }
}

fn head(paper: &mut Paper<'_, '_>, panel: &Panel<'_>, top: i32) {
    use crate::case::Better;
    let benchmark = panel.benchmark;
    let better = match benchmark.better {
        Better::Lower => "less is better",
        Better::Higher => "more is better",
    };
    paper.text(benchmark.name, (10, top + 8), 18, &paper::INK, Place::Left);
    let below = format!("{}; {}, {better}", benchmark.summary, panel.unit);
    paper.text(&below, (10, top + 30), 12, &GREY, Place::Left);
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
        let benchmark = Benchmark::new("name & more", "what it is", "us", Vec::new).plot(plot);
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
}
