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
    /// How many rounds.
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
        match self.goal? {
            Goal::AtMost(most) => Some(self.median <= most),
            Goal::TimesAsFast(times) => self.ratio.map(|(_, ratio)| ratio * times <= 1.0),
        }
    }

    /// The goal as text.
    pub fn goal_text(&self) -> String {
        let mark = match self.reached() {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "",
        };
        match self.goal {
            Some(Goal::AtMost(most)) => format!("<= {most}: {mark}"),
            Some(Goal::TimesAsFast(times)) => format!(">= {times} times as fast: {mark}"),
            None => String::new(),
        }
    }

    /// The record for a JSON file.
    pub fn to_json(&self) -> Value {
        json!({
            "bench": self.bench, "row": self.row, "system": self.system, "unit": self.unit,
            "min": self.min, "median": self.median, "max": self.max, "runs": self.runs,
            "ratio_to": self.ratio.map(|(system, ratio)| json!({"system": system, "ratio": ratio})),
            "instructions": self.instructions,
            "goal": self.goal.map(|_| self.goal_text()),
        })
    }
}
