//! One result, as the table and the JSON file show it.

use crate::case::Goal;
use serde_json::{Value, json};

/// One result.
#[derive(Clone, Debug)]
pub struct Record {
    /// The benchmark.
    pub bench: &'static str,
    /// The row.
    pub row: String,
    /// Whose figure.
    pub system: &'static str,
    /// Unit of the figures.
    pub unit: &'static str,
    /// The best round.
    pub min: f64,
    /// The middle round.
    pub median: f64,
    /// The worst round.
    pub max: f64,
    /// The middle over the rounds of the single operations' median, where they were timed one by one.
    pub p50: Option<f64>,
    /// The same of what 99 of 100 operations do not exceed.
    pub p99: Option<f64>,
    /// Why it was not measured: then the figures mean nothing.
    pub skipped: Option<String>,
    /// How many rounds; 0 for a figure that somebody else has published.
    pub runs: usize,
    /// The system compared with, and how many times as long this one takes.
    pub ratio: Option<(&'static str, f64)>,
    /// Instructions per operation, if they were counted.
    pub instructions: Option<f64>,
    /// The goal, if there is one.
    pub goal: Option<Goal>,
}

impl Record {
    /// Whether the goal was reached, by the median.
    pub fn reached(&self) -> Option<bool> {
        if self.skipped.is_some() {
            return None;
        }
        match self.goal? {
            Goal::AtLeast(least) => Some(self.median >= least),
            Goal::AtMost(most) => Some(self.median <= most),
            Goal::TimesAsFast(times) => self.ratio.map(|(_, ratio)| ratio * times <= 1.0),
        }
    }

    /// The goal as text.
    pub fn goal_text(&self) -> String {
        let mark = match self.reached() {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "not measured",
        };
        match self.goal {
            Some(Goal::AtMost(most)) => format!("<= {most}: {mark}"),
            Some(Goal::AtLeast(least)) => format!(">= {least}: {mark}"),
            Some(Goal::TimesAsFast(times)) => format!(">= {times} times as fast: {mark}"),
            None => String::new(),
        }
    }

    /// Minimum, median and maximum as the tables show them.
    pub fn figures_text(&self) -> [String; 3] {
        if self.skipped.is_some() {
            return Default::default();
        }
        [self.min, self.median, self.max].map(figure_text)
    }

    /// p50 and p99 as the tables show them.
    pub fn percentiles_text(&self) -> [String; 2] {
        [self.p50, self.p99].map(|p| p.map_or(String::new(), figure_text))
    }

    /// The ratio as the tables show it; for a row that was not measured, why.
    pub fn ratio_text(&self) -> String {
        match (&self.skipped, self.ratio) {
            (Some(why), _) => format!("skipped: {why}"),
            (None, Some((system, ratio))) => format!("{ratio:.2} of {system}"),
            (None, None) => String::new(),
        }
    }

    /// The record for a JSON file.
    pub fn to_json(&self) -> Value {
        json!({
            "bench": self.bench, "row": self.row, "system": self.system, "unit": self.unit,
            "min": self.min, "median": self.median, "max": self.max, "runs": self.runs,
            "p50": self.p50, "p99": self.p99, "skipped": self.skipped,
            "ratio_to": self.ratio.map(|(system, ratio)| json!({"system": system, "ratio": ratio})),
            "instructions": self.instructions,
            "goal": self.goal.map(|_| self.goal_text()),
        })
    }
}

/// A figure with as many places as tell something.
fn figure_text(figure: f64) -> String {
    match figure.abs() {
        0.0 => "0".into(),
        size if size < 10.0 => format!("{figure:.3}"),
        size if size < 100_000.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}
