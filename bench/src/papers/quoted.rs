//! Figures of the papers, as rows beside ours.

use crate::case::{Better, Case};
use crate::record::Record;

/// The paper's x-kernel on a Sun 3/75.
pub(super) const X_KERNEL: &str = "x-kernel, Sun 3/75";
/// The paper's SunOS 4.0.3 on the same.
pub(super) const SUN_OS: &str = "SunOS, Sun 3/75";
/// This machine's operating system.
pub(super) const LINUX: &str = "Linux";

/// A figure of the paper.
pub(super) fn quoted(row: impl Into<String>, system: &'static str, figure: f64) -> Case {
    Case::measured(row, move |_| Ok(figure.into())).of(system)
}

/// A figure of the paper for a row that is computed.
pub(super) fn quoted_record(
    row: impl Into<String>,
    (unit, better): (&'static str, Better),
    system: &'static str,
    figure: f64,
) -> Record {
    let row = row.into();
    let [min, median, max] = [figure; 3];
    Record { row, system, unit, better, min, median, max, runs: 1, ..Record::default() }
}
