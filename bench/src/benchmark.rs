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
    /// Parts that take the time, as profiles have shown, for the page of results; Markdown.
    pub why: &'static str,
}

#[cfg(test)]
impl Benchmark {
    /// A benchmark of these rows, in microseconds.
    pub(crate) fn new(name: &'static str, cases: fn() -> Vec<Case>) -> Self {
        Self {
            name,
            summary: "what it is",
            unit: "us",
            better: Better::Lower,
            cases,
            derived: |_| Vec::new(),
            plot: Plot::Bars,
            why: "",
        }
    }
}
