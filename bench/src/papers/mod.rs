//! The tables and figures of the first two papers, each with the paper's column, Linux's and ours.
//!
//! Hutchinson and Peterson, "The x-Kernel: An Architecture for Implementing Network Protocols", IEEE Transactions on Software
//! Engineering 17(1), January 1991, section IV. Its machines were two Sun 3/75 (68020, 16.67 MHz) on a 10 Mbit/s Ethernet;
//! its Unix was SunOS 4.0.3. The second paper is named where its tables are. Their figures stand beside ours to compare proportions within a column, not speeds across.

mod figure_6;
pub(crate) mod linux;
mod rpc;
mod table_1;
mod table_2;
mod tables_3_to_5;

pub(crate) use table_2::round_trips;

use crate::case::{Benchmark, Case};

/// The paper's x-kernel on a Sun 3/75.
const X_KERNEL: &str = "x-kernel, Sun 3/75";
/// The paper's SunOS 4.0.3 on the same.
const SUN_OS: &str = "SunOS, Sun 3/75";
/// This machine's operating system.
const LINUX: &str = "Linux";

/// All of them, in the paper's order.
pub(crate) fn benchmarks() -> Vec<Benchmark> {
    let mut list = vec![
        table_1::benchmark(),
        table_2::benchmark(),
        tables_3_to_5::table_3(),
        tables_3_to_5::table_4(),
        tables_3_to_5::table_5(),
        rpc::table_6(),
        tables_3_to_5::figure_5(),
        figure_6::benchmark(),
    ];
    list.extend(rpc::benchmarks());
    list
}

/// A figure of the paper.
fn quoted(row: impl Into<String>, system: &'static str, figure: f64) -> Case {
    Case::measured(row, move |_| Ok(figure.into())).of(system)
}
