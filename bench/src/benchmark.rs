//! A benchmark: a table of rows, how they are measured and how they are drawn.

use crate::case::{Better, Case};
use crate::record::Record;

/// The kind of drawing for a benchmark's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Plot {
    /// A bar for each row and system: the median, with a whisker from minimum to maximum.
    #[default]
    Bars,
    /// A line for each system over the number in the row's name, such as `1,400 octets`. Rows
    /// without a number are left out; rows that differ in more than the number make lines of their
    /// own.
    Lines {
        /// Meaning of the number.
        x: &'static str,
    },
}

/// A table of rows.
pub struct Benchmark {
    /// The name, as `xk bench` takes it.
    pub name: &'static str,
    /// One line about it.
    pub summary: &'static str,
    /// The unit of its figures.
    pub unit: &'static str,
    /// Direction in which its figures are better.
    pub better: Better,
    /// Makes its rows; what they need is set up here, outside the measurement.
    pub cases: fn() -> Vec<Case>,
    /// Rows computed from the measured ones, such as a slope.
    pub derived: fn(&[Record]) -> Vec<Record>,
    /// The kind of drawing for its figures.
    pub plot: Plot,
    /// Where the time goes, as profiles have shown, for the page of results; Markdown.
    pub why: &'static str,
}

impl Benchmark {
    /// A benchmark whose figures are the better the lower they are, drawn as bars.
    pub fn new(
        name: &'static str,
        summary: &'static str,
        unit: &'static str,
        cases: fn() -> Vec<Case>,
    ) -> Self {
        Self {
            name,
            summary,
            unit,
            better: Better::Lower,
            cases,
            derived: |_| Vec::new(),
            plot: Plot::Bars,
            why: "",
        }
    }

    /// Adds what profiles have shown of where the time goes, in Markdown.
    #[must_use]
    pub fn why(mut self, text: &'static str) -> Self {
        self.why = text;
        self
    }

    /// Adds rows computed from the measured ones.
    #[must_use]
    pub fn derived(mut self, derived: fn(&[Record]) -> Vec<Record>) -> Self {
        self.derived = derived;
        self
    }

    /// Marks its figures as rates, of which more is better.
    #[must_use]
    pub fn higher_is_better(mut self) -> Self {
        self.better = Better::Higher;
        self
    }

    /// Says how its figures are drawn.
    #[must_use]
    pub fn plot(mut self, plot: Plot) -> Self {
        self.plot = plot;
        self
    }
}
